#include "sums.h"

extern "C" {
#include "backend/codes.h"
}
#include "backend/step_state.h"

enum { MOST_BLOCKS = 1024 };

VT_KERNEL void squares_kernel(const float *x, int64_t count, double *partial, bool wide)
{
    __shared__ double shared[32];
    double sum = 0;
    for (int64_t at = vt_thread() * VT_GROUP; at < count; at += vt_thread_count() * VT_GROUP) {
        float values[VT_GROUP];
        vt_load_floats(x + at, vt_count(count, at), wide, values);
        for (int j = 0; j < VT_GROUP; j++) sum += (double)values[j] * (double)values[j];
    }
    sum = vt_block_sum(sum, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

void VT_CUDA_NAME(sum_of_squares)(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    if (count == 0) return;
    int64_t blocks = vt_blocks(vt_groups(count)).x;
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)blocks * sizeof *partial);
    if (partial == NULL) return;
    VT_LAUNCH(squares_kernel, dim3((unsigned)blocks), VT_BLOCK_THREADS, 0, backend, x, count, partial, vt_is_wide(x));
    vt_add_partial(backend, partial, blocks, weight, result);
}

/* found [gridDim.x]: whether range blockIdx.x holds a NaN or Inf. */
VT_KERNEL void find_nonfinite(const float *x, const int64_t *ranges, const double *figure, int32_t *found)
{
    __shared__ float shared[32];
    if (figure != NULL && isfinite(*figure)) return;
    const float *own = x + ranges[2 * blockIdx.x];
    float bad = 0;
    for (int64_t i = threadIdx.x; i < ranges[2 * blockIdx.x + 1]; i += blockDim.x) bad += isfinite(own[i]) ? 0 : 1;
    bad = vt_block_sum(bad, shared);
    if (threadIdx.x == 0) found[blockIdx.x] = bad > 0;
}

VT_KERNEL void least_nonfinite(const int32_t *found, int64_t count, const double *figure, int32_t *first)
{
    int32_t i = 0;
    if (figure != NULL && isfinite(*figure))
        i = (int32_t)count;
    else
        while (i < count && !found[i]) i++;
    *first = i;
}

void VT_CUDA_NAME(first_nonfinite)(vt_backend *backend, const float *x, const int64_t *ranges, int64_t count,
                                   const double *figure, int32_t *first)
{
    int32_t *found = (int32_t *)vt_common(backend)->workspace(backend, (size_t)count * sizeof *found);
    if (found == NULL) return;
    VT_LAUNCH(find_nonfinite, dim3((unsigned)count), VT_BLOCK_THREADS, 0, backend, x, ranges, figure, found);
    VT_LAUNCH(least_nonfinite, 1, 1, 0, backend, found, count, figure, first);
}

VT_KERNEL void decide_kernel(vt_update update, vt_step_state *state)
{
    vt_step_decide(&update, state);
}

void VT_CUDA_NAME(step_decide)(vt_backend *backend, const vt_update *update, vt_step_state *state)
{
    VT_LAUNCH(decide_kernel, 1, 1, 0, backend, *update, state);
}

/* The numbers of an update that are the same for all parameters. */
typedef struct {
    vt_optimizer_name kind;
    bool nesterov;
    float learning_rate,
        decay; /* decay: the parameter is multiplied by this (AdamW), or this share of it is added to the gradient */
    float beta1, rest1, beta2, rest2;
    float inverse_correction1, inverse_correction2, epsilon;
} update_constants;

__device__ static inline void update_one(const update_constants &c, float gradient, float *parameter, float *moment1,
                                         float *moment2)
{
    float p = *parameter;
    if (c.kind == VT_OPTIMIZER_AdamW)
        p *= c.decay;
    else
        gradient = fmaf(c.decay, p, gradient);
    float m = fmaf(c.beta1, *moment1, c.rest1 * gradient);
    *moment1 = m;
    if (c.kind == VT_OPTIMIZER_SGD) {
        *parameter = fmaf(-c.learning_rate, c.nesterov ? fmaf(c.beta1, m, gradient) : m, p);
        return;
    }
    float v = fmaf(c.beta2, *moment2, c.rest2 * gradient * gradient);
    *moment2 = v;
    float step = m * c.inverse_correction1 / (sqrtf(v * c.inverse_correction2) + c.epsilon);
    *parameter = fmaf(-c.learning_rate, step, p);
}

