/* Sums over rows in two halves: blocks add runs of rows into the workspace, which are then added in order. So the sum's
 * order depends on the sizes alone. */
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

/* The first half for kernels of which a block of 32 × VT_SUM_LANES threads has 256 columns of a run of rows: thread
 * `lane` of each warp eight neighbouring columns, the warps every VT_SUM_LANES-th row. */
enum { VT_SUM_LANES = 8, VT_SUM_PARTS = 128, VT_SUM_ROWS = 32 };

typedef struct {
    dim3 grid;
    int64_t rows_a_block, parts;
    float *partial; /* [parts, columns], workspace; NULL: there is none, and the operation must return */
} vt_column_sum;

static inline vt_column_sum vt_column_sum_begin(vt_backend *backend, int64_t rows, int64_t columns)
{
    vt_column_sum sum;
    sum.parts = (rows + VT_SUM_ROWS - 1) / VT_SUM_ROWS;
    if (sum.parts > VT_SUM_PARTS) sum.parts = VT_SUM_PARTS;
    sum.rows_a_block = (rows + sum.parts - 1) / sum.parts;
    sum.parts = (rows + sum.rows_a_block - 1) / sum.rows_a_block;
    sum.grid = dim3((unsigned)((vt_groups(columns) + 31) / 32), (unsigned)sum.parts);
    sum.partial = (float *)vt_common(backend)->workspace(backend, (size_t)(sum.parts * columns) * sizeof *sum.partial);
    return sum;
}

/* sums [columns] += what the blocks have added. */
static inline void vt_column_sum_end(vt_backend *backend, const vt_column_sum *sum, int64_t columns, float *sums)
{
    VT_LAUNCH(add_partial_sums, vt_blocks(columns), VT_BLOCK_THREADS, 0, backend, sum->partial, sum->parts, columns,
              columns, sums);
}

/* The eight sums of each thread, those of its columns added up over the warps, into partial [gridDim.y, columns]. */
__device__ static inline void vt_column_sum_store(float shared[VT_SUM_LANES][32 * VT_GROUP], const float sums[VT_GROUP],
                                                  int64_t columns, float *partial)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = 0; i < VT_GROUP; i++) shared[warp][lane * VT_GROUP + i] = sums[i];
    __syncthreads();
    int64_t column = (int64_t)blockIdx.x * 32 * VT_GROUP + threadIdx.x; /* as many threads as columns */
    if (column >= columns) return;
    float sum = 0;
    for (int p = 0; p < VT_SUM_LANES; p++) sum += shared[p][threadIdx.x];
    partial[blockIdx.y * columns + column] = sum;
}

#endif
