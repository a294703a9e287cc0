/* Attention on a block of heads, queries or keys, as one rank of several holds it: the results equal those of the
 * whole. */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

static const uint32_t dropout_step = 17; /* of dropout */

static const double unit = 0x1p-24;

enum { BATCH = 2, HEADS = 4, DIM = 24, QUERIES = 61, KEYS = 203, WIDTH = HEADS * DIM };

static guarded_attention open_whole(float rate, float scale)
{
    vt_attention_shape shape = {.batch = BATCH, .heads = HEADS, .head_dim = DIM, .queries = QUERIES, .keys = KEYS};
    shape.dropout = (vt_dropout){.rate = rate, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
    return guarded_attention_open(&shape, scale);
}

static guarded_attention open_block(const guarded_attention *whole, int64_t first_head, int64_t heads,
                                    int64_t first_query, int64_t queries, int64_t first_key, int64_t keys)
{
    guarded_attention a = {.shape = whole->shape};
    a.shape.first_head = first_head;
    a.shape.heads = heads;
    a.shape.first_query = first_query;
    a.shape.queries = queries;
    a.shape.first_key = first_key;
    a.shape.keys = keys;
    part rows = {first_query, queries, first_head * DIM, heads * DIM};
    part columns = {first_key, keys, first_head * DIM, heads * DIM};
    a.q = guarded_part(whole->q.matrix, BATCH, rows);
    a.k = guarded_part(whole->k.matrix, BATCH, columns);
    a.v = guarded_part(whole->v.matrix, BATCH, columns);
    a.dout = guarded_part(whole->dout.matrix, BATCH, rows);
    guarded_attention_renew(&a);
    return a;
}

/* A rank's heads and queries do not interact with others, so forward and dq equal the whole's to the bit. */
static void check_heads_and_queries(vt_backend *b, guarded_attention *whole, int64_t first_head, int64_t heads,
                                    int64_t first_query, int64_t queries)
{
    guarded_attention block = open_block(whole, first_head, heads, first_query, queries, 0, KEYS);
    part rows = {first_query, queries, first_head * DIM, heads * DIM};
    guarded_attention_forward(b, &block);
    guarded_attention_backward(b, &block, &block);
    guarded_compare_part(&block.out, &whole->out, BATCH, rows, 0, "attention out of heads and queries");
    guarded_compare_part(&block.dq, &whole->dq, BATCH, rows, 0, "attention dq of heads and queries");
    if (queries == QUERIES) {
        guarded_compare_part(&block.dk, &whole->dk, BATCH, (part){0, KEYS, rows.first_column, rows.columns}, 0,
                             "dk of heads");
        guarded_compare_part(&block.dv, &whole->dv, BATCH, (part){0, KEYS, rows.first_column, rows.columns}, 0,
                             "dv of heads");
    }
}

GPU_TEST(attention_of_some_heads_and_queries_is_the_wholes)
{
    FOR_EACH_BACKEND(isa, b)
    {
        guarded_attention whole = open_whole(0.3f, 1);
        guarded_attention_forward(b, &whole);
        guarded_attention_backward(b, &whole, &whole);
        check_heads_and_queries(b, &whole, 1, 2, 0, QUERIES);
        check_heads_and_queries(b, &whole, 3, 1, 17, 13);
        check_heads_and_queries(b, &whole, 0, HEADS, 50, 11);
    }
}

/* With q = 0 and unit vectors as values, out shows each weight: kept or not, to be compared exactly. */
GPU_TEST(attention_dropout_of_some_keys_is_the_wholes)
{
    enum { ALL = 40 };
    static const int64_t firsts[] = {0, 1, 2, 3, 4, 7, 13, 22}, counts[] = {40, 1, 17, 5, 36, 33, 27, 18};
    FOR_EACH_BACKEND(isa, b)
    {
        guarded zero = guarded_random(ALL, ALL, 1, 0), one = guarded_random(ALL, ALL, 1, 0);
        guarded out = guarded_open(ALL, ALL), log_sum = guarded_open(1, ALL);
        for (int64_t i = 0; i < ALL; i++) one.matrix.data[i * one.matrix.stride + i] = 1;
        vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = ALL, .queries = ALL, .keys = ALL};
        shape.dropout = (vt_dropout){.rate = 0.5f, .seed = 5, .step = &dropout_step, .layer = 2};
        guarded_draw(b, &shape);
        b->attention_forward(b, &shape, zero.matrix, zero.matrix, one.matrix, out.matrix, log_sum.matrix.data);
        for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
            guarded some = guarded_open(ALL, ALL);
            vt_matrix keys = zero.matrix, values = one.matrix;
            keys.rows = values.rows = shape.keys = counts[i];
            shape.first_key = firsts[i];
            guarded_draw(b, &shape);
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
        }
    }
}

