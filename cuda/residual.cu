#include "mask.h"

/* y = masked(x), and sum = base + masked(x), as y has it, if there is a base; x may be y, and sum may be base or x. */
VT_KERNEL void __launch_bounds__(VT_BLOCK_THREADS, 5)
    mask_kernel(vt_matrix x, vt_mask mask, vt_matrix y, vt_matrix base, vt_matrix sum, bool active, bool wide)
{
    vt_each_group(x.rows, x.columns, [&](int64_t row, int64_t column, int count) {
        float values[VT_GROUP], other[VT_GROUP];
        vt_raw own = vt_fetch(x, row * x.stride + column, count, wide), under = {};
        if (base.data != NULL) under = vt_fetch(base, row * base.stride + column, count, wide);
        vt_widen_eight(x.type, own, values);
        if (active) {
            vt_mask_apply(mask, row, column, values);
            if (base.data != NULL) vt_as_stored(y.type, values);
            vt_store(y, row * y.stride + column, count, wide, values);
        }
        if (base.data == NULL) return;
        vt_widen_eight(base.type, under, other);
        for (int j = 0; j < VT_GROUP; j++) values[j] = other[j] + values[j];
        vt_store(sum, row * sum.stride + column, count, wide, values);
    });
}

void VT_CUDA_NAME(residual_add)(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y)
{
    bool active = vt_mask_is_active(mask), wide = vt_is_wide(x, branch, y);
    VT_SPREAD(mask_kernel, x.rows * vt_groups(x.columns), backend, branch, *mask, branch, x, y, active, wide);
}

void VT_CUDA_NAME(mask_multiply)(vt_backend *backend, vt_matrix x, const vt_mask *mask, vt_matrix y)
{
    vt_matrix none = {};
    VT_SPREAD(mask_kernel, x.rows * vt_groups(x.columns), backend, x, *mask, y, none, none, true, vt_is_wide(x, y));
}

VT_KERNEL void position_add_kernel(vt_matrix x, vt_matrix position, bool wide)
{
    vt_each_group(x.rows, x.columns, [&](int64_t row, int64_t column, int count) {
        float values[VT_GROUP], added[VT_GROUP];
        vt_raw own = vt_fetch(x, row * x.stride + column, count, wide);
        vt_raw other = vt_fetch(position, row % position.rows * position.stride + column, count, wide);
        vt_widen_eight(x.type, own, values);
        vt_widen_eight(position.type, other, added);
        for (int j = 0; j < VT_GROUP; j++) values[j] += added[j];
        vt_store(x, row * x.stride + column, count, wide, values);
    });
}

void VT_CUDA_NAME(position_add)(vt_backend *backend, vt_matrix x, vt_matrix position)
{
    VT_SPREAD(position_add_kernel, x.rows * vt_groups(x.columns), backend, x, position, vt_is_wide(x, position));
}

/* A thread adds up the samples of one token's eight columns. */
VT_KERNEL void position_backward_kernel(vt_matrix dx, vt_matrix dposition, bool wide)
{
    vt_each_group(dposition.rows, dx.columns, [&](int64_t token, int64_t column, int count) {
        float sums[VT_GROUP], values[VT_GROUP];
        vt_load(dposition, token * dposition.stride + column, count, wide, sums);
        for (int64_t r = token; r < dx.rows; r += dposition.rows) {
            vt_load(dx, r * dx.stride + column, count, wide, values);
            for (int j = 0; j < VT_GROUP; j++) sums[j] += values[j];
        }
        vt_store(dposition, token * dposition.stride + column, count, wide, sums);
    });
}

void VT_CUDA_NAME(position_backward)(vt_backend *backend, vt_matrix dx, vt_matrix dposition)
{
    int64_t samples = dx.rows / dposition.rows;
    if (dposition.rows <= 4 && samples > 64) { /* few sums of many terms: a bias */
        for (int64_t token = 0; token < dposition.rows; token++) {
            vt_matrix rows = vt_matrix_rows(dx, token, samples);
            rows.stride *= dposition.rows;
            VT_CUDA_NAME(column_sums)(backend, rows, dposition.data + token * dposition.stride);
        }
        return;
    }
    VT_SPREAD(position_backward_kernel, dposition.rows * vt_groups(dx.columns), backend, dx, dposition,
              vt_is_wide(dx, dposition));
}
