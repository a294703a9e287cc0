#include "backend/cpu/amx/attention_blocks.h"

typedef struct {
    vt_matrix q, k, v, dout, dq, dk, dv;
    const float *log_sum;
    int terms;
    int64_t unit;           /* blocks of keys in a unit of work */
    backward_shared shared; /* dq_sum [units, blocks of queries, width × QUERIES]: dq / scale, transposed */
} backward_arguments;

enum {
    PANEL = 64,     /* queries whose scores exist at once */
    MOST_BLOCKS = 4 /* blocks of keys in a unit */
};

/* A block of keys. */
typedef struct {
    operand keys, values;    /* left [KEYS × depth] */
    operand keys_transposed; /* left [width × KEYS] */
    float *dkeys, *dvalues;  /* [KEYS × width] */
    int64_t first, count;    /* the keys that exist */
} key_block;

/* A block of keys and a panel of queries. */
typedef struct {
    operand weights, dscores;             /* left [KEYS × PANEL] */
    operand dscores_along;                /* right [KEYS × PANEL] */
    float *weights_panel, *dscores_panel; /* [KEYS × PANEL]: scores and the weights' gradients, which become those */
} panel_buffers;

typedef struct {
    int terms;
    key_block blocks[MOST_BLOCKS];
    operand queries_across, dout_across; /* right [depth × QUERIES] */
    operand queries_along, dout_along;   /* right [QUERIES × width] */
    panel_buffers panels[2];             /* used alternately */
    float *kept;                         /* [KEYS × PANEL]: the weights after dropout */
    float *high, *delta;                 /* [QUERIES]: log-sums in powers of two; out · dout */
} backward_buffers;

static backward_buffers backward_layout(const head_view *h, int terms, int64_t unit, pile *memory)
{
    padded to = pad(h, terms);
    backward_buffers b = {.terms = terms,
                          .queries_across = take_operand(memory, terms, QUERIES, to.depth),
                          .dout_across = take_operand(memory, terms, QUERIES, to.depth),
                          .queries_along = take_operand(memory, terms, to.width, QUERIES),
                          .dout_along = take_operand(memory, terms, to.width, QUERIES),
                          .high = take(memory, QUERIES),
                          .delta = take(memory, QUERIES)};
    for (int turn = 0; turn < 2; turn++)
        b.panels[turn] = (panel_buffers){.weights = take_operand(memory, terms, KEYS, PANEL),
                                         .dscores = take_operand(memory, terms, KEYS, PANEL),
                                         .dscores_along = take_operand(memory, terms, PANEL, KEYS),
                                         .weights_panel = take(memory, KEYS * PANEL),
                                         .dscores_panel = take(memory, KEYS * PANEL)};
    for (int64_t i = 0; i < unit; i++)
        b.blocks[i] = (key_block){.keys = take_operand(memory, terms, KEYS, to.depth),
                                  .values = take_operand(memory, terms, KEYS, to.depth),
                                  .keys_transposed = take_operand(memory, terms, to.width, KEYS),
                                  .dkeys = take(memory, KEYS * to.width),
                                  .dvalues = take(memory, KEYS * to.width)};
    b.kept = h->shape->dropout.rate > 0 ? take(memory, KEYS * PANEL) : NULL;
    return b;
}

/* Packs the block of queries in all forms; beyond the queries weights are nearly nothing and gradients 0. */
static void pack_queries(const head_view *h, const backward_arguments *a, const backward_buffers *b, int64_t first,
                         int64_t queries)
{
    int64_t index = h->unit * h->shape->queries + first;
    vt_matrix q = head_matrix(h, a->q, h->shape->queries), dout = head_matrix(h, a->dout, h->shape->queries);
    padded to = pad(h, a->terms);
    pack_right(&q, first, QUERIES, to.depth, b->queries_across);
    pack_depth_in_rows(pack_right_along, &q, first, QUERIES, to.width, b->queries_along);
    pack_right(&dout, first, QUERIES, to.depth, b->dout_across);
    pack_depth_in_rows(pack_right_along, &dout, first, QUERIES, to.width, b->dout_along);
    for (int64_t i = 0; i < QUERIES; i++) {
        b->high[i] = i < queries ? log_sum_in_powers(a->log_sum[index + i]) : 1e30f;
        b->delta[i] = i < queries ? a->shared.delta[index + i] : 0;
    }
}

