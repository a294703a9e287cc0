/* Attention in blocks, after Dao 2023 ("FlashAttention-2"): the running maximum and sum of each query's scores are
 * kept, so nothing of size queries × keys exists. One thread works on one head of one sample at a time, with packed
 * copies of what that head needs; the result does not depend on the number of threads. */
#include <math.h>

#include "backend/cpu/vector/vector.h"
#include "backend/dropout.h"

enum {
    TILE_ROWS = 6,                      /* rows of a register tile … */
    TILE_VECTORS = LANES == 16 ? 4 : 2, /* … and its vectors: their sums stay in registers */
    ROW_STEP = 12,                      /* packed rows are padded to a multiple of this */
    QUERY_BLOCK = 48,
    KEY_BLOCK = 192,         /* forward */
    BACKWARD_KEY_BLOCK = 96, /* backward keeps two blocks of scores */
};

static const float log2_e = 1.44269504f;

/* c [rows × vectors·LANES] (+)= a [rows × depth] b [depth × vectors·LANES]; a's element (i, k) is a[i·a_row +
 * k·a_column]. rows and vectors are constants where it is inlined. */
INLINE void tile(int rows, int vectors, const float *a, int64_t a_row, int64_t a_column, const float *b,
                 int64_t b_stride, float *c, int64_t c_stride, int64_t depth, bool add)
{
    vector sum[ROW_STEP][4];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) sum[i][j] = add ? load(c + i * c_stride + j * LANES) : (vector){0};
    for (int64_t k = 0; k < depth; k++) {
        vector row[4];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) row[j] = load(b + k * b_stride + j * LANES);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            vector value = splat(a[i * a_row + k * a_column]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sum[i][j] += value * row[j];
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) store(c + i * c_stride + j * LANES, sum[i][j]);
}

/* The same for any number of vectors, and rows a multiple of ROW_STEP. */
INLINE void multiply(int64_t rows, int64_t vectors, const float *a, int64_t a_row, int64_t a_column, const float *b,
                     int64_t b_stride, float *c, int64_t c_stride, int64_t depth, bool add)
{
    int64_t j = 0;
    for (; j + TILE_VECTORS <= vectors; j += TILE_VECTORS)
        for (int64_t i = 0; i < rows; i += TILE_ROWS)
            tile(TILE_ROWS, TILE_VECTORS, a + i * a_row, a_row, a_column, b + j * LANES, b_stride,
                 c + i * c_stride + j * LANES, c_stride, depth, add);
    const float *rest_b = b + j * LANES;
    float *rest_c = c + j * LANES;
    if (vectors - j == 3 && TILE_VECTORS > 3) {
        for (int64_t i = 0; i < rows; i += TILE_ROWS)
            tile(TILE_ROWS, 3, a + i * a_row, a_row, a_column, rest_b, b_stride, rest_c + i * c_stride, c_stride, depth,
                 add);
    } else if (vectors - j == 2 && TILE_VECTORS > 2) {
        for (int64_t i = 0; i < rows; i += TILE_ROWS)
            tile(TILE_ROWS, 2, a + i * a_row, a_row, a_column, rest_b, b_stride, rest_c + i * c_stride, c_stride, depth,
                 add);
    } else if (vectors - j == 1) {
        for (int64_t i = 0; i < rows; i += ROW_STEP)
            tile(ROW_STEP, 1, a + i * a_row, a_row, a_column, rest_b, b_stride, rest_c + i * c_stride, c_stride, depth,
                 add);
    }
}

static int64_t round_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sizes of one head's work. */
typedef struct {
    const vt_attention_shape *shape;
    int64_t queries, keys;               /* as given … */
    int64_t padded_queries, padded_keys; /* … and padded to whole blocks' row steps and vectors */
    int64_t dim, width;                  /* head_dim, and padded to whole vectors */
    float scale;                         /* 1 / sqrt(head_dim) */
} sizes;

static sizes make_sizes(const vt_attention_shape *shape)
{
    int64_t step = 3 * LANES; /* a multiple of LANES and of ROW_STEP */
    return (sizes){.shape = shape,
                   .queries = shape->queries,
                   .keys = shape->keys,
                   .padded_queries = round_up(shape->queries, ROW_STEP),
                   .padded_keys = round_up(shape->keys, step),
                   .dim = shape->head_dim,
                   .width = round_up(shape->head_dim, LANES),
                   .scale = 1.0f / sqrtf((float)shape->head_dim)};
}

