/* Attention in blocks, after Dao 2023 ("FlashAttention-2"): the running maximum and sum of each query's scores are
 * kept, so nothing of size queries × keys exists.
 *
 * A unit of work is a block of queries of one head of one sample (forward) or a block of its keys (backward), so that
 * a few heads keep many cores busy. The lanes of a vector are neighbouring queries (forward) or keys (backward): then
 * only the unit's own block is transposed, everything else is read row by row, and head_dim needs no padding. The
 * gradient of q is a sum over the blocks of keys, added up in their order: a unit waits until the ones before it have
 * added theirs to a block of queries. So the result does not depend on the number of threads. A thread needs memory
 * for blocks only; the threads share O(queries) a head.
 *
 * Matrices may be of 16 bits: blocks are widened when they are packed, results rounded when they are stored. */
#include "backend/cpu/vector/attention_parts.h"
#include "backend/cpu/vector/tile.h"

enum {
    PANEL = 64,        /* queries (backward: keys) whose scores are made at once, at most, beside … */
    FORWARD_KEYS = 60, /* whole tiles */
    BACKWARD_QUERIES = 48,
    GRAIN = 16,     /* a panel holds a multiple of it, but for the last one */
    MOST_PANELS = 8 /* of a unit: they share the packed keys (backward: queries, and one sum for the gradient of q) */
};

/* `count` queries or keys lie in `panels` of nearly the same size, these in `blocks`, the units of work. */
typedef struct {
    int64_t count, panels, blocks;
} division;

static division divide(int64_t count, int64_t most_panels)
{
    int64_t panels = (count + PANEL - 1) / PANEL;
    return (division){count, panels, (panels + most_panels - 1) / most_panels};
}

/* 0 … count - 1 in `parts` parts of nearly the same size: where one begins. */
static int64_t part_begin(int64_t count, int64_t parts, int64_t part)
{
    return count / parts * part + smaller(part, count % parts);
}

/* Where a panel begins, and where the panel behind the last ends. */
static int64_t panel_begin(const division *d, int64_t panel)
{
    return smaller(d->count, GRAIN * part_begin((d->count + GRAIN - 1) / GRAIN, d->panels, panel));
}

/* A unit's panels, and how many queries or keys they hold. */
typedef struct {
    const division *all;
    int64_t panel, panels, first, count;
} block_view;

static block_view view_block(const division *d, int64_t block)
{
    int64_t begin = part_begin(d->panels, d->blocks, block), end = part_begin(d->panels, d->blocks, block + 1);
    int64_t first = panel_begin(d, begin);
    return (block_view){d, begin, end - begin, first, panel_begin(d, end) - first};
}

/* Of the unit's panel `index`: its first one, counted within the unit, and how many. */
static int64_t view_panel(const block_view *b, int64_t index, int64_t *count)
{
    int64_t begin = panel_begin(b->all, b->panel + index);
    *count = panel_begin(b->all, b->panel + index + 1) - begin;
    return begin - b->first;
}

/* ---- products: not inlined, one copy of each is enough; what lies in panels has rows of PANEL ---- */

/* scores [rows × vectors·LANES] = a [rows × depth] b. */
static __attribute__((noinline)) void multiply_scores(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                      float *scores, int64_t depth)
{
    tile_columns(TILE_SET, rows, vectors, a, depth, 1, b, PANEL, scores, PANEL, depth, (tile_beside){0});
}

/* weights [rows × vectors·LANES] = 2^(a b - less of each row). */
static __attribute__((noinline)) void multiply_power(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                     float *weights, int64_t depth, const float *less)
{
    tile_columns(TILE_POWER, rows, vectors, a, depth, 1, b, PANEL, weights, PANEL, depth, (tile_beside){less, weights});
}

/* dscores [rows × vectors·LANES] = weights · (a b - less of each row). */
static __attribute__((noinline)) void multiply_times(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                     float *dscores, int64_t depth, const float *less,
                                                     const float *weights)
{
    tile_columns(TILE_TIMES, rows, vectors, a, depth, 1, b, PANEL, dscores, PANEL, depth, (tile_beside){less, weights});
}

