/* Attention in bfloat16 on tiles, in blocks as vector/attention_panels.h has it: the same units of work, the same order
 * of sums for any number of threads, nothing of size queries × keys.
 *
 * Scores are made transposed, keys × queries, so that the lanes of a vector are queries: the running maximum and sum of
 * the softmax need no sums across lanes, and the weights' pairs along the keys are made of two vectors. Of the packed
 * operands only one a block is transposed by numbers (values, or keys in backward). Weights and the scores' gradients
 * are rounded to bfloat16 where they enter products; all else is float32: scores are scaled and exponentiated as they
 * come out of the tiles, the softmax's sum is of the weights before rounding, dq is summed in float32.
 *
 * All blocks are padded to whole tiles with zeros: a weight beyond the keys is 0, and so is a gradient beyond the
 * queries. Operands of other types go to the vector kernels. */
#include "backend/cpu/amx/pairs.h"
#include "backend/cpu/vector/attention_parts.h"

enum {
    PANEL = 32, /* queries whose scores exist at once */
    QUERIES = 128,
    KEYS = 128,
    KEY_COLUMN = KEYS / DEPTH * TILE_PAIRS + SIDE, /* of tiles along the keys; columns are no power of two apart */
    QUERY_TILES = QUERIES / DEPTH
};

/* Padded sizes of a head. */
typedef struct {
    int64_t depth; /* head_dim, to whole depths of a tile */
    int64_t width; /* head_dim, to whole columns of a tile */
} padded;

static padded pad(const head_view *h)
{
    return (padded){round_up(h->dim, DEPTH), round_up(h->dim, SIDE)};
}

/* ---- the product ---- */

/* A right operand; its column of tiles j begins at tiles + j * column. */
typedef struct {
    const pair *tiles;
    int64_t column;
} right_operand;

/* c [rows × columns] (+)= a [rows × depth] b [depth × columns]; rows and columns in steps of 16, depth of 32. Tiles 0
 * to 3 are sums, 4 and 5 a's, 6 and 7 b's. Each sum runs along the depth, so that it does not depend on the work
 * around. Not inlined: one copy is enough. */
static __attribute__((noinline)) void multiply_tiles(int64_t rows, int64_t columns, int64_t depth, const pair *a,
                                                     int64_t a_stride, right_operand b, float *c, int64_t c_stride,
                                                     bool add)
{
    const int64_t a_bytes = a_stride * (int64_t)sizeof *a, c_bytes = c_stride * (int64_t)sizeof *c, b_bytes = 64;
    for (int64_t j = 0; j < columns; j += 2 * SIDE) {
        const pair *left = b.tiles + j / SIDE * b.column, *right = left + b.column;
        bool two_columns = j + SIDE < columns;
        for (int64_t i = 0; i < rows; i += 2 * SIDE) {
            const pair *upper = a + i * a_stride, *lower = upper + SIDE * a_stride;
            float *corner = c + i * c_stride + j, *below = corner + SIDE * c_stride;
            bool two_rows = i + SIDE < rows;
            if (add) {
                tile_load(0, corner, c_bytes);
                if (two_columns) tile_load(1, corner + SIDE, c_bytes);
                if (two_rows) tile_load(2, below, c_bytes);
                if (two_rows && two_columns) tile_load(3, below + SIDE, c_bytes);
            } else {
                tile_zero(0);
                tile_zero(1);
                tile_zero(2);
                tile_zero(3);
            }
            for (int64_t k = 0; k < depth / DEPTH; k++) {
                tile_load(4, upper + k * SIDE, a_bytes);
                tile_load(6, left + k * TILE_PAIRS, b_bytes);
                tile_multiply(0, 4, 6);
                if (two_columns) {
                    tile_load(7, right + k * TILE_PAIRS, b_bytes);
                    tile_multiply(1, 4, 7);
                }
                if (!two_rows) continue;
                tile_load(5, lower + k * SIDE, a_bytes);
                tile_multiply(2, 5, 6);
                if (two_columns) tile_multiply(3, 5, 7);
            }
            tile_store(0, corner, c_bytes);
            if (two_columns) tile_store(1, corner + SIDE, c_bytes);
            if (two_rows) tile_store(2, below, c_bytes);
            if (two_rows && two_columns) tile_store(3, below + SIDE, c_bytes);
        }
    }
}

