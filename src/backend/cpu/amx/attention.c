/* Attention on tiles, in bfloat16 or in float32 as sums of bfloat16 terms (terms.h), in blocks as
 * vector/attention_panels.h has it: the same units of work, the same order of sums for any number of threads, nothing
 * of size queries × keys.
 *
 * Scores are made transposed, keys × queries, so that the lanes of a vector are queries: the running maximum and sum of
 * the softmax need no sums across lanes, and the weights' pairs along the keys are made of two vectors. Of the packed
 * operands only one a block is transposed by numbers (values, or keys in backward). Where all is bfloat16, weights and
 * the scores' gradients are rounded to it where they enter products; all else is float32: scores are scaled and
 * exponentiated as they come out of the tiles, the softmax's sum is of the weights before rounding, dq is summed in
 * float32.
 *
 * All blocks are padded to whole tiles with zeros: a weight beyond the keys is 0, and so is a gradient beyond the
 * queries. Operands of unequal terms go to the vector kernels. */
#include "backend/cpu/amx/terms.h"
#include "backend/cpu/vector/attention_parts.h"

enum {
    PANEL = 32, /* queries whose scores exist at once */
    QUERIES = 128,
    KEYS = 128,
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

/* ---- operands ---- */

/* As packed, to be written; pieces are no power of two apart. */
typedef struct {
    pair *tiles;
    int64_t piece;
} operand;

static operand take_operand(pile *memory, int terms, int64_t rows, int64_t depth)
{
    int64_t piece = depth / DEPTH * terms * TILE_PAIRS + SIDE;
    return (operand){take(memory, rows / SIDE * piece), piece};
}

/* From row (or column) `first` on. */
static packed from_piece(operand o, int64_t first)
{
    return (packed){o.tiles + first / SIDE * o.piece, o.piece};
}

/* The head's columns of its sample's `tokens` rows. */
static vt_matrix head_matrix(const head_view *h, vt_matrix all, int64_t tokens)
{
    all = from_row(all, h->batch * tokens);
    all.rows = tokens;
    all.columns = h->dim;
    if (vt_type_is_half(all.type))
        all.half += h->column;
    else
        all.data += h->column;
    return all;
}

/* One of terms.h's, which pack a tile from a row and a column on. */
typedef void tile_packer(const vt_matrix *from, int64_t row, int64_t column, pair *to);

/* `rows` rows first … of a matrix, its columns are the depth. */
static void pack_depth_in_columns(tile_packer *tile, const vt_matrix *from, int64_t first, int64_t rows, int64_t depth,
                                  operand to)
{
    for (int64_t i = 0; i < rows; i += SIDE)
        for (int64_t k = 0; k < depth; k += DEPTH)
            tile(from, first + i, k, to.tiles + i / SIDE * to.piece + k / DEPTH * terms_of(from->type) * TILE_PAIRS);
}

/* All columns of a matrix, to `columns`; its rows first … are the depth. */
static void pack_depth_in_rows(tile_packer *tile, const vt_matrix *from, int64_t first, int64_t depth, int64_t columns,
                               operand to)
{
    for (int64_t k = 0; k < depth; k += DEPTH)
        for (int64_t i = 0; i < columns; i += SIDE)
            tile(from, first + k, i, to.tiles + i / SIDE * to.piece + k / DEPTH * terms_of(from->type) * TILE_PAIRS);
}

/* Pairs (first[c], second[c]) of keys j and j + 1, queries i + c, in a right operand [KEYS × queries]. */
INLINE void put_along_keys(int terms, operand to, int64_t j, int64_t i, vector first, vector second)
{
    pair *at = to.tiles + i / SIDE * to.piece + j / DEPTH * terms * TILE_PAIRS + j % DEPTH / 2 * SIDE + i % SIDE;
    if (terms == 1)
        store_pairs(at, first, second);
    else
        store_terms_along(first, second, at);
}

/* Key j, queries i … and i + LANES …, in a left operand [KEYS × queries]. */
INLINE void put_along_queries(int terms, operand to, int64_t j, int64_t i, vector first, vector second)
{
    pair *at = to.tiles + j / SIDE * to.piece + i / DEPTH * terms * TILE_PAIRS + j % SIDE * SIDE + i % DEPTH / 2;
    if (terms == 1)
        store_neighbours(at, first, second);
    else
        store_terms(first, second, at);
}

/* The panel's numbers [keys × PANEL] in a right operand [KEYS × queries]; those of keys … are 0. */
static void round_along_keys(int terms, const float *rows, int64_t keys, int64_t panel, operand to)
{
    for (int64_t j = 0; j < round_up(keys, DEPTH); j += 2) {
        const float *first = rows + j * PANEL, *second = first + PANEL;
        for (int64_t i = 0; i < PANEL; i += LANES)
            put_along_keys(terms, to, j, panel * PANEL + i, j < keys ? load(first + i) : (vector){0},
                           j + 1 < keys ? load(second + i) : (vector){0});
    }
}

/* The same in a left operand [KEYS × queries]. */
static void round_along_queries(int terms, const float *rows, int64_t keys, int64_t panel, operand to)
{
    for (int64_t j = 0; j < round_up(keys, SIDE); j++)
        for (int64_t i = 0; i < PANEL; i += 2 * LANES)
            put_along_queries(terms, to, j, panel * PANEL + i, j < keys ? load(rows + j * PANEL + i) : (vector){0},
                              j < keys ? load(rows + j * PANEL + i + LANES) : (vector){0});
}

/* ---- the product ---- */

/* Not inlined: one copy is enough. */
static __attribute__((noinline)) void multiply_corner(int terms, bool two_rows, bool two_columns, packed a, packed b,
                                                      int64_t steps, float *c, int64_t c_stride, bool add)
{
    if (terms == 1)
        multiply_run(1, two_rows, two_columns, a, b, steps, c, c_stride, add, (soon){0});
    else
        multiply_run(TERMS, two_rows, two_columns, a, b, steps, c, c_stride, add, (soon){0});
}

/* c [rows × columns] (+)= a [rows × depth] b [depth × columns]; rows and columns in steps of 16, depth of 32. */
static void multiply_tiles(int terms, int64_t rows, int64_t columns, int64_t depth, packed a, packed b, float *c,
                           int64_t c_stride, bool add)
{
    for (int64_t j = 0; j < columns; j += 2 * SIDE) {
        packed right = {b.tiles + j / SIDE * b.piece, b.piece};
        for (int64_t i = 0; i < rows; i += 2 * SIDE) {
            packed left = {a.tiles + i / SIDE * a.piece, a.piece};
            multiply_corner(terms, i + SIDE < rows, j + SIDE < columns, left, right, depth / DEPTH,
                            c + i * c_stride + j, c_stride, add);
        }
    }
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
    int64_t keys = smaller(KEYS, h->shape->keys - first_key);
    padded to = pad(h);
    vt_matrix k = head_matrix(h, a->k, h->shape->keys), v = head_matrix(h, a->v, h->shape->keys);
    pack_depth_in_columns(pack_left_rows, &k, first_key, KEYS, to.depth, b->keys);
    pack_depth_in_rows(pack_left_columns, &v, first_key, KEYS, to.width, b->values);
    for (int64_t panel = 0; panel * PANEL < queries; panel++) {
        look_ahead_keys(h, a, first_key + KEYS, panel, pieces(queries, PANEL));
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

/* ---- backward ---- */

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

void VT_KERNEL(vt_tiles_attention_fill)(vt_backend *backend)
{
    backend->attention_forward = attention_forward;
    backend->attention_backward = attention_backward;
}