/* sums [rows × vectors·LANES] += aᵀ b, a [depth × rows]. */
static __attribute__((noinline)) void add_transposed(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                     float *sums, int64_t depth)
{
    tile_columns(TILE_ADD, rows, vectors, a, 1, rows, b, PANEL, sums, PANEL, depth, (tile_beside){0});
}

/* sums [rows × vectors·LANES] (+)= a b: a [rows × depth] lies in a panel, b and the sums do not. */
static __attribute__((noinline)) void multiply_panel(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                     float *sums, int64_t depth, bool add)
{
    int64_t width = vectors * LANES;
    if (add)
        tile_columns(TILE_ADD, rows, vectors, a, PANEL, 1, b, width, sums, width, depth, (tile_beside){0});
    else
        tile_columns(TILE_SET, rows, vectors, a, PANEL, 1, b, width, sums, width, depth, (tile_beside){0});
}

/* ---- rows of a head, in and out ---- */

/* to [rows × width] = the head's columns of rows first …, the rest of each row 0. */
static void pack_rows(const head_view *h, const vt_matrix *from, int64_t first, int64_t rows, int64_t width, float *to)
{
    for (int64_t r = 0; r < rows; r++, to += width) {
        pack_row(from, (first + r) * from->stride + h->column, h->dim, to);
        for (int64_t d = h->dim; d < width; d++) to[d] = 0;
    }
}

/* Rows that are packed soon: a row is on a page of its own, where the processor does not look ahead by itself. */
INLINE void look_ahead(const head_view *h, const vt_matrix *from, int64_t first, int64_t rows)
{
    int64_t size = (int64_t)vt_type_size(from->type);
    for (int64_t r = first; r < first + rows; r++) {
        const char *row = (const char *)from->data + (r * from->stride + h->column) * size;
        for (int64_t byte = 0; byte < h->dim * size; byte += 64) __builtin_prefetch(row + byte);
    }
}

/* to [dim × block] = scale · transposed rows first …, the rest 0. */
static void pack_transposed(const head_view *h, const vt_matrix *from, int64_t first, int64_t rows, int64_t block,
                            float scale, float *to)
{
    int64_t r = 0;
    for (; r + LANES <= smaller(rows, block); r += LANES) {
        int64_t corner = (first + r) * from->stride + h->column, d = 0;
        for (; d + LANES <= h->dim; d += LANES) {
            vector square[LANES];
            for (int i = 0; i < LANES; i++) square[i] = load_elements(from, corner + i * from->stride + d);
            transpose(square);
            for (int i = 0; i < LANES; i++) store(to + (d + i) * block + r, scale * square[i]);
        }
        for (; d < h->dim; d++)
            for (int i = 0; i < LANES; i++)
                to[d * block + r + i] = scale * element(from, corner + i * from->stride + d);
    }
    for (; r < block; r++) {
        int64_t index = (first + r) * from->stride + h->column;
        for (int64_t d = 0; d < h->dim; d++) to[d * block + r] = r < rows ? scale * element(from, index + d) : 0;
    }
}

/* ---- forward ---- */

typedef struct {
    vt_matrix q, k, v, out;
    float *log_sum;
    division queries;
} forward_arguments;

/* What is of queries: one panel behind another. */
typedef struct {
    float *keys, *values; /* [FORWARD_KEYS × dim] */
    float *scores;        /* [FORWARD_KEYS × PANEL]; soon weights */
    float *queries;       /* [dim × PANEL], scaled by log2(e) / sqrt(dim) */
    float *out;           /* [dim × PANEL] */
    float *maximum, *sum; /* [PANEL]: weights are relative to the maximum */
} forward_buffers;

static forward_buffers forward_layout(const head_view *h, int64_t panels, pile *memory)
{
    int64_t queries = panels * PANEL;
    return (forward_buffers){.keys = take(memory, h->dim * FORWARD_KEYS),
                             .values = take(memory, h->dim * FORWARD_KEYS),
                             .scores = take(memory, FORWARD_KEYS * PANEL),
                             .queries = take(memory, h->dim * queries),
                             .out = take(memory, h->dim * queries),
                             .maximum = take(memory, queries),
                             .sum = take(memory, queries)};
}

