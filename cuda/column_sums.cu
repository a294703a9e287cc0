#include "sums.h"

enum { SUM_LANES = 8, MOST_PARTS = 128, ROWS_A_PART = 32 };

/* partial [gridDim.y, columns] = sums over a run of rows each; a block of 32 × SUM_LANES threads does 256 columns.
 */
VT_KERNEL void partial_column_sums(vt_matrix x, int64_t rows_a_block, float *partial, bool wide)
{
    __shared__ float shared[SUM_LANES][32 * VT_GROUP];
    int lane = (int)threadIdx.x % 32, part = (int)threadIdx.x / 32;
    int64_t column = ((int64_t)blockIdx.x * 32 + lane) * VT_GROUP, first = blockIdx.y * rows_a_block;
    int64_t end = first + rows_a_block < x.rows ? first + rows_a_block : x.rows;
    int count = column < x.columns ? vt_count(x.columns, column) : 0;
    float sums[VT_GROUP] = {0}, values[VT_GROUP];
    for (int64_t r = first + part; count > 0 && r < end; r += SUM_LANES) {
        vt_load(x, r * x.stride + column, count, wide, values);
        for (int i = 0; i < VT_GROUP; i++) sums[i] += values[i];
    }
    for (int i = 0; i < VT_GROUP; i++) shared[part][lane * VT_GROUP + i] = sums[i];
    __syncthreads();
    column = (int64_t)blockIdx.x * 32 * VT_GROUP + threadIdx.x; /* as many threads as columns */
    if (column >= x.columns) return;
    float sum = 0;
    for (int p = 0; p < SUM_LANES; p++) sum += shared[p][threadIdx.x];
    partial[blockIdx.y * x.columns + column] = sum;
}

void VT_CUDA_NAME(column_sums)(vt_backend *backend, vt_matrix x, float *sums)
{
    int64_t parts = (x.rows + ROWS_A_PART - 1) / ROWS_A_PART;
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    int64_t rows = (x.rows + parts - 1) / parts;
    parts = (x.rows + rows - 1) / rows;
    float *partial = (float *)vt_common(backend)->workspace(backend, (size_t)(parts * x.columns) * sizeof *partial);
    if (partial == NULL) return;
    dim3 grid((unsigned)((vt_groups(x.columns) + 31) / 32), (unsigned)parts);
    VT_LAUNCH(partial_column_sums, grid, 32 * SUM_LANES, 0, backend, x, rows, partial, vt_is_wide(x));
    VT_LAUNCH(add_partial_sums, vt_blocks(x.columns), VT_BLOCK_THREADS, 0, backend, partial, parts, x.columns,
              x.columns, sums);
}
