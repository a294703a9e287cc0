/* The gradient of q is a sum over the blocks of keys, added up in order: a unit waits until the units before it have
 * added theirs to a block of queries. So the result does not depend on the number of threads. */
#include "backend/cpu/vector/attention_panels.h"

enum { BACKWARD_QUERIES = 48 }; /* queries that a panel of keys is multiplied with at once */

/* ---- products: not inlined, one copy of each is enough ---- */

/* weights [rows × vectors·LANES] = 2^(a b - the row's `less`). */
static __attribute__((noinline)) void multiply_power(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                     float *weights, int64_t depth, const float *less,
                                                     lines_ahead *ahead)
{
    tile_columns(TILE_POWER, rows, vectors, a, depth, 1, b, PANEL, weights, PANEL, depth,
                 (tile_beside){ahead, less, weights});
}

/* dscores [rows × vectors·LANES] = weights · (a b - the row's `less`). */
static __attribute__((noinline)) void multiply_times(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                     float *dscores, int64_t depth, const float *less,
                                                     const float *weights, lines_ahead *ahead)
{
    tile_columns(TILE_TIMES, rows, vectors, a, depth, 1, b, PANEL, dscores, PANEL, depth,
                 (tile_beside){ahead, less, weights});
}

/* sums [rows × vectors·LANES] (+)= a b: a [rows × depth] lies in a panel, b and the sums do not. */
static __attribute__((noinline)) void multiply_panel(int64_t rows, int64_t vectors, const float *a, const float *b,
                                                     float *sums, int64_t depth, bool add, lines_ahead *ahead)
{
    int64_t width = vectors * LANES;
    if (add)
        tile_columns(TILE_ADD, rows, vectors, a, PANEL, 1, b, width, sums, width, depth,
                     (tile_beside){ahead, NULL, NULL});
    else
        tile_columns(TILE_SET, rows, vectors, a, PANEL, 1, b, width, sums, width, depth,
                     (tile_beside){ahead, NULL, NULL});
}

/* ---- blocks ---- */

typedef struct {
    vt_matrix q, k, v, dout, dq, dk, dv;
    const float *log_sum;
    division keys;
    backward_shared
        shared; /* dq_sum [units, queries, width], without the scale; NULL: one unit has all keys of its head */
} backward_arguments;

/* The arrays of keys: one panel after another. */
typedef struct {
    float *queries, *dout;    /* [BACKWARD_QUERIES × dim]: a block of the head's queries */
    float *weights, *dscores; /* [BACKWARD_QUERIES × PANEL] */
    float *kept;              /* the weights after dropout; the same as `weights` without dropout */
    float *dqueries;          /* [BACKWARD_QUERIES × width]: a block of dq_sum, or scratch memory in its place */
    float *keys;              /* [PANEL × width] */
    float *keys_transposed;   /* [dim × PANEL], scaled by log2(e) / sqrt(dim) */
    float *values_transposed; /* [dim × PANEL] */
    float *dkeys, *dvalues;   /* [dim × PANEL] */
    lines_ahead *ahead;       /* what is prefetched beside the tiles of a block of queries */
} backward_buffers;

