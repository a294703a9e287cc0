/* Eight neighbouring elements of a row at a time: 16-byte accesses if all rows begin at 16-byte boundaries, single
 * elements at the ends of rows and elsewhere. The type of a matrix is tested at run time: all threads take the same
 * branch, and these kernels wait for memory anyway. */
#ifndef VT_CUDA_ELEMENTS_H
#define VT_CUDA_ELEMENTS_H

#include "language.h"

#include "cuda.h"

enum { VT_GROUP = 8, VT_BLOCK_THREADS = 256 };

__device__ static inline float vt_element(const vt_matrix &m, int64_t at)
{
    return m.type == VT_FLOAT32 ? m.data[at] : vt_widen(m.type, m.half[at]);
}

__device__ static inline void vt_set_element(const vt_matrix &m, int64_t at, float value)
{
    if (m.type == VT_FLOAT32)
        m.data[at] = value;
    else
        m.half[at] = vt_round(m.type, value);
}

__device__ static inline void vt_load_floats(const float *from, int count, bool wide, float values[VT_GROUP])
{
    if (wide && count == VT_GROUP) {
        float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
        values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
        values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
    } else {
        for (int i = 0; i < VT_GROUP; i++) values[i] = i < count ? from[i] : 0.0f;
    }
}

/* 16 bytes into global memory, in one instruction: an assignment through `to` may compile to four of 4 bytes. */
__device__ static inline void vt_put(void *to, uint4 raw)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(raw.x), "r"(raw.y),
                 "r"(raw.z), "r"(raw.w)
                 : "memory");
#else
    *(uint4 *)to = raw;
#endif
}

/* Global memory only. */
__device__ static inline void vt_store_floats(float *to, int count, bool wide, const float values[VT_GROUP])
{
    if (wide && count == VT_GROUP) {
        uint4 low, high;
        low.x = vt_bits(values[0]), low.y = vt_bits(values[1]), low.z = vt_bits(values[2]), low.w = vt_bits(values[3]);
        high.x = vt_bits(values[4]), high.y = vt_bits(values[5]), high.z = vt_bits(values[6]);
        high.w = vt_bits(values[7]);
        vt_put(to, low);
        vt_put(to + 4, high);
    } else {
        for (int i = 0; i < VT_GROUP; i++)
            if (i < count) to[i] = values[i];
    }
}

__device__ static inline uint4 vt_pack_eight(vt_type type, const float values[VT_GROUP])
{
    uint4 raw;
    raw.x = vt_pack(type, values[0], values[1]), raw.y = vt_pack(type, values[2], values[3]);
    raw.z = vt_pack(type, values[4], values[5]), raw.w = vt_pack(type, values[6], values[7]);
    return raw;
}

template <vt_type TYPE>
__device__ static inline void vt_store_halves(uint16_t *to, int count, bool wide, const float values[VT_GROUP])
{
    if (wide && count == VT_GROUP) {
        vt_put(to, vt_pack_eight(TYPE, values));
    } else {
        for (int i = 0; i < VT_GROUP; i++)
            if (i < count) to[i] = vt_round(TYPE, values[i]);
    }
}

/* Eight elements as stored; 16-bit ones are in the first four words. */
typedef struct {
    uint32_t word[VT_GROUP];
} vt_raw;

template <vt_type TYPE> __device__ static inline void vt_widen_halves(const vt_raw &raw, float values[VT_GROUP])
{
    for (int i = 0; i < 4; i++) {
        values[2 * i] = vt_widen(TYPE, (uint16_t)raw.word[i]);
        values[2 * i + 1] = vt_widen(TYPE, (uint16_t)(raw.word[i] >> 16));
    }
}

/* Loads `count` elements from `at` on, the others are zeros. A kernel that needs several groups loads them all before
 * it converts the first: conversion waits for the memory, and compilers move no load over a branch on another matrix's
 * type. */
__device__ static inline vt_raw vt_fetch(const vt_matrix &m, int64_t at, int count, bool wide)
{
    vt_raw raw = {};
    bool floats = m.type == VT_FLOAT32;
    if (wide && count == VT_GROUP) {
        const uint4 *from = (const uint4 *)(floats ? (const void *)(m.data + at) : (const void *)(m.half + at));
        uint4 low = from[0];
        raw.word[0] = low.x, raw.word[1] = low.y, raw.word[2] = low.z, raw.word[3] = low.w;
        if (floats) {
            uint4 high = from[1];
            raw.word[4] = high.x, raw.word[5] = high.y, raw.word[6] = high.z, raw.word[7] = high.w;
        }
    } else if (floats) {
        for (int i = 0; i < VT_GROUP; i++)
            if (i < count) raw.word[i] = vt_bits(m.data[at + i]);
    } else {
        for (int i = 0; i < VT_GROUP; i++)
            if (i < count) raw.word[i / 2] |= (uint32_t)m.half[at + i] << i % 2 * 16;
    }
    return raw;
}

/* Converts what was loaded from a matrix of this type. */
__device__ static inline void vt_widen_eight(vt_type type, const vt_raw &raw, float values[VT_GROUP])
{
    if (type == VT_FLOAT32)
        for (int i = 0; i < VT_GROUP; i++) values[i] = vt_from_bits(raw.word[i]);
    else if (type == VT_FLOAT16)
        vt_widen_halves<VT_FLOAT16>(raw, values);
    else
        vt_widen_halves<VT_BFLOAT16>(raw, values);
}

