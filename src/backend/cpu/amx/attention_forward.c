#include "backend/cpu/amx/attention_blocks.h"

typedef struct {
    vt_matrix q, k, v, out;
    float *log_sum;
    int terms;
    int64_t unit; /* queries in a unit of work */
} forward_arguments;

enum {
    PANEL = 32,     /* queries whose scores exist at once */
    MOST_BLOCKS = 8 /* blocks of queries in a unit */
};

typedef struct {
    operand queries;      /* right [depth × unit] */
    operand keys;         /* left [KEYS × depth] */
    operand values;       /* left [width × KEYS]: transposed */
    operand weights[2];   /* right [KEYS × PANEL], panels alternate */
    float *scores[2];     /* [KEYS × PANEL] */
    float *out;           /* panel by panel, [width × PANEL] */
    float *maximum, *sum; /* [unit]: weights are relative to the maximum, in powers of two */
} forward_buffers;

static forward_buffers forward_layout(const head_view *h, int terms, int64_t unit, pile *memory)
{
    padded to = pad(h, terms);
    forward_buffers b = {.queries = take_operand(memory, terms, unit, to.depth),
                         .keys = take_operand(memory, terms, KEYS, to.depth),
                         .values = take_operand(memory, terms, to.width, KEYS),
                         .out = take(memory, unit * to.width),
                         .maximum = take(memory, unit),
                         .sum = take(memory, unit)};
    for (int turn = 0; turn < 2; turn++) {
        b.weights[turn] = take_operand(memory, terms, PANEL, KEYS);
        b.scores[turn] = take(memory, KEYS * PANEL);
    }
    return b;
}

/* Turns a panel's scores into weights and adds them to the sums of its queries. */
typedef struct {
    float *scores; /* scaled to powers of two when they are read */
    operand weights;
    float scale, *maxima, *sums, *out;
    int64_t keys, pairs; /* keys, rounded up to whole depths */
    int64_t query, pair; /* the next unit */
    pace pace;           /* units: pairs of keys, LANES queries */
} softening;

/* Queries query … query + LANES - 1 of the panel got scores for more keys. If scores exceed a maximum by a factor of
 * 2^8, the maximum is raised and the sums relative to it are rescaled. */
INLINE void follow_maximum(const softening *s, int64_t query, int64_t dim)
{
    enum { BY_TURNS = 4 }; /* several, so that none waits for the one before */
    vector highest[BY_TURNS], old = load(s->maxima + query);
    int64_t j = 0;
    for (int64_t i = 0; i < BY_TURNS; i++) highest[i] = splat(-3e38f);
    for (; j + BY_TURNS <= s->keys; j += BY_TURNS)
#pragma GCC unroll 4
        for (int64_t i = 0; i < BY_TURNS; i++)
            highest[i] = largest(highest[i], load(s->scores + (j + i) * PANEL + query));
    for (; j < s->keys; j++) highest[0] = largest(highest[0], load(s->scores + j * PANEL + query));
    vector high = largest(largest(highest[0], highest[1]), largest(highest[2], highest[3])) * s->scale;
    vector_bits exceeds = high > old + 8.0f;
    if (!any_lane(exceeds)) return;
    vector new = choose(exceeds, high, old), factor = exp2_vector(old - new);
    store(s->maxima + query, new);
    store(s->sums + query, factor * load(s->sums + query));
    for (int64_t d = 0; d < dim; d++) store(s->out + d * PANEL + query, factor * load(s->out + d * PANEL + query));
}

/* Begins the next units, at most as many as the queries have left; terms is a constant. Returns how many. */
INLINE int64_t soften_some(int terms, softening *s, int64_t units)
{
    const softening now = *s; /* so that the compiler knows that no store here changes it */
    const vector scale = splat(now.scale), maximum = load(now.maxima + now.query);
    const int64_t end = smaller(now.pairs, now.pair + units);
    const float *scores = now.scores + now.query;
    pair *to = at_column(now.weights, now.query);
    vector sum = load(now.sums + now.query);
    for (int64_t p = now.pair; p < end; p++) {
        int64_t j = pair_begin(terms, p), other = j + pair_apart(terms);
        vector first = {0}, second = {0};
        if (j < now.keys) first = exp2_vector(scale * load(scores + j * PANEL) - maximum);
        if (other < now.keys) second = exp2_vector(scale * load(scores + other * PANEL) - maximum);
        sum = sum + first + second;
        put_along_keys(terms, to, p, first, second);
    }
    store(now.sums + now.query, sum);
    s->pair = end < now.pairs ? end : 0;
    s->query = end < now.pairs ? now.query : now.query + LANES;
    return end - now.pair;
}

