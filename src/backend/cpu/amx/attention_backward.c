#include "backend/cpu/amx/attention_blocks.h"

typedef struct {
    vt_matrix q, k, v, dout, dq, dk, dv;
    const float *log_sum;
    int terms;
    int64_t unit;           /* blocks of keys of a unit of work */
    backward_shared shared; /* dq_sum [units, blocks of queries, width × QUERIES]: dq / scale, transposed */
} backward_arguments;

/* A block of keys. */
typedef struct {
    operand keys, values;    /* left [KEYS × depth] */
    operand keys_transposed; /* left [width × KEYS] */
    float *dkeys, *dvalues;  /* [KEYS × width] */
    int64_t first, count;    /* its keys */
} key_block;

typedef struct {
    int terms;
    key_block blocks[MOST_BLOCKS];
    operand queries_across, dout_across;  /* right [depth × QUERIES] */
    operand queries_along, dout_along;    /* right [QUERIES × width] */
    operand weights, dscores;             /* left [KEYS × QUERIES] */
    operand dscores_along;                /* right [KEYS × QUERIES] */
    float *weights_panel, *dscores_panel; /* [KEYS × PANEL] */
    float *kept;                          /* the weights after dropout */
    float *high, *delta;                  /* [QUERIES]: logarithms of the sums, in powers of two; out · dout */
} backward_buffers;

static backward_buffers backward_layout(const head_view *h, int terms, int64_t unit, pile *memory)
{
    padded to = pad(h);
    backward_buffers b = {.terms = terms,
                          .queries_across = take_operand(memory, terms, QUERIES, to.depth),
                          .dout_across = take_operand(memory, terms, QUERIES, to.depth),
                          .queries_along = take_operand(memory, terms, to.width, QUERIES),
                          .dout_along = take_operand(memory, terms, to.width, QUERIES),
                          .weights = take_operand(memory, terms, KEYS, QUERIES),
                          .dscores = take_operand(memory, terms, KEYS, QUERIES),
                          .dscores_along = take_operand(memory, terms, QUERIES, KEYS),
                          .weights_panel = take(memory, KEYS * PANEL),
                          .dscores_panel = take(memory, KEYS * PANEL),
                          .high = take(memory, QUERIES),
                          .delta = take(memory, QUERIES)};
    for (int64_t i = 0; i < unit; i++)
        b.blocks[i] = (key_block){.keys = take_operand(memory, terms, KEYS, to.depth),
                                  .values = take_operand(memory, terms, KEYS, to.depth),
                                  .keys_transposed = take_operand(memory, terms, to.width, KEYS),
                                  .dkeys = take(memory, KEYS * to.width),
                                  .dvalues = take(memory, KEYS * to.width)};
    b.kept = h->shape->dropout.rate > 0 ? take(memory, KEYS * PANEL) : NULL;
    return b;
}

