/* Operations on a block of a larger tensor, as one rank of several holds it: the numbers are those of the whole. */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

static const double unit = 0x1p-24;

/* What one rank holds of a matrix of `tokens` rows a sample. */
typedef struct {
    int64_t first_token, tokens;
    int64_t first_column, columns;
} part;

static guarded take_part(vt_matrix whole, int64_t batch, part p)
{
    guarded block = guarded_open(batch * p.tokens, p.columns);
    for (int64_t r = 0; r < block.matrix.rows; r++) {
        int64_t row = r / p.tokens * (whole.rows / batch) + p.first_token + r % p.tokens;
        memcpy(block.matrix.data + r * block.matrix.stride, whole.data + row * whole.stride + p.first_column,
               (size_t)p.columns * sizeof(float));
    }
    return block;
}

/* `actual` must be the part of `whole`, within a tolerance of the part's largest element. */
static void expect_part(const guarded *actual, const guarded *whole, int64_t batch, part p, double tolerance,
                        const char *name)
{
    guarded expected = take_part(whole->matrix, batch, p);
    guarded_compare(actual, &expected, tolerance, name);
    guarded_close(&expected);
}

static vt_backend *open_path(vt_cpu_isa isa)
{
    vt_backend *b = NULL;
    EXPECT_OK(vt_backend_open_cpu(isa, 0, &b));
    return b;
}

static void close_all(guarded *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++) guarded_close(all[i]);
}

#define CLOSE_ALL(...)                                                                                                 \
    do {                                                                                                               \
        guarded *const all_[] = {__VA_ARGS__};                                                                         \
        close_all(all_, sizeof all_ / sizeof all_[0]);                                                                 \
    } while (0)

/* ---- dropout ---- */

static void check_mask(vt_backend *b, part p)
{
    enum { BATCH = 2, TOKENS = 11, COLUMNS = 37 };
    guarded x = guarded_random(BATCH * TOKENS, COLUMNS, 1, 1), y = guarded_open(BATCH * TOKENS, COLUMNS);
    guarded stream = guarded_random(BATCH * TOKENS, COLUMNS, 2, 1);
    vt_mask mask = {.elements = {.rate = 0.4f, .seed = 3, .step = 5, .layer = 2, .site = 1, .first_sample = 6},
                    .path = {.rate = 0.3f, .seed = 3, .step = 5, .layer = 2, .site = 4, .first_sample = 6},
                    .tokens = TOKENS};
    b->mask_multiply(b, x.matrix, &mask, y.matrix);
    guarded block = take_part(x.matrix, BATCH, p), masked = guarded_open(BATCH * p.tokens, p.columns);
    guarded block_stream = take_part(stream.matrix, BATCH, p);
    mask.tokens = p.tokens;
    mask.first_token = p.first_token;
    mask.first_column = p.first_column;
    b->mask_multiply(b, block.matrix, &mask, masked.matrix);
    expect_part(&masked, &y, BATCH, p, 0, "mask_multiply of a block");
    b->residual_add(b, block_stream.matrix, block.matrix, &mask, block_stream.matrix);
    expect_part(&block, &y, BATCH, p, 0, "the branch of residual_add of a block");
    CLOSE_ALL(&x, &y, &stream, &block, &masked, &block_stream);
}

TEST(dropout_of_a_block_is_the_wholes)
{
    static const part parts[] = {{0, 11, 0, 37}, {3, 5, 0, 37}, {0, 11, 1, 36}, {4, 7, 2, 3},
                                 {1, 9, 3, 1},   {2, 3, 5, 20}, {10, 1, 7, 30}, {6, 2, 8, 29}};
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) check_mask(b, parts[i]);
        vt_backend_close(&b);
    }
}

enum { BATCH = 2, HEADS = 4, DIM = 24, QUERIES = 61, KEYS = 203, WIDTH = HEADS * DIM };

/* One attention with all of its operands; log_sum is [1, batch * heads * queries]. */
typedef struct {
    vt_attention_shape shape;
    guarded q, k, v, dout, out, log_sum, dq, dk, dv;
} attention;

static void make_results(attention *a)
{
    int64_t width = a->shape.heads * a->shape.head_dim;
    int64_t query_rows = a->shape.batch * a->shape.queries, key_rows = a->shape.batch * a->shape.keys;
    a->out = guarded_open(query_rows, width);
    a->log_sum = guarded_open(1, query_rows * a->shape.heads);
    a->dq = guarded_open(query_rows, width);
    a->dk = guarded_open(key_rows, width);
    a->dv = guarded_open(key_rows, width);
}

