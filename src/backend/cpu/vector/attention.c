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
    PANEL = 64, /* queries (backward: keys) whose scores are made at once, beside … */
    FORWARD_KEYS = 64,
    BACKWARD_QUERIES = 48,
    FORWARD_PANELS = 6,  /* of a unit at most: they share the packed keys … */
    BACKWARD_PANELS = 4, /* … and these the packed queries, and one sum for the gradient of q */
    BACKWARD_KEYS = PANEL * BACKWARD_PANELS
};

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
    int64_t panels; /* of a unit */
} forward_arguments;

/* What is of queries: one panel behind another. */
typedef struct {
    float *keys, *values; /* [FORWARD_KEYS × dim] */
    float *scores;        /* [FORWARD_KEYS × PANEL], in powers of two */
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

/* `vectors` (a constant) of queries have scores beside more keys: their maxima, and the sums that are relative to them,
 * follow. A maximum follows only when scores exceed it by a factor of 2^8: weights up to 256 are as exact, and the sums
 * are seldom brought to a new one. */
INLINE void follow_maximum(int vectors, const head_view *h, const forward_buffers *b, int64_t query, int64_t keys)
{
    vector high[4];
    vector_bits exceeds = {0};
#pragma GCC unroll 4
    for (int i = 0; i < vectors; i++) high[i] = load(b->scores + query + i * LANES);
    for (int64_t k = 1; k < keys; k++) {
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) high[i] = largest(high[i], load(b->scores + k * PANEL + query + i * LANES));
    }
    for (int i = 0; i < vectors; i++) exceeds |= high[i] > load(b->maximum + query + i * LANES) + 8.0f;
    int any = 0;
    for (int i = 0; i < LANES; i++) any |= exceeds[i];
    if (!any) return;
    for (int i = 0; i < vectors; i++) {
        float *maximum = b->maximum + query + i * LANES, *sum = b->sum + query + i * LANES;
        vector old = load(maximum), new = choose(high[i] > old + 8.0f, high[i], old), factor = exp2_vector(old - new);
        store(maximum, new);
        store(sum, factor * load(sum));
        for (int64_t d = 0; d < h->dim; d++) {
            float *out = b->out + d * PANEL + query + i * LANES;
            store(out, factor * load(out));
        }
    }
}

/* Their scores become weights, whose sums are added to theirs. */
INLINE void soften(int vectors, const head_view *h, const forward_buffers *b, int64_t query, int64_t keys)
{
    vector maximum[4], total[4];
    follow_maximum(vectors, h, b, query, keys);
#pragma GCC unroll 4
    for (int i = 0; i < vectors; i++) {
        maximum[i] = load(b->maximum + query + i * LANES);
        total[i] = (vector){0};
    }
    for (int64_t k = 0; k < keys; k++) {
        float *scores = b->scores + k * PANEL + query;
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) {
            vector weight = exp2_vector(load(scores + i * LANES) - maximum[i]);
            total[i] += weight;
            store(scores + i * LANES, weight);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < vectors; i++) store(b->sum + query + i * LANES, load(b->sum + query + i * LANES) + total[i]);
}

static void forward_panel(const head_view *h, const forward_buffers *b, int64_t first_query, int64_t queries,
                          int64_t first_key, int64_t keys)
{
    int64_t vectors = (queries + LANES - 1) / LANES, i = 0;
    multiply(keys, vectors, b->keys, h->dim, b->queries, PANEL, b->scores, PANEL, h->dim, false);
    for (; i + 4 <= vectors; i += 4) soften(4, h, b, i * LANES, keys);
    for (; i < vectors; i++) soften(1, h, b, i * LANES, keys);
    if (h->shape->dropout.rate > 0) apply_dropout(h, first_query, queries, first_key, keys, b->scores, 1, PANEL);
    multiply_transposed(h->dim, vectors, b->values, h->dim, b->scores, PANEL, b->out, PANEL, keys, true);
}

/* All panels beside one block of keys; meanwhile the next block is on its way. */
static void forward_keys(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t first_query,
                         int64_t queries, int64_t first, int64_t keys)
{
    int64_t step = FORWARD_KEYS / a->panels; /* what is left of FORWARD_KEYS is not asked for */
    int64_t row = h->batch * h->shape->keys + first, left = h->shape->keys - first - keys;
    pack_rows(h, &a->k, row, keys, h->dim, b->keys);
    pack_rows(h, &a->v, row, keys, h->dim, b->values);
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        forward_buffers part = panel_of(h, *b, panel);
        if ((panel + 1) * step <= left) {
            look_ahead(h, &a->k, row + keys + panel * step, step);
            look_ahead(h, &a->v, row + keys + panel * step, step);
        }
        forward_panel(h, &part, first_query + panel * PANEL, smaller(PANEL, queries - panel * PANEL), first, keys);
    }
}

