/* GELU (Hendrycks, Gimpel 2016) in float32. Sums of products are written as fmaf, so that forward and backward give the
 * same bits whatever a compiler would contract by itself. */
#include "sums.h"

/* The values of GELU, and each gradient multiplied by its derivative. The error function (or tanh) is computed once. */
__device__ static inline void gelu_both(vt_gelu kind, float values[VT_GROUP], float gradient[VT_GROUP])
{
    const float root_half = 0.70710678f, root_two_over_pi = 0.79788456f, cubic = 0.044715f, density = 0.39894228f;
    if (kind == VT_GELU_ERF) {
        for (int j = 0; j < VT_GROUP; j++) {
            float x = values[j], half = 0.5f * x, e = erff(x * root_half);
            values[j] = fmaf(half, e, half);
            gradient[j] *= fmaf(x * density, expf(-0.5f * x * x), fmaf(0.5f, e, 0.5f));
        }
        return;
    }
    for (int j = 0; j < VT_GROUP; j++) {
        float x = values[j], half = 0.5f * x, t = tanhf(root_two_over_pi * x * fmaf(cubic * x, x, 1.0f));
        float inner_slope = root_two_over_pi * fmaf(3 * cubic * x, x, 1.0f);
        values[j] = fmaf(half, t, half);
        gradient[j] *= fmaf(half * fmaf(-t, t, 1.0f), inner_slope, fmaf(0.5f, t, 0.5f));
    }
}

/* y = gelu(x + bias); x becomes x + bias if there is a bias. Backward will see the value rounded to a 16-bit x, so y is
 * computed from that value. */
VT_KERNEL void gelu_forward_kernel(vt_gelu kind, vt_matrix x, const float *bias, vt_matrix y, bool wide)
{
    vt_each_group(x.rows, x.columns, [&](int64_t row, int64_t column, int count) {
        float values[VT_GROUP], added[VT_GROUP], unused[VT_GROUP] = {};
        int64_t at = row * x.stride + column;
        vt_raw raw = vt_fetch(x, at, count, wide);
        if (bias != NULL) vt_load_floats(bias + column, count, wide, added);
        vt_widen_eight(x.type, raw, values);
        if (bias != NULL) {
            for (int j = 0; j < VT_GROUP; j++) values[j] += added[j];
            vt_as_stored(x.type, values);
            vt_store(x, at, count, wide, values);
        }
        gelu_both(kind, values, unused); /* the compiler leaves the gradients out */
        vt_store(y, row * y.stride + column, count, wide, values);
    });
}

typedef struct {
    vt_gelu kind;
    vt_matrix x, dy, dx, y; /* y.data NULL: not wanted */
    bool wide;
} backward_arguments;

/* `count` columns of a row; gradient becomes what is stored into dx, rounded as stored if `as_stored`. */
__device__ static inline void backward_group(const backward_arguments &a, int64_t row, int64_t column, int count,
                                             bool as_stored, float gradient[VT_GROUP])
{
    float values[VT_GROUP];
    vt_raw x = vt_fetch(a.x, row * a.x.stride + column, count, a.wide);
    vt_raw dy = vt_fetch(a.dy, row * a.dy.stride + column, count, a.wide);
    vt_widen_eight(a.x.type, x, values);
    vt_widen_eight(a.dy.type, dy, gradient);
    gelu_both(a.kind, values, gradient);
    if (as_stored) vt_as_stored(a.dx.type, gradient);
    vt_store(a.dx, row * a.dx.stride + column, count, a.wide, gradient);
    if (a.y.data != NULL) vt_store(a.y, row * a.y.stride + column, count, a.wide, values);
}

VT_KERNEL void gelu_backward_kernel(backward_arguments a)
{
    vt_each_group(a.x.rows, a.x.columns, [&](int64_t row, int64_t column, int count) {
        float gradient[VT_GROUP];
        backward_group(a, row, column, count, false, gradient);
    });
}

/* The same, with the column sums of what was stored into dx: a bias's gradient. Registers for six blocks on a
 * multiprocessor: the reference model's 768 blocks then all run at once on 132 of them. */
VT_KERNEL void __launch_bounds__(32 * VT_SUM_LANES, 6)
    gelu_backward_bias_kernel(backward_arguments a, int64_t rows_a_block, float *partial)
{
    __shared__ float shared[VT_SUM_LANES][32 * VT_GROUP];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t column = ((int64_t)blockIdx.x * 32 + lane) * VT_GROUP, first = blockIdx.y * rows_a_block;
    int64_t end = first + rows_a_block < a.x.rows ? first + rows_a_block : a.x.rows;
    int count = column < a.x.columns ? vt_count(a.x.columns, column) : 0;
    float sums[VT_GROUP] = {0}, gradient[VT_GROUP];
    for (int64_t row = first + warp; count > 0 && row < end; row += VT_SUM_LANES) {
        backward_group(a, row, column, count, true, gradient);
        for (int j = 0; j < VT_GROUP; j++) sums[j] += gradient[j];
    }
    vt_column_sum_store(shared, sums, a.x.columns, partial);
}

void VT_CUDA_NAME(bias_gelu)(vt_backend *backend, vt_gelu kind, vt_matrix hidden, const float *bias, vt_matrix y)
{
    if (bias == NULL && vt_is_dense(hidden) && vt_is_dense(y)) hidden = vt_as_row(hidden), y = vt_as_row(y);
    VT_SPREAD(gelu_forward_kernel, hidden.rows * vt_groups(hidden.columns), backend, kind, hidden, bias, y,
              vt_is_wide(hidden, y, bias));
}

void VT_CUDA_NAME(gelu_forward)(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
    VT_CUDA_NAME(bias_gelu)(backend, kind, x, NULL, y);
}

static backward_arguments arguments_of(vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y)
{
    backward_arguments a = {};
    a.kind = kind, a.x = x, a.dy = dy, a.dx = dx, a.y = y;
    a.wide = vt_is_wide(x, dy, dx, y);
    return a;
}

void VT_CUDA_NAME(gelu_backward)(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx,
                                 vt_matrix y)
{
    if (vt_is_dense(x) && vt_is_dense(dy) && vt_is_dense(dx) && vt_is_dense(y))
        x = vt_as_row(x), dy = vt_as_row(dy), dx = vt_as_row(dx), y = vt_as_row(y);
    VT_SPREAD(gelu_backward_kernel, x.rows * vt_groups(x.columns), backend, arguments_of(kind, x, dy, dx, y));
}

void VT_CUDA_NAME(gelu_backward_bias)(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx,
                                      vt_matrix y, float *dbias)
{
    vt_column_sum sum = vt_column_sum_begin(backend, x.rows, x.columns);
    if (sum.partial == NULL) return;
    VT_LAUNCH(gelu_backward_bias_kernel, sum.grid, 32 * VT_SUM_LANES, 0, backend, arguments_of(kind, x, dy, dx, y),
              sum.rows_a_block, sum.partial);
    vt_column_sum_end(backend, &sum, x.columns, dbias);
}