/* Loads and converts `count` elements from `at` on; the rest of `values` becomes 0. */
__device__ static inline void vt_load(const vt_matrix &m, int64_t at, int count, bool wide, float values[VT_GROUP])
{
    vt_widen_eight(m.type, vt_fetch(m, at, count, wide), values);
}

__device__ static inline void vt_store(const vt_matrix &m, int64_t at, int count, bool wide,
                                       const float values[VT_GROUP])
{
    if (m.type == VT_FLOAT32)
        vt_store_floats(m.data + at, count, wide, values);
    else if (m.type == VT_FLOAT16)
        vt_store_halves<VT_FLOAT16>(m.half + at, count, wide, values);
    else
        vt_store_halves<VT_BFLOAT16>(m.half + at, count, wide, values);
}

/* Rounds each value to what a matrix of this type would hold. */
__device__ static inline void vt_as_stored(vt_type type, float values[VT_GROUP])
{
    if (type == VT_FLOAT32) return;
    uint4 packed = vt_pack_eight(type, values);
    const vt_raw raw = {{packed.x, packed.y, packed.z, packed.w}};
    vt_widen_eight(type, raw, values);
}

/* The row and the group of eight columns of thread `index` in rows × groups. */
__device__ static inline void vt_split(int64_t index, int64_t groups, int64_t *row, int64_t *group)
{
    if (index <= 0xffffffffll && groups <= 0xffffffffll) { /* a division of 32 bits is several times faster */
        uint32_t quotient = (uint32_t)index / (uint32_t)groups;
        *row = quotient;
        *group = (uint32_t)index - quotient * (uint32_t)groups;
    } else {
        *row = index / groups;
        *group = index % groups;
    }
}

/* The index of this thread in the grid, and the number of threads. */
__device__ static inline int64_t vt_thread()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ static inline int64_t vt_thread_count()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Groups of a row; and how many columns of it are left for the group that begins at `first`. */
VT_ON_DEVICE_TOO static inline int64_t vt_groups(int64_t columns)
{
    return (columns + VT_GROUP - 1) / VT_GROUP;
}

__device__ static inline int vt_count(int64_t columns, int64_t first)
{
    return columns - first < VT_GROUP ? (int)(columns - first) : (int)VT_GROUP;
}

/* Shares out the groups of rows × columns among the grid's threads: each calls work(row, column, count) for its own,
 * where count is how many columns a group has from `column` on. A `return` of work ends that group alone. */
template <typename function>
__device__ static inline void vt_each_group(int64_t rows, int64_t columns, const function &work)
{
    const int64_t groups = vt_groups(columns);
    int64_t row, group;
    for (int64_t i = vt_thread(); i < rows * groups; i += vt_thread_count()) {
        vt_split(i, groups, &row, &group);
        work(row, group * VT_GROUP, vt_count(columns, group * VT_GROUP));
    }
}

/* ---- on the host ---- */

/* Can the rows of all be accessed 16 bytes at a time? A matrix without memory, or a NULL vector, does not stand in the
 * way. */
static inline bool vt_is_wide(vt_matrix m)
{
    int64_t sixteen_bytes = m.type == VT_FLOAT32 ? 4 : 8;
    return m.data == NULL || ((uintptr_t)m.data % 16 == 0 && (m.stride % sixteen_bytes == 0 || m.rows == 1));
}

static inline bool vt_is_wide(const float *vector)
{
    return (uintptr_t)vector % 16 == 0;
}

template <typename first, typename second, typename... others>
static inline bool vt_is_wide(first one, second other, others... more)
{
    return vt_is_wide(one) && vt_is_wide(other, more...);
}

/* A matrix without gaps (or without memory) is treated as one row, so that groups of eight cross the ends of rows. */
static inline bool vt_is_dense(vt_matrix m)
{
    return m.data == NULL || m.stride == m.columns || m.rows == 1;
}

static inline vt_matrix vt_as_row(vt_matrix m)
{
    m.columns *= m.rows;
    m.stride = m.columns;
    m.rows = 1;
    return m;
}

/* Where an update rounds its values; without memory: nowhere. */
static inline vt_matrix vt_rounded(const vt_update *update, uint16_t *rounded, int64_t count)
{
    vt_matrix matrix = vt_matrix_make((float *)NULL, 1, count);
    matrix.half = rounded;
    matrix.type = update->rounded;
    return matrix;
}

/* Blocks of VT_BLOCK_THREADS for this many threads; kernels stride over what is left beyond 2^31. */
static inline dim3 vt_blocks(int64_t threads)
{
    int64_t blocks = (threads + VT_BLOCK_THREADS - 1) / VT_BLOCK_THREADS;
    return dim3((unsigned)(blocks < 0x7fffffff ? blocks : 0x7fffffff));
}

/* Starts a kernel over this many pieces of work: a thread for each, which strides over what is left. */
#define VT_SPREAD(kernel, pieces, backend, ...)                                                                        \
    VT_LAUNCH(kernel, vt_blocks(pieces), VT_BLOCK_THREADS, 0, backend, __VA_ARGS__)

static inline vt_cuda_common *vt_common(vt_backend *backend)
{
    return (vt_cuda_common *)backend->state;
}

#endif