static void forward_block(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t first)
{
    int64_t most = a->panels * PANEL, queries = smaller(most, h->shape->queries - first);
    int64_t row = h->batch * h->shape->queries + first;
    for (int64_t panel = 0; panel < a->panels; panel++)
        pack_transposed(h, &a->q, row + panel * PANEL, queries - panel * PANEL, PANEL, h->scale * log2_e,
                        panel_of(h, *b, panel).queries);
    memset(b->out, 0, (size_t)(h->dim * most) * sizeof(float));
    for (int64_t i = 0; i < most; i++) {
        b->maximum[i] = -1e30f;
        b->sum[i] = 0;
    }
    for (int64_t key = 0; key < h->shape->keys; key += FORWARD_KEYS)
        forward_keys(h, a, b, first, queries, key, smaller(FORWARD_KEYS, h->shape->keys - key));
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        forward_buffers part = panel_of(h, *b, panel);
        for (int64_t d = 0; d < h->dim; d++)
            for (int64_t i = 0; i < PANEL; i++) part.out[d * PANEL + i] *= 1 / part.sum[i];
        unpack_transposed(h, part.out, PANEL, row + panel * PANEL, smaller(PANEL, queries - panel * PANEL), 1, &a->out);
    }
    for (int64_t i = 0; i < queries; i++)
        a->log_sum[h->unit * h->shape->queries + first + i] = b->maximum[i] / log2_e + logf(b->sum[i]);
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    head_view any = view_head(shape, 0);
    int64_t heads = shape->batch * shape->heads, all = (shape->queries + PANEL - 1) / PANEL;
    forward_arguments arguments = {q, k, v, out, log_sum, FORWARD_PANELS};
    /* some units for each thread; none of this touches the order of the sums */
    while (arguments.panels > 1 && heads * all < 4 * arguments.panels * vt_cpu_threads(backend)) arguments.panels--;
    pile count = {NULL, 0};
    forward_layout(&any, arguments.panels, &count);
    if (!vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float))) return;
    int64_t blocks = (all + arguments.panels - 1) / arguments.panels;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t work = 0; work < heads * blocks; work++) {
        head_view h = view_head(shape, work / blocks);
        pile memory = {vt_cpu_scratch(backend), 0};
        forward_buffers b = forward_layout(&h, arguments.panels, &memory);
        forward_block(&h, &arguments, &b, work % blocks * arguments.panels * PANEL);
    }
}

/* ---- backward ---- */

