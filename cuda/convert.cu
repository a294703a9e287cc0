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
    bool wide = vt_is_wide(from) && vt_is_wide(to);
    VT_LAUNCH(convert_kernel, vt_blocks(from.rows * vt_groups(from.columns)), VT_BLOCK_THREADS, 0, backend, from, to,
              wide);
}