static attention open_whole(float rate, float scale)
{
    attention a = {.shape = {.batch = BATCH, .heads = HEADS, .head_dim = DIM, .queries = QUERIES, .keys = KEYS}};
    a.shape.dropout = (vt_dropout){.rate = rate, .seed = 5, .step = 17, .layer = 2, .first_sample = 9};
    a.q = guarded_random(BATCH * QUERIES, WIDTH, 1, scale);
    a.k = guarded_random(BATCH * KEYS, WIDTH, 2, 1);
    a.v = guarded_random(BATCH * KEYS, WIDTH, 3, 1);
    a.dout = guarded_random(BATCH * QUERIES, WIDTH, 4, 1);
    make_results(&a);
    return a;
}

static attention open_block(const attention *whole, int64_t first_head, int64_t heads, int64_t first_query,
                            int64_t queries, int64_t first_key, int64_t keys)
{
    attention a = {.shape = whole->shape};
    a.shape.first_head = first_head;
    a.shape.heads = heads;
    a.shape.first_query = first_query;
    a.shape.queries = queries;
    a.shape.first_key = first_key;
    a.shape.keys = keys;
    part rows = {first_query, queries, first_head * DIM, heads * DIM};
    part columns = {first_key, keys, first_head * DIM, heads * DIM};
    a.q = take_part(whole->q.matrix, BATCH, rows);
    a.k = take_part(whole->k.matrix, BATCH, columns);
    a.v = take_part(whole->v.matrix, BATCH, columns);
    a.dout = take_part(whole->dout.matrix, BATCH, rows);
    make_results(&a);
    return a;
}

static void close_attention(attention *a)
{
    CLOSE_ALL(&a->q, &a->k, &a->v, &a->dout, &a->out, &a->log_sum, &a->dq, &a->dk, &a->dv);
}

static void forward(vt_backend *b, attention *a)
{
    b->attention_forward(b, &a->shape, a->q.matrix, a->k.matrix, a->v.matrix, a->out.matrix, a->log_sum.matrix.data);
}

static void backward(vt_backend *b, attention *a, vt_matrix out, const float *log_sum)
{
    b->attention_backward(b, &a->shape, a->q.matrix, a->k.matrix, a->v.matrix, out, log_sum, a->dout.matrix,
                          a->dq.matrix, a->dk.matrix, a->dv.matrix);
}

/* Heads and queries of a rank do not meet those of others, so that forward and dq are the whole's to the bit. */
static void check_heads_and_queries(vt_backend *b, attention *whole, int64_t first_head, int64_t heads,
                                    int64_t first_query, int64_t queries)
{
    attention block = open_block(whole, first_head, heads, first_query, queries, 0, KEYS);
    part rows = {first_query, queries, first_head * DIM, heads * DIM};
    forward(b, &block);
    backward(b, &block, block.out.matrix, block.log_sum.matrix.data);
    expect_part(&block.out, &whole->out, BATCH, rows, 0, "attention out of heads and queries");
    expect_part(&block.dq, &whole->dq, BATCH, rows, 0, "attention dq of heads and queries");
    if (queries == QUERIES) {
        expect_part(&block.dk, &whole->dk, BATCH, (part){0, KEYS, rows.first_column, rows.columns}, 0, "dk of heads");
        expect_part(&block.dv, &whole->dv, BATCH, (part){0, KEYS, rows.first_column, rows.columns}, 0, "dv of heads");
    }
    close_attention(&block);
}

TEST(attention_of_some_heads_and_queries_is_the_wholes)
{
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        attention whole = open_whole(0.3f, 1);
        forward(b, &whole);
        backward(b, &whole, whole.out.matrix, whole.log_sum.matrix.data);
        check_heads_and_queries(b, &whole, 1, 2, 0, QUERIES);
        check_heads_and_queries(b, &whole, 3, 1, 17, 13);
        check_heads_and_queries(b, &whole, 0, HEADS, 50, 11);
        close_attention(&whole);
        vt_backend_close(&b);
    }
}