INLINE void soften(int terms, softening *s, int64_t units)
{
    while (units > 0) units -= soften_some(terms, s, units);
}

INLINE void soften_beside(void *work, int place)
{
    softening *s = work;
    soften(TERMS, s, take_due(&s->pace, s->pace.left));
}

INLINE void soften_beside_one_term(void *work, int place)
{
    softening *s = work;
    soften(1, s, take_due(&s->pace, s->pace.left));
}

/* Not inlined: one copy is enough. */
static __attribute__((noinline)) void multiply(int terms, const tile_product *p, softening *s)
{
    if (terms == 1)
        multiply_tiles(1, p, soften_beside_one_term, s);
    else
        multiply_tiles(TERMS, p, soften_beside, s);
}

static void soften_rest(int terms, softening *s)
{
    if (terms == 1)
        soften(1, s, s->pace.left);
    else
        soften(TERMS, s, s->pace.left);
}

static softening begin_softening(const head_view *h, int terms, const forward_buffers *b, int64_t panel,
                                 int64_t first_query, int64_t first_key, int64_t keys, int64_t places)
{
    softening s = {.scores = b->scores[panel % 2],
                   .weights = b->weights[panel % 2],
                   .scale = h->scale * log2_e,
                   .maxima = b->maximum + panel * PANEL,
                   .sums = b->sum + panel * PANEL,
                   .out = b->out + panel * PANEL * pad(h, terms).width,
                   .keys = keys,
                   .pairs = round_up(keys, DEPTH) / 2};
    s.pace = spread(s.pairs * (PANEL / LANES), places);
    mask_block(h, first_query, PANEL, first_key, keys, s.scores, 1, PANEL, -3e38f);
    for (int64_t query = 0; query < PANEL; query += LANES) follow_maximum(&s, query, h->dim);
    return s;
}

/* With dropout, all at once: the sums are of the weights before dropout. */
static void soften_dropped(const head_view *h, int terms, softening *s, int64_t first_query, int64_t queries,
                           int64_t first_key)
{
    for (int64_t j = 0; j < s->keys; j++) {
        for (int64_t query = 0; query < PANEL; query += LANES) {
            float *score = s->scores + j * PANEL + query;
            vector weight = exp2_vector(splat(s->scale) * load(score) - load(s->maxima + query));
            store(s->sums + query, load(s->sums + query) + weight);
            store(score, weight);
        }
    }
    apply_dropout(h, first_query, queries, first_key, s->keys, s->scores, 1, PANEL);
    round_along_keys(terms, s->scores, s->keys, PANEL, s->weights);
    s->pace = spread(0, 0);
}