/* ---- operands ---- */

/* to [block × depth] = the head's columns of rows first …, the rest 0. The columns are copied eight by eight: calls of
 * memcpy would take longer than the copies. */
static void pack_block(const head_view *h, const vt_matrix *from, int64_t first, int64_t rows, int64_t block, pair *to)
{
    enum { PART = 8 };
    int64_t stride = pad(h).depth / 2, whole = h->dim / PART * PART;
    for (int64_t r = 0; r < rows; r++) {
        const uint16_t *row = from->half + (first + r) * from->stride + h->column;
        uint16_t *packed = (uint16_t *)(to + r * stride);
        int64_t d = 0;
        for (; d < whole; d += PART) memcpy(packed + d, row + d, PART * sizeof *row);
        for (; d < h->dim; d++) packed[d] = row[d];
        for (; d < 2 * stride; d++) packed[d] = 0;
    }
    memset(to + rows * stride, 0, (size_t)((block - rows) * stride) * sizeof *to);
}

/* Right operand [depth × block]: the transpose of rows [block × depth]. */
static void pack_across(const head_view *h, const pair *rows, int64_t block, pair *to)
{
    int64_t stride = pad(h).depth / 2, tiles = stride / SIDE;
    for (int64_t r = 0; r < block / SIDE; r++)
        for (int64_t k = 0; k < tiles; k++)
            transpose_pairs(rows + r * SIDE * stride + k * SIDE, stride, to + (r * tiles + k) * TILE_PAIRS, SIDE);
}

/* Right operand [block × width] of rows [block × depth]. */
static void pack_along(const head_view *h, const pair *rows, int64_t block, pair *to)
{
    int64_t stride = pad(h).depth / 2, tiles = block / DEPTH;
    for (int64_t c = 0; c < pad(h).width / SIDE; c++)
        for (int64_t k = 0; k < tiles; k++)
            pair_rows(rows + k * DEPTH * stride + c * SIDE / 2, stride, to + (c * tiles + k) * TILE_PAIRS);
}

/* Left operand [width × block]: the transpose of rows [block × depth], number by number. */
static void pack_transpose(const head_view *h, const pair *rows, int64_t block, pair *to)
{
    int64_t stride = pad(h).depth / 2;
    for (int64_t c = 0; c < pad(h).width / SIDE; c++) {
        for (int64_t k = 0; k < block / DEPTH; k++) {
            pair tile[TILE_PAIRS];
            pair_rows(rows + k * DEPTH * stride + c * SIDE / 2, stride, tile);
            transpose_pairs(tile, SIDE, to + c * SIDE * (block / 2) + k * SIDE, block / 2);
        }
    }
}

/* Where pair j, j + 1 of column i of a right operand [KEYS × PANEL] lies. */
INLINE pair *pair_along_keys(pair *to, int64_t j, int64_t i)
{
    return to + i / SIDE * KEY_COLUMN + j / DEPTH * TILE_PAIRS + j % DEPTH / 2 * SIDE + i % SIDE;
}

/* Right operand of rows' rounded numbers [keys × PANEL], in pairs along the keys; those of keys … are 0. */
static void round_along_keys(const float *rows, int64_t keys, pair *to)
{
    for (int64_t j = 0; j < round_up(keys, DEPTH); j += 2) {
        const float *first = rows + j * PANEL, *second = first + PANEL;
        for (int64_t i = 0; i < PANEL; i += LANES)
            store_pairs(pair_along_keys(to, j, i), j < keys ? load(first + i) : (vector){0},
                        j + 1 < keys ? load(second + i) : (vector){0});
    }
}

/* The panel's part of a left operand [keys × QUERIES]: `to` is its first row's. */
static void round_along_queries(const float *rows, int64_t keys, pair *to)
{
    for (int64_t j = 0; j < round_up(keys, SIDE); j++)
        for (int64_t i = 0; i < PANEL; i += 2 * LANES)
            store_neighbours(to + j * (QUERIES / 2) + i / 2, j < keys ? load(rows + j * PANEL + i) : (vector){0},
                             j < keys ? load(rows + j * PANEL + i + LANES) : (vector){0});
}