static backward_buffers backward_layout(const head_view *h, int64_t panels, pile *memory)
{
    int64_t keys = panels * PANEL;
    enum { SCORES = BACKWARD_QUERIES * PANEL };
    backward_buffers b = {.weights = take(memory, SCORES),
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

/* The weights of queries × keys, and their scores' gradients: weights · (d - delta). With dropout the kept weights'
 * gradient d passes through the same factors, and dscores = weights · (factor · d - delta). */
static void differentiate(const head_view *h, const backward_buffers *b, const float *log_sum, const float *delta,
                          int64_t first_query, int64_t queries, int64_t first_key, int64_t keys)
{
    const int64_t vectors = pieces(keys, LANES);
    multiply_power(queries, vectors, b->queries, b->keys_transposed, b->weights, h->dim, log_sum, b->ahead);
    mask_block(h, first_query, queries, first_key, keys, b->weights, PANEL, 1, 0);
    if (h->shape->dropout.rate <= 0) {
        multiply_times(queries, vectors, b->dout, b->values_transposed, b->dscores, h->dim, delta, b->weights,
                       b->ahead);
        return;
    }
    multiply_scores(queries, vectors, b->dout, b->values_transposed, b->dscores, h->dim, b->ahead);
    memcpy(b->kept, b->weights, (size_t)(queries * PANEL) * sizeof(float));
    apply_dropout(h, first_query, queries, first_key, keys, b->kept, PANEL, 1);
    for (int64_t i = 0; i < queries; i++) { /* whole vectors: the last keys are rounded like all others */
        for (int64_t j = i * PANEL; j < i * PANEL + vectors * LANES; j += LANES)
            store(b->dscores + j, load(b->kept + j) * load(b->dscores + j) - load(b->weights + j) * delta[i]);
    }
}

/* A head's queries and the gradients of its output, which every block of its keys needs: packed block by block when the
 * thread's first block of keys gets there, and kept while the thread stays with the head. */
typedef struct {
    float *queries, *dout; /* [queries × dim] */
    int64_t unit, count;   /* the head that is packed there (-1: none), and how many of its queries */
} packed_queries;

static packed_queries packed_layout(const head_view *h, pile *memory)
{
    int64_t floats = h->shape->queries * h->dim;
    return (packed_queries){take(memory, floats), take(memory, floats), -1, 0};
}

/* Is the block of queries that begins at `first` packed? */
static void pack_queries(const head_view *h, const backward_arguments *a, packed_queries *packed, int64_t first)
{
    if (packed->unit != h->unit) {
        packed->unit = h->unit;
        packed->count = 0;
    }
    if (first < packed->count) return;
    int64_t rows = smaller(BACKWARD_QUERIES, h->shape->queries - first), row = h->batch * h->shape->queries + first;
    pack_rows(h, &a->q, row, rows, h->dim, packed->queries + first * h->dim);
    pack_rows(h, &a->dout, row, rows, h->dim, packed->dout + first * h->dim);
    packed->count = first + rows;
}

/* A unit of work: a block of a head's keys. */
typedef struct {
    head_view h;
    block_view block;
    int64_t index; /* of the block within its head */
} backward_unit;

static backward_unit view_unit(const backward_arguments *a, const vt_attention_shape *shape, int64_t head,
                               int64_t block)
{
    return (backward_unit){view_head(shape, head), view_block(&a->keys, block), block};
}

/* Rows of a unit's block of keys: their part beside block `index` of the head's queries. */
static void add_keys_ahead(lines_ahead *ahead, const backward_unit *u, const vt_matrix *matrix, int64_t index,
                           int64_t blocks)
{
    const int64_t begin = piece_begin(u->block.count, blocks, index),
                  end = piece_begin(u->block.count, blocks, index + 1);
    add_head_ahead(ahead, &u->h, matrix, u->h.batch * u->h.shape->keys + u->block.first + begin, end - begin);
}

static void add_queries_ahead(lines_ahead *ahead, const backward_unit *u, const backward_arguments *a, int64_t first)
{
    const int64_t row = u->h.batch * u->h.shape->queries + first;
    const int64_t rows = smaller(BACKWARD_QUERIES, u->h.shape->queries - first);
    add_head_ahead(ahead, &u->h, &a->q, row, rows);
    add_head_ahead(ahead, &u->h, &a->dout, row, rows);
}

/* What is read and written soon, beside the block of queries from `first` on: the queries that are packed next, this
 * block of dq if it is complete then, and parts of dk, dv, and of the next unit's keys and values (NULL: there is
 * none). Stores to rows that are not in a cache would delay everything after them. */
static lines_ahead ahead_of_queries(const backward_unit *u, const backward_arguments *a, const packed_queries *packed,
                                    const backward_unit *next, int64_t first, int64_t queries)
{
    const int64_t index = first / BACKWARD_QUERIES, blocks = a->shared.query_blocks;
    lines_ahead ahead = {0};
    if (packed->count < u->h.shape->queries)
        add_queries_ahead(&ahead, u, a, packed->count);
    else if (next != NULL && next->h.unit != u->h.unit && index + 1 == blocks)
        add_queries_ahead(&ahead, next, a, 0);
    if (u->index + 1 == a->keys.blocks)
        add_head_ahead(&ahead, &u->h, &a->dq, u->h.batch * u->h.shape->queries + first, queries);
    add_keys_ahead(&ahead, u, &a->dk, index, blocks);
    add_keys_ahead(&ahead, u, &a->dv, index, blocks);
    if (next != NULL) {
        add_keys_ahead(&ahead, next, &a->k, index, blocks);
        add_keys_ahead(&ahead, next, &a->v, index, blocks);
    }
    pace_ahead(&ahead, u->block.panels * (3 * pieces(queries, TILE_ROWS) + 2 * pieces(u->h.dim, TILE_ROWS)));
    return ahead;
}

/* A panel of keys against a block of queries. */
static void backward_panel(const head_view *h, const backward_arguments *a, const backward_buffers *b,
                           int64_t first_query, int64_t queries, int64_t first_key, int64_t keys, bool add)
{
    int64_t dim = h->dim, vectors = pieces(keys, LANES);
    const float *delta = a->shared.delta + h->unit * h->shape->queries + first_query;
    float log_sum[BACKWARD_QUERIES];
    for (int64_t i = 0; i < queries; i++)
        log_sum[i] = log_sum_in_powers(a->log_sum[h->unit * h->shape->queries + first_query + i]);
    differentiate(h, b, log_sum, delta, first_query, queries, first_key, keys);
    add_transposed(dim, vectors, b->dout, b->kept, b->dvalues, queries, b->ahead);
    add_transposed(dim, vectors, b->queries, b->dscores, b->dkeys, queries, b->ahead);
    multiply_panel(queries, h->width / LANES, b->dscores, b->keys, b->dqueries, keys, add, b->ahead);
}

/* All panels of a block of keys against one block of queries. */
static void backward_queries(const backward_unit *u, const backward_arguments *a, backward_buffers b,
                             packed_queries *packed, const backward_unit *next, int64_t first)
{
    const head_view *h = &u->h;
    const block_view *block = &u->block;
    int64_t queries = smaller(BACKWARD_QUERIES, h->shape->queries - first);
    int *added = a->shared.added + h->unit * a->shared.query_blocks + first / BACKWARD_QUERIES;
    const int64_t seen = keys_seen(h, first + queries - 1, block->first, block->count);
    pack_queries(h, a, packed, first);
    lines_ahead ahead = ahead_of_queries(u, a, packed, next, first, queries);
    b.ahead = &ahead;
    b.queries = packed->queries + first * h->dim;
    b.dout = packed->dout + first * h->dim;
    if (a->shared.dq_sum != NULL) b.dqueries = a->shared.dq_sum + (h->unit * h->shape->queries + first) * h->width;
    wait_for(added, (int)u->index);
    if (seen == 0 && u->index == 0) memset(b.dqueries, 0, (size_t)(queries * h->width) * sizeof(float));
    for (int64_t panel = 0; panel < block->panels; panel++) {
        backward_buffers part = panel_of_keys(h, b, panel);
        int64_t keys, key = block->first + view_panel(block, panel, &keys);
        if (key - block->first >= seen) continue; /* the queries see none of these */
        backward_panel(h, a, &part, first, queries, key, keys, u->index + panel > 0);
    }
    if (u->index + 1 == a->keys.blocks)
        unpack_rows(h, b.dqueries, h->width, h->batch * h->shape->queries + first, queries, h->scale, &a->dq);
    __atomic_store_n(added, (int)u->index + 1, __ATOMIC_RELEASE);
}

INLINE void pack_keys(const head_view *h, const backward_arguments *a, const backward_buffers *b,
                      const block_view *block)
{
    for (int64_t panel = 0; panel < block->panels; panel++) {
        backward_buffers part = panel_of_keys(h, *b, panel);
        int64_t keys, row = h->batch * h->shape->keys + block->first + view_panel(block, panel, &keys);
        pack_rows(h, &a->k, row, keys, h->width, part.keys);
        pack_transposed(h, &a->k, row, keys, PANEL, h->scale * log2_e, part.keys_transposed);
        pack_transposed(h, &a->v, row, keys, PANEL, 1, part.values_transposed);
    }
}

/* One block of keys against all queries. */
static void backward_block(const backward_unit *u, const backward_arguments *a, const backward_buffers *b,
                           packed_queries *packed, const backward_unit *next)
{
    const head_view *h = &u->h;
    int64_t dim = h->dim, key_row = h->batch * h->shape->keys + u->block.first, keys;
    pack_keys(h, a, b, &u->block);
    memset(b->dkeys, 0, (size_t)(dim * u->block.panels * PANEL) * sizeof(float));
    memset(b->dvalues, 0, (size_t)(dim * u->block.panels * PANEL) * sizeof(float));
    for (int64_t first = 0; first < h->shape->queries; first += BACKWARD_QUERIES)
        backward_queries(u, a, *b, packed, next, first);
    for (int64_t panel = 0; panel < u->block.panels; panel++) {
        backward_buffers part = panel_of_keys(h, *b, panel);
        int64_t row = key_row + view_panel(&u->block, panel, &keys);
        unpack_transposed(h, part.dkeys, PANEL, row, keys, h->scale, &a->dk);
        unpack_transposed(h, part.dvalues, PANEL, row, keys, 1, &a->dv);
    }
}

/* The order of the sums in q's gradient depends on this, so the shape decides it, not the threads. Wide heads would not
 * fit the second-level cache. */
static division divide_keys(const vt_attention_shape *shape)
{
    division large = divide(shape->keys, MOST_PANELS);
    bool enough = shape->batch * shape->heads * large.blocks >= 32 && shape->head_dim <= 64;
    return enough ? large : divide(shape->keys, MOST_PANELS / 2);
}

void VT_VECTOR(attention_backward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                   vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                                   vt_matrix dk, vt_matrix dv)
{
    head_view any = view_head(shape, 0);
    backward_arguments a = {q, k, v, dout, dq, dk, dv, .log_sum = log_sum};
    a.keys = divide_keys(shape);
    int64_t query_blocks = pieces(shape->queries, BACKWARD_QUERIES);
    int64_t dq_floats = a.keys.blocks > 1 ? shape->queries * any.width : 0;
    int64_t panels = pieces(a.keys.panels, a.keys.blocks);
    pile count = {NULL, 0};
    backward_layout(&any, panels, &count);
    packed_layout(&any, &count);
    if (!share_backward(backend, shape, a.keys.blocks, query_blocks, dq_floats, &a.shared) ||
        !vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float)))
        return;
#pragma omp parallel
    {
        make_delta(shape, &out, &dout, a.shared.delta);
        int64_t head = -1, block;
        pile memory = {vt_cpu_scratch(backend), 0};
        backward_buffers b = backward_layout(&any, panels, &memory);
        packed_queries packed = packed_layout(&any, &memory);
        /* A thread takes its next unit before it computes one, so that it can prefetch it meanwhile. No thread waits
         * forever: a unit waits only for units that were taken before it, and each thread computes its own in order. */
        bool more = take_block(&a.shared, &head, &block);
        backward_unit u, next;
        if (more) next = view_unit(&a, shape, head, block);
        while (more) {
            u = next;
            more = take_block(&a.shared, &head, &block);
            if (more) next = view_unit(&a, shape, head, block);
            backward_block(&u, &a, &b, &packed, more ? &next : NULL);
        }
    }
}