static forward_buffers panel_of(const head_view *h, forward_buffers b, int64_t panel)
{
    b.queries += panel * h->dim * PANEL;
    b.out += panel * h->dim * PANEL;
    b.maximum += panel * PANEL;
    b.sum += panel * PANEL;
    return b;
}

/* `vectors` of queries have scores less their maxima beside keys first … end - 1 of a block, of which some are above 8:
 * those maxima follow, and what is relative to them. */
static __attribute__((noinline)) void follow_maximum(const head_view *h, const forward_buffers *b, int64_t query,
                                                     int64_t vectors, int64_t first, int64_t end)
{
    for (int64_t i = query; i < query + vectors * LANES; i += LANES) {
        float *maximum = b->maximum + i, *sum = b->sum + i;
        vector high = load(b->scores + first * PANEL + i);
        for (int64_t k = first + 1; k < end; k++) high = largest(high, load(b->scores + k * PANEL + i));
        vector_bits exceeds = high > 8.0f;
        vector factor = choose(exceeds, exp2_vector(-high), splat(1));
        store(maximum, choose(exceeds, load(maximum) + high, load(maximum)));
        store(sum, factor * load(sum));
        for (int64_t d = 0; d < h->dim; d++) {
            float *out = b->out + d * PANEL + i;
            store(out, factor * load(out));
        }
        for (int64_t k = 0; k < first; k++) {
            float *weight = b->scores + k * PANEL + i;
            store(weight, factor * load(weight));
        }
    }
}

/* Weights of `rows` keys from first on and `vectors` of queries (constants), added to their sums: 2^(score - maximum),
 * made where the product's sums end. The maximum need not be the largest score: weights up to 2^8 are as exact. Beyond
 * that it follows, and the tile is made again. A query's result does not depend on the queries beside it, as each has
 * its own maximum, and all have their keys in the same tiles. */
INLINE void weigh_tile(int rows, int vectors, const head_view *h, const forward_buffers *b, int64_t query,
                       int64_t first)
{
    vector sum[8][4];
    float *weights = b->scores + first * PANEL + query;
    for (bool again = false;; again = true) {
        vector_bits exceeds = {0};
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sum[i][j] = -load(b->maximum + query + j * LANES);
        tile_products(rows, vectors, b->keys + first * h->dim, h->dim, 1, b->queries + query, PANEL, h->dim, sum);
        if (again) break;
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            vector high = sum[0][j];
#pragma GCC unroll 8
            for (int i = 1; i < rows; i++) high = largest(high, sum[i][j]);
            exceeds |= high > 8.0f;
        }
        if (!any_lane(exceeds)) break;
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) store(weights + i * PANEL + j * LANES, sum[i][j]);
        follow_maximum(h, b, query, vectors, first, first + rows);
    }
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
        vector total = load(b->sum + query + j * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vector weight = exp2_vector(sum[i][j]);
            total += weight;
            store(weights + i * PANEL + j * LANES, weight);
        }
        store(b->sum + query + j * LANES, total);
    }
}

/* `vectors` (a constant) of queries beside all keys of a block. */
INLINE void weigh_column(int vectors, const head_view *h, const forward_buffers *b, int64_t query, int64_t keys)
{
    int64_t k = 0;
    for (; k + TILE_ROWS <= keys; k += TILE_ROWS) weigh_tile(TILE_ROWS, vectors, h, b, query, k);
    for (; k < keys; k++) weigh_tile(1, vectors, h, b, query, k);
}

static __attribute__((noinline)) void weigh(const head_view *h, const forward_buffers *b, int64_t vectors, int64_t keys)
{
    int64_t i = 0;
    for (; i + TILE_VECTORS <= vectors; i += TILE_VECTORS) weigh_column(TILE_VECTORS, h, b, i * LANES, keys);
    if (TILE_VECTORS > 3 && vectors - i == 3)
        weigh_column(3, h, b, i * LANES, keys);
    else if (TILE_VECTORS > 2 && vectors - i == 2)
        weigh_column(2, h, b, i * LANES, keys);
    else if (vectors - i == 1)
        weigh_column(1, h, b, i * LANES, keys);
}