/* to [padded × width] = scale · from [rows × dim], the rest 0. */
static void pack_rows(const float *from, int64_t stride, int64_t rows, int64_t padded, const sizes *s, float scale,
                      float *to)
{
    for (int64_t r = 0; r < padded; r++) {
        int64_t used = r < rows ? s->dim : 0;
        for (int64_t d = 0; d < used; d++) to[r * s->width + d] = scale * from[r * stride + d];
        for (int64_t d = used; d < s->width; d++) to[r * s->width + d] = 0;
    }
}

/* to [rows × dim] = scale · from [rows × width]. */
static void unpack_rows(const float *from, const sizes *s, int64_t rows, float scale, float *to, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < s->dim; d++) to[r * stride + d] = scale * from[r * s->width + d];
}

/* to [dim × padded] = fromᵀ, the rest 0. */
static void pack_transposed(const float *from, int64_t stride, int64_t rows, int64_t padded, const sizes *s, float *to)
{
    for (int64_t first = 0; first < padded; first += LANES) {
        for (int64_t d = 0; d < s->dim; d++) {
            float *row = to + d * padded + first;
            for (int64_t i = 0; i < LANES; i++) row[i] = first + i < rows ? from[(first + i) * stride + d] : 0;
        }
    }
}

/* Weights of neighbouring keys, which numbers first … end - 1 of a block decide on. */
INLINE void drop(vt_random_block block, int64_t first, int64_t end, float rate, float keep, float *weights)
{
    for (int64_t w = first; w < end; w++) weights[w - first] *= vt_random_uniform(block.word[w]) < rate ? 0.0f : keep;
}

/* Multiplies weights [rows × columns] of queries first_query …, keys first_key … of the shape's by what dropout keeps.
 */
static void apply_dropout(const sizes *s, int64_t unit, int64_t first_query, int64_t rows, int64_t first_key,
                          int64_t columns, float *weights, int64_t stride)
{
    vt_dropout dropout = s->shape->dropout;
    dropout.site = VT_SITE_ATTENTION + (uint32_t)(s->shape->first_head + unit % s->shape->heads);
    uint32_t sample = dropout.first_sample + (uint32_t)(unit / s->shape->heads);
    float keep = 1.0f / (1.0f - dropout.rate);
    int64_t begin = s->shape->first_key + first_key, end = begin + columns;
    for (int64_t i = 0; i < rows; i++) {
        uint32_t query = (uint32_t)(s->shape->first_query + first_query + i);
        for (int64_t quad = begin / 4; 4 * quad < end; quad++) {
            vt_random_block block = vt_dropout_block(&dropout, sample, query, (uint32_t)quad);
            int64_t first = 4 * quad < begin ? begin - 4 * quad : 0, until = smaller(4, end - 4 * quad);
            float *kept = weights + i * stride + 4 * quad + first - begin;
            if (first == 0 && until == 4)
                drop(block, 0, 4, dropout.rate, keep, kept);
            else
                drop(block, first, until, dropout.rate, keep, kept);
        }
    }
}

typedef struct {
    float *queries; /* [QUERY_BLOCK × width], scaled by log2(e) / sqrt(dim) */
    float *keys;    /* [dim × padded_keys] */
    float *values;  /* [padded_keys × width] */
    float *scores;  /* [QUERY_BLOCK × KEY_BLOCK] */
    float *out;     /* [QUERY_BLOCK × width] */
} forward_buffers;

/* Memory dealt out from a thread's scratch; from NULL it only counts. */
typedef struct {
    float *base;
    int64_t used;
} pile;

static float *take(pile *memory, int64_t floats)
{
    float *taken = memory->base == NULL ? NULL : memory->base + memory->used;
    memory->used += round_up(floats, 16);
    return taken;
}

static forward_buffers forward_layout(const sizes *s, pile *memory)
{
    return (forward_buffers){.queries = take(memory, QUERY_BLOCK * s->width),
                             .keys = take(memory, s->dim * s->padded_keys),
                             .values = take(memory, s->padded_keys * s->width),
                             .scores = take(memory, QUERY_BLOCK * KEY_BLOCK),
                             .out = take(memory, QUERY_BLOCK * s->width)};
}