/* With q = 0 and unit vectors as values, out shows each weight: kept or not, to be compared exactly. */
TEST(attention_dropout_of_some_keys_is_the_wholes)
{
    enum { ALL = 40 };
    static const int64_t firsts[] = {0, 1, 2, 3, 4, 7, 13, 22}, counts[] = {40, 1, 17, 5, 36, 33, 27, 18};
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        guarded zero = guarded_random(ALL, ALL, 1, 0), one = guarded_random(ALL, ALL, 1, 0);
        guarded out = guarded_open(ALL, ALL), log_sum = guarded_open(1, ALL);
        for (int64_t i = 0; i < ALL; i++) one.matrix.data[i * one.matrix.stride + i] = 1;
        vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = ALL, .queries = ALL, .keys = ALL};
        shape.dropout = (vt_dropout){.rate = 0.5f, .seed = 5, .step = 17, .layer = 2};
        b->attention_forward(b, &shape, zero.matrix, zero.matrix, one.matrix, out.matrix, log_sum.matrix.data);
        for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
            guarded some = guarded_open(ALL, ALL);
            vt_matrix keys = zero.matrix, values = one.matrix;
            keys.rows = values.rows = shape.keys = counts[i];
            shape.first_key = firsts[i];
            b->attention_forward(b, &shape, zero.matrix, keys, values, some.matrix, log_sum.matrix.data);
            for (int64_t query = 0; query < ALL; query++) {
                for (int64_t key = 0; key < ALL; key++) {
                    float weight = some.matrix.data[query * some.matrix.stride + key];
                    bool kept = key < counts[i] &&
                                out.matrix.data[query * out.matrix.stride + firsts[i] + key] > 0; /* 2 / keys, or 0 */
                    EXPECT_NEAR(weight, kept ? 2.0 / (double)counts[i] : 0, kept ? 16 * unit : 0);
                }
            }
            guarded_check(&some, "attention out of some keys");
            guarded_close(&some);
        }
        CLOSE_ALL(&zero, &one, &out, &log_sum);
        vt_backend_close(&b);
    }
}

/* ---- attention over blocks of keys ---- */

static double sum_tolerance(int64_t terms)
{
    return 4 * sqrt((double)terms) * unit + 4 * unit;
}

/* As in against_plain.c: an error e of a score or of a log_sum changes a weight by the factor 1 + e. Scores have the
 * size scale · √dim; each block's log_sum is stored with half a unit of its size, and so is each merged one. */
static double attention_tolerance(const attention *whole, float scale, int blocks)
{
    double score_error = (double)scale * sqrt(DIM) * sum_tolerance(DIM), largest = 0;
    for (int64_t i = 0; i < whole->log_sum.matrix.columns; i++)
        largest = fmax(largest, fabs((double)whole->log_sum.matrix.data[i]));
    return sum_tolerance(KEYS) + 4 * score_error + 2 * blocks * unit * (1 + largest);
}

static void add(guarded *sum, const guarded *term)
{
    for (int64_t r = 0; r < sum->matrix.rows; r++)
        for (int64_t c = 0; c < sum->matrix.columns; c++)
            sum->matrix.data[r * sum->matrix.stride + c] += term->matrix.data[r * term->matrix.stride + c];
}

static void check_key_blocks(vt_backend *b, const int64_t *ends, float rate, float scale)
{
    attention whole = open_whole(rate, scale), merged = open_whole(rate, scale);
    guarded dq = guarded_random(BATCH * QUERIES, WIDTH, 1, 0);
    int blocks = 0;
    forward(b, &whole);
    backward(b, &whole, whole.out.matrix, whole.log_sum.matrix.data);
    for (int64_t first = 0; first < KEYS; first = ends[blocks++]) {
        attention block = open_block(&whole, 0, HEADS, 0, QUERIES, first, ends[blocks] - first);
        forward(b, &block);
        if (first == 0) {
            memcpy(merged.out.memory, block.out.memory, (size_t)block.out.size * sizeof(float));
            memcpy(merged.log_sum.memory, block.log_sum.memory, (size_t)block.log_sum.size * sizeof(float));
        } else {
            b->attention_merge(b, &block.shape, block.out.matrix, block.log_sum.matrix.data, merged.out.matrix,
                               merged.log_sum.matrix.data);
        }
        backward(b, &block, whole.out.matrix, whole.log_sum.matrix.data);
        part keys = {first, block.shape.keys, 0, WIDTH};
        expect_part(&block.dk, &whole.dk, BATCH, keys, 0, "attention dk of a block");
        expect_part(&block.dv, &whole.dv, BATCH, keys, 0, "attention dv of a block");
        guarded_check(&block.dq, "attention dq of a block");
        add(&dq, &block.dq);
        close_attention(&block);
    }
    double tolerance = attention_tolerance(&whole, scale, blocks);
    guarded_compare(&merged.out, &whole.out, tolerance, "merged attention out");
    guarded_compare(&merged.log_sum, &whole.log_sum, tolerance, "merged attention log_sum");
    guarded_compare(&dq, &whole.dq, 4 * tolerance, "attention dq summed over blocks");
    close_attention(&whole);
    close_attention(&merged);
    guarded_close(&dq);
}