/* Maxima begin with the scores of the first key. */
static void begin_maximum(const head_view *h, const forward_buffers *b, int64_t vectors)
{
    multiply_scores(1, vectors, b->keys, b->queries, b->maximum, h->dim);
    for (int64_t i = 0; i < vectors * LANES; i += LANES)
        store(b->maximum + i, largest(splat(-1e30f), load(b->maximum + i))); /* a NaN stays one */
}

static void forward_panel(const head_view *h, const forward_buffers *b, int64_t first_query, int64_t queries,
                          int64_t first_key, int64_t keys)
{
    int64_t vectors = (queries + LANES - 1) / LANES;
    if (first_key == 0) begin_maximum(h, b, vectors);
    weigh(h, b, vectors, keys);
    if (h->shape->dropout.rate > 0) apply_dropout(h, first_query, queries, first_key, keys, b->scores, 1, PANEL);
    add_transposed(h->dim, vectors, b->values, b->scores, b->out, keys);
}

/* All panels beside one block of keys; meanwhile the next block is on its way. */
static void forward_keys(const head_view *h, const forward_arguments *a, const forward_buffers *b,
                         const block_view *block, int64_t first, int64_t keys)
{
    int64_t row = h->batch * h->shape->keys + first, next = smaller(FORWARD_KEYS, h->shape->keys - first - keys);
    pack_rows(h, &a->k, row, keys, h->dim, b->keys);
    pack_rows(h, &a->v, row, keys, h->dim, b->values);
    for (int64_t panel = 0; panel < block->panels; panel++) {
        forward_buffers part = panel_of(h, *b, panel);
        int64_t queries, from = part_begin(next, block->panels, panel);
        int64_t rows = part_begin(next, block->panels, panel + 1) - from, query = view_panel(block, panel, &queries);
        look_ahead(h, &a->k, row + keys + from, rows);
        look_ahead(h, &a->v, row + keys + from, rows);
        forward_panel(h, &part, block->first + query, queries, first, keys);
    }
}

static void forward_block(const head_view *h, const forward_arguments *a, const forward_buffers *b,
                          const block_view *block)
{
    int64_t row = h->batch * h->shape->queries + block->first, most = block->panels * PANEL, queries;
    for (int64_t panel = 0; panel < block->panels; panel++) {
        int64_t query = view_panel(block, panel, &queries);
        pack_transposed(h, &a->q, row + query, queries, PANEL, h->scale * log2_e, panel_of(h, *b, panel).queries);
    }
    memset(b->out, 0, (size_t)(h->dim * most) * sizeof(float));
    memset(b->sum, 0, (size_t)most * sizeof(float));
    for (int64_t key = 0; key < h->shape->keys; key += FORWARD_KEYS)
        forward_keys(h, a, b, block, key, smaller(FORWARD_KEYS, h->shape->keys - key));
    for (int64_t panel = 0; panel < block->panels; panel++) {
        forward_buffers part = panel_of(h, *b, panel);
        int64_t query = view_panel(block, panel, &queries);
        float *log_sum = a->log_sum + h->unit * h->shape->queries + block->first + query;
        for (int64_t d = 0; d < h->dim; d++)
            for (int64_t i = 0; i < queries; i++) part.out[d * PANEL + i] *= 1 / part.sum[i];
        unpack_transposed(h, part.out, PANEL, row + query, queries, 1, &a->out);
        for (int64_t i = 0; i < queries; i++) log_sum[i] = part.maximum[i] / log2_e + logf(part.sum[i]);
    }
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    head_view any = view_head(shape, 0);
    int64_t heads = shape->batch * shape->heads, panels = MOST_PANELS;
    forward_arguments arguments = {q, k, v, out, log_sum, divide(shape->queries, panels)};
    /* some units for each thread; none of this touches the order of the sums */
    while (panels > 1 && heads * arguments.queries.blocks < 4 * vt_cpu_threads(backend))
        arguments.queries = divide(shape->queries, --panels);
    pile count = {NULL, 0};
    forward_layout(&any, panels, &count);
    if (!vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float))) return;
    int64_t blocks = arguments.queries.blocks;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t work = 0; work < heads * blocks; work++) {
        head_view h = view_head(shape, work / blocks);
        block_view block = view_block(&arguments.queries, work % blocks);
        pile memory = {vt_cpu_scratch(backend), 0};
        forward_buffers b = forward_layout(&h, panels, &memory);
        forward_block(&h, &arguments, &b, &block);
    }
}

