/* The activations behind convolutions. */
#include "sums.h"

__device__ static inline float activated(vt_activation kind, float x)
{
    if (kind == VT_ACTIVATION_TANH) return tanhf(x);
    return x > 0 || isnan(x) ? x : kind == VT_ACTIVATION_LEAKY ? 0.01f * x : 0.0f;
}

/* Where the activation gave y. */
__device__ static inline float slope(vt_activation kind, float y)
{
    if (kind == VT_ACTIVATION_TANH) return 1 - y * y;
    return y > 0 ? 1.0f : kind == VT_ACTIVATION_LEAKY ? 0.01f : 0.0f;
}

VT_KERNEL void bias_activation_kernel(vt_activation kind, const float *bias, vt_matrix y, bool wide)
{
    vt_each_group(y.rows, y.columns, [&](int64_t row, int64_t column, int count) {
        float values[VT_GROUP], added[VT_GROUP];
        vt_raw own = vt_fetch(y, row * y.stride + column, count, wide);
        vt_load_floats(bias + column, count, wide, added);
        vt_widen_eight(y.type, own, values);
        for (int j = 0; j < VT_GROUP; j++) values[j] = activated(kind, values[j] + added[j]);
        vt_store(y, row * y.stride + column, count, wide, values);
    });
}

void VT_CUDA_NAME(bias_activation_forward)(vt_backend *backend, vt_activation kind, const float *bias, vt_matrix y)
{
    VT_SPREAD(bias_activation_kernel, y.rows * vt_groups(y.columns), backend, kind, bias, y, vt_is_wide(y, bias));
}

typedef struct {
    vt_activation kind;
    vt_matrix y, dy, more, dx; /* more.data NULL: nothing */
    bool wide;
} backward_arguments;

VT_KERNEL void __launch_bounds__(32 * VT_SUM_LANES, 4)
    bias_activation_backward_kernel(backward_arguments a, int64_t rows_a_block, float *partial)
{
    __shared__ float shared[VT_SUM_LANES][32 * VT_GROUP];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t column = ((int64_t)blockIdx.x * 32 + lane) * VT_GROUP, first = blockIdx.y * rows_a_block;
    int64_t end = first + rows_a_block < a.y.rows ? first + rows_a_block : a.y.rows;
    int count = column < a.y.columns ? vt_count(a.y.columns, column) : 0;
    float sums[VT_GROUP] = {0};
    for (int64_t row = first + warp; count > 0 && row < end; row += VT_SUM_LANES) {
        float y[VT_GROUP], values[VT_GROUP], other[VT_GROUP];
        vt_raw active = vt_fetch(a.y, row * a.y.stride + column, count, a.wide), added = {};
        vt_raw gradient = vt_fetch(a.dy, row * a.dy.stride + column, count, a.wide);
        if (a.more.data != NULL) added = vt_fetch(a.more, row * a.more.stride + column, count, a.wide);
        vt_widen_eight(a.y.type, active, y);
        vt_widen_eight(a.dy.type, gradient, values);
        vt_widen_eight(a.more.type, added, other);
        for (int j = 0; j < VT_GROUP; j++) {
            values[j] = (values[j] + other[j]) * slope(a.kind, y[j]);
            sums[j] += values[j];
        }
        vt_store(a.dx, row * a.dx.stride + column, count, a.wide, values);
    }
    vt_column_sum_store(shared, sums, a.y.columns, partial);
}

void VT_CUDA_NAME(bias_activation_backward)(vt_backend *backend, vt_activation kind, vt_matrix y, vt_matrix dy,
                                            vt_matrix more, vt_matrix dx, float *dbias)
{
    vt_column_sum sum = vt_column_sum_begin(backend, y.rows, y.columns);
    if (sum.partial == NULL) return;
    backward_arguments a = {};
    a.kind = kind, a.y = y, a.dy = dy, a.more = more, a.dx = dx;
    a.wide = vt_is_wide(y, dy, dx, more);
    VT_LAUNCH(bias_activation_backward_kernel, sum.grid, 32 * VT_SUM_LANES, 0, backend, a, sum.rows_a_block,
              sum.partial);
    vt_column_sum_end(backend, &sum, y.columns, dbias);
}
