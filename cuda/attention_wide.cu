/* Attention with heads of more than 128 columns, which no common model has: correct, not fast. A warp handles one query
 * (or key) and loops over the keys (or queries) one at a time; its row of up to 32 MOST_STEPS columns is in registers
 * or in the thread's local memory. */
#include "attention_wide.h"

#include "elements.h"

#include "backend/dropout.h"

enum { MOST_STEPS = 32, WIDE_WARPS = 8 };

typedef struct {
    vt_attention_shape shape;
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    float *log_sum;
    const float *delta;
} wide_arguments;

/* A row of a head; lane i holds columns i, i + 32, … */
__device__ static inline void wide_load(const vt_matrix &m, int64_t row, int64_t column, int64_t dim, float *values)
{
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32) values[d / 32] = vt_element(m, row * m.stride + column + d);
}

__device__ static inline void wide_store(const vt_matrix &m, int64_t row, int64_t column, int64_t dim, float factor,
                                         const float *values)
{
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32)
        vt_set_element(m, row * m.stride + column + d, factor * values[d / 32]);
}

__device__ static inline float wide_dot(const vt_matrix &m, int64_t row, int64_t column, int64_t dim,
                                        const float *values)
{
    float sum = 0;
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32)
        sum = fmaf(values[d / 32], vt_element(m, row * m.stride + column + d), sum);
    return vt_warp_sum(sum);
}

__device__ static inline void wide_add(const vt_matrix &m, int64_t row, int64_t column, int64_t dim, float factor,
                                       float *sums)
{
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32)
        sums[d / 32] = fmaf(factor, vt_element(m, row * m.stride + column + d), sums[d / 32]);
}

__device__ static inline float wide_keep(const vt_attention_shape &s, int64_t unit, int64_t query, int64_t key)
{
    if (s.dropout.rate <= 0) return 1;
    vt_dropout dropout = s.dropout;
    dropout.site = VT_SITE_ATTENTION + (uint32_t)(s.first_head + unit % s.heads);
    return vt_dropout_factor(&dropout, dropout.first_sample + (uint32_t)(unit / s.heads),
                             (uint32_t)(s.first_query + query), (uint32_t)(s.first_key + key));
}

VT_KERNEL void wide_forward_kernel(wide_arguments a)
{
    const vt_attention_shape &s = a.shape;
    int64_t place = (int64_t)blockIdx.x * WIDE_WARPS + threadIdx.x / 32, dim = s.head_dim;
    if (place >= s.batch * s.heads * s.queries) return;
    int64_t unit = place / s.queries, query = place % s.queries, column = unit % s.heads * dim;
    int64_t row = unit / s.heads * s.queries + query, first_key = unit / s.heads * s.keys;
    float q[MOST_STEPS], sums[MOST_STEPS] = {}, maximum = -INFINITY, sum = 0, scale = 1 / sqrtf((float)dim);
    wide_load(a.q, row, column, dim, q);
    for (int64_t key = 0; key < s.keys; key++) {
        float score = scale * wide_dot(a.k, first_key + key, column, dim, q), largest = fmaxf(maximum, score);
        float rescale = expf(maximum - largest), weight = expf(score - largest);
        maximum = largest;
        sum = sum * rescale + weight;
        for (int i = 0; i < MOST_STEPS; i++) sums[i] *= rescale;
        wide_add(a.v, first_key + key, column, dim, weight * wide_keep(s, unit, query, key), sums);
    }
    wide_store(a.out, row, column, dim, 1 / sum, sums);
    if (threadIdx.x % 32 == 0) a.log_sum[place] = maximum + logf(sum);
}