/* ---- attention over blocks of keys ---- */

static double sum_tolerance(int64_t terms)
{
    return 4 * sqrt((double)terms) * unit + 4 * unit;
}

/* As in against_plain.c: an error e of a score or of a log_sum changes a weight by the factor 1 + e. Scores have the
 * size scale · √dim; each block's log_sum is stored with half a unit of its size, and so is each merged one. */
static double attention_tolerance(const guarded_attention *whole, float scale, int blocks)
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
    guarded_attention whole = open_whole(rate, scale), merged = open_whole(rate, scale);
    guarded dq = guarded_random(BATCH * QUERIES, WIDTH, 1, 0);
    int blocks = 0;
    guarded_attention_forward(b, &whole);
    guarded_attention_backward(b, &whole, &whole);
    for (int64_t first = 0; first < KEYS; first = ends[blocks++]) {
        guarded_attention block = open_block(&whole, 0, HEADS, 0, QUERIES, first, ends[blocks] - first);
        guarded_attention_forward(b, &block);
        if (first == 0) {
            memcpy(merged.out.memory, block.out.memory, (size_t)block.out.size * sizeof(float));
            memcpy(merged.log_sum.memory, block.log_sum.memory, (size_t)block.log_sum.size * sizeof(float));
        } else {
            b->attention_merge(b, &block.shape, block.out.matrix, block.log_sum.matrix.data, merged.out.matrix,
                               merged.log_sum.matrix.data);
        }
        guarded_attention_backward(b, &block, &whole);
        part keys = {first, block.shape.keys, 0, WIDTH};
        guarded_compare_part(&block.dk, &whole.dk, BATCH, keys, 0, "attention dk of a block");
        guarded_compare_part(&block.dv, &whole.dv, BATCH, keys, 0, "attention dv of a block");
        guarded_check(&block.dq, "attention dq of a block");
        add(&dq, &block.dq);
    }
    double tolerance = attention_tolerance(&whole, scale, blocks);
    guarded_compare(&merged.out, &whole.out, tolerance, "merged attention out");
    guarded_compare(&merged.log_sum, &whole.log_sum, tolerance, "merged attention log_sum");
    guarded_compare(&dq, &whole.dq, 4 * tolerance, "attention dq summed over blocks");
}

GPU_TEST(attention_over_blocks_of_keys_is_the_wholes)
{
    static const int64_t two[] = {1, KEYS}, uneven[] = {90, KEYS}, three[] = {37, 122, KEYS};
    FOR_EACH_BACKEND(isa, b)
    {
        for (int dropout = 0; dropout < 2; dropout++) {
            check_key_blocks(b, two, dropout ? 0.3f : 0, 1);
            check_key_blocks(b, uneven, dropout ? 0.3f : 0, 1);
            check_key_blocks(b, three, dropout ? 0.3f : 0, 1);
            check_key_blocks(b, three, dropout ? 0.3f : 0, 10);
        }
    }
}

/* Sums that no float32 could hold: the larger part dominates, and nothing overflows. */
GPU_TEST(attention_merge_of_far_apart_sums)
{
    FOR_EACH_BACKEND(isa, b)
    {
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
    }
}
