#include "elements.h"

VT_KERNEL void convert_kernel(vt_matrix from, vt_matrix to, bool wide)
{
    vt_each_group(from.rows, from.columns, [&](int64_t row, int64_t column, int count) {
        float values[VT_GROUP];
        vt_load(from, row * from.stride + column, count, wide, values);
        vt_store(to, row * to.stride + column, count, wide, values);
    });
}

void VT_CUDA_NAME(convert)(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    if (vt_is_dense(from) && vt_is_dense(to)) from = vt_as_row(from), to = vt_as_row(to);
    VT_SPREAD(convert_kernel, from.rows * vt_groups(from.columns), backend, from, to, vt_is_wide(from, to));
}
