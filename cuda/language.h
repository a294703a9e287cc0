/* What every kernel file includes first: the CUDA language, from nvcc, or from the stand-in that runs kernels on the
 * host (host_cuda.h, for the tests). Kernels use only what is declared here, so that both compile the same source.
 * A kernel begins with VT_KERNEL (__global__, local to its file).
 * VT_LAUNCH(kernel, grid, block, shared_bytes, backend, arguments...) is the only way to start a kernel. */
#ifndef VT_CUDA_LANGUAGE_H
#define VT_CUDA_LANGUAGE_H

#include <stdint.h>

#ifdef __CUDACC__

#include <cuda_runtime.h>

#include "backend/backend.h"

#define VT_KERNEL static __global__
#define VT_DYNAMIC_SHARED(type, name)                                                                                  \
    extern __shared__ __align__(128) unsigned char vt_dynamic_shared[];                                                \
    type *name = (type *)vt_dynamic_shared
/* Does nothing for a grid without blocks, which CUDA would call an error. More than 48 KiB of shared memory, with that
 * which the kernel declares, must be requested once for each kernel and device. */
#define VT_LAUNCH(kernel, grid, block, shared_bytes, backend, ...)                                                     \
    do {                                                                                                               \
        const dim3 grid_ = dim3(grid);                                                                                 \
        if (grid_.x == 0 || grid_.y == 0 || grid_.z == 0) break;                                                       \
        if ((shared_bytes) > 40 * 1024)                                                                                \
            cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,                  \
                                 (int)(shared_bytes));                                                                 \
        kernel<<<grid_, (block), (shared_bytes), (cudaStream_t)(backend)->stream>>>(__VA_ARGS__);                      \
    } while (0)

__device__ static inline float vt_widen(vt_type type, uint16_t half)
{
    float value;
    if (type != VT_FLOAT16) return __uint_as_float((unsigned)half << 16);
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

__device__ static inline uint16_t vt_round(vt_type type, float value)
{
    uint16_t half;
    if (type == VT_FLOAT16)
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    else
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

/* Each byte of the result is eight times the top bit of a byte of low (0 … 3) or high (4 … 7). Digit i of `which`, of
 * four bits, is 8 + the number of that byte, for byte i of the result. */
__device__ static inline uint32_t vt_spread_signs(uint32_t low, uint32_t high, uint32_t which)
{
    uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(which));
    return result;
}

/* Both in one instruction. */
__device__ static inline uint32_t vt_pack(vt_type type, float low, float high)
{
    uint32_t pair;
    if (type == VT_FLOAT16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#else

#include "host_cuda.h"

#include "backend/half.h"

__device__ static inline float vt_widen(vt_type type, uint16_t half)
{
    return vt_half_widen(type, half);
}

__device__ static inline uint16_t vt_round(vt_type type, float value)
{
    return vt_half_round(type, value);
}

__device__ static inline uint32_t vt_spread_signs(uint32_t low, uint32_t high, uint32_t which)
{
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t byte = which >> 4 * i & 7;
        if ((byte < 4 ? low : high) >> (byte % 4 * 8 + 7) & 1) result |= 0xffu << 8 * i;
    }
    return result;
}

__device__ static inline uint32_t vt_pack(vt_type type, float low, float high)
{
    return (uint32_t)vt_round(type, low) | (uint32_t)vt_round(type, high) << 16;
}

#endif

__device__ static inline float vt_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

__device__ static inline uint32_t vt_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Sums over the 32 threads of a warp, on all of them. All must call. */
template <typename number> __device__ static inline number vt_warp_sum(number value)
{
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
}

/* The sums of two numbers, in the time of one. */
__device__ static inline void vt_warp_sums(float *a, float *b)
{
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        float other_a = __shfl_xor_sync(0xffffffffu, *a, lanes), other_b = __shfl_xor_sync(0xffffffffu, *b, lanes);
        *a += other_a;
        *b += other_b;
    }
}

template <typename number> __device__ static inline number vt_warp_max(number value)
{
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const number other = __shfl_xor_sync(0xffffffffu, value, lanes);
        if (other > value) value = other;
    }
    return value;
}

/* The sum, or the largest, over a block of whole warps (at most 1024 threads), on all threads; `shared` has room for 32
 * numbers. All must call. */
template <bool LARGEST, typename number> __device__ static inline number vt_block_fold(number value, number *shared)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    value = LARGEST ? vt_warp_max(value) : vt_warp_sum(value);
    __syncthreads(); /* until all have read the numbers of an earlier call */
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = lane < warps ? shared[lane] : LARGEST ? -(number)INFINITY : (number)0;
    return LARGEST ? vt_warp_max(value) : vt_warp_sum(value);
}

template <typename number> __device__ static inline number vt_block_sum(number value, number *shared)
{
    return vt_block_fold<false>(value, shared);
}

template <typename number> __device__ static inline number vt_block_max(number value, number *shared)
{
    return vt_block_fold<true>(value, shared);
}

#endif
