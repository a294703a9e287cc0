/* What the attention kernels in vector/ and amx/ share. */
#ifndef VT_BACKEND_CPU_VECTOR_ATTENTION_PARTS_H
#define VT_BACKEND_CPU_VECTOR_ATTENTION_PARTS_H

#include <math.h>
#include <sched.h>

#include "backend/cpu/vector/random_vectors.h"

static const float log2_e = 1.44269504f;

static inline int64_t round_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

/* One head of one sample: unit = sample * heads + head. */
typedef struct {
    const vt_attention_shape *shape;
    int64_t unit, batch, head, column; /* its first column */
    int64_t dim, width;                /* head_dim, and padded to whole vectors */
    float scale;                       /* of scores */
} head_view;

static inline head_view view_head(const vt_attention_shape *shape, int64_t unit)
{
    int64_t head = unit % shape->heads;
    return (head_view){.shape = shape,
                       .unit = unit,
                       .batch = unit / shape->heads,
                       .head = head,
                       .column = head * shape->head_dim,
                       .dim = shape->head_dim,
                       .width = round_up(shape->head_dim, LANES),
                       .scale = vt_attention_scale(shape)};
}

/* ---- rows of a head, in and out ---- */

INLINE float element(const vt_matrix *matrix, int64_t index)
{
    return matrix->type == VT_FLOAT32 ? matrix->data[index] : vt_half_widen(matrix->type, matrix->half[index]);
}

INLINE void set_element(const vt_matrix *matrix, int64_t index, float value)
{
    if (matrix->type == VT_FLOAT32)
        matrix->data[index] = value;
    else
        matrix->half[index] = vt_half_round(matrix->type, value);
}

INLINE void pack_row(const vt_matrix *from, int64_t index, int64_t count, float *to)
{
    int64_t d = 0;
    if (from->type != VT_FLOAT32) {
        vt_half_widen_row(from->type, from->half + index, count, to);
        return;
    }
    for (; d + LANES <= count; d += LANES) store(to + d, load(from->data + index + d));
    for (; d < count; d++) to[d] = from->data[index + d];
}

/* Rows first … of the head's columns = scale · from, whose rows are `width` apart. */
static inline void unpack_rows(const head_view *h, const float *from, int64_t width, int64_t first, int64_t rows,
                               float scale, const vt_matrix *to)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t index = (first + r) * to->stride + h->column, d = 0;
        const float *row = from + r * width;
        for (; d + LANES <= h->dim; d += LANES) store_elements(to, index + d, scale * load(row + d));
        for (; d < h->dim; d++) set_element(to, index + d, scale * row[d]);
    }
}

/* The same, of `from` transposed: [dim × block]. */
static inline void unpack_transposed(const head_view *h, const float *from, int64_t block, int64_t first, int64_t rows,
                                     float scale, const vt_matrix *to)
{
    int64_t r = 0;
    for (; r + LANES <= rows; r += LANES) {
        int64_t corner = (first + r) * to->stride + h->column, d = 0;
        for (; d + LANES <= h->dim; d += LANES) {
            vector square[LANES];
            for (int i = 0; i < LANES; i++) square[i] = scale * load(from + (d + i) * block + r);
            transpose(square);
            for (int i = 0; i < LANES; i++) store_elements(to, corner + i * to->stride + d, square[i]);
        }
        for (; d < h->dim; d++)
            for (int i = 0; i < LANES; i++)
                set_element(to, corner + i * to->stride + d, scale * from[d * block + r + i]);
    }
    for (; r < rows; r++) {
        int64_t index = (first + r) * to->stride + h->column;
        for (int64_t d = 0; d < h->dim; d++) set_element(to, index + d, scale * from[d * block + r]);
    }
}

/* ---- dropout ---- */

/* What apply_dropout works on: weights of `queries` queries and `keys` keys (at most MOST_DROPPED), of which the
 * first ones have these places in the whole attention. */
typedef struct {
    vt_dropout dropout;
    uint32_t sample;
    float keep;
    int64_t first_query, queries, first_key, keys;
} dropped_block;

enum { MOST_DROPPED = 128 };

/* Vectors of queries: key by key, rows `stride` apart, whose last vector may be filled up by queries that are none. */
static inline void drop_along_queries(const dropped_block *b, float *weights, int64_t stride)
{
    const int64_t end = b->first_key + b->keys;
    for (int64_t quad = b->first_key / 4; 4 * quad < end; quad++) {
        for (int64_t i = 0; i < b->queries; i += LANES) {
            vector_word words[4];
            random_blocks(&b->dropout, b->sample, count_from((uint32_t)(b->first_query + i)),
                          (vector_word){0} + (uint32_t)quad, words);
            for (int w = 0; w < 4; w++) {
                const int64_t key = 4 * quad + w;
                float *at = weights + (key - b->first_key) * stride + i;
                if (key >= b->first_key && key < end) store(at, load(at) * factor_of(&b->dropout, words[w], b->keep));
            }
        }
    }
}