/* One row of scores (in powers of two) becomes weights relative to the running maximum; the row of `out` and the
 * running sum are brought to a new maximum when there is one. */
INLINE void soften_row(float *scores, int64_t columns, float *maximum, float *sum, float *out, int64_t width)
{
    vector high = load(scores);
    for (int64_t j = LANES; j < columns; j += LANES) high = largest(high, load(scores + j));
    float row_maximum = largest_lane(high);
    if (row_maximum > *maximum) {
        float factor = exp2f(*maximum - row_maximum);
        *sum *= factor;
        for (int64_t d = 0; d < width; d += LANES) store(out + d, factor * load(out + d));
        *maximum = row_maximum;
    }
    vector total = {0};
    for (int64_t j = 0; j < columns; j += LANES) {
        vector weight = exp2_vector(load(scores + j) - *maximum);
        total += weight;
        store(scores + j, weight);
    }
    *sum += sum_lanes(total);
}

static void forward_block(const sizes *s, const forward_buffers *b, int64_t unit, int64_t first_query, int64_t rows,
                          float *maximum, float *sum)
{
    int64_t padded_rows = round_up(rows, ROW_STEP);
    for (int64_t i = 0; i < padded_rows; i++) {
        maximum[i] = -1e30f;
        sum[i] = 0;
    }
    memset(b->out, 0, (size_t)(padded_rows * s->width) * sizeof(float));
    for (int64_t first = 0; first < s->keys; first += KEY_BLOCK) {
        int64_t columns = round_up(smaller(KEY_BLOCK, s->keys - first), LANES);
        multiply(padded_rows, columns / LANES, b->queries, s->width, 1, b->keys + first, s->padded_keys, b->scores,
                 KEY_BLOCK, s->dim, false);
        for (int64_t i = 0; i < padded_rows; i++) {
            float *row = b->scores + i * KEY_BLOCK;
            for (int64_t j = s->keys - first; j < columns; j++) row[j] = -1e30f; /* keys that are only padding */
            soften_row(row, columns, maximum + i, sum + i, b->out + i * s->width, s->width);
        }
        if (s->shape->dropout.rate > 0) apply_dropout(s, unit, first_query, rows, first, columns, b->scores, KEY_BLOCK);
        multiply(padded_rows, s->width / LANES, b->scores, KEY_BLOCK, 1, b->values + first * s->width, s->width, b->out,
                 s->width, columns, true);
    }
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    sizes s = make_sizes(shape);
    pile count = {NULL, 0};
    forward_layout(&s, &count);
    if (!vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float))) return;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < shape->batch * shape->heads; unit++) {
        pile memory = {vt_cpu_scratch(backend), 0};
        forward_buffers b = forward_layout(&s, &memory);
        int64_t batch = unit / shape->heads, column = unit % shape->heads * shape->head_dim;
        pack_transposed(k.data + batch * s.keys * k.stride + column, k.stride, s.keys, s.padded_keys, &s, b.keys);
        pack_rows(v.data + batch * s.keys * v.stride + column, v.stride, s.keys, s.padded_keys, &s, 1, b.values);
        for (int64_t first = 0; first < s.queries; first += QUERY_BLOCK) {
            int64_t rows = smaller(QUERY_BLOCK, s.queries - first), row = batch * s.queries + first;
            float maximum[QUERY_BLOCK], sum[QUERY_BLOCK];
            pack_rows(q.data + row * q.stride + column, q.stride, rows, round_up(rows, ROW_STEP), &s, s.scale * log2_e,
                      b.queries);
            forward_block(&s, &b, unit, first, rows, maximum, sum);
            for (int64_t i = 0; i < rows; i++) {
                unpack_rows(b.out + i * s.width, &s, 1, 1 / sum[i], out.data + (row + i) * out.stride + column, 0);
                log_sum[unit * s.queries + first + i] = maximum[i] / log2_e + logf(sum[i]);
            }
        }
    }
}

