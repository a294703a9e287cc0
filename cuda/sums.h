/* The second half of a sum over rows: runs of rows were added into the workspace, which are now added in order. So the
 * sum's order depends on the sizes alone. */
#ifndef VT_CUDA_SUMS_H
#define VT_CUDA_SUMS_H

#include "elements.h"

/* sums [columns] += column sums of partial [parts, stride]. */
VT_KERNEL void add_partial_sums(const float *partial, int64_t parts, int64_t stride, int64_t columns, float *sums)
{
    for (int64_t c = vt_thread(); c < columns; c += vt_thread_count()) {
        float sum = 0;
        for (int64_t p = 0; p < parts; p++) sum += partial[p * stride + c];
        sums[c] += sum;
    }
}

#endif