/* Turns a panel's scores and weights' gradients into weights and scores' gradients, as operands. A unit of work (two
 * keys that form a pair, 2 LANES queries that form pairs) is done in parts, because tiles cannot overlap with many
 * vector instructions at once. For one term, units are done whole. */
typedef struct {
    panel_buffers to;
    float scale, *high, *delta;
    int64_t keys, pairs; /* keys, rounded up to whole depths */
    int64_t query, pair; /* first pairs of the current units */
    int64_t count;       /* pairs of keys of the current units */
    pace pace;
} differentiation;

/* A unit's queries and key j: weights and dscores, 0 beyond the keys, into the operands whose depth is the queries. */
INLINE void differentiate_key(int terms, differentiation d, int64_t j, vector dscore[2])
{
    const int64_t query = pair_begin(terms, d.query), apart = vectors_apart(terms);
    const vector scale = splat(d.scale);
    vector weight[2] = {{0}};
    dscore[0] = dscore[1] = (vector){0};
    if (j < d.keys) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            int64_t column = query + i * apart, at = j * PANEL + column;
            weight[i] = exp2_vector(scale * load(d.to.weights_panel + at) - load(d.high + column));
            dscore[i] = weight[i] * (load(d.to.dscores_panel + at) - load(d.delta + column));
        }
    }
    put_along_queries(terms, at_queries(terms, d.to.weights, d.query), d.to.weights.piece, j, weight[0], weight[1]);
    put_along_queries(terms, at_queries(terms, d.to.dscores, d.query), d.to.dscores.piece, j, dscore[0], dscore[1]);
}

/* dscores of pair p of keys into the operand whose depth is the keys. */
INLINE void put_dscores(int terms, differentiation d, int64_t p, const vector first[2], const vector second[2])
{
    const int64_t query = pair_begin(terms, d.query);
    put_along_keys(terms, at_column(d.to.dscores_along, query), p, first[0], second[0]);
    put_along_keys(terms, at_column(d.to.dscores_along, query + vectors_apart(terms)), p, first[1], second[1]);
}

/* Pair p of keys comes next. */
INLINE void continue_at(differentiation *d, int64_t p)
{
    d->pair = p < d->pairs ? p : 0;
    d->query += p < d->pairs ? 0 : LANES;
}

/* Begins the next units, at most as many as these queries have left; terms is a constant. Returns how many. */
INLINE int64_t differentiate_some(int terms, differentiation *d, int64_t units)
{
    const differentiation now = *d; /* so that the compiler knows that no store here changes it */
    const int64_t end = smaller(now.pairs, now.pair + units);
    for (int64_t p = now.pair; p < end; p++) {
        vector first[2], second[2];
        differentiate_key(terms, now, pair_begin(terms, p), first);
        differentiate_key(terms, now, pair_begin(terms, p) + pair_apart(terms), second);
        put_dscores(terms, now, p, first, second);
    }
    continue_at(d, end);
    return end - now.pair;
}

INLINE void differentiate_units(int terms, differentiation *d, int64_t units)
{
    while (units > 0) units -= differentiate_some(terms, d, units);
}

enum { PARTS = 3 };

/* A part of the current units: first each of both keys, then both. In between, dscores replace the numbers they are
 * computed from. terms and part are constants. */