typedef struct {
    float *queries, *dout, *dqueries; /* [padded_queries × width]; queries scaled by 1 / sqrt(dim) */
    float *keys;                      /* [padded_keys × width] */
    float *keys_transposed;           /* [dim × padded_keys] */
    float *values_transposed;         /* [dim × padded_keys] */
    float *weights, *dscores;         /* [QUERY_BLOCK × BACKWARD_KEY_BLOCK] */
    float *kept;                      /* the weights after dropout; `weights` itself without dropout */
    float *dkeys, *dvalues;           /* [BACKWARD_KEY_BLOCK × width] */
    float *log_sum, *delta;           /* [padded_queries]; log_sum in powers of two; delta = out · dout */
} backward_buffers;

static backward_buffers backward_layout(const sizes *s, pile *memory)
{
    int64_t rows = s->padded_queries * s->width, scores = QUERY_BLOCK * BACKWARD_KEY_BLOCK;
    backward_buffers b = {.queries = take(memory, rows),
                          .dout = take(memory, rows),
                          .dqueries = take(memory, rows),
                          .keys = take(memory, s->padded_keys * s->width),
                          .keys_transposed = take(memory, s->dim * s->padded_keys),
                          .values_transposed = take(memory, s->dim * s->padded_keys),
                          .weights = take(memory, scores),
                          .dscores = take(memory, scores),
                          .dkeys = take(memory, BACKWARD_KEY_BLOCK * s->width),
                          .dvalues = take(memory, BACKWARD_KEY_BLOCK * s->width),
                          .log_sum = take(memory, s->padded_queries),
                          .delta = take(memory, s->padded_queries)};
    b.kept = s->shape->dropout.rate > 0 ? take(memory, scores) : b.weights;
    return b;
}

/* weights and dscores [rows × columns] hold scores and the weights' gradients on entry. */
INLINE void differentiate_block(const sizes *s, const backward_buffers *b, int64_t unit, int64_t first_query,
                                int64_t rows, int64_t first_key, int64_t columns)
{
    enum { STRIDE = BACKWARD_KEY_BLOCK };
    for (int64_t i = 0; i < rows; i++) {
        float *weights = b->weights + i * STRIDE, high = b->log_sum[first_query + i];
        for (int64_t j = 0; j < columns; j += LANES) store(weights + j, exp2_vector(load(weights + j) * log2_e - high));
        for (int64_t j = s->keys - first_key; j < columns; j++) weights[j] = 0; /* keys that are only padding */
    }
    if (s->shape->dropout.rate > 0) {
        /* the kept weights' gradient passes through the same factors, and dscores = weights · (factor · d - delta) */
        for (int64_t i = 0; i < rows * STRIDE; i++) b->kept[i] = b->weights[i];
        apply_dropout(s, unit, first_query, rows, first_key, columns, b->kept, STRIDE);
        for (int64_t i = 0; i < rows; i++) {
            float *kept = b->kept + i * STRIDE, *weights = b->weights + i * STRIDE, *dscores = b->dscores + i * STRIDE;
            for (int64_t j = 0; j < columns; j++)
                dscores[j] = kept[j] * dscores[j] - weights[j] * b->delta[first_query + i];
        }
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        float *weights = b->weights + i * STRIDE, *dscores = b->dscores + i * STRIDE;
        float delta = b->delta[first_query + i];
        for (int64_t j = 0; j < columns; j += LANES)
            store(dscores + j, load(weights + j) * (load(dscores + j) - delta));
    }
}