__device__ static inline void find_constants(const vt_update &update, const vt_step_state &state, update_constants *c)
{
    double rate = state.learning_rate, decay = update.weight_decay;
    c->kind = update.kind;
    c->nesterov = update.nesterov;
    c->learning_rate = (float)rate;
    c->decay = (float)(c->kind == VT_OPTIMIZER_AdamW ? 1 - rate * decay : decay);
    c->beta1 = (float)update.beta1;
    c->rest1 = c->kind == VT_OPTIMIZER_SGD ? 1.0f : (float)(1 - update.beta1);
    c->beta2 = (float)update.beta2;
    c->rest2 = (float)(1 - update.beta2);
    c->inverse_correction1 = (float)(1 / state.correction1);
    c->inverse_correction2 = (float)(1 / state.correction2);
    c->epsilon = (float)update.epsilon;
}

VT_KERNEL void update_kernel(vt_update update, const vt_step_state *state, const float *gradients, float *parameters,
                             vt_matrix rounded, float *moment1, float *moment2, int64_t count, bool wide)
{
    __shared__ update_constants c;
    float factor = state->factor;
    if (isnan(factor)) return;
    if (threadIdx.x == 0) find_constants(update, *state, &c);
    __syncthreads();
    bool has_moment2 = c.kind != VT_OPTIMIZER_SGD, has_moment1 = has_moment2 || update.beta1 > 0;
    for (int64_t at = vt_thread() * VT_GROUP; at < count; at += vt_thread_count() * VT_GROUP) {
        float g[VT_GROUP], p[VT_GROUP], m[VT_GROUP] = {}, v[VT_GROUP] = {};
        int some = vt_count(count, at);
        vt_load_floats(gradients + at, some, wide, g);
        vt_load_floats(parameters + at, some, wide, p);
        if (has_moment1) vt_load_floats(moment1 + at, some, wide, m);
        if (has_moment2) vt_load_floats(moment2 + at, some, wide, v);
        for (int j = 0; j < VT_GROUP; j++) update_one(c, factor * g[j], &p[j], &m[j], &v[j]);
        vt_store_floats(parameters + at, some, wide, p);
        if (rounded.data != NULL) vt_store(rounded, at, some, wide, p);
        if (has_moment1) vt_store_floats(moment1 + at, some, wide, m);
        if (has_moment2) vt_store_floats(moment2 + at, some, wide, v);
    }
}

void VT_CUDA_NAME(update)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                          const float *gradients, float *parameters, uint16_t *rounded, float *moment1, float *moment2,
                          int64_t count)
{
    const vt_matrix halves = vt_rounded(update, rounded, count);
    bool wide =
        vt_is_wide(gradients, parameters, halves, moment1) && (update->kind == VT_OPTIMIZER_SGD || vt_is_wide(moment2));
    int64_t blocks = vt_blocks(vt_groups(count)).x, most = 16 * vt_common(backend)->multiprocessors;
    VT_LAUNCH(update_kernel, dim3((unsigned)(blocks < most || most == 0 ? blocks : most)), VT_BLOCK_THREADS, 0, backend,
              *update, state, gradients, parameters, halves, moment1, moment2, count, wide);
}

/* Both maps, as a kernel takes them. */
typedef struct {
    vt_code_lines first, second;
} code_lines;