typedef struct {
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    const float *log_sum;
    float *delta;     /* [units, queries]: out · dout */
    vt_matrix dq_sum; /* float32: dq itself, or what it is rounded from */
    int *added;       /* [units, blocks of queries]: how many blocks of keys have added to dq */
    int64_t query_blocks, key_blocks;
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

static backward_buffers backward_layout(const head_view *h, pile *memory)
{
    enum { SCORES = BACKWARD_QUERIES * PANEL };
    backward_buffers b = {.queries = take(memory, BACKWARD_QUERIES * h->dim),
                          .dout = take(memory, BACKWARD_QUERIES * h->dim),
                          .weights = take(memory, SCORES),
                          .dscores = take(memory, SCORES),
                          .dqueries = take(memory, BACKWARD_QUERIES * h->width),
                          .keys = take(memory, BACKWARD_KEYS * h->width),
                          .keys_transposed = take(memory, h->dim * BACKWARD_KEYS),
                          .values_transposed = take(memory, h->dim * BACKWARD_KEYS),
                          .dkeys = take(memory, h->dim * BACKWARD_KEYS),
                          .dvalues = take(memory, h->dim * BACKWARD_KEYS)};
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

/* weights and dscores [queries × vectors·LANES] hold scores and the kept weights' gradients on entry. */
static void differentiate_block(const head_view *h, const backward_arguments *a, const backward_buffers *b,
                                int64_t first_query, int64_t queries, int64_t first_key, int64_t keys)
{
    const float *log_sum = a->log_sum + h->unit * h->shape->queries + first_query;
    const float *delta = a->delta + h->unit * h->shape->queries + first_query;
    bool dropout = h->shape->dropout.rate > 0;
    for (int64_t i = 0; i < queries; i++) {
        float *weights = b->weights + i * PANEL, *dscores = b->dscores + i * PANEL;
        float high = log_sum[i] * log2_e;
        for (int64_t j = 0; j < keys; j += LANES) {
            vector weight = exp2_vector(load(weights + j) - high);
            store(weights + j, weight);
            if (dropout)
                store(b->kept + i * PANEL + j, weight);
            else
                store(dscores + j, weight * (load(dscores + j) - delta[i]));
        }
    }
    if (!dropout) return;
    /* the kept weights' gradient passes through the same factors, and dscores = weights · (factor · d - delta) */
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
    bool last = key_block + 1 == a->key_blocks && a->dq.type != VT_FLOAT32;
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
    multiply(queries, vectors, b->queries, dim, b->keys_transposed, PANEL, b->weights, PANEL, dim, false);
    multiply(queries, vectors, b->dout, dim, b->values_transposed, PANEL, b->dscores, PANEL, dim, false);
    differentiate_block(h, a, b, first_query, queries, first_key, keys);
    multiply_transposed(dim, vectors, b->dout, dim, b->kept, PANEL, b->dvalues, PANEL, queries, true);
    multiply_transposed(dim, vectors, b->queries, dim, b->dscores, PANEL, b->dkeys, PANEL, queries, true);
    multiply(queries, h->width / LANES, b->dscores, PANEL, b->keys, h->width, b->dqueries, h->width, keys, add);
}

/* One block of keys against all queries. */
static void backward_block(const head_view *h, const backward_arguments *a, const backward_buffers *b,
                           int64_t key_block)
{
    int64_t dim = h->dim, first_key = key_block * BACKWARD_KEYS;
    int64_t keys = smaller(BACKWARD_KEYS, h->shape->keys - first_key);
    int64_t key_row = h->batch * h->shape->keys + first_key;
    pack_rows(h, &a->k, key_row, keys, h->width, b->keys);
    for (int64_t key = 0; key < keys; key += PANEL) {
        backward_buffers part = panel_of_keys(h, *b, key / PANEL);
        pack_transposed(h, &a->k, key_row + key, keys - key, PANEL, h->scale * log2_e, part.keys_transposed);
        pack_transposed(h, &a->v, key_row + key, keys - key, PANEL, 1, part.values_transposed);
    }
    memset(b->dkeys, 0, (size_t)(dim * BACKWARD_KEYS) * sizeof(float));
    memset(b->dvalues, 0, (size_t)(dim * BACKWARD_KEYS) * sizeof(float));
    for (int64_t first = 0; first < h->shape->queries; first += BACKWARD_QUERIES) {
        int64_t queries = smaller(BACKWARD_QUERIES, h->shape->queries - first);
        int64_t row = h->batch * h->shape->queries + first;
        pack_rows(h, &a->q, row, queries, dim, b->queries);
        pack_rows(h, &a->dout, row, queries, dim, b->dout);
        for (int64_t key = 0; key < keys; key += PANEL) {
            backward_buffers part = panel_of_keys(h, *b, key / PANEL);
            look_ahead_queries(h, a, first, key / PANEL, (keys + PANEL - 1) / PANEL);
            backward_panel(h, a, &part, first, queries, first_key + key, smaller(PANEL, keys - key), key > 0);
        }
        add_dqueries(h, a, b, first, queries, key_block);
    }
    for (int64_t key = 0; key < keys; key += PANEL) {
        backward_buffers part = panel_of_keys(h, *b, key / PANEL);
        int64_t some = smaller(PANEL, keys - key);
        unpack_transposed(h, part.dkeys, PANEL, key_row + key, some, h->scale, &a->dk);
        unpack_transposed(h, part.dvalues, PANEL, key_row + key, some, 1, &a->dv);
    }
}

static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    head_view any = view_head(shape, 0);
    int64_t heads = shape->batch * shape->heads, next = 0;
    backward_arguments a = {q, k, v, out, dout, dq, dk, dv, .log_sum = log_sum};
    a.query_blocks = (shape->queries + BACKWARD_QUERIES - 1) / BACKWARD_QUERIES;
    a.key_blocks = (shape->keys + BACKWARD_KEYS - 1) / BACKWARD_KEYS;
    pile count = {NULL, 0};
    backward_layout(&any, &count);
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
        backward_buffers b = backward_layout(&any, &memory);
        while (take_block(&next, heads, a.key_blocks, vt_cpu_threads(backend), &unit, &block)) {
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