/* The block of queries in all forms; beyond the queries weights are next to nothing and gradients 0. */
static void pack_queries(const head_view *h, const backward_arguments *a, const backward_buffers *b, int64_t first,
                         int64_t queries)
{
    int64_t index = h->unit * h->shape->queries + first;
    vt_matrix q = head_matrix(h, a->q, h->shape->queries), dout = head_matrix(h, a->dout, h->shape->queries);
    padded to = pad(h);
    pack_depth_in_columns(pack_right_across, &q, first, QUERIES, to.depth, b->queries_across);
    pack_depth_in_rows(pack_right_along, &q, first, QUERIES, to.width, b->queries_along);
    pack_depth_in_columns(pack_right_across, &dout, first, QUERIES, to.depth, b->dout_across);
    pack_depth_in_rows(pack_right_along, &dout, first, QUERIES, to.width, b->dout_along);
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

/* The panel's weights and scores' gradients, rounded into operands; the gradients of pairs beyond the keys are 0.
 * terms: a constant. */
INLINE void differentiate(int terms, const head_view *h, const backward_buffers *b, int64_t panel, int64_t keys)
{
    const vector scale = splat(h->scale * log2_e);
    for (int64_t i = 0; i < PANEL; i += 2 * LANES) {
        int64_t query = panel * PANEL + i;
        const vector high_left = load(b->high + query), high_right = load(b->high + query + LANES);
        const vector delta_left = load(b->delta + query), delta_right = load(b->delta + query + LANES);
        for (int64_t j = 0; j < round_up(keys, DEPTH); j += 2) {
            vector weight_left[2] = {{0}}, weight_right[2] = {{0}}, left[2] = {{0}}, right[2] = {{0}};
            if (j < keys) {
                int64_t at = j * PANEL + i;
                differentiate_pair(b, scale, high_left, delta_left, at, j + 1 < keys, weight_left, left);
                differentiate_pair(b, scale, high_right, delta_right, at + LANES, j + 1 < keys, weight_right, right);
            }
#pragma GCC unroll 2
            for (int64_t r = 0; r < 2; r++) {
                put_along_queries(terms, b->weights, j + r, query, weight_left[r], weight_right[r]);
                put_along_queries(terms, b->dscores, j + r, query, left[r], right[r]);
            }
            put_along_keys(terms, b->dscores_along, j, query, left[0], left[1]);
            put_along_keys(terms, b->dscores_along, j, query + LANES, right[0], right[1]);
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
    round_along_queries(b->terms, b->kept, keys, panel, b->weights);
    round_along_queries(b->terms, b->dscores_panel, keys, panel, b->dscores);
    round_along_keys(b->terms, b->dscores_panel, keys, panel, b->dscores_along);
}

/* Weights and the scores' gradients of a block of queries, as operands. */
static void backward_panels(const head_view *h, const backward_buffers *b, const key_block *k, int64_t first_query,
                            int64_t queries)
{
    int64_t rows = round_up(k->count, SIDE), depth = pad(h).depth;
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        packed across = from_piece(b->queries_across, panel * PANEL), dout = from_piece(b->dout_across, panel * PANEL);
        multiply_tiles(b->terms, rows, PANEL, depth, from_piece(k->keys, 0), across, b->weights_panel, PANEL, false);
        multiply_tiles(b->terms, rows, PANEL, depth, from_piece(k->values, 0), dout, b->dscores_panel, PANEL, false);
        if (h->shape->dropout.rate > 0)
            differentiate_dropped(h, b, first_query, queries, panel, k->first, k->count);
        else if (b->terms == 1)
            differentiate(1, h, b, panel, k->count);
        else
            differentiate(TERMS, h, b, panel, k->count);
    }
}

/* Of one block of keys and one of queries. dq: the sum for these queries; `fresh`: nothing is in it yet. */
static void multiply_gradients(const head_view *h, const backward_buffers *b, const key_block *k, int64_t queries,
                               float *dq, bool fresh)
{
    int64_t width = pad(h).width, rows = round_up(k->count, SIDE), depth = round_up(queries, DEPTH);
    multiply_tiles(b->terms, rows, width, depth, from_piece(b->weights, 0), from_piece(b->dout_along, 0), k->dvalues,
                   width, true);
    multiply_tiles(b->terms, rows, width, depth, from_piece(b->dscores, 0), from_piece(b->queries_along, 0), k->dkeys,
                   width, true);
    multiply_tiles(b->terms, width, round_up(queries, SIDE), round_up(k->count, DEPTH),
                   from_piece(k->keys_transposed, 0), from_piece(b->dscores_along, 0), dq, QUERIES, !fresh);
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
    vt_matrix keys = head_matrix(h, a->k, h->shape->keys), values = head_matrix(h, a->v, h->shape->keys);
    k->first = first;
    k->count = smaller(KEYS, h->shape->keys - first);
    pack_depth_in_columns(pack_left_rows, &keys, first, KEYS, pad(h).depth, k->keys);
    pack_depth_in_columns(pack_left_rows, &values, first, KEYS, pad(h).depth, k->values);
    pack_depth_in_rows(pack_left_columns, &keys, first, KEYS, pad(h).width, k->keys_transposed);
    memset(k->dkeys, 0, gradient_bytes);
    memset(k->dvalues, 0, gradient_bytes);
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
            look_ahead_share(h, &a->q, &a->dout, h->shape->queries, first + QUERIES, i, blocks);
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
    a.terms = terms_of(q.type);
    if (terms_of(k.type) != a.terms || terms_of(v.type) != a.terms || terms_of(dout.type) != a.terms) {
        ((vt_cpu_state *)backend->state)
            ->vectors.attention_backward(backend, shape, q, k, v, out, log_sum, dout, dq, dk, dv);
        return;
    }
    int64_t query_blocks = pieces(shape->queries, QUERIES), key_blocks = pieces(shape->keys, KEYS);
    int64_t dq_floats = query_blocks * QUERIES * pad(&any).width;
    a.unit = blocks_of_unit(backend, shape, key_blocks);
    backward_layout(&any, a.terms, a.unit, &count);
    if (!share_backward(backend, shape, pieces(key_blocks, a.unit), query_blocks, dq_floats, &a.shared) ||
        !vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float)))
        return;
#pragma omp parallel
    {
        make_delta(shape, &out, &dout, a.shared.delta);
        int64_t unit = -1, block;
        pile memory = {vt_cpu_scratch(backend), 0};
        backward_buffers b = backward_layout(&any, a.terms, a.unit, &memory);
        tiles_configure();
        while (take_block(&a.shared, &unit, &block)) {
            head_view h = view_head(shape, unit);
            backward_unit(&h, &a, &b, block);
        }
        tiles_release();
    }
}

void VT_KERNEL(vt_tiles_attention_backward_fill)(vt_backend *backend)
{
    backend->attention_backward = attention_backward;
}