/* The positive code at this place of a map whose last decade has 2^last codes, by the formula of codes.h. */
__device__ static inline float code_value(int place, int last)
{
    const float tenths[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    int least = 1 << (last - 6), at = place - 1 + least, log2 = (int)(vt_bits((float)at) >> 23) - 127;
    if (place == 0) return 0;
    if (log2 > last) return 1;
    return tenths[log2 - last + 6] * (0.1f + 0.9f * ((float)(at - (1 << log2)) + 0.5f) / (float)(1 << log2));
}

enum { MOST_IN_CODES = 16 }; /* elements of a thread: blocks have up to 4096 */

/* A block of threads handles a block of elements: thread i elements i, i + blockDim.x, … */
VT_KERNEL void update_in_codes_kernel(vt_update update, code_lines lines, const vt_step_state *state,
                                      const float *gradients, float *parameters, vt_matrix rounded, uint8_t *moment1,
                                      float *scale1, uint8_t *moment2, float *scale2, int64_t count)
{
    __shared__ update_constants c;
    __shared__ float shared[32];
    float factor = state->factor, m[MOST_IN_CODES], v[MOST_IN_CODES];
    if (isnan(factor)) return;
    if (threadIdx.x == 0) find_constants(update, *state, &c);
    __syncthreads();
    int64_t begin = (int64_t)blockIdx.x * update.block;
    int length = (int)min((int64_t)update.block, count - begin);
    float old1 = scale1[blockIdx.x], old2 = scale2[blockIdx.x], largest1 = -INFINITY, least1 = INFINITY, largest2 = 0;
#pragma unroll
    for (int j = 0; j < MOST_IN_CODES; j++) {
        int i = (int)(threadIdx.x + j * blockDim.x);
        if (i >= length) break;
        int code = moment1[begin + i];
        float p = parameters[begin + i];
        m[j] = (code < 127 ? -code_value(127 - code, 6) : code_value(code - 127, 6)) * old1;
        v[j] = code_value(moment2[begin + i], 7) * old2;
        update_one(c, factor * gradients[begin + i], &p, &m[j], &v[j]);
        parameters[begin + i] = p;
        if (rounded.data != NULL) vt_set_element(rounded, begin + i, p);
        largest1 = fmaxf(largest1, m[j]), least1 = fminf(least1, m[j]), largest2 = fmaxf(largest2, v[j]);
    }
    largest1 = vt_block_max(largest1, shared);
    least1 = -vt_block_max(-least1, shared);
    largest2 = vt_block_max(largest2, shared);
    float new1 = vt_code_scale(largest1, least1), new2 = vt_code_scale(largest2, largest2);
#pragma unroll
    for (int j = 0; j < MOST_IN_CODES; j++) {
        int i = (int)(threadIdx.x + j * blockDim.x);
        if (i >= length) break;
        moment1[begin + i] = (uint8_t)(new1 == 0 ? 127 : vt_code_signed(&lines.first, m[j] / new1));
        moment2[begin + i] = (uint8_t)(new2 == 0 ? 0 : vt_code_unsigned(&lines.second, v[j] / new2));
    }
    if (threadIdx.x > 0) return;
    scale1[blockIdx.x] = new1;
    scale2[blockIdx.x] = new2;
}

void VT_CUDA_NAME(update_in_codes)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                                   const float *gradients, float *parameters, uint16_t *rounded, uint8_t *moment1,
                                   float *scale1, uint8_t *moment2, float *scale2, int64_t count)
{
    code_lines lines = {vt_code_map_signed()->lines, vt_code_map_unsigned()->lines};
    VT_LAUNCH(update_in_codes_kernel, dim3((unsigned)vt_update_blocks(update, count)),
              min(update->block, (int32_t)VT_BLOCK_THREADS), 0, backend, *update, lines, state, gradients, parameters,
              vt_rounded(update, rounded, count), moment1, scale1, moment2, scale2, count);
}

VT_KERNEL void average_kernel(double decay, bool warms_up, const vt_step_state *state, const float *values,
                              float *average, int64_t count, bool wide)
{
    if (isnan(state->factor)) return;
    const float share = vt_average_share(decay, warms_up, state);
    for (int64_t at = vt_thread() * VT_GROUP; at < count; at += vt_thread_count() * VT_GROUP) {
        float w[VT_GROUP], e[VT_GROUP];
        int some = vt_count(count, at);
        vt_load_floats(values + at, some, wide, w);
        vt_load_floats(average + at, some, wide, e);
        for (int j = 0; j < VT_GROUP; j++) e[j] = share == 1 ? w[j] : fmaf(share, w[j] - e[j], e[j]);
        vt_store_floats(average + at, some, wide, e);
    }
}