VT_KERNEL void wide_query_gradient_kernel(wide_arguments a)
{
    const vt_attention_shape &s = a.shape;
    int64_t place = (int64_t)blockIdx.x * WIDE_WARPS + threadIdx.x / 32, dim = s.head_dim;
    if (place >= s.batch * s.heads * s.queries) return;
    int64_t unit = place / s.queries, query = place % s.queries, column = unit % s.heads * dim;
    int64_t row = unit / s.heads * s.queries + query, first_key = unit / s.heads * s.keys;
    float q[MOST_STEPS], dout[MOST_STEPS], sums[MOST_STEPS] = {}, scale = 1 / sqrtf((float)dim);
    wide_load(a.q, row, column, dim, q);
    wide_load(a.dout, row, column, dim, dout);
    for (int64_t key = 0; key < s.keys; key++) {
        float weight = expf(scale * wide_dot(a.k, first_key + key, column, dim, q) - a.log_sum[place]);
        float gradient = wide_dot(a.v, first_key + key, column, dim, dout) * wide_keep(s, unit, query, key);
        wide_add(a.k, first_key + key, column, dim, weight * (gradient - a.delta[place]), sums);
    }
    wide_store(a.dq, row, column, dim, scale, sums);
}

VT_KERNEL void wide_key_gradient_kernel(wide_arguments a)
{
    const vt_attention_shape &s = a.shape;
    int64_t place = (int64_t)blockIdx.x * WIDE_WARPS + threadIdx.x / 32, dim = s.head_dim;
    if (place >= s.batch * s.heads * s.keys) return;
    int64_t unit = place / s.keys, key = place % s.keys, column = unit % s.heads * dim;
    int64_t row = unit / s.heads * s.keys + key, first_query = unit / s.heads * s.queries;
    float k[MOST_STEPS], v[MOST_STEPS], dk[MOST_STEPS] = {}, dv[MOST_STEPS] = {}, scale = 1 / sqrtf((float)dim);
    wide_load(a.k, row, column, dim, k);
    wide_load(a.v, row, column, dim, v);
    for (int64_t query = 0; query < s.queries; query++) {
        float keep = wide_keep(s, unit, query, key);
        float score = scale * wide_dot(a.q, first_query + query, column, dim, k);
        float weight = expf(score - a.log_sum[unit * s.queries + query]);
        float gradient = wide_dot(a.dout, first_query + query, column, dim, v) * keep;
        wide_add(a.dout, first_query + query, column, dim, keep * weight, dv);
        wide_add(a.q, first_query + query, column, dim, weight * (gradient - a.delta[unit * s.queries + query]), dk);
    }
    wide_store(a.dk, row, column, dim, scale, dk);
    wide_store(a.dv, row, column, dim, 1, dv);
}

static bool wide_fits(vt_backend *backend, const vt_attention_shape *shape)
{
    if (shape->head_dim <= 32 * MOST_STEPS) return true;
    vt_common(backend)->fail(backend,
                             "attention heads wider than 1024 columns don't work on a GPU: use more num_heads");
    return false;
}

static dim3 wide_blocks(const vt_attention_shape *shape, int64_t rows)
{
    return dim3((unsigned)((shape->batch * shape->heads * rows + WIDE_WARPS - 1) / WIDE_WARPS));
}

void VT_CUDA_NAME(wide_attention_forward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q,
                                          vt_matrix k, vt_matrix v, vt_matrix out, float *log_sum)
{
    wide_arguments a = {};
    a.shape = *shape, a.q = q, a.k = k, a.v = v, a.out = out, a.log_sum = log_sum;
    if (wide_fits(backend, shape))
        VT_LAUNCH(wide_forward_kernel, wide_blocks(shape, shape->queries), 32 * WIDE_WARPS, 0, backend, a);
}

void VT_CUDA_NAME(wide_attention_backward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q,
                                           vt_matrix k, vt_matrix v, const float *log_sum, const float *delta,
                                           vt_matrix dout, vt_matrix dq, vt_matrix dk, vt_matrix dv)
{
    wide_arguments a = {};
    a.shape = *shape, a.q = q, a.k = k, a.v = v, a.log_sum = (float *)log_sum, a.delta = delta;
    a.dout = dout, a.dq = dq, a.dk = dk, a.dv = dv;
    if (!wide_fits(backend, shape)) return;
    VT_LAUNCH(wide_query_gradient_kernel, wide_blocks(shape, shape->queries), 32 * WIDE_WARPS, 0, backend, a);
    VT_LAUNCH(wide_key_gradient_kernel, wide_blocks(shape, shape->keys), 32 * WIDE_WARPS, 0, backend, a);
}