/* The same with vectors of keys, query by query. */
static inline void drop_along_keys(const dropped_block *b, float *weights, int64_t stride)
{
    const int64_t first = b->first_key / 4, skipped = b->first_key % 4;
    float factors[MOST_DROPPED + 8 * LANES];
    for (int64_t i = 0; i < b->queries; i++, weights += stride) {
        for (int64_t at = 0; at < skipped + b->keys; at += 4 * LANES) {
            vector made[4];
            make_factors(&b->dropout, b->sample, (uint32_t)(b->first_query + i), (uint32_t)(first + at / 4), b->keep,
                         made);
            memcpy(factors + at, made, sizeof made);
        }
        for (int64_t j = 0; j < b->keys; j += LANES)
            store(weights + j, load(weights + j) * load(factors + skipped + j));
    }
}

/* Multiplies the weight of query first_query + i and key first_key + j, at i·query_stride + j·key_stride, by dropout's
 * factor. One stride is 1; along it, whole vectors are touched. */
static inline void apply_dropout(const head_view *h, int64_t first_query, int64_t queries, int64_t first_key,
                                 int64_t keys, float *weights, int64_t query_stride, int64_t key_stride)
{
    dropped_block b = {.dropout = h->shape->dropout,
                       .sample = h->shape->dropout.first_sample + (uint32_t)h->batch,
                       .keep = 1.0f / (1.0f - h->shape->dropout.rate),
                       .first_query = h->shape->first_query + first_query,
                       .queries = queries,
                       .first_key = h->shape->first_key + first_key,
                       .keys = keys};
    b.dropout.site = VT_SITE_ATTENTION + (uint32_t)(h->shape->first_head + h->head);
    if (query_stride == 1)
        drop_along_queries(&b, weights, key_stride);
    else
        drop_along_keys(&b, weights, query_stride);
}

/* ---- the causal mask ---- */

/* How many of `keys` keys from first_key on are seen by some of the queries up to `last`. */
static inline int64_t keys_seen(const head_view *h, int64_t last, int64_t first_key, int64_t keys)
{
    const int64_t seen = vt_attention_seen(h->shape, last) - first_key;
    return seen < 0 ? 0 : smaller(seen, keys);
}

/* Does a query from `first` on not see some of the keys before `end`? */
static inline bool is_masked(const head_view *h, int64_t first, int64_t end)
{
    return h->shape->causal && vt_attention_seen(h->shape, first) < end;
}

/* Sets what belongs to query first_query + i and key first_key + j, at i·query_stride + j·key_stride, to `value` where
 * the query does not see the key. */
static inline void mask_block(const head_view *h, int64_t first_query, int64_t queries, int64_t first_key, int64_t keys,
                              float *numbers, int64_t query_stride, int64_t key_stride, float value)
{
    if (!is_masked(h, first_query, first_key + keys)) return;
    const int64_t apart = h->shape->first_key + first_key - h->shape->first_query - first_query;
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < smaller(queries, apart + j); i++) numbers[i * query_stride + j * key_stride] = value;
}

/* Queries that see no key have out = 0 and log_sum [queries] = -INFINITY. */
static inline void blank_unseeing(const head_view *h, int64_t first, int64_t queries, const vt_matrix *out,
                                  float *log_sum)
{
    for (int64_t i = 0; i < queries && vt_attention_seen(h->shape, first + i) == 0; i++) {
        const int64_t row = (h->batch * h->shape->queries + first + i) * out->stride + h->column;
        for (int64_t d = 0; d < h->dim; d++) set_element(out, row + d, 0);
        log_sum[i] = -INFINITY;
    }
}

/* A query's log_sum in powers of two; where it sees no key, one that makes all weights 0. */
INLINE float log_sum_in_powers(float log_sum)
{
    return log_sum == -INFINITY ? 1e30f : log_sum * log2_e;
}

/* ---- memory ---- */

/* Memory dealt out from one allocation, in numbers of 4 bytes; from NULL it only counts. */
typedef struct {
    float *base;
    int64_t used;
} pile;

