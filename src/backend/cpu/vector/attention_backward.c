/* The gradient of q is a sum over the blocks of keys, added up in their order: a unit waits until the ones before it
 * have added theirs to a block of queries. So the result does not depend on the number of threads. */
#include "backend/cpu/vector/attention_panels.h"

enum { BACKWARD_QUERIES = 48 }; /* that a panel of keys meets at once */

/* ---- products: not inlined, one copy of each is enough ---- */

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

/* ---- blocks ---- */

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
    int64_t vectors = pieces(keys, LANES);
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
    int64_t dim = h->dim, vectors = pieces(keys, LANES);
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
    a.query_blocks = pieces(shape->queries, BACKWARD_QUERIES);
    a.keys = divide_keys(shape);
    int64_t panels = pieces(a.keys.panels, a.keys.blocks);
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

void VT_KERNEL(vt_vector_attention_backward_fill)(vt_backend *backend)
{
    backend->attention_backward = attention_backward;
}