/* ---- units of work ---- */

enum { MOST_BLOCKS = 4 };

/* How many blocks of queries (backward: of keys) a unit of work has: what is packed of the others serves all of them.
 * Fewer where threads would have nothing to do; a number's sum does not depend on it. */
static int64_t blocks_of_unit(const vt_backend *backend, const vt_attention_shape *shape, int64_t blocks)
{
    int64_t most = smaller(MOST_BLOCKS, blocks), heads = shape->batch * shape->heads;
    while (most > 1 && heads * pieces(blocks, most) < 4 * vt_cpu_threads(backend)) most--;
    return most;
}

/* ---- forward ---- */

typedef struct {
    vt_matrix q, k, v, out;
    float *log_sum;
    int64_t unit; /* queries of a unit of work */
} forward_arguments;

typedef struct {
    pair *rows;           /* [unit or KEYS × depth]: what is being packed */
    pair *queries;        /* right operand [depth × unit] */
    pair *keys;           /* left operand [KEYS × depth] */
    pair *values;         /* left operand [width × KEYS]: transposed */
    pair *weights;        /* right operand [KEYS × PANEL] */
    float *scores;        /* [KEYS × PANEL] */
    float *out;           /* panel by panel, [width × PANEL] */
    float *maximum, *sum; /* [unit]: weights are relative to the maximum, which is in powers of two */
} forward_buffers;

static forward_buffers forward_layout(const head_view *h, int64_t unit, pile *memory)
{
    padded to = pad(h);
    return (forward_buffers){.rows = take(memory, unit * to.depth / 2),
                             .queries = take(memory, unit * to.depth / 2),
                             .keys = take(memory, KEYS * to.depth / 2),
                             .values = take(memory, KEYS * to.width / 2),
                             .weights = take(memory, PANEL / SIDE * KEY_COLUMN),
                             .scores = take(memory, KEYS * PANEL),
                             .out = take(memory, unit * to.width),
                             .maximum = take(memory, unit),
                             .sum = take(memory, unit)};
}

/* Queries query … query + LANES - 1 of the panel have scores (scaled to powers of two) beside more keys. Their maxima
 * follow when scores exceed them by a factor of 2^8, and the sums that are relative to them. */
INLINE vector follow_maximum(const head_view *h, const forward_buffers *b, int64_t query, int64_t keys, float *out,
                             float *maxima, float *sums)
{
    enum { BY_TURNS = 4 }; /* so that none has to wait for the one before */
    vector highest[BY_TURNS], old = load(maxima + query);
    int64_t j = 0;
    for (int64_t i = 0; i < BY_TURNS; i++) highest[i] = splat(-3e38f);
    for (; j + BY_TURNS <= keys; j += BY_TURNS)
#pragma GCC unroll 4
        for (int64_t i = 0; i < BY_TURNS; i++)
            highest[i] = largest(highest[i], load(b->scores + (j + i) * PANEL + query));
    for (; j < keys; j++) highest[0] = largest(highest[0], load(b->scores + j * PANEL + query));
    vector high = largest(largest(highest[0], highest[1]), largest(highest[2], highest[3])) * (h->scale * log2_e);
    vector_bits exceeds = high > old + 8.0f;
    if (!any_lane(exceeds)) return old;
    vector new = choose(exceeds, high, old), factor = exp2_vector(old - new);
    store(maxima + query, new);
    store(sums + query, factor * load(sums + query));
    for (int64_t d = 0; d < h->dim; d++) store(out + d * PANEL + query, factor * load(out + d * PANEL + query));
    return new;
}

/* Scores become weights, whose sums are added to the queries'. round, a constant: they are rounded into b->weights at
 * once, else stored in place. */