TEST(attention_over_blocks_of_keys_is_the_wholes)
{
    static const int64_t two[] = {1, KEYS}, uneven[] = {90, KEYS}, three[] = {37, 122, KEYS};
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        for (int dropout = 0; dropout < 2; dropout++) {
            check_key_blocks(b, two, dropout ? 0.3f : 0, 1);
            check_key_blocks(b, uneven, dropout ? 0.3f : 0, 1);
            check_key_blocks(b, three, dropout ? 0.3f : 0, 1);
            check_key_blocks(b, three, dropout ? 0.3f : 0, 10);
        }
        EXPECT_OK(b->check(b));
        vt_backend_close(&b);
    }
}

/* Sums that no float32 could hold by themselves: the larger part wins, and nothing overflows. */
TEST(attention_merge_of_far_apart_sums)
{
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = 5, .queries = 4, .keys = 3};
        guarded part_out = guarded_random(4, 5, 1, 1), out = guarded_random(4, 5, 2, 1), before = guarded_copy(&out);
        const float part_log_sum[4] = {-300, 300, 200, -INFINITY};
        float log_sum[4] = {300, -300, 200, 7};
        b->attention_merge(b, &shape, part_out.matrix, part_log_sum, out.matrix, log_sum);
        EXPECT(log_sum[0] == 300 && log_sum[1] == 300 && log_sum[3] == 7);
        EXPECT_NEAR(log_sum[2], 200 + log(2), 256 * unit);
        for (int64_t d = 0; d < 5; d++) {
            float own[4], other[4], both[4];
            for (int64_t i = 0; i < 4; i++) {
                own[i] = before.matrix.data[i * before.matrix.stride + d];
                other[i] = part_out.matrix.data[i * part_out.matrix.stride + d];
                both[i] = out.matrix.data[i * out.matrix.stride + d];
            }
            EXPECT(both[0] == own[0] && both[1] == other[1] && both[3] == own[3]);
            EXPECT_NEAR(both[2], 0.5 * ((double)own[2] + (double)other[2]), 8 * unit);
        }
        guarded_check(&out, "attention_merge");
        CLOSE_ALL(&part_out, &out, &before);
        vt_backend_close(&b);
    }
}

/* ---- patches, loss and metrics ---- */

enum { CHANNELS = 3, HEIGHT = 12, ACROSS = 3, PATCH = 3, TOKENS = HEIGHT / PATCH * ACROSS };
enum { PLANE = HEIGHT * ACROSS * PATCH, FIELDS = BATCH * CHANNELS * PLANE, PATCH_SIZE = CHANNELS * PATCH * PATCH };

static vt_patch_grid grid_of(vt_patch_order order, int64_t first_token, int64_t tokens)
{
    return (vt_patch_grid){.batch = BATCH,
                           .field_channels = CHANNELS,
                           .channels = CHANNELS,
                           .height = HEIGHT,
                           .width = ACROSS * PATCH,
                           .patch = PATCH,
                           .order = order,
                           .first_token = first_token,
                           .tokens = tokens};
}

/* Runs that begin and end within a row of tokens, or at its ends. */
static const part runs[] = {{0, 12, 0, PATCH_SIZE}, {1, 4, 0, PATCH_SIZE}, {2, 8, 0, PATCH_SIZE}, {5, 1, 0, PATCH_SIZE},
                            {4, 8, 0, PATCH_SIZE},  {3, 6, 0, PATCH_SIZE}, {0, 7, 0, PATCH_SIZE}};