INLINE void differentiate_part(int terms, differentiation *d, int part)
{
    const differentiation now = *d;
    const int64_t query = pair_begin(terms, now.query), apart = vectors_apart(terms), end = now.pair + now.count;
    for (int64_t p = now.pair; p < end; p++) {
        int64_t j = pair_begin(terms, p) + (part == 1 ? pair_apart(terms) : 0);
        float *dscores = now.to.dscores_panel + j * PANEL + query;
        vector first[2], second[2];
        if (part < PARTS - 1) {
            differentiate_key(terms, now, j, first);
            store(dscores, first[0]);
            store(dscores + apart, first[1]);
        } else {
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                first[i] = load(dscores + i * apart);
                second[i] = load(dscores + i * apart + pair_apart(terms) * PANEL);
            }
            put_dscores(terms, now, p, first, second);
        }
    }
    if (part == PARTS - 1) continue_at(d, end);
}

INLINE void differentiate_beside(void *work, int place)
{
    differentiation *d = work;
    if (place % PARTS == 0) d->count = take_due(&d->pace, d->pairs - d->pair);
    differentiate_part(TERMS, d, place % PARTS);
}

INLINE void differentiate_beside_one_term(void *work, int place)
{
    differentiation *d = work;
    differentiate_units(1, d, take_due(&d->pace, d->pace.left));
}

/* Not inlined: one copy is enough. */
static __attribute__((noinline)) void multiply(int terms, const tile_product *p, differentiation *d)
{
    if (terms == 1)
        multiply_tiles(1, p, differentiate_beside_one_term, d);
    else
        multiply_tiles(TERMS, p, differentiate_beside, d);
}

static void differentiate_rest(int terms, differentiation *d)
{
    if (terms == 1)
        differentiate_units(1, d, d->pace.left);
    else
        differentiate_units(TERMS, d, d->pace.left);
}

/* With dropout, all at once: the kept weight's gradient passes through the same factors, and dscores = weights ·
 * (factor · d - delta). */
static void differentiate_dropped(const head_view *h, int terms, differentiation *d, float *kept, int64_t first_query,
                                  int64_t queries, int64_t first_key)
{
    float *weights = d->to.weights_panel, *dscores = d->to.dscores_panel;
    for (int64_t j = 0; j < d->keys * PANEL; j += LANES) {
        vector w = exp2_vector(splat(d->scale) * load(weights + j) - load(d->high + j % PANEL));
        store(weights + j, w);
        store(kept + j, w);
    }
    apply_dropout(h, first_query, queries, first_key, d->keys, kept, 1, PANEL);
    for (int64_t j = 0; j < d->keys * PANEL; j += LANES)
        store(dscores + j, load(kept + j) * load(dscores + j) - load(weights + j) * load(d->delta + j % PANEL));
    round_along_queries(terms, kept, d->keys, PANEL, d->to.weights);
    round_along_queries(terms, dscores, d->keys, PANEL, d->to.dscores);
    round_along_keys(terms, dscores, d->keys, PANEL, d->to.dscores_along);
    d->pace = spread(0, 0);
}

/* A block of keys and a panel of a block's queries. */
typedef struct {
    const key_block *keys;
    const panel_buffers *buffers;
    int64_t first, queries; /* of the panel */
} pairing;

/* Moves on to the next panel of the same block of keys. */
static pairing pairing_at(const backward_buffers *b, int64_t index, int64_t queries)
{
    int64_t panels = pieces(queries, PANEL), first = index % panels * PANEL;
    return (pairing){b->blocks + index / panels, b->panels + index % 2, first, smaller(PANEL, queries - first)};
}

/* first_query: of the block. */
static differentiation begin_differentiation(const head_view *h, const backward_buffers *b, const pairing *p,
                                             int64_t first_query, int64_t places)
{
    mask_block(h, first_query + p->first, p->queries, p->keys->first, p->keys->count, p->buffers->weights_panel, 1,
               PANEL, -3e38f);
    differentiation d = {.to = *p->buffers,
                         .scale = h->scale * log2_e,
                         .high = b->high + p->first,
                         .delta = b->delta + p->first,
                         .keys = p->keys->count,
                         .pairs = round_up(p->keys->count, DEPTH) / 2};
    d.pace = spread(d.pairs * (round_up(p->queries, DEPTH) / (2 * LANES)), b->terms == 1 ? places : places / PARTS);
    return d;
}