INLINE void soften_columns(bool round, const head_view *h, const forward_buffers *b, int64_t panel, int64_t keys)
{
    float *sums = b->sum + panel * PANEL, *out = b->out + panel * PANEL * pad(h).width;
    const vector scale = splat(h->scale * log2_e);
    for (int64_t i = 0; i < PANEL; i += LANES) {
        vector maximum = follow_maximum(h, b, i, keys, out, b->maximum + panel * PANEL, sums), sum = load(sums + i);
        float *score = b->scores + i;
        int64_t j = 0;
        for (; j + 2 <= keys; j += 2, score += 2 * PANEL) {
            vector first = exp2_vector(scale * load(score) - maximum);
            vector second = exp2_vector(scale * load(score + PANEL) - maximum);
            sum = sum + first + second;
            if (round) {
                store_pairs(pair_along_keys(b->weights, j, i), first, second);
            } else {
                store(score, first);
                store(score + PANEL, second);
            }
        }
        for (; j < (round ? round_up(keys, DEPTH) : keys); j += 2, score += 2 * PANEL) {
            vector last = j < keys ? exp2_vector(scale * load(score) - maximum) : (vector){0};
            sum += last;
            if (round)
                store_pairs(pair_along_keys(b->weights, j, i), last, (vector){0});
            else
                store(score, last);
        }
        store(sums + i, sum);
    }
}

/* The panel's weights as an operand. */
static void soften(const head_view *h, const forward_buffers *b, int64_t first_query, int64_t queries, int64_t panel,
                   int64_t first_key, int64_t keys)
{
    if (h->shape->dropout.rate <= 0) {
        soften_columns(true, h, b, panel, keys);
        return;
    }
    soften_columns(false, h, b, panel, keys);
    apply_dropout(h, first_query + panel * PANEL, smaller(PANEL, queries - panel * PANEL), first_key, keys, b->scores,
                  1, PANEL);
    round_along_keys(b->scores, keys, b->weights);
}

/* Keys first … of the next block, those that are packed after this panel of so many. */
static void look_ahead_keys(const head_view *h, const forward_arguments *a, int64_t first, int64_t panel,
                            int64_t panels)
{
    int64_t begin = smaller(h->shape->keys, first + piece_begin(KEYS, panels, panel));
    int64_t end = smaller(h->shape->keys, first + piece_begin(KEYS, panels, panel + 1));
    look_ahead(h, &a->k, h->batch * h->shape->keys + begin, end - begin);
    look_ahead(h, &a->v, h->batch * h->shape->keys + begin, end - begin);
}

static void forward_keys(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t first_query,
                         int64_t queries, int64_t first_key)
{
    int64_t keys = smaller(KEYS, h->shape->keys - first_key), row = h->batch * h->shape->keys + first_key;
    padded to = pad(h);
    pack_block(h, &a->k, row, keys, KEYS, b->keys);
    pack_block(h, &a->v, row, keys, KEYS, b->rows);
    pack_transpose(h, b->rows, KEYS, b->values);
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        look_ahead_keys(h, a, first_key + KEYS, panel, pieces(queries, PANEL));
        right_operand across = {b->queries + panel * PANEL * to.depth / 2, SIDE * to.depth / 2};
        multiply_tiles(round_up(keys, SIDE), PANEL, to.depth, b->keys, to.depth / 2, across, b->scores, PANEL, false);
        soften(h, b, first_query, queries, panel, first_key, keys);
        multiply_tiles(to.width, PANEL, round_up(keys, DEPTH), b->values, KEYS / 2,
                       (right_operand){b->weights, KEY_COLUMN}, b->out + panel * PANEL * to.width, PANEL, true);
    }
}