static void check_run(vt_backend *b, vt_patch_order order, part run)
{
    static const float mean[CHANNELS] = {1, -2, 300}, inverse_std[CHANNELS] = {0.5f, 4, 0.125f};
    vt_patch_grid all = grid_of(order, 0, TOKENS), some = grid_of(order, run.first_token, run.tokens);
    guarded whole = guarded_open(BATCH * TOKENS, PATCH_SIZE), patches = guarded_open(BATCH * run.tokens, PATCH_SIZE);
    float fields[FIELDS], back[FIELDS];
    for (int i = 0; i < FIELDS; i++) fields[i] = (float)i; /* powers of two above: every operation is exact */
    for (int i = 0; i < FIELDS; i++) back[i] = NAN;
    b->patches_load(b, &all, fields, mean, inverse_std, whole.matrix);
    b->patches_load(b, &some, fields, mean, inverse_std, patches.matrix);
    expect_part(&patches, &whole, BATCH, run, 0, "patches_load of a run");
    b->patches_store(b, &some, patches.matrix, mean, inverse_std, back);
    for (int i = 0; i < FIELDS; i++) {
        int y = i % PLANE / (ACROSS * PATCH), x = i % (ACROSS * PATCH), token = y / PATCH * ACROSS + x / PATCH;
        bool used = token >= run.first_token && token < run.first_token + run.tokens;
        EXPECT(used ? back[i] == fields[i] : isnan(back[i]), "at %d: %g", i, (double)back[i]);
    }
    CLOSE_ALL(&whole, &patches);
}

TEST(patches_of_a_run_of_tokens)
{
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
            check_run(b, VT_PATCH_CHANNEL_FIRST, runs[i]);
            check_run(b, VT_PATCH_CHANNEL_LAST, runs[i]);
        }
        vt_backend_close(&b);
    }
}

/* Sums of a few hundred terms in float64. */
static const double sum64 = 1e3 * 0x1p-53;

/* Three ranks share each sample; their squares add up to the whole's, and each one's gradient is its part. */
TEST(loss_and_metrics_of_parts_add_up)
{
    static const part parts[3] = {{0, 4, 0, PATCH_SIZE}, {4, 7, 0, PATCH_SIZE}, {11, 1, 0, PATCH_SIZE}};
    enum { FIGURES = BATCH * CHANNELS };
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        guarded prediction = guarded_random(BATCH * TOKENS, PATCH_SIZE, 1, 1);
        guarded target = guarded_random(BATCH * TOKENS, PATCH_SIZE, 2, 1);
        guarded gradient = guarded_open(BATCH * TOKENS, PATCH_SIZE);
        double squares[2 * BATCH], sums[2 * BATCH] = {0}, points[FIGURES], point_sums[FIGURES] = {0};
        float weights[HEIGHT], losses[BATCH];
        vt_patch_grid grid = grid_of(VT_PATCH_CHANNEL_LAST, 0, TOKENS);
        for (int i = 0; i < HEIGHT; i++) weights[i] = 0.25f * (float)(i + 1);
        b->squared_norms(b, BATCH, prediction.matrix, target.matrix, squares);
        b->channel_squares(b, &grid, prediction.matrix, target.matrix, weights, points);
        b->relative_l2(b, BATCH, squares, losses);
        b->relative_l2_backward(b, BATCH, prediction.matrix, target.matrix, squares, 0.5f, gradient.matrix);
        for (int i = 0; i < 3; i++) {
            guarded p = take_part(prediction.matrix, BATCH, parts[i]), t = take_part(target.matrix, BATCH, parts[i]);
            double some[2 * BATCH], some_points[FIGURES];
            grid = grid_of(VT_PATCH_CHANNEL_LAST, parts[i].first_token, parts[i].tokens);
            b->squared_norms(b, BATCH, p.matrix, t.matrix, some);
            b->channel_squares(b, &grid, p.matrix, t.matrix, weights, some_points);
            for (int j = 0; j < 2 * BATCH; j++) sums[j] += some[j];
            for (int j = 0; j < FIGURES; j++) point_sums[j] += some_points[j];
            b->relative_l2_backward(b, BATCH, p.matrix, t.matrix, squares, 0.5f, p.matrix);
            expect_part(&p, &gradient, BATCH, parts[i], 0, "relative_l2_backward of a part");
            CLOSE_ALL(&p, &t);
        }
        for (int j = 0; j < 2 * BATCH; j++) EXPECT_NEAR(sums[j], squares[j], sum64 * squares[j]);
        for (int j = 0; j < FIGURES; j++) EXPECT_NEAR(point_sums[j], points[j], sum64 * points[j]);
        for (int j = 0; j < BATCH; j++) {
            double loss = sqrt(squares[2 * j]) / sqrt(squares[2 * j + 1]);
            EXPECT_NEAR(losses[j], loss, unit * loss);
        }
        CLOSE_ALL(&prediction, &target, &gradient);
        vt_backend_close(&b);
    }
}

