/* Sums over rows in two halves: blocks add up groups of rows into the workspace, then these partial sums are added in
 * order. So the order of a sum depends on the sizes alone. */
#ifndef VT_CUDA_SUMS_H
#define VT_CUDA_SUMS_H

#include "elements.h"

enum { VT_PART_WARPS = 32 };

/* sums [columns] += column sums of partial [parts, stride]. A block handles 32 columns: each warp adds every
 * VT_PART_WARPS-th part, so that many loads are in flight, and then the warps' sums are added in order. */
VT_KERNEL void __launch_bounds__(32 * VT_PART_WARPS)
    add_partial_sums_kernel(const float *partial, int64_t parts, int64_t stride, int64_t columns, float *sums)
{
    __shared__ float shared[VT_PART_WARPS][32];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t column = (int64_t)blockIdx.x * 32 + lane;
    float sum = 0;
    if (column < columns)
#pragma unroll 4
        for (int64_t p = warp; p < parts; p += VT_PART_WARPS) sum += partial[p * stride + column];
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= columns) return;
    sum = 0;
    for (int w = 0; w < VT_PART_WARPS; w++) sum += shared[w][lane];
    sums[column] += sum;
}

static inline void vt_add_partial_sums(vt_backend *backend, const float *partial, int64_t parts, int64_t stride,
                                       int64_t columns, float *sums)
{
    VT_LAUNCH(add_partial_sums_kernel, dim3((unsigned)((columns + 31) / 32)), 32 * VT_PART_WARPS, 0, backend, partial,
              parts, stride, columns, sums);
}

/* *result += weight * the sum of partial [parts]. One block. */
VT_KERNEL void add_partial_kernel(const double *partial, int64_t parts, double weight, double *result)
{
    __shared__ double shared[32];
    double sum = 0;
    for (int64_t p = threadIdx.x; p < parts; p += blockDim.x) sum += partial[p];
    sum = vt_block_sum(sum, shared);
    if (threadIdx.x == 0) *result += weight * sum;
}

static inline void vt_add_partial(vt_backend *backend, const double *partial, int64_t parts, double weight,
                                  double *result)
{
    VT_LAUNCH(add_partial_kernel, 1, VT_BLOCK_THREADS, 0, backend, partial, parts, weight, result);
}

/* sums [outer, inner] = sums of partial [outer, parts, inner], in order. */
VT_KERNEL void add_parts_kernel(const double *partial, int64_t outer, int64_t parts, int64_t inner, double *sums)
{
    for (int64_t i = vt_thread(); i < outer * inner; i += vt_thread_count()) {
        const double *first = partial + i / inner * parts * inner + i % inner;
        double sum = 0;
        for (int64_t p = 0; p < parts; p++) sum += first[p * inner];
        sums[i] = sum;
    }
}

static inline void vt_add_parts(vt_backend *backend, const double *partial, int64_t outer, int64_t parts, int64_t inner,
                                double *sums)
{
    VT_SPREAD(add_parts_kernel, outer * inner, backend, partial, outer, parts, inner, sums);
}

/* The first half of two sums: partial [gridDim.y, gridDim.x, 2] gets those of the block's threads. */
__device__ static inline void vt_store_pair(double first, double second, double shared[32], double *partial)
{
    first = vt_block_sum(first, shared);
    second = vt_block_sum(second, shared);
    if (threadIdx.x != 0) return;
    double *own = partial + 2 * ((int64_t)blockIdx.y * gridDim.x + blockIdx.x);
    own[0] = first;
    own[1] = second;
}

/* The first half, for kernels whose blocks of 32 × VT_SUM_LANES threads handle 256 columns of a group of rows (a part):
 * each thread has eight neighbouring columns, each warp every VT_SUM_LANES-th row. A part has at least VT_SUM_ROWS
 * rows. A wide matrix has up to VT_SUM_PARTS parts; a narrow one has more, for VT_SUM_BLOCKS blocks in all: what 132
 * multiprocessors run at once, four each. (The same on other GPUs, so that the order of the sums is, too.) */
enum { VT_SUM_LANES = 8, VT_SUM_PARTS = 128, VT_SUM_BLOCKS = 512, VT_SUM_ROWS = 32 };

typedef struct {
    dim3 grid;
    int64_t rows_a_block, parts;
    float *partial; /* [parts, columns], workspace; NULL: there is none, and the operation must return */
} vt_column_sum;

static inline vt_column_sum vt_column_sum_begin(vt_backend *backend, int64_t rows, int64_t columns)
{
    vt_column_sum sum;
    int64_t across = (vt_groups(columns) + 31) / 32;
    int64_t most = max((int64_t)VT_SUM_PARTS, VT_SUM_BLOCKS / max(across, (int64_t)1));
    sum.parts = min((rows + VT_SUM_ROWS - 1) / VT_SUM_ROWS, most);
    sum.rows_a_block = (rows + sum.parts - 1) / sum.parts;
    sum.parts = (rows + sum.rows_a_block - 1) / sum.rows_a_block;
    sum.grid = dim3((unsigned)across, (unsigned)sum.parts);
    sum.partial = (float *)vt_common(backend)->workspace(backend, (size_t)(sum.parts * columns) * sizeof *sum.partial);
    return sum;
}

/* sums [columns] += the blocks' partial sums. */
static inline void vt_column_sum_end(vt_backend *backend, const vt_column_sum *sum, int64_t columns, float *sums)
{
    vt_add_partial_sums(backend, sum->partial, sum->parts, columns, columns, sums);
}

/* Adds up each thread's eight column sums over the warps and stores them into partial [gridDim.y, columns]. */
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