static void forward_unit(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t first)
{
    int64_t queries = smaller(a->unit, h->shape->queries - first), row = h->batch * h->shape->queries + first;
    int64_t width = pad(h).width;
    pack_block(h, &a->q, row, queries, a->unit, b->rows);
    pack_across(h, b->rows, a->unit, b->queries);
    memset(b->out, 0, (size_t)(width * a->unit) * sizeof(float));
    for (int64_t i = 0; i < a->unit; i++) {
        b->maximum[i] = -1e30f;
        b->sum[i] = 0;
    }
    for (int64_t key = 0; key < h->shape->keys; key += KEYS) forward_keys(h, a, b, first, queries, key);
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        float *out = b->out + panel * PANEL * width;
        for (int64_t d = 0; d < h->dim; d++)
            for (int64_t i = 0; i < PANEL; i++) out[d * PANEL + i] *= 1 / b->sum[panel * PANEL + i];
        unpack_transposed(h, out, PANEL, row + panel * PANEL, smaller(PANEL, queries - panel * PANEL), 1, &a->out);
    }
    for (int64_t i = 0; i < queries; i++)
        a->log_sum[h->unit * h->shape->queries + first + i] = b->maximum[i] / log2_e + logf(b->sum[i]);
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    head_view any = view_head(shape, 0);
    int64_t blocks = pieces(shape->queries, QUERIES), of_unit = blocks_of_unit(backend, shape, blocks);
    forward_arguments arguments = {q, k, v, out, log_sum, of_unit * QUERIES};
    pile count = {NULL, 0};
    if (q.type != VT_BFLOAT16 || k.type != VT_BFLOAT16 || v.type != VT_BFLOAT16) {
        ((vt_cpu_state *)backend->state)->vectors.attention_forward(backend, shape, q, k, v, out, log_sum);
        return;
    }
    forward_layout(&any, arguments.unit, &count);
    if (!vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float))) return;
    int64_t units = pieces(blocks, of_unit);
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(dynamic, 1)
        for (int64_t work = 0; work < shape->batch * shape->heads * units; work++) {
            head_view h = view_head(shape, work / units);
            pile memory = {vt_cpu_scratch(backend), 0};
            forward_buffers b = forward_layout(&h, arguments.unit, &memory);
            forward_unit(&h, &arguments, &b, work % units * arguments.unit);
        }
        tiles_release();
    }
}

/* ---- backward ---- */

typedef struct {
    vt_matrix q, k, v, dout, dq, dk, dv;
    const float *log_sum;
    int64_t unit;           /* blocks of keys of a unit of work */
    backward_shared shared; /* dq_sum [units, blocks of queries, width × QUERIES]: dq / scale, transposed */
} backward_arguments;

/* A block of keys. */
typedef struct {
    pair *keys, *values;    /* left operands [KEYS × depth] */
    pair *keys_transposed;  /* left operand [width × KEYS] */
    float *dkeys, *dvalues; /* [KEYS × width] */
    int64_t first, count;   /* its keys */
} key_block;

typedef struct {
    pair *rows; /* [QUERIES × depth]: what is being packed */
    key_block blocks[MOST_BLOCKS];
    pair *queries_across, *dout_across;   /* right operands [depth × QUERIES] */
    pair *queries_along, *dout_along;     /* right operands [QUERIES × width] */
    pair *weights, *dscores;              /* left operands [KEYS × QUERIES] */
    pair *dscores_along;                  /* right operand [KEYS × QUERIES] */
    float *weights_panel, *dscores_panel; /* [KEYS × PANEL] */
    float *kept;                          /* the weights after dropout */
    float *high, *delta;                  /* [QUERIES]: logarithms of the sums, in powers of two; out · dout */
} backward_buffers;

static backward_buffers backward_layout(const head_view *h, int64_t unit, pile *memory)
{
    padded to = pad(h);
    int64_t deep = KEYS * to.depth / 2, wide = KEYS * to.width / 2, scores = KEYS * QUERIES / 2;
    _Static_assert(KEYS == QUERIES, "one size for both");
    backward_buffers b = {.rows = take(memory, deep),
                          .queries_across = take(memory, deep),
                          .dout_across = take(memory, deep),
                          .queries_along = take(memory, wide),
                          .dout_along = take(memory, wide),
                          .weights = take(memory, scores),
                          .dscores = take(memory, scores),
                          .dscores_along = take(memory, QUERIES / SIDE * KEY_COLUMN),
                          .weights_panel = take(memory, KEYS * PANEL),
                          .dscores_panel = take(memory, KEYS * PANEL),
                          .high = take(memory, QUERIES),
                          .delta = take(memory, QUERIES)};
    for (int64_t i = 0; i < unit; i++)
        b.blocks[i] = (key_block){.keys = take(memory, deep),
                                  .values = take(memory, deep),
                                  .keys_transposed = take(memory, wide),
                                  .dkeys = take(memory, 2 * wide),
                                  .dvalues = take(memory, 2 * wide)};
    b.kept = h->shape->dropout.rate > 0 ? take(memory, KEYS * PANEL) : NULL;
    return b;
}