TEST(channel_squares_weigh_each_row)
{
    FOR_EACH_PATH(isa)
    {
        static const float mean[CHANNELS] = {0}, inverse_std[CHANNELS] = {1, 1, 1};
        vt_backend *b = open_path(isa);
        guarded prediction = guarded_open(BATCH * 7, PATCH_SIZE), target = guarded_open(BATCH * 7, PATCH_SIZE);
        vt_patch_grid grid = grid_of(VT_PATCH_CHANNEL_LAST, 4, 7);
        float fields[2][FIELDS], weights[HEIGHT];
        double squares[BATCH * CHANNELS], expected[BATCH * CHANNELS] = {0};
        for (int i = 0; i < HEIGHT; i++) weights[i] = 0.25f * (float)(i + 1);
        for (int i = 0; i < 2; i++) fill_random(fields[i], FIELDS, 7 + (uint64_t)i, 1);
        b->patches_load(b, &grid, fields[0], mean, inverse_std, prediction.matrix);
        b->patches_load(b, &grid, fields[1], mean, inverse_std, target.matrix);
        b->channel_squares(b, &grid, prediction.matrix, target.matrix, weights, squares);
        for (int i = 0; i < FIELDS; i++) {
            int y = i % PLANE / (ACROSS * PATCH), x = i % (ACROSS * PATCH), token = y / PATCH * ACROSS + x / PATCH;
            double difference = (double)fields[0][i] - (double)fields[1][i];
            if (token >= 4 && token < 11) expected[i / PLANE] += (double)weights[y] * difference * difference;
        }
        for (int i = 0; i < BATCH * CHANNELS; i++) EXPECT_NEAR(squares[i], expected[i], sum64 * expected[i]);
        CLOSE_ALL(&prediction, &target);
        vt_backend_close(&b);
    }
}

TEST(a_perfect_forecast_has_no_gradient)
{
    vt_backend *b = open_path(VT_ISA_AUTO);
    guarded x = guarded_random(4, 9, 1, 1), gradient = guarded_open(4, 9), zero = guarded_random(4, 9, 1, 0);
    double squares[4];
    b->squared_norms(b, 2, x.matrix, x.matrix, squares);
    b->relative_l2_backward(b, 2, x.matrix, x.matrix, squares, 1, gradient.matrix);
    guarded_compare(&gradient, &zero, 0, "gradient of a perfect forecast");
    CLOSE_ALL(&x, &gradient, &zero);
    vt_backend_close(&b);
}

TEST(sum_of_squares_adds)
{
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        float x[1013];
        double expected = 3, result = 3;
        fill_random(x, 1013, 1, 1);
        for (int i = 0; i < 1013; i++) expected += 0.25 * (double)x[i] * (double)x[i];
        b->sum_of_squares(b, x, 500, 0.25, &result);
        b->sum_of_squares(b, x + 500, 513, 0.25, &result);
        EXPECT_NEAR(result, expected, 4 * sum64 * expected);
        vt_backend_close(&b);
    }
}

/* ---- a bias: a position with one token ---- */

static void check_bias(vt_backend *b, int64_t rows, int64_t columns)
{
    guarded x = guarded_random(rows, columns, 1, 1), y = guarded_copy(&x), bias = guarded_random(1, columns, 2, 1);
    guarded dbias = guarded_copy(&bias), expected = guarded_copy(&bias), sum = guarded_copy(&x);
    for (int64_t c = 0; c < columns; c++) {
        double total = 0;
        for (int64_t r = 0; r < rows; r++) {
            total += (double)x.matrix.data[r * x.matrix.stride + c];
            sum.matrix.data[r * sum.matrix.stride + c] += bias.matrix.data[c];
        }
        expected.matrix.data[c] += (float)total;
    }
    b->position_add(b, y.matrix, bias.matrix);
    b->position_backward(b, x.matrix, dbias.matrix);
    guarded_compare(&y, &sum, 0, "position_add of one token");
    guarded_compare(&dbias, &expected, 4 * unit, "position_backward of one token");
    CLOSE_ALL(&x, &y, &bias, &dbias, &expected, &sum);
}

TEST(position_of_one_token_is_a_bias)
{
    FOR_EACH_PATH(isa)
    {
        vt_backend *b = open_path(isa);
        check_bias(b, 1, 7);
        check_bias(b, 1013, 97);
        check_bias(b, 97, 1);
        vt_backend_close(&b);
    }
}