static void forward_keys(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t first_query,
                         int64_t queries, int64_t first_key)
{
    int64_t keys = smaller(KEYS, h->shape->keys - first_key), panels = pieces(queries, PANEL);
    padded to = pad(h, a->terms);
    vt_matrix k = head_matrix(h, a->k, h->shape->keys), v = head_matrix(h, a->v, h->shape->keys);
    pack_left(&k, first_key, KEYS, to.depth, b->keys);
    pack_depth_in_rows(pack_left_columns, &v, first_key, KEYS, to.width, b->values);
    int64_t begin = 0; /* the first panel that sees some of the keys */
    while (begin < panels && keys_seen(h, first_query + smaller(queries, (begin + 1) * PANEL) - 1, first_key, 1) == 0)
        begin++;
    for (int64_t panel = begin - 1; panel <= panels; panel++) {
        int64_t next = panel + 1, last = panel - 1;
        tile_product products[2];
        int count = 0;
        softening s = {.keys = 0};
        if (next < panels)
            products[count++] = (tile_product){.rows = round_up(keys, SIDE),
                                               .columns = PANEL,
                                               .depth = to.depth,
                                               .a = from_piece(b->keys, 0),
                                               .b = from_piece(b->queries, next * PANEL),
                                               .sums = b->scores[next % 2],
                                               .width = PANEL};
        if (last >= begin)
            products[count++] = (tile_product){.rows = to.width,
                                               .columns = PANEL,
                                               .depth = round_up(keys, DEPTH),
                                               .a = from_piece(b->values, 0),
                                               .b = from_piece(b->weights[last % 2], 0),
                                               .sums = b->out + last * PANEL * to.width,
                                               .width = PANEL,
                                               .add = true};
        if (panel >= begin && panel < panels) {
            s = begin_softening(h, a->terms, b, panel, first_query + panel * PANEL, first_key, keys,
                                places_beside(a->terms, products, count));
            if (h->shape->dropout.rate > 0)
                soften_dropped(h, a->terms, &s, first_query + panel * PANEL, smaller(PANEL, queries - panel * PANEL),
                               first_key);
        }
        if (next < panels) look_ahead_share(h, &a->k, &a->v, h->shape->keys, first_key + KEYS, next, panels);
        for (int i = 0; i < count; i++) multiply(a->terms, products + i, &s);
        soften_rest(a->terms, &s);
    }
}

static void forward_unit(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t first)
{
    int64_t queries = smaller(a->unit, h->shape->queries - first), row = h->batch * h->shape->queries + first;
    padded to = pad(h, a->terms);
    vt_matrix q = head_matrix(h, a->q, h->shape->queries);
    pack_right(&q, first, a->unit, to.depth, b->queries);
    memset(b->out, 0, (size_t)(to.width * a->unit) * sizeof(float));
    for (int64_t i = 0; i < a->unit; i++) {
        b->maximum[i] = -1e30f;
        b->sum[i] = 0;
    }
    const int64_t keys = keys_seen(h, first + queries - 1, 0, h->shape->keys);
    for (int64_t key = 0; key < keys; key += KEYS) forward_keys(h, a, b, first, queries, key);
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        float *out = b->out + panel * PANEL * to.width;
        for (int64_t i = 0; i < PANEL; i += LANES) {
            vector factor = 1 / load(b->sum + panel * PANEL + i);
            for (int64_t d = 0; d < h->dim; d++) store(out + d * PANEL + i, factor * load(out + d * PANEL + i));
        }
        unpack_transposed(h, out, PANEL, row + panel * PANEL, smaller(PANEL, queries - panel * PANEL), 1, &a->out);
    }
    for (int64_t i = 0; i < queries; i++)
        a->log_sum[h->unit * h->shape->queries + first + i] = b->maximum[i] / log2_e + logf(b->sum[i]);
    blank_unseeing(h, first, queries, &a->out, a->log_sum + h->unit * h->shape->queries + first);
}

void VT_TILES(attention_forward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                                 vt_matrix v, vt_matrix out, float *log_sum)
{
    head_view any = view_head(shape, 0);
    int64_t blocks = pieces(shape->queries, QUERIES), of_unit = blocks_of_unit(backend, shape, blocks, MOST_BLOCKS);
    forward_arguments arguments = {q, k, v, out, log_sum, terms_of(q.type), of_unit * QUERIES};
    pile count = {NULL, 0};
    if (terms_of(k.type) != arguments.terms || terms_of(v.type) != arguments.terms ||
        too_narrow(shape, arguments.terms)) {
        vt_cpu_vectors(backend)->attention_forward(backend, shape, q, k, v, out, log_sum);
        return;
    }
    forward_layout(&any, arguments.terms, arguments.unit, &count);
    if (!vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float))) return;
    int64_t units = pieces(blocks, of_unit);
#pragma omp parallel
    {
        tiles_configure();
#pragma omp for schedule(dynamic, 1)
        for (int64_t work = 0; work < shape->batch * shape->heads * units; work++) {
            head_view h = view_head(shape, work / units);
            pile memory = {vt_cpu_scratch(backend), 0};
            forward_buffers b = forward_layout(&h, arguments.terms, arguments.unit, &memory);
            /* the last queries first: under a causal mask they take longest */
            forward_unit(&h, &arguments, &b, (units - 1 - work % units) * arguments.unit);
        }
        tiles_release();
    }
}