/* The block of queries in all forms; beyond the queries weights are next to nothing and gradients 0. */
static void pack_queries(const head_view *h, const backward_arguments *a, const backward_buffers *b, int64_t first,
                         int64_t queries)
{
    int64_t row = h->batch * h->shape->queries + first, index = h->unit * h->shape->queries + first;
    pack_block(h, &a->q, row, queries, QUERIES, b->rows);
    pack_across(h, b->rows, QUERIES, b->queries_across);
    pack_along(h, b->rows, QUERIES, b->queries_along);
    pack_block(h, &a->dout, row, queries, QUERIES, b->rows);
    pack_across(h, b->rows, QUERIES, b->dout_across);
    pack_along(h, b->rows, QUERIES, b->dout_along);
    for (int64_t i = 0; i < QUERIES; i++) {
        b->high[i] = i < queries ? a->log_sum[index + i] * log2_e : 1e30f;
        b->delta[i] = i < queries ? a->shared.delta[index + i] : 0;
    }
}

/* weights_panel and dscores_panel hold scores and the weights' gradients: of each pair of keys, LANES queries …, the
 * weights and their scores' gradients. */
INLINE void differentiate_pair(const backward_buffers *b, vector scale, vector high, vector delta, int64_t at,
                               bool second_too, vector weight[2], vector dscore[2])
{
    weight[0] = exp2_vector(scale * load(b->weights_panel + at) - high);
    weight[1] = second_too ? exp2_vector(scale * load(b->weights_panel + at + PANEL) - high) : (vector){0};
    dscore[0] = weight[0] * (load(b->dscores_panel + at) - delta);
    dscore[1] = second_too ? weight[1] * (load(b->dscores_panel + at + PANEL) - delta) : (vector){0};
}

/* The panel's weights and scores' gradients, rounded into operands; the gradients of pairs beyond the keys are 0. */
static void differentiate(const head_view *h, const backward_buffers *b, int64_t panel, int64_t keys)
{
    enum { HALF = QUERIES / 2 };
    const vector scale = splat(h->scale * log2_e);
    pair *weights = b->weights + panel * PANEL / 2, *dscores = b->dscores + panel * PANEL / 2;
    pair *along = b->dscores_along + panel * (PANEL / SIDE) * KEY_COLUMN;
    for (int64_t i = 0; i < PANEL; i += 2 * LANES) {
        const float *high = b->high + panel * PANEL + i, *delta = b->delta + panel * PANEL + i;
        const vector high_left = load(high), high_right = load(high + LANES);
        const vector delta_left = load(delta), delta_right = load(delta + LANES);
        for (int64_t j = 0; j < round_up(keys, DEPTH); j += 2) {
            vector weight_left[2] = {{0}}, weight_right[2] = {{0}}, left[2] = {{0}}, right[2] = {{0}};
            if (j < keys) {
                int64_t at = j * PANEL + i;
                differentiate_pair(b, scale, high_left, delta_left, at, j + 1 < keys, weight_left, left);
                differentiate_pair(b, scale, high_right, delta_right, at + LANES, j + 1 < keys, weight_right, right);
            }
#pragma GCC unroll 2
            for (int64_t r = 0; r < 2; r++) {
                store_neighbours(weights + (j + r) * HALF + i / 2, weight_left[r], weight_right[r]);
                store_neighbours(dscores + (j + r) * HALF + i / 2, left[r], right[r]);
            }
            store_pairs(pair_along_keys(along, j, i), left[0], left[1]);
            store_pairs(pair_along_keys(along, j, i + LANES), right[0], right[1]);
        }
    }
}

/* The same with dropout: the kept weight's gradient passes through the same factors, and dscores = weights · (factor ·
 * d - delta). */