/* ---- backward ---- */

typedef struct {
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    const float *log_sum;
    float *delta;     /* [units, queries]: out · dout */
    vt_matrix dq_sum; /* float32: dq itself, or what it is rounded from */
    int *added;       /* [units, blocks of queries]: how many blocks of keys have added to dq */
    int64_t query_blocks;
    division keys;
} backward_arguments;

/* What is of keys: one panel behind another. */
typedef struct {
    float *queries, *dout;    /* [BACKWARD_QUERIES × dim] */
    float *weights, *dscores; /* [BACKWARD_QUERIES × PANEL] */
    float *kept;              /* the weights after dropout; `weights` itself without dropout */
    float *dqueries;          /* [BACKWARD_QUERIES × width] */
    float *keys;              /* [PANEL × width] */
    float *keys_transposed;   /* [dim × PANEL], scaled by log2(e) / sqrt(dim) */
    float *values_transposed; /* [dim × PANEL] */
    float *dkeys, *dvalues;   /* [dim × PANEL] */
} backward_buffers;

static backward_buffers backward_layout(const head_view *h, int64_t panels, pile *memory)
{
    int64_t keys = panels * PANEL;
    enum { SCORES = BACKWARD_QUERIES * PANEL };
    backward_buffers b = {.queries = take(memory, BACKWARD_QUERIES * h->dim),
                          .dout = take(memory, BACKWARD_QUERIES * h->dim),
                          .weights = take(memory, SCORES),
                          .dscores = take(memory, SCORES),
                          .dqueries = take(memory, BACKWARD_QUERIES * h->width),
                          .keys = take(memory, keys * h->width),
                          .keys_transposed = take(memory, h->dim * keys),
                          .values_transposed = take(memory, h->dim * keys),
                          .dkeys = take(memory, h->dim * keys),
                          .dvalues = take(memory, h->dim * keys)};
    b.kept = h->shape->dropout.rate > 0 ? take(memory, SCORES) : b.weights;
    return b;
}

static backward_buffers panel_of_keys(const head_view *h, backward_buffers b, int64_t panel)
{
    b.keys += panel * PANEL * h->width;
    b.keys_transposed += panel * h->dim * PANEL;
    b.values_transposed += panel * h->dim * PANEL;
    b.dkeys += panel * h->dim * PANEL;
    b.dvalues += panel * h->dim * PANEL;
    return b;
}

/* The weights of queries × keys, and their scores' gradients: weights · (d - delta). */
static void differentiate(const head_view *h, const backward_buffers *b, const float *log_sum, const float *delta,
                          int64_t queries, int64_t vectors)
{
    multiply_power(queries, vectors, b->queries, b->keys_transposed, b->weights, h->dim, log_sum);
    multiply_times(queries, vectors, b->dout, b->values_transposed, b->dscores, h->dim, delta, b->weights);
}

/* With dropout: the kept weights' gradient d passes through the same factors, and dscores = weights · (factor · d -
 * delta). */
static void differentiate_dropped(const head_view *h, const backward_buffers *b, const float *log_sum,
                                  const float *delta, int64_t first_query, int64_t queries, int64_t first_key,
                                  int64_t keys)
{
    int64_t vectors = (keys + LANES - 1) / LANES;
    multiply_power(queries, vectors, b->queries, b->keys_transposed, b->weights, h->dim, log_sum);
    multiply_scores(queries, vectors, b->dout, b->values_transposed, b->dscores, h->dim);
    memcpy(b->kept, b->weights, (size_t)(queries * PANEL) * sizeof(float));
    apply_dropout(h, first_query, queries, first_key, keys, b->kept, PANEL, 1);
    for (int64_t i = 0; i < queries; i++) {
        int64_t row = i * PANEL;
        for (int64_t j = row; j < row + keys; j++)
            b->dscores[j] = b->kept[j] * b->dscores[j] - b->weights[j] * delta[i];
    }
}

