#include "elements.h"

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

/* One block. */
VT_KERNEL void add_squares(const double *partial, int64_t parts, double weight, double *result)
{
    __shared__ double shared[32];
    double sum = 0;
    for (int64_t p = threadIdx.x; p < parts; p += blockDim.x) sum += partial[p];
    sum = vt_block_sum(sum, shared);
    if (threadIdx.x == 0) *result += weight * sum;
}

static void sum_of_squares(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    if (count == 0) return;
    int64_t blocks = vt_blocks(vt_groups(count)).x;
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)blocks * sizeof *partial);
    if (partial == NULL) return;
    VT_LAUNCH(squares_kernel, dim3((unsigned)blocks), VT_BLOCK_THREADS, 0, backend, x, count, partial, vt_is_wide(x));
    VT_LAUNCH(add_squares, 1, VT_BLOCK_THREADS, 0, backend, partial, blocks, weight, result);
}

VT_KERNEL void clip_scale_kernel(const double *squares, double maximum, float *scale)
{
    double ratio = maximum / (sqrt(*squares) + 1e-6);
    if (!isfinite(*squares))
        *scale = (float)(*squares - *squares); /* NaN */
    else
        *scale = ratio < 1 ? (float)ratio : 1.0f;
}

static void clip_scale(vt_backend *backend, const double *squares, double maximum, float *scale)
{
    VT_LAUNCH(clip_scale_kernel, 1, 1, 0, backend, squares, maximum, scale);
}

/* The numbers of an update that are the same for all parameters. */
typedef struct {
    vt_optimizer_kind kind;
    float learning_rate, decay; /* decay: what the parameter (AdamW) is multiplied by, or what is added of it */
    float beta1, rest1, beta2, rest2;
    float inverse_correction1, inverse_correction2, epsilon;
} update_constants;

__device__ static inline void update_one(const update_constants &c, float gradient, float *parameter, float *moment1,
                                         float *moment2)
{
    float p = *parameter;
    if (c.kind == VT_OPTIMIZER_ADAMW)
        p *= c.decay;
    else
        gradient = fmaf(c.decay, p, gradient);
    float m = fmaf(c.beta1, *moment1, c.rest1 * gradient);
    *moment1 = m;
    if (c.kind == VT_OPTIMIZER_SGD) {
        *parameter = fmaf(-c.learning_rate, m, p);
        return;
    }
    float v = fmaf(c.beta2, *moment2, c.rest2 * gradient * gradient);
    *moment2 = v;
    float step = m * c.inverse_correction1 / (sqrtf(v * c.inverse_correction2) + c.epsilon);
    *parameter = fmaf(-c.learning_rate, step, p);
}

VT_KERNEL void update_kernel(update_constants c, const float *scale, const float *gradients, float *parameters,
                             float *moment1, float *moment2, int64_t count, bool wide)
{
    float factor = *scale;
    if (isnan(factor)) return;
    bool has_moment2 = c.kind != VT_OPTIMIZER_SGD;
    for (int64_t at = vt_thread() * VT_GROUP; at < count; at += vt_thread_count() * VT_GROUP) {
        float g[VT_GROUP], p[VT_GROUP], m[VT_GROUP], v[VT_GROUP] = {};
        int some = vt_count(count, at);
        vt_load_floats(gradients + at, some, wide, g);
        vt_load_floats(parameters + at, some, wide, p);
        vt_load_floats(moment1 + at, some, wide, m);
        if (has_moment2) vt_load_floats(moment2 + at, some, wide, v);
        for (int j = 0; j < VT_GROUP; j++) update_one(c, factor * g[j], &p[j], &m[j], &v[j]);
        vt_store_floats(parameters + at, some, wide, p);
        vt_store_floats(moment1 + at, some, wide, m);
        if (has_moment2) vt_store_floats(moment2 + at, some, wide, v);
    }
}

static void update_parameters(vt_backend *backend, const vt_update *update, const float *scale, const float *gradients,
                              float *parameters, float *moment1, float *moment2, int64_t count)
{
    if (count == 0) return;
    update_constants c = {};
    double decay = update->weight_decay, step = (double)update->step;
    c.kind = update->kind;
    c.learning_rate = (float)update->learning_rate;
    c.decay = (float)(c.kind == VT_OPTIMIZER_ADAMW ? 1 - update->learning_rate * decay : decay);
    c.beta1 = (float)update->beta1;
    c.rest1 = c.kind == VT_OPTIMIZER_SGD ? 1.0f : (float)(1 - update->beta1);
    c.beta2 = (float)update->beta2;
    c.rest2 = (float)(1 - update->beta2);
    if (c.kind != VT_OPTIMIZER_SGD) {
        c.inverse_correction1 = (float)(1 / (1 - pow(update->beta1, step)));
        c.inverse_correction2 = (float)(1 / (1 - pow(update->beta2, step)));
    }
    c.epsilon = (float)update->epsilon;
    bool wide = vt_is_wide(gradients) && vt_is_wide(parameters) && vt_is_wide(moment1) &&
                (c.kind == VT_OPTIMIZER_SGD || vt_is_wide(moment2));
    VT_LAUNCH(update_kernel, vt_blocks(vt_groups(count)), VT_BLOCK_THREADS, 0, backend, c, scale, gradients, parameters,
              moment1, moment2, count, wide);
}

void VT_CUDA_NAME(optimizer_fill)(vt_backend *backend)
{
    backend->sum_of_squares = sum_of_squares;
    backend->clip_scale = clip_scale;
    backend->update = update_parameters;
}