static void differentiate_dropped(const head_view *h, const backward_buffers *b, int64_t first_query, int64_t queries,
                                  int64_t panel, int64_t first_key, int64_t keys)
{
    const vector scale = splat(h->scale * log2_e);
    for (int64_t j = 0; j < keys * PANEL; j += LANES) {
        vector weight = exp2_vector(scale * load(b->weights_panel + j) - load(b->high + panel * PANEL + j % PANEL));
        store(b->weights_panel + j, weight);
        store(b->kept + j, weight);
    }
    apply_dropout(h, first_query + panel * PANEL, smaller(PANEL, queries - panel * PANEL), first_key, keys, b->kept, 1,
                  PANEL);
    for (int64_t j = 0; j < keys * PANEL; j += LANES) {
        vector delta = load(b->delta + panel * PANEL + j % PANEL), kept = load(b->kept + j);
        store(b->dscores_panel + j, kept * load(b->dscores_panel + j) - load(b->weights_panel + j) * delta);
    }
    round_along_queries(b->kept, keys, b->weights + panel * PANEL / 2);
    round_along_queries(b->dscores_panel, keys, b->dscores + panel * PANEL / 2);
    round_along_keys(b->dscores_panel, keys, b->dscores_along + panel * (PANEL / SIDE) * KEY_COLUMN);
}

/* Weights and the scores' gradients of a block of queries, as operands. */
static void backward_panels(const head_view *h, const backward_buffers *b, const key_block *k, int64_t first_query,
                            int64_t queries)
{
    padded to = pad(h);
    int64_t rows = round_up(k->count, SIDE), column = SIDE * to.depth / 2;
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        int64_t first = panel * PANEL * to.depth / 2;
        multiply_tiles(rows, PANEL, to.depth, k->keys, to.depth / 2, (right_operand){b->queries_across + first, column},
                       b->weights_panel, PANEL, false);
        multiply_tiles(rows, PANEL, to.depth, k->values, to.depth / 2, (right_operand){b->dout_across + first, column},
                       b->dscores_panel, PANEL, false);
        if (h->shape->dropout.rate > 0)
            differentiate_dropped(h, b, first_query, queries, panel, k->first, k->count);
        else
            differentiate(h, b, panel, k->count);
    }
}

/* Of one block of keys and one of queries. dq: the sum for these queries; `fresh`: nothing is in it yet. */
static void multiply_gradients(const head_view *h, const backward_buffers *b, const key_block *k, int64_t queries,
                               float *dq, bool fresh)
{
    int64_t width = pad(h).width, rows = round_up(k->count, SIDE), depth = round_up(queries, DEPTH);
    right_operand dout = {b->dout_along, QUERY_TILES * TILE_PAIRS}, q = {b->queries_along, QUERY_TILES * TILE_PAIRS};
    multiply_tiles(rows, width, depth, b->weights, QUERIES / 2, dout, k->dvalues, width, true);
    multiply_tiles(rows, width, depth, b->dscores, QUERIES / 2, q, k->dkeys, width, true);
    multiply_tiles(width, round_up(queries, SIDE), round_up(k->count, DEPTH), k->keys_transposed, KEYS / 2,
                   (right_operand){b->dscores_along, KEY_COLUMN}, dq, QUERIES, !fresh);
}

/* Rows first … of the head's columns = scale · from [rows × width]. */
static void unpack_rows(const head_view *h, const float *from, int64_t first, int64_t rows, float scale,
                        const vt_matrix *to)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t index = (first + r) * to->stride + h->column, d = 0;
        const float *row = from + r * pad(h).width;
        for (; d + LANES <= h->dim; d += LANES) store_elements(to, index + d, scale * load(row + d));
        for (; d < h->dim; d++) set_element(to, index + d, scale * row[d]);
    }
}

static void begin_keys(const head_view *h, const backward_arguments *a, key_block *k, int64_t first)
{
    size_t gradient_bytes = (size_t)(KEYS * pad(h).width) * sizeof(float);
    int64_t row = h->batch * h->shape->keys + first;
    k->first = first;
    k->count = smaller(KEYS, h->shape->keys - first);
    pack_block(h, &a->v, row, k->count, KEYS, k->values);
    pack_block(h, &a->k, row, k->count, KEYS, k->keys);
    pack_transpose(h, k->keys, KEYS, k->keys_transposed);
    memset(k->dkeys, 0, gradient_bytes);
    memset(k->dvalues, 0, gradient_bytes);
}