/* dq += scale · dqueries, after the blocks of keys before this one. */
static void add_dqueries(const head_view *h, const backward_arguments *a, const backward_buffers *b, int64_t first,
                         int64_t queries, int64_t key_block)
{
    int *added = a->added + h->unit * a->query_blocks + first / BACKWARD_QUERIES;
    const vt_matrix *sum = &a->dq_sum;
    bool last = key_block + 1 == a->keys.blocks && a->dq.type != VT_FLOAT32;
    wait_for(added, (int)key_block);
    for (int64_t i = 0; i < queries; i++) {
        int64_t row = h->batch * h->shape->queries + first + i;
        float *to = sum->data + row * sum->stride + h->column;
        const float *from = b->dqueries + i * h->width;
        if (key_block == 0)
            for (int64_t d = 0; d < h->dim; d++) to[d] = h->scale * from[d];
        else
            for (int64_t d = 0; d < h->dim; d++) to[d] += h->scale * from[d];
        if (last) vt_half_round_row(a->dq.type, to, h->dim, a->dq.half + row * a->dq.stride + h->column);
    }
    __atomic_store_n(added, (int)key_block + 1, __ATOMIC_RELEASE);
}

/* While one of `parts` panels is at work, its part of the rows that are read next is on its way. */
static void look_ahead_queries(const head_view *h, const backward_arguments *a, int64_t first, int64_t part,
                               int64_t parts)
{
    int64_t begin = first + BACKWARD_QUERIES * part / parts, end = first + BACKWARD_QUERIES * (part + 1) / parts;
    int64_t row = h->batch * h->shape->queries, next = smaller(end + BACKWARD_QUERIES, h->shape->queries);
    look_ahead(h, &a->q, row + begin + BACKWARD_QUERIES, next - begin - BACKWARD_QUERIES);
    look_ahead(h, &a->dout, row + begin + BACKWARD_QUERIES, next - begin - BACKWARD_QUERIES);
    look_ahead(h, &a->dq_sum, row + begin, smaller(end, h->shape->queries) - begin);
}

/* A panel of keys beside a block of queries. */
static void backward_panel(const head_view *h, const backward_arguments *a, const backward_buffers *b,
                           int64_t first_query, int64_t queries, int64_t first_key, int64_t keys, bool add)
{
    int64_t dim = h->dim, vectors = (keys + LANES - 1) / LANES;
    const float *delta = a->delta + h->unit * h->shape->queries + first_query;
    float log_sum[BACKWARD_QUERIES];
    for (int64_t i = 0; i < queries; i++)
        log_sum[i] = a->log_sum[h->unit * h->shape->queries + first_query + i] * log2_e;
    if (h->shape->dropout.rate > 0)
        differentiate_dropped(h, b, log_sum, delta, first_query, queries, first_key, keys);
    else
        differentiate(h, b, log_sum, delta, queries, vectors);
    add_transposed(dim, vectors, b->dout, b->kept, b->dvalues, queries);
    add_transposed(dim, vectors, b->queries, b->dscores, b->dkeys, queries);
    multiply_panel(queries, h->width / LANES, b->dscores, b->keys, b->dqueries, keys, add);
}

