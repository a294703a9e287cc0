#include "elements.h"

VT_KERNEL void convert_kernel(vt_matrix from, vt_matrix to, bool wide)
{
    int64_t groups = vt_groups(from.columns), row, group;
    for (int64_t i = vt_thread(); i < from.rows * groups; i += vt_thread_count()) {
        vt_split(i, groups, &row, &group);
        float values[VT_GROUP];
        int count = vt_count(from.columns, group * VT_GROUP);
        vt_load(from, row * from.stride + group * VT_GROUP, count, wide, values);
        vt_store(to, row * to.stride + group * VT_GROUP, count, wide, values);
    }
}

void VT_CUDA_NAME(convert)(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    if (vt_is_dense(from) && vt_is_dense(to)) from = vt_as_row(from), to = vt_as_row(to);
    bool wide = vt_is_wide(from) && vt_is_wide(to);
    VT_LAUNCH(convert_kernel, vt_blocks(from.rows * vt_groups(from.columns)), VT_BLOCK_THREADS, 0, backend, from, to,
              wide);
}