static inline void *take(pile *memory, int64_t floats)
{
    float *taken = memory->base == NULL ? NULL : memory->base + memory->used;
    memory->used += round_up(floats, 16);
    return taken;
}

/* ---- backward's order ---- */

/* Waits until `count` blocks of keys have added to a block of queries. This ends: their threads are running, because
 * the blocks of a head are given out in order. */
static inline void wait_for(const int *added, int count)
{
    for (int spins = 0; __atomic_load_n(added, __ATOMIC_ACQUIRE) != count; spins++) {
        if (spins < 200) {
#if defined(__x86_64__)
            _mm_pause();
#endif
        } else {
            sched_yield();
        }
    }
}

/* State that backward's threads share: the progress of all units, and sums. */
typedef struct {
    int64_t units, key_blocks, query_blocks; /* blocks of a unit */
    int64_t begun;                           /* units that a thread has begun */
    int *given;                              /* [units]: blocks of keys that threads have taken */
    int *added;                              /* [units, query_blocks]: blocks of keys that have added to dq_sum */
    float *delta;                            /* [units, queries]: out · dout */
    float *dq_sum;                           /* [units]; what a kernel keeps for each unit */
} backward_shared;

/* Allocates it, with dq_sum of `dq_floats` a unit (0: NULL). False: there is no memory. */
static inline bool share_backward(vt_backend *backend, const vt_attention_shape *shape, int64_t key_blocks,
                                  int64_t query_blocks, int64_t dq_floats, backward_shared *s)
{
    int64_t units = shape->batch * shape->heads, counts = units * (1 + query_blocks);
    pile size = {NULL, 0}, shared = {NULL, 0};
    *s = (backward_shared){.units = units, .key_blocks = key_blocks, .query_blocks = query_blocks};
    for (int pass = 0; pass < 2; pass++) {
        pile *from = pass == 0 ? &size : &shared;
        s->given = take(from, counts);
        s->delta = take(from, units * shape->queries);
        s->dq_sum = dq_floats > 0 ? take(from, units * dq_floats) : NULL;
        if (pass == 0) shared.base = vt_cpu_shared(backend, (size_t)size.used * sizeof(float));
        if (shared.base == NULL) return false;
    }
    s->added = s->given + units;
    memset(s->given, 0, (size_t)counts * sizeof *s->given);
    return true;
}

static inline bool take_block_of(backward_shared *s, int64_t unit, int64_t *block)
{
    *block = __atomic_fetch_add(s->given + unit, 1, __ATOMIC_RELAXED);
    return *block < s->key_blocks;
}

/* Gets the next block of keys for this thread; false: all are given out. A thread stays with its unit (*unit; -1: none
 * yet), because its packed queries can be used again and threads on different units need not wait for one another. Then
 * come units that nobody has begun, then units that other threads are working on. */
static inline bool take_block(backward_shared *s, int64_t *unit, int64_t *block)
{
    if (*unit >= 0 && take_block_of(s, *unit, block)) return true;
    for (int64_t fresh; (fresh = __atomic_fetch_add(&s->begun, 1, __ATOMIC_RELAXED)) < s->units;) {
        *unit = fresh;
        if (take_block_of(s, fresh, block)) return true;
    }
    for (int64_t tries = 0; tries < s->units; tries++) {
        *unit = (*unit + 1) % s->units;
        if (take_block_of(s, *unit, block)) return true;
    }
    return false;
}

/* The same sums for both types. */
static inline float dot(const vt_matrix *a, int64_t a_index, const vt_matrix *b, int64_t b_index, int64_t count)
{
    vector lanes = {0};
    int64_t d = 0;
    for (; d + LANES <= count; d += LANES) lanes += load_elements(a, a_index + d) * load_elements(b, b_index + d);
    if (d < count) lanes += load_some(a, a_index + d, count - d) * load_some(b, b_index + d, count - d);
    return sum_lanes(lanes);
}

/* delta [units, queries] = out · dout of each head's row. Called by all threads of a parallel region. */
static inline void make_delta(const vt_attention_shape *shape, const vt_matrix *out, const vt_matrix *dout,
                              float *delta)
{
#pragma omp for schedule(static)
    for (int64_t row = 0; row < shape->batch * shape->queries; row++) {
        for (int64_t head = 0; head < shape->heads; head++) {
            int64_t from = row * out->stride + head * shape->head_dim;
            int64_t beside = row * dout->stride + head * shape->head_dim;
            delta[(row / shape->queries * shape->heads + head) * shape->queries + row % shape->queries] =
                dot(out, from, dout, beside, shape->head_dim);
        }
    }
}

#endif