/* Scores and the weights' gradients. Returns how many products. */
static int list_scores(const head_view *h, const backward_buffers *b, const pairing *p, tile_product list[2])
{
    list[0] = (tile_product){.rows = round_up(p->keys->count, SIDE),
                             .columns = round_up(p->queries, DEPTH),
                             .depth = pad(h, b->terms).depth,
                             .a = from_piece(p->keys->keys, 0),
                             .b = from_piece(b->queries_across, p->first),
                             .sums = p->buffers->weights_panel,
                             .width = PANEL};
    list[1] = list[0];
    list[1].a = from_piece(p->keys->values, 0);
    list[1].b = from_piece(b->dout_across, p->first);
    list[1].sums = p->buffers->dscores_panel;
    return 2;
}

/* Parts of the gradients. dq is the sum for the block's queries; `fresh`: nothing is in it yet. */
static int list_gradients(const head_view *h, const backward_buffers *b, const pairing *p, float *dq, bool fresh,
                          tile_product list[3])
{
    int64_t width = pad(h, b->terms).width, before = p->first / DEPTH * b->terms * TILE_PAIRS;
    list[0] = (tile_product){.rows = round_up(p->keys->count, SIDE),
                             .columns = width,
                             .depth = round_up(p->queries, DEPTH),
                             .a = from_piece(p->buffers->weights, 0),
                             .b = {.tiles = b->dout_along.tiles + before, .piece = b->dout_along.piece},
                             .sums = p->keys->dvalues,
                             .width = width,
                             .add = true};
    list[1] = list[0];
    list[1].a = from_piece(p->buffers->dscores, 0);
    list[1].b = (packed){.tiles = b->queries_along.tiles + before, .piece = b->queries_along.piece};
    list[1].sums = p->keys->dkeys;
    list[2] = (tile_product){.rows = width,
                             .columns = round_up(p->queries, SIDE),
                             .depth = round_up(p->keys->count, DEPTH),
                             .a = from_piece(p->keys->keys_transposed, 0),
                             .b = from_piece(p->buffers->dscores_along, 0),
                             .sums = dq + p->first,
                             .width = QUERIES,
                             .add = !fresh};
    return 3;
}

static void begin_keys(const head_view *h, const backward_arguments *a, key_block *k, int64_t first)
{
    padded to = pad(h, a->terms);
    size_t gradient_bytes = (size_t)(KEYS * to.width) * sizeof(float);
    vt_matrix keys = head_matrix(h, a->k, h->shape->keys), values = head_matrix(h, a->v, h->shape->keys);
    k->first = first;
    k->count = smaller(KEYS, h->shape->keys - first);
    pack_left(&keys, first, KEYS, to.depth, k->keys);
    pack_left(&values, first, KEYS, to.depth, k->values);
    pack_depth_in_rows(pack_left_columns, &keys, first, KEYS, to.width, k->keys_transposed);
    memset(k->dkeys, 0, gradient_bytes);
    memset(k->dvalues, 0, gradient_bytes);
}

/* A unit's first blocks of keys against one block of queries, panel by panel. dq is the sum for these queries; the
 * units before this one must add to it first. */