/* Queries first … of the next block, those that are asked for beside this block of keys of so many. */
static void look_ahead_queries(const head_view *h, const backward_arguments *a, int64_t first, int64_t block,
                               int64_t blocks)
{
    int64_t begin = smaller(h->shape->queries, first + piece_begin(QUERIES, blocks, block));
    int64_t end = smaller(h->shape->queries, first + piece_begin(QUERIES, blocks, block + 1));
    look_ahead(h, &a->q, h->batch * h->shape->queries + begin, end - begin);
    look_ahead(h, &a->dout, h->batch * h->shape->queries + begin, end - begin);
}

/* Some blocks of keys against all queries. Sums for dq are added after those of the units before this one; the last
 * one's thread stores them. */
static void backward_unit(const head_view *h, const backward_arguments *a, backward_buffers *b, int64_t index)
{
    int64_t first_key = index * a->unit * KEYS, blocks = smaller(a->unit, pieces(h->shape->keys - first_key, KEYS));
    for (int64_t i = 0; i < blocks; i++) begin_keys(h, a, b->blocks + i, first_key + i * KEYS);
    for (int64_t first = 0; first < h->shape->queries; first += QUERIES) {
        int64_t queries = smaller(QUERIES, h->shape->queries - first);
        int64_t block = h->unit * a->shared.query_blocks + first / QUERIES;
        float *sum = a->shared.dq_sum + block * pad(h).width * QUERIES;
        pack_queries(h, a, b, first, queries);
        for (int64_t i = 0; i < blocks; i++) {
            backward_panels(h, b, b->blocks + i, first, queries);
            look_ahead_queries(h, a, first + QUERIES, i, blocks);
            if (i == 0) wait_for(a->shared.added + block, (int)index);
            multiply_gradients(h, b, b->blocks + i, queries, sum, index + i == 0);
        }
        if (index + 1 == a->shared.key_blocks)
            unpack_transposed(h, sum, QUERIES, h->batch * h->shape->queries + first, queries, h->scale, &a->dq);
        __atomic_store_n(a->shared.added + block, (int)index + 1, __ATOMIC_RELEASE);
    }
    for (int64_t i = 0; i < blocks; i++) {
        const key_block *k = b->blocks + i;
        unpack_rows(h, k->dkeys, h->batch * h->shape->keys + k->first, k->count, h->scale, &a->dk);
        unpack_rows(h, k->dvalues, h->batch * h->shape->keys + k->first, k->count, 1, &a->dv);
    }
}

static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    head_view any = view_head(shape, 0);
    backward_arguments a = {.q = q, .k = k, .v = v, .dout = dout, .dq = dq, .dk = dk, .dv = dv, .log_sum = log_sum};
    pile count = {NULL, 0};
    if (q.type != VT_BFLOAT16 || k.type != VT_BFLOAT16 || v.type != VT_BFLOAT16 || dout.type != VT_BFLOAT16) {
        ((vt_cpu_state *)backend->state)
            ->vectors.attention_backward(backend, shape, q, k, v, out, log_sum, dout, dq, dk, dv);
        return;
    }
    int64_t query_blocks = pieces(shape->queries, QUERIES), key_blocks = pieces(shape->keys, KEYS);
    int64_t dq_floats = query_blocks * QUERIES * pad(&any).width;
    a.unit = blocks_of_unit(backend, shape, key_blocks);
    backward_layout(&any, a.unit, &count);
    if (!share_backward(backend, shape, pieces(key_blocks, a.unit), query_blocks, dq_floats, &a.shared) ||
        !vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float)))
        return;
#pragma omp parallel
    {
        make_delta(shape, &out, &dout, a.shared.delta);
        int64_t unit = -1, block;
        pile memory = {vt_cpu_scratch(backend), 0};
        backward_buffers b = backward_layout(&any, a.unit, &memory);
        tiles_configure();
        while (take_block(&a.shared, &unit, &block)) {
            head_view h = view_head(shape, unit);
            backward_unit(&h, &a, &b, block);
        }
        tiles_release();
    }
}

void VT_KERNEL(vt_tiles_attention_fill)(vt_backend *backend)
{
    backend->attention_forward = attention_forward;
    backend->attention_backward = attention_backward;
}
