/* Building blocks of the attention kernels: tiles of rows in shared memory, and the two products of a warp's 16 rows.
 * `number` is the type that products are computed in: vt_bfloat16, vt_float16, or float (one TF32 product, or three).
 * A warp's scores are `tiles` result tiles of 16 × 8 side by side (tensor_cores.h): this thread holds rows g and g + 8,
 * columns 8 n + 2 t and 8 n + 2 t + 1 of each tile n. */
#ifndef VT_CUDA_ATTENTION_TILES_H
#define VT_CUDA_ATTENTION_TILES_H

#include "elements.h"
#include "tensor_cores.h"

struct vt_bfloat16 {
    static const vt_type type = VT_BFLOAT16;
    uint16_t bits;
};

struct vt_float16 {
    static const vt_type type = VT_FLOAT16;
    uint16_t bits;
};

/* Can rows of m be copied into a tile as they are? */
template <typename half> __device__ static inline bool vt_tile_holds(const half *, const vt_matrix &m)
{
    return m.type == half::type;
}

__device__ static inline bool vt_tile_holds(const float *, const vt_matrix &)
{
    return false; /* copies are of 16 bytes: four floats */
}

/* Elements from row to row: the depth, padded so that eight rows are in different banks. */
template <typename number> __host__ __device__ static inline int vt_tile_depth(int head_dim)
{
    int step = sizeof(number) == 2 ? 16 : 8;
    return (head_dim + step - 1) / step * step;
}

template <typename number> __host__ __device__ static inline int vt_tile_stride(int head_dim)
{
    return vt_tile_depth<number>(head_dim) + (sizeof(number) == 2 ? 8 : 4);
}

template <typename half> __device__ static inline void vt_store_shared(half *to, const float values[VT_GROUP])
{
    *(uint4 *)&to->bits = vt_pack_eight(half::type, values);
}

__device__ static inline void vt_store_shared(float *to, const float values[VT_GROUP])
{
    float4 low, high;
    low.x = values[0], low.y = values[1], low.z = values[2], low.w = values[3];
    high.x = values[4], high.y = values[5], high.z = values[6], high.w = values[7];
    *(float4 *)to = low;
    *(float4 *)(to + 4) = high;
}

template <typename half> __device__ static inline void vt_set_shared(half *to, float value)
{
    to->bits = vt_round(half::type, value);
}

__device__ static inline void vt_set_shared(float *to, float value)
{
    *to = value;
}

/* Copies rows first_row … first_row + rows - 1, columns column … column + head_dim - 1, into a tile; zeros from row
 * `end` on and after head_dim. All threads of the block take part. Data that keep their 16-bit type are copied without
 * passing through registers: wait with vt_copies_wait. */
template <typename number>
__device__ static inline void vt_tile_load(number *tile, const vt_matrix &m, int64_t first_row, int64_t end, int rows,
                                           int64_t column, int head_dim, bool wide)
{
    unsigned groups = (unsigned)vt_tile_depth<number>(head_dim) / VT_GROUP;
    int stride = vt_tile_stride<number>(head_dim);
    /* one division each, then steps: a thread has little work */
    int row = (int)(threadIdx.x / groups), group = (int)(threadIdx.x % groups);
    const int row_step = (int)(blockDim.x / groups), group_step = (int)(blockDim.x % groups);
    while (row < rows) {
        int first = group * VT_GROUP;
        int count = first_row + row < end ? (int)min(max(head_dim - first, 0), (int)VT_GROUP) : 0;
        int64_t at = (first_row + row) * m.stride + column + first;
        number *to = tile + row * stride + first;
        if (vt_tile_holds(tile, m) && wide && count == VT_GROUP) {
            vt_copy_16(to, m.half + at);
        } else if (count == 0 || (wide && count == VT_GROUP)) {
            float values[VT_GROUP] = {};
            if (count > 0) vt_load(m, at, VT_GROUP, true, values);
            vt_store_shared(to, values);
        } else {
#pragma unroll 1
            for (int i = 0; i < VT_GROUP; i++) vt_set_shared(to + i, i < count ? vt_element(m, at + i) : 0.0f);
        }
        row += row_step;
        group += group_step;
        if (group >= (int)groups) {
            group -= (int)groups;
            row++;
        }
    }
}

/* scores [16, 8 * TILES] += a [16, depth] bᵀ, b [8 * TILES, depth]: both tiles have this stride, `a` are the warp's
 * rows. The loop over the depth is short: left alone, nvcc unrolls it 16 times. */