static void backward_queries(const head_view *h, const backward_arguments *a, const backward_buffers *b, int64_t index,
                             int64_t blocks, int64_t first, int64_t queries, float *dq)
{
    int64_t panels = pieces(queries, PANEL), all = blocks * panels;
    const int *added = a->shared.added + h->unit * a->shared.query_blocks + first / QUERIES;
    for (int64_t i = -1; i <= all; i++) {
        tile_product products[5];
        int count = 0;
        differentiation d = {.keys = 0};
        if (i + 1 < all) {
            pairing next = pairing_at(b, i + 1, queries);
            count += list_scores(h, b, &next, products);
        }
        if (i > 0) {
            pairing last = pairing_at(b, i - 1, queries);
            count += list_gradients(h, b, &last, dq, index == 0 && last.keys == b->blocks, products + count);
        }
        if (i >= 0 && i < all) {
            pairing now = pairing_at(b, i, queries);
            d = begin_differentiation(h, b, &now, first, places_beside(b->terms, products, count));
            if (h->shape->dropout.rate > 0)
                differentiate_dropped(h, b->terms, &d, b->kept, first + now.first, now.queries, now.keys->first);
        }
        look_ahead_share(h, &a->q, &a->dout, h->shape->queries, first + QUERIES, i + 1, all + 2);
        if (i == 1) wait_for(added, (int)index);
        for (int k = 0; k < count; k++) multiply(b->terms, products + k, &d);
        differentiate_rest(b->terms, &d);
    }
}

/* Some blocks of keys against all queries. A unit adds to dq after the units before it; the thread of the last one
 * stores dq. */
static void backward_unit(const head_view *h, const backward_arguments *a, backward_buffers *b, int64_t index)
{
    int64_t width = pad(h, a->terms).width;
    int64_t first_key = index * a->unit * KEYS, blocks = smaller(a->unit, pieces(h->shape->keys - first_key, KEYS));
    for (int64_t i = 0; i < blocks; i++) begin_keys(h, a, b->blocks + i, first_key + i * KEYS);
    for (int64_t first = 0; first < h->shape->queries; first += QUERIES) {
        int64_t queries = smaller(QUERIES, h->shape->queries - first);
        int64_t block = h->unit * a->shared.query_blocks + first / QUERIES;
        float *sum = a->shared.dq_sum + block * width * QUERIES;
        const int64_t seen = keys_seen(h, first + queries - 1, first_key, h->shape->keys - first_key);
        if (seen > 0) {
            pack_queries(h, a, b, first, queries);
            backward_queries(h, a, b, index, smaller(blocks, pieces(seen, KEYS)), first, queries, sum);
        } else {
            wait_for(a->shared.added + block, (int)index);
            if (index == 0) memset(sum, 0, (size_t)(width * QUERIES) * sizeof *sum);
        }
        if (index + 1 == a->shared.key_blocks)
            unpack_transposed(h, sum, QUERIES, h->batch * h->shape->queries + first, queries, h->scale, &a->dq);
        __atomic_store_n(a->shared.added + block, (int)index + 1, __ATOMIC_RELEASE);
    }
    for (int64_t i = 0; i < blocks; i++) {
        const key_block *k = b->blocks + i;
        unpack_rows(h, k->dkeys, width, h->batch * h->shape->keys + k->first, k->count, h->scale, &a->dk);
        unpack_rows(h, k->dvalues, width, h->batch * h->shape->keys + k->first, k->count, 1, &a->dv);
    }
}

void VT_TILES(attention_backward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                  vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                                  vt_matrix dk, vt_matrix dv)
{
    head_view any = view_head(shape, 0);
    backward_arguments a = {.q = q, .k = k, .v = v, .dout = dout, .dq = dq, .dk = dk, .dv = dv, .log_sum = log_sum};
    pile count = {NULL, 0};
    a.terms = terms_of(q.type);
    if (terms_of(k.type) != a.terms || terms_of(v.type) != a.terms || terms_of(dout.type) != a.terms ||
        too_narrow(shape, a.terms)) {
        vt_cpu_vectors(backend)->attention_backward(backend, shape, q, k, v, out, log_sum, dout, dq, dk, dv);
        return;
    }
    int64_t query_blocks = pieces(shape->queries, QUERIES), key_blocks = pieces(shape->keys, KEYS);
    int64_t dq_floats = query_blocks * QUERIES * pad(&any, a.terms).width;
    a.unit = blocks_of_unit(backend, shape, key_blocks, MOST_BLOCKS);
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
