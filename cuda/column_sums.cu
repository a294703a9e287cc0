#include "sums.h"

enum { AT_ONCE = 4 }; /* rows that a thread fetches before it adds the first */

VT_KERNEL void __launch_bounds__(32 * VT_SUM_LANES, 4)
    partial_column_sums(vt_matrix x, int64_t rows_a_block, float *partial, bool wide)
{
    __shared__ float shared[VT_SUM_LANES][32 * VT_GROUP];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t column = ((int64_t)blockIdx.x * 32 + lane) * VT_GROUP, first = blockIdx.y * rows_a_block;
    int64_t end = first + rows_a_block < x.rows ? first + rows_a_block : x.rows;
    int count = column < x.columns ? vt_count(x.columns, column) : 0;
    float sums[VT_GROUP] = {0}, values[VT_GROUP];
    for (int64_t r = first + warp; count > 0 && r < end; r += (int)AT_ONCE * (int)VT_SUM_LANES) {
        vt_raw raw[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            int64_t row = r + k * VT_SUM_LANES;
            raw[k] = vt_fetch(x, row * x.stride + column, row < end ? count : 0, wide);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) { /* zeros after the last row */
            vt_widen_eight(x.type, raw[k], values);
            for (int i = 0; i < VT_GROUP; i++) sums[i] += values[i];
        }
    }
    vt_column_sum_store(shared, sums, x.columns, partial);
}

void VT_CUDA_NAME(column_sums)(vt_backend *backend, vt_matrix x, float *sums)
{
    vt_column_sum sum = vt_column_sum_begin(backend, x.rows, x.columns);
    if (sum.partial == NULL) return;
    VT_LAUNCH(partial_column_sums, sum.grid, 32 * VT_SUM_LANES, 0, backend, x, sum.rows_a_block, sum.partial,
              vt_is_wide(x));
    vt_column_sum_end(backend, &sum, x.columns, sums);
}