template <int TILES, typename half>
__device__ static inline void vt_scores(const half *a, const half *b, int depth, int stride, bool,
                                        float scores[TILES][4])
{
    int lane = (int)threadIdx.x % 32;
    const half *a_row = a + lane % 16 * stride + lane / 16 * 8;
    const half *b_row = b + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8;
#pragma unroll 2
    for (int k = 0; k < depth; k += 16) {
        uint32_t left[4], right[4];
        vt_load_tiles<false>(left, &a_row[k].bits);
#pragma unroll
        for (int n = 0; n < TILES; n += 2) {
            vt_load_tiles<false>(right, &b_row[n * 8 * stride + k].bits);
            vt_multiply_halves<half::type>(scores[n], left, right);
            vt_multiply_halves<half::type>(scores[n + 1], left, right + 2);
        }
    }
}

template <int TILES>
__device__ static inline void vt_scores(const float *a, const float *b, int depth, int stride, bool exact,
                                        float scores[TILES][4])
{
    int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 2
    for (int k = 0; k < depth; k += 8) {
        const float *a_at = a + g * stride + k + t;
        const float left[4] = {a_at[0], a_at[8 * stride], a_at[4], a_at[8 * stride + 4]};
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const float *b_at = b + (8 * n + g) * stride + k + t;
            const float right[2] = {b_at[0], b_at[4]};
            vt_multiply_float32(scores[n], left, right, exact);
        }
    }
}

/* sums [16, 8 * columns] += p [16, 8 * TILES] b, where b is a tile of 8 * TILES rows; columns <= MOST. */
template <int TILES, int MOST, typename half>
__device__ static inline void vt_accumulate(const float p[TILES][4], const half *b, int columns, int stride, bool,
                                            float sums[MOST][4])
{
    int lane = (int)threadIdx.x % 32;
    const half *b_row = b + lane % 16 * stride + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < TILES; k += 2) {
        uint32_t left[4];
        for (int i = 0; i < 4; i++) left[i] = vt_pack(half::type, p[k + i / 2][i % 2 * 2], p[k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < MOST; n += 2) {
            if (n >= columns) break;
            uint32_t right[4];
            vt_load_tiles<true>(right, &b_row[8 * k * stride + 8 * n].bits);
            vt_multiply_halves<half::type>(sums[n], left, right);
            if (n + 1 < columns) vt_multiply_halves<half::type>(sums[n + 1], left, right + 2);
        }
    }
}

/* Columns 2t and 2t + 1 of p are used as k = t and t + 4 of the product, so b's rows are, too. */
template <int TILES, int MOST>
__device__ static inline void vt_accumulate(const float p[TILES][4], const float *b, int columns, int stride,
                                            bool exact, float sums[MOST][4])
{
    int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int k = 0; k < TILES; k++) {
        const float left[4] = {p[k][0], p[k][2], p[k][1], p[k][3]};
#pragma unroll
        for (int n = 0; n < MOST; n++) {
            if (n >= columns) break;
            const float *b_at = b + (8 * k + 2 * t) * stride + 8 * n + g;
            const float right[2] = {b_at[0], b_at[stride]};
            vt_multiply_float32(sums[n], left, right, exact);
        }
    }
}

/* m[row, column + 8 n + 2 t …] = factor * sums, for this thread's two rows (the second is eight rows further); rows
 * from `end` on are skipped. */
template <int MOST>
__device__ static inline void vt_tile_store(const vt_matrix &m, int64_t row, int64_t end, int64_t column, int head_dim,
                                            bool wide, const float factor[2], const float sums[MOST][4])
{
    int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < MOST; n++) {
        int first = 8 * n + 2 * t;
        if (first >= head_dim) break;
        for (int i = 0; i < 2; i++) {
            if (row + 8 * i >= end) continue;
            int64_t at = (row + 8 * i) * m.stride + column + first;
            float low = factor[i] * sums[n][2 * i], high = factor[i] * sums[n][2 * i + 1];
            if (m.type == VT_FLOAT32) {
                m.data[at] = low;
                if (first + 1 < head_dim) m.data[at + 1] = high;
                continue;
            }
            uint32_t pair = vt_pack(m.type, low, high);
            if (wide) {
                *(uint32_t *)(m.half + at) = pair;
            } else {
                m.half[at] = (uint16_t)pair;
                if (first + 1 < head_dim) m.half[at + 1] = (uint16_t)(pair >> 16);
            }
        }
    }
}

#endif