/* One block of keys against all queries. */
static void backward_block(const head_view *h, const backward_arguments *a, const backward_buffers *b,
                           int64_t key_block)
{
    block_view block = view_block(&a->keys, key_block);
    int64_t dim = h->dim, key_row = h->batch * h->shape->keys + block.first, keys;
    for (int64_t panel = 0; panel < block.panels; panel++) {
        backward_buffers part = panel_of_keys(h, *b, panel);
        int64_t row = key_row + view_panel(&block, panel, &keys);
        pack_rows(h, &a->k, row, keys, h->width, part.keys);
        pack_transposed(h, &a->k, row, keys, PANEL, h->scale * log2_e, part.keys_transposed);
        pack_transposed(h, &a->v, row, keys, PANEL, 1, part.values_transposed);
    }
    memset(b->dkeys, 0, (size_t)(dim * block.panels * PANEL) * sizeof(float));
    memset(b->dvalues, 0, (size_t)(dim * block.panels * PANEL) * sizeof(float));
    for (int64_t first = 0; first < h->shape->queries; first += BACKWARD_QUERIES) {
        int64_t queries = smaller(BACKWARD_QUERIES, h->shape->queries - first);
        int64_t row = h->batch * h->shape->queries + first;
        pack_rows(h, &a->q, row, queries, dim, b->queries);
        pack_rows(h, &a->dout, row, queries, dim, b->dout);
        for (int64_t panel = 0; panel < block.panels; panel++) {
            backward_buffers part = panel_of_keys(h, *b, panel);
            int64_t key = block.first + view_panel(&block, panel, &keys);
            look_ahead_queries(h, a, first, panel, block.panels);
            backward_panel(h, a, &part, first, queries, key, keys, panel > 0);
        }
        add_dqueries(h, a, b, first, queries, key_block);
    }
    for (int64_t panel = 0; panel < block.panels; panel++) {
        backward_buffers part = panel_of_keys(h, *b, panel);
        int64_t row = key_row + view_panel(&block, panel, &keys);
        unpack_transposed(h, part.dkeys, PANEL, row, keys, h->scale, &a->dk);
        unpack_transposed(h, part.dvalues, PANEL, row, keys, 1, &a->dv);
    }
}

/* The order of the sums in q's gradient hangs on it: so it is chosen by the shape, not by the threads. Wide heads
 * would outgrow the second cache. */
static division divide_keys(const vt_attention_shape *shape)
{
    division large = divide(shape->keys, MOST_PANELS);
    bool enough = shape->batch * shape->heads * large.blocks >= 32 && shape->head_dim <= 64;
    return enough ? large : divide(shape->keys, MOST_PANELS / 2);
}

static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    head_view any = view_head(shape, 0);
    int64_t heads = shape->batch * shape->heads, next = 0;
    backward_arguments a = {q, k, v, out, dout, dq, dk, dv, .log_sum = log_sum};
    a.query_blocks = (shape->queries + BACKWARD_QUERIES - 1) / BACKWARD_QUERIES;
    a.keys = divide_keys(shape);
    int64_t panels = (a.keys.panels + a.keys.blocks - 1) / a.keys.blocks;
    pile count = {NULL, 0};
    backward_layout(&any, panels, &count);
    int64_t wide = dq.type == VT_FLOAT32 ? 0 : dq.rows * dq.columns;
    int64_t flags = heads * a.query_blocks;
    float *shared = vt_cpu_shared(backend, (size_t)(heads * shape->queries + wide + flags) * sizeof(float));
    if (shared == NULL || !vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float))) return;
    a.dq_sum = wide > 0 ? vt_matrix_make(shared, dq.rows, dq.columns) : dq;
    a.delta = shared + wide;
    /* cppcheck-suppress invalidPointerCast ; room behind the floats */
    a.added = (int *)(a.delta + heads * shape->queries);
    memset(a.added, 0, (size_t)flags * sizeof(int));
#pragma omp parallel
    {
        make_delta(shape, &a.out, &a.dout, a.delta);
        int64_t unit, block;
        pile memory = {vt_cpu_scratch(backend), 0};
        backward_buffers b = backward_layout(&any, panels, &memory);
        while (take_block(&next, heads, a.keys.blocks, vt_cpu_threads(backend), &unit, &block)) {
            head_view h = view_head(shape, unit);
            backward_block(&h, &a, &b, block);
        }
    }
}

void VT_KERNEL(vt_vector_attention_fill)(vt_backend *backend)
{
    backend->attention_forward = attention_forward;
    backend->attention_backward = attention_backward;
}