/* One block of keys against all queries: adds to dqueries, makes dkeys and dvalues. */
static void backward_keys(const sizes *s, const backward_buffers *b, int64_t unit, int64_t first_key)
{
    enum { STRIDE = BACKWARD_KEY_BLOCK };
    int64_t columns = smaller(BACKWARD_KEY_BLOCK, s->padded_keys - first_key), width = s->width;
    memset(b->dkeys, 0, (size_t)(BACKWARD_KEY_BLOCK * width) * sizeof(float));
    memset(b->dvalues, 0, (size_t)(BACKWARD_KEY_BLOCK * width) * sizeof(float));
    for (int64_t first = 0; first < s->queries; first += QUERY_BLOCK) {
        int64_t rows = smaller(QUERY_BLOCK, s->padded_queries - first);
        const float *queries = b->queries + first * width, *dout = b->dout + first * width;
        multiply(rows, columns / LANES, queries, width, 1, b->keys_transposed + first_key, s->padded_keys, b->weights,
                 STRIDE, s->dim, false);
        multiply(rows, columns / LANES, dout, width, 1, b->values_transposed + first_key, s->padded_keys, b->dscores,
                 STRIDE, s->dim, false);
        differentiate_block(s, b, unit, first, rows, first_key, columns);
        multiply(columns, width / LANES, b->kept, 1, STRIDE, dout, width, b->dvalues, width, rows, true);
        multiply(columns, width / LANES, b->dscores, 1, STRIDE, queries, width, b->dkeys, width, rows, true);
        multiply(rows, width / LANES, b->dscores, STRIDE, 1, b->keys + first_key * width, width,
                 b->dqueries + first * width, width, columns, true);
    }
}

/* Everything of one head: unit = sample * heads + head. */
typedef struct {
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    const float *log_sum;
} backward_arguments;

static void backward_prepare(const sizes *s, const backward_arguments *a, int64_t unit, const backward_buffers *b)
{
    int64_t column = unit % s->shape->heads * s->dim, batch = unit / s->shape->heads;
    int64_t query_row = batch * s->queries, key_row = batch * s->keys;
    const float *queries = a->q.data + query_row * a->q.stride + column;
    const float *gradients = a->dout.data + query_row * a->dout.stride + column;
    const float *keys = a->k.data + key_row * a->k.stride + column;
    const float *values = a->v.data + key_row * a->v.stride + column;
    pack_rows(queries, a->q.stride, s->queries, s->padded_queries, s, s->scale, b->queries);
    pack_rows(gradients, a->dout.stride, s->queries, s->padded_queries, s, 1, b->dout);
    pack_rows(keys, a->k.stride, s->keys, s->padded_keys, s, 1, b->keys);
    pack_transposed(keys, a->k.stride, s->keys, s->padded_keys, s, b->keys_transposed);
    pack_transposed(values, a->v.stride, s->keys, s->padded_keys, s, b->values_transposed);
    memset(b->dqueries, 0, (size_t)(s->padded_queries * s->width) * sizeof(float));
    for (int64_t i = 0; i < s->padded_queries; i++) {
        b->delta[i] = 0;
        b->log_sum[i] = 1e30f; /* padding: its weights come out as 0 */
        if (i >= s->queries) continue;
        const float *out = a->out.data + (query_row + i) * a->out.stride + column;
        for (int64_t d = 0; d < s->dim; d++) b->delta[i] += out[d] * b->dout[i * s->width + d];
        b->log_sum[i] = a->log_sum[unit * s->queries + i] * log2_e;
    }
}

static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    sizes s = make_sizes(shape);
    backward_arguments arguments = {q, k, v, out, dout, dq, dk, dv, log_sum};
    pile count = {NULL, 0};
    backward_layout(&s, &count);
    if (!vt_cpu_scratch_reserve(backend, (size_t)count.used * sizeof(float))) return;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < shape->batch * shape->heads; unit++) {
        pile memory = {vt_cpu_scratch(backend), 0};
        backward_buffers b = backward_layout(&s, &memory);
        int64_t column = unit % shape->heads * s.dim, batch = unit / shape->heads;
        backward_prepare(&s, &arguments, unit, &b);
        for (int64_t first = 0; first < s.keys; first += BACKWARD_KEY_BLOCK) {
            int64_t rows = smaller(BACKWARD_KEY_BLOCK, s.keys - first), row = batch * s.keys + first;
            backward_keys(&s, &b, unit, first);
            unpack_rows(b.dkeys, &s, rows, 1, dk.data + row * dk.stride + column, dk.stride);
            unpack_rows(b.dvalues, &s, rows, 1, dv.data + row * dv.stride + column, dv.stride);
        }
        unpack_rows(b.dqueries, &s, s.queries, s.scale, dq.data + batch * s.queries * dq.stride + column, dq.stride);
    }
}

void VT_KERNEL(vt_vector_attention_fill)(vt_backend *backend)
{
    backend->attention_forward = attention_forward;
    backend->attention_backward = attention_backward;
}
