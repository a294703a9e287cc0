#include "backend/cpu/vector/attention_panels.h"

enum { FORWARD_KEYS = 60 }; /* keys that a panel of queries is multiplied with at once: whole tiles */

typedef struct {
    vt_matrix q, k, v, out;
    float *log_sum;
    division queries;
} forward_arguments;

/* The arrays of queries: one panel after another. */
typedef struct {
    float *keys, *values; /* [FORWARD_KEYS × dim] */
    float *scores;        /* [FORWARD_KEYS × PANEL]; overwritten with weights */
    float *queries;       /* [dim × PANEL], scaled by log2(e) / sqrt(dim) */
    float *out;           /* [dim × PANEL] */
    float *maximum, *sum; /* [PANEL]: weights are relative to the maximum */
    float *seen;          /* [PANEL]: how many of the keys at hand a query sees; of the panel at hand */
    lines_ahead *ahead;   /* what is prefetched beside the tiles of a block of keys */
} forward_buffers;

static forward_buffers forward_layout(const head_view *h, int64_t panels, pile *memory)
{
    int64_t queries = panels * PANEL;
    return (forward_buffers){.keys = take(memory, h->dim * FORWARD_KEYS),
                             .values = take(memory, h->dim * FORWARD_KEYS),
                             .scores = take(memory, FORWARD_KEYS * PANEL),
                             .seen = take(memory, PANEL),
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

/* Keys first … end - 1 of a block gave `vectors` of queries some scores more than 8 above their maxima: raises those
 * maxima and rescales what is relative to them. */
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
 * computed where the product's sums end. The maximum need not be the largest score: weights up to 2^8 are as exact.
 * Beyond that it is raised and the tile is computed again. A query's result does not depend on the queries beside it:
 * each has its own maximum, and all have their keys in the same tiles. masked (a constant): not all queries see all
 * keys. */
INLINE void weigh_tile(int rows, int vectors, bool masked, const head_view *h, const forward_buffers *b, int64_t query,
                       int64_t first)
{
    vector sum[8][4];
    float *weights = b->scores + first * PANEL + query;
    look_ahead_some(b->ahead);
    for (bool again = false;; again = true) {
        vector_bits exceeds = {0};
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sum[i][j] = -load(b->maximum + query + j * LANES);
        tile_products(rows, vectors, b->keys + first * h->dim, h->dim, 1, b->queries + query, PANEL, h->dim, sum);
        if (masked) {
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
                for (int j = 0; j < vectors; j++)
                    sum[i][j] =
                        choose(splat((float)(first + i)) < load(b->seen + query + j * LANES), sum[i][j], splat(-1e30f));
        }
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

/* `vectors` (a constant) of queries against all keys of a block. */
INLINE void weigh_column(int vectors, bool masked, const head_view *h, const forward_buffers *b, int64_t query,
                         int64_t keys)
{
    int64_t k = 0;
    for (; k + TILE_ROWS <= keys; k += TILE_ROWS) weigh_tile(TILE_ROWS, vectors, masked, h, b, query, k);
    for (; k < keys; k++) weigh_tile(1, vectors, masked, h, b, query, k);
}

INLINE void weigh_columns(bool masked, const head_view *h, const forward_buffers *b, int64_t vectors, int64_t keys)
{
    int64_t i = 0;
    for (; i + TILE_VECTORS <= vectors; i += TILE_VECTORS) weigh_column(TILE_VECTORS, masked, h, b, i * LANES, keys);
    if (TILE_VECTORS > 3 && vectors - i == 3)
        weigh_column(3, masked, h, b, i * LANES, keys);
    else if (TILE_VECTORS > 2 && vectors - i == 2)
        weigh_column(2, masked, h, b, i * LANES, keys);
    else if (vectors - i == 1)
        weigh_column(1, masked, h, b, i * LANES, keys);
}

static __attribute__((noinline)) void weigh(bool masked, const head_view *h, const forward_buffers *b, int64_t vectors,
                                            int64_t keys)
{
    if (masked)
        weigh_columns(true, h, b, vectors, keys);
    else
        weigh_columns(false, h, b, vectors, keys);
}

/* Maxima begin with the scores of the first key. */
static void begin_maximum(const head_view *h, const forward_buffers *b, int64_t vectors)
{
    multiply_scores(1, vectors, b->keys, b->queries, b->maximum, h->dim, b->ahead);
    for (int64_t i = 0; i < vectors * LANES; i += LANES)
        store(b->maximum + i, largest(splat(-1e30f), load(b->maximum + i))); /* a NaN stays NaN */
}

static void forward_panel(const head_view *h, const forward_buffers *b, int64_t first_query, int64_t queries,
                          int64_t first_key, int64_t keys)
{
    int64_t vectors = pieces(queries, LANES);
    if (first_key == 0) begin_maximum(h, b, vectors);
    keys = keys_seen(h, first_query + queries - 1, first_key, keys);
    const bool masked = is_masked(h, first_query, first_key + keys);
    for (int64_t i = 0; masked && i < vectors * LANES; i++)
        b->seen[i] = (float)(vt_attention_seen(h->shape, first_query + i) - first_key);
    weigh(masked, h, b, vectors, keys);
    if (h->shape->dropout.rate > 0) apply_dropout(h, first_query, queries, first_key, keys, b->scores, 1, PANEL);
    add_transposed(h->dim, vectors, b->values, b->scores, b->out, keys, b->ahead);
}

/* A unit of work. */
typedef struct {
    head_view h;
    block_view block;
} forward_unit;

static forward_unit view_unit(const forward_arguments *a, const vt_attention_shape *shape, int64_t index)
{
    const int64_t blocks = a->queries.blocks;
    /* the last queries first: under a causal mask they take longest */
    return (forward_unit){view_head(shape, index / blocks), view_block(&a->queries, blocks - 1 - index % blocks)};
}

/* What is read and written soon: the next block of keys, or behind the last one the unit's results and the first keys
 * of the next unit (NULL: there is none), and a part of the next unit's queries. */
static lines_ahead ahead_of_keys(const forward_unit *u, const forward_arguments *a, const forward_unit *next,
                                 int64_t first, int64_t keys)
{
    const vt_attention_shape *shape = u->h.shape;
    const int64_t row = u->h.batch * shape->keys + first + keys, blocks = pieces(shape->keys, FORWARD_KEYS);
    const int64_t rows = smaller(FORWARD_KEYS, shape->keys - first - keys), tiles = pieces(keys, TILE_ROWS);
    lines_ahead ahead = {0};
    add_head_ahead(&ahead, &u->h, &a->k, row, rows);
    add_head_ahead(&ahead, &u->h, &a->v, row, rows);
    if (rows == 0) add_head_ahead(&ahead, &u->h, &a->out, u->h.batch * shape->queries + u->block.first, u->block.count);
    if (next != NULL) {
        const int64_t begin = piece_begin(next->block.count, blocks, first / FORWARD_KEYS);
        const int64_t end = piece_begin(next->block.count, blocks, first / FORWARD_KEYS + 1);
        add_head_ahead(&ahead, &next->h, &a->q, next->h.batch * shape->queries + next->block.first + begin,
                       end - begin);
        if (rows == 0) {
            add_head_ahead(&ahead, &next->h, &a->k, next->h.batch * shape->keys, smaller(FORWARD_KEYS, shape->keys));
            add_head_ahead(&ahead, &next->h, &a->v, next->h.batch * shape->keys, smaller(FORWARD_KEYS, shape->keys));
        }
    }
    pace_ahead(&ahead, u->block.panels * (tiles + pieces(u->h.dim, TILE_ROWS)));
    return ahead;
}

/* All panels against one block of keys. */
static void forward_keys(const forward_unit *u, const forward_arguments *a, const forward_buffers *b,
                         const forward_unit *next, int64_t first, int64_t keys)
{
    const head_view *h = &u->h;
    int64_t row = h->batch * h->shape->keys + first, queries;
    lines_ahead ahead = ahead_of_keys(u, a, next, first, keys);
    pack_rows(h, &a->k, row, keys, h->dim, b->keys);
    pack_rows(h, &a->v, row, keys, h->dim, b->values);
    for (int64_t panel = 0; panel < u->block.panels; panel++) {
        forward_buffers part = panel_of(h, *b, panel);
        int64_t query = view_panel(&u->block, panel, &queries);
        part.ahead = &ahead;
        forward_panel(h, &part, u->block.first + query, queries, first, keys);
    }
}

/* out = out / sum and log_sum of a panel's queries. */
static void finish_panel(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t query,
                         int64_t queries)
{
    float *log_sum = a->log_sum + h->unit * h->shape->queries + query;
    for (int64_t i = 0; i < queries; i += LANES) {
        vector sum = load(b->sum + i), inverse = 1 / sum;
        for (int64_t d = 0; d < h->dim; d++) store(b->out + d * PANEL + i, inverse * load(b->out + d * PANEL + i));
        store(b->sum + i, load(b->maximum + i) / log2_e + log_vector(sum));
    }
    unpack_transposed(h, b->out, PANEL, h->batch * h->shape->queries + query, queries, 1, &a->out);
    memcpy(log_sum, b->sum, (size_t)queries * sizeof(float));
    blank_unseeing(h, query, queries, &a->out, log_sum);
}

static void forward_block(const forward_unit *u, const forward_arguments *a, const forward_buffers *b,
                          const forward_unit *next)
{
    const head_view *h = &u->h;
    const block_view *block = &u->block;
    int64_t row = h->batch * h->shape->queries + block->first, most = block->panels * PANEL, queries;
    for (int64_t panel = 0; panel < block->panels; panel++) {
        int64_t query = view_panel(block, panel, &queries);
        pack_transposed(h, &a->q, row + query, queries, PANEL, h->scale * log2_e, panel_of(h, *b, panel).queries);
    }
    memset(b->out, 0, (size_t)(h->dim * most) * sizeof(float));
    memset(b->sum, 0, (size_t)most * sizeof(float));
    const int64_t keys = keys_seen(h, block->first + block->count - 1, 0, h->shape->keys);
    for (int64_t key = 0; key < keys; key += FORWARD_KEYS)
        forward_keys(u, a, b, next, key, smaller(FORWARD_KEYS, h->shape->keys - key));
    for (int64_t panel = 0; panel < block->panels; panel++) {
        forward_buffers part = panel_of(h, *b, panel);
        int64_t query = view_panel(block, panel, &queries);
        finish_panel(h, a, &part, block->first + query, queries);
    }
}

void VT_VECTOR(attention_forward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                  vt_matrix v, vt_matrix out, float *log_sum)
{
    head_view any = view_head(shape, 0);
    int64_t heads = shape->batch * shape->heads, panels = MOST_PANELS;
    forward_arguments arguments = {q, k, v, out, log_sum, divide(shape->queries, panels)};
    /* several units for each thread; none of this changes the order of the sums */
    while (panels > 1 && heads * arguments.queries.blocks < 4 * vt_cpu_threads(backend))
        arguments.queries = divide(shape->queries, --panels);
    pile count = {NULL, 0};
    forward_layout(&any, panels, &count);
    if (!vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float))) return;
    int64_t units = heads * arguments.queries.blocks, taken = 0;
#pragma omp parallel
    {
        /* a thread takes its next unit before it computes one, so that it can prefetch it meanwhile */
        int64_t unit = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
        while (unit < units) {
            int64_t after = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
            forward_unit u = view_unit(&arguments, shape, unit), next = view_unit(&arguments, shape, after);
            pile memory = {vt_cpu_scratch(backend), 0};
            forward_buffers b = forward_layout(&u.h, panels, &memory);
            forward_block(&u, &arguments, &b, after < units ? &next : NULL);
            unit = after;
        }
    }
}