void VT_CUDA_NAME(average)(vt_backend *backend, double decay, bool warms_up, const vt_step_state *state,
                           const float *values, float *average, int64_t count)
{
    VT_SPREAD(average_kernel, vt_groups(count), backend, decay, warms_up, state, values, average, count,
              vt_is_wide(values, average));
}

VT_KERNEL void muon_momentum_kernel(vt_update update, const vt_step_state *state, const float *gradients, float *moment,
                                    float *x, int64_t count)
{
    float factor = state->factor, keep = (float)update.momentum, rest = (float)(1 - update.momentum);
    if (isnan(factor)) return;
    for (int64_t i = vt_thread(); i < count; i += vt_thread_count()) {
        float gradient = factor * gradients[i], m = fmaf(rest, gradient - moment[i], moment[i]);
        moment[i] = m;
        x[i] = update.nesterov ? fmaf(keep, m - gradient, gradient) : m;
    }
}

void VT_CUDA_NAME(muon_momentum)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                                 const float *gradients, float *moment, float *x, int64_t count)
{
    VT_SPREAD(muon_momentum_kernel, count, backend, *update, state, gradients, moment, x, count);
}

VT_KERNEL void muon_apply_kernel(vt_update update, const vt_step_state *state, double scale, const float *x,
                                 float *values, vt_matrix rounded, int64_t count)
{
    float shrink = (float)(1 - state->learning_rate * update.weight_decay);
    float step = (float)(state->learning_rate * scale);
    if (isnan(state->factor)) return;
    for (int64_t i = vt_thread(); i < count; i += vt_thread_count()) {
        float value = fmaf(-step, x[i], values[i] * shrink);
        values[i] = value;
        if (rounded.data != NULL) vt_set_element(rounded, i, value);
    }
}

void VT_CUDA_NAME(muon_apply)(vt_backend *backend, const vt_update *update, const vt_step_state *state, double scale,
                              const float *x, float *values, uint16_t *rounded, int64_t count)
{
    VT_SPREAD(muon_apply_kernel, count, backend, *update, state, scale, x, values, vt_rounded(update, rounded, count),
              count);
}

VT_KERNEL void divide_by_norm_kernel(const double *squares, float least, float *x, int64_t count)
{
    float factor = (float)(1 / fmax(sqrt(*squares), (double)least));
    for (int64_t i = vt_thread(); i < count; i += vt_thread_count()) x[i] *= factor;
}

void VT_CUDA_NAME(divide_by_norm)(vt_backend *backend, const double *squares, float least, float *x, int64_t count)
{
    VT_SPREAD(divide_by_norm_kernel, count, backend, squares, least, x, count);
}

VT_KERNEL void combine_kernel(float a, const float *x, float b, const float *z, float *y, int64_t count)
{
    for (int64_t i = vt_thread(); i < count; i += vt_thread_count()) y[i] = fmaf(a, x[i], b * z[i]);
}

void VT_CUDA_NAME(combine)(vt_backend *backend, float a, const float *x, float b, const float *z, float *y,
                           int64_t count)
{
    VT_SPREAD(combine_kernel, count, backend, a, x, b, z, y, count);
}

VT_KERNEL void exchange_kernel(float *a, float *b, int64_t count, bool wide)
{
    for (int64_t at = vt_thread() * VT_GROUP; at < count; at += vt_thread_count() * VT_GROUP) {
        float x[VT_GROUP], y[VT_GROUP];
        int some = vt_count(count, at);
        vt_load_floats(a + at, some, wide, x);
        vt_load_floats(b + at, some, wide, y);
        vt_store_floats(a + at, some, wide, y);
        vt_store_floats(b + at, some, wide, x);
    }
}

void VT_CUDA_NAME(exchange)(vt_backend *backend, float *a, float *b, int64_t count)
{
    VT_SPREAD(exchange_kernel, vt_groups(count), backend, a, b, count, vt_is_wide(a, b));
}
