#include "backend/cpu/amx/attention_blocks.h"

typedef struct {
    vt_matrix q, k, v, out;
    float *log_sum;
    int terms;
    int64_t unit; /* queries of a unit of work */
} forward_arguments;

typedef struct {
    operand queries;      /* right [depth × unit] */
    operand keys;         /* left [KEYS × depth] */
    operand values;       /* left [width × KEYS]: transposed */
    operand weights;      /* right [KEYS × PANEL] */
    float *scores;        /* [KEYS × PANEL] */
    float *out;           /* panel by panel, [width × PANEL] */
    float *maximum, *sum; /* [unit]: weights are relative to the maximum, which is in powers of two */
} forward_buffers;

static forward_buffers forward_layout(const head_view *h, int terms, int64_t unit, pile *memory)
{
    padded to = pad(h);
    return (forward_buffers){.queries = take_operand(memory, terms, unit, to.depth),
                             .keys = take_operand(memory, terms, KEYS, to.depth),
                             .values = take_operand(memory, terms, to.width, KEYS),
                             .weights = take_operand(memory, terms, PANEL, KEYS),
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

/* Scores become weights, whose sums are added to the queries'. round and terms, constants: they are rounded into
 * b->weights at once, else stored in place. */
INLINE void soften_columns(bool round, int terms, const head_view *h, const forward_buffers *b, int64_t panel,
                           int64_t keys)
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
                put_along_keys(terms, b->weights, j, i, first, second);
            } else {
                store(score, first);
                store(score + PANEL, second);
            }
        }
        for (; j < (round ? round_up(keys, DEPTH) : keys); j += 2, score += 2 * PANEL) {
            vector last = j < keys ? exp2_vector(scale * load(score) - maximum) : (vector){0};
            sum += last;
            if (round)
                put_along_keys(terms, b->weights, j, i, last, (vector){0});
            else
                store(score, last);
        }
        store(sums + i, sum);
    }
}

/* The panel's weights as an operand. */
static void soften(const head_view *h, int terms, const forward_buffers *b, int64_t first_query, int64_t queries,
                   int64_t panel, int64_t first_key, int64_t keys)
{
    if (h->shape->dropout.rate > 0) {
        soften_columns(false, 1, h, b, panel, keys);
        apply_dropout(h, first_query + panel * PANEL, smaller(PANEL, queries - panel * PANEL), first_key, keys,
                      b->scores, 1, PANEL);
        round_along_keys(terms, b->scores, keys, 0, b->weights);
    } else if (terms == 1) {
        soften_columns(true, 1, h, b, panel, keys);
    } else {
        soften_columns(true, TERMS, h, b, panel, keys);
    }
}

static void forward_keys(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t first_query,
                         int64_t queries, int64_t first_key)
{
    int64_t keys = smaller(KEYS, h->shape->keys - first_key);
    padded to = pad(h);
    vt_matrix k = head_matrix(h, a->k, h->shape->keys), v = head_matrix(h, a->v, h->shape->keys);
    pack_depth_in_columns(pack_left_rows, &k, first_key, KEYS, to.depth, b->keys);
    pack_depth_in_rows(pack_left_columns, &v, first_key, KEYS, to.width, b->values);
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        look_ahead_share(h, &a->k, &a->v, h->shape->keys, first_key + KEYS, panel, pieces(queries, PANEL));
        multiply_tiles(a->terms, round_up(keys, SIDE), PANEL, to.depth, from_piece(b->keys, 0),
                       from_piece(b->queries, panel * PANEL), b->scores, PANEL, false);
        soften(h, a->terms, b, first_query, queries, panel, first_key, keys);
        multiply_tiles(a->terms, to.width, PANEL, round_up(keys, DEPTH), from_piece(b->values, 0),
                       from_piece(b->weights, 0), b->out + panel * PANEL * to.width, PANEL, true);
    }
}

static void forward_unit(const head_view *h, const forward_arguments *a, const forward_buffers *b, int64_t first)
{
    int64_t queries = smaller(a->unit, h->shape->queries - first), row = h->batch * h->shape->queries + first;
    int64_t width = pad(h).width;
    vt_matrix q = head_matrix(h, a->q, h->shape->queries);
    pack_depth_in_columns(pack_right_across, &q, first, a->unit, pad(h).depth, b->queries);
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
    forward_arguments arguments = {q, k, v, out, log_sum, terms_of(q.type), of_unit * QUERIES};
    pile count = {NULL, 0};
    if (terms_of(k.type) != arguments.terms || terms_of(v.type) != arguments.terms) {
        ((vt_cpu_state *)backend->state)->vectors.attention_forward(backend, shape, q, k, v, out, log_sum);
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
            forward_unit(&h, &arguments, &b, work % units * arguments.unit);
        }
        tiles_release();
    }
}

void VT_KERNEL(vt_tiles_attention_forward_fill)(vt_backend *backend)
{
    backend->attention_forward = attention_forward;
}
