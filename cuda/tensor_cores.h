/* Products of small tiles on the tensor cores (PTX mma.sync, ldmatrix), with host versions that follow the lane layout
 * of the PTX documentation ("Warp-level matrix fragments"). All 32 threads of a warp call each of them together.
 *
 * In what follows g = lane / 4 and t = lane % 4. A result tile [16, 8] lies in c[4]: (g, 2t), (g, 2t + 1),
 * (g + 8, 2t), (g + 8, 2t + 1). */
#ifndef VT_CUDA_TENSOR_CORES_H
#define VT_CUDA_TENSOR_CORES_H

#include "language.h"

#ifdef __CUDACC__

/* Four 8 × 8 tiles of 16-bit elements; lane i points to row i % 8 of tile i / 8 in shared memory, 16-byte aligned.
 * tiles[i] gets elements (g, 2t) and (g, 2t + 1) of tile i; transposed: (2t, g) and (2t + 1, g). */
template <bool TRANSPOSED> __device__ static inline void vt_load_tiles(uint32_t tiles[4], const uint16_t *row)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                     : "r"(at)
                     : "memory");
}

/* c += a [16, 16] b [16, 8], both of this 16-bit type. a: (g, 2t…), (g + 8, 2t…), (g, 2t + 8…), (g + 8, 2t + 8…), two
 * elements each; b: (2t…, g), (2t + 8…, g). */
template <vt_type TYPE>
__device__ static inline void vt_multiply_halves(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    if (TYPE == VT_FLOAT16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* c += a [16, 8] b [8, 8], TF32. a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4); b: (t, g), (t + 4, g). */
__device__ static inline void vt_multiply_tf32(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Rounds to the nearest number with 10 bits after the leading one. */
__device__ static inline uint32_t vt_to_tf32(float value)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

/* Copies 16 bytes from global to shared memory, both aligned; complete after vt_copies_wait and a barrier. */
__device__ static inline void vt_copy_16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}

__device__ static inline void vt_copies_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#else

struct host_row {
    const uint16_t *row;
};

template <bool TRANSPOSED> __device__ static inline void vt_load_tiles(uint32_t tiles[4], const uint16_t *row)
{
    int g = host_cuda::place() % 32 / 4, t = host_cuda::place() % 4;
    host_row own = {row};
    if ((uintptr_t)row % 16 != 0) host_cuda::fail("ldmatrix from an unaligned row");
    host_cuda::publish(own);
    for (int i = 0; i < 4; i++) {
        tiles[i] = 0;
        for (int j = 0; j < 2; j++) {
            const int from = TRANSPOSED ? 2 * t + j : g, column = TRANSPOSED ? g : 2 * t + j;
            tiles[i] |= (uint32_t)host_cuda::lane<host_row>(8 * i + from).row[column] << 16 * j;
        }
    }
    host_cuda::leave();
}

struct host_fragments {
    uint32_t a[4], b[2];
};

/* c += sums, truncated to float32 as the tensor cores do, where other additions round (Fasi et al. 2021, "Numerical
 * behavior of NVIDIA tensor cores"). */
static inline void host_add_cut(float c[4], const double sums[4])
{
    for (int i = 0; i < 4; i++) {
        const double exact = c[i] + sums[i];
        const float nearest = (float)exact;
        const bool is_beyond = fabs((double)nearest) > fabs(exact) && !isinf(nearest);
        c[i] = vt_from_bits(vt_bits(nearest) - is_beyond); /* then the number before, towards 0 */
    }
}

/* c += a b, with `numbers` numbers in a register: value(register, number). */
template <typename function>
static inline void host_multiply(float c[4], const uint32_t a[4], const uint32_t b[2], int numbers, function value)
{
    int g = host_cuda::place() % 32 / 4, t = host_cuda::place() % 4;
    host_fragments own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    double sums[4] = {0};
    host_cuda::publish(own);
    for (int k = 0; k < 8 * numbers; k++) {
        const int half = k / (4 * numbers), lane = k / numbers % 4, number = k % numbers;
        const host_fragments &left = host_cuda::lane<host_fragments>(4 * g + lane);
        float upper = value(left.a[2 * half], number), lower = value(left.a[2 * half + 1], number);
        for (int i = 0; i < 2; i++) {
            const host_fragments &right = host_cuda::lane<host_fragments>(4 * (2 * t + i) + lane);
            sums[i] += (double)upper * value(right.b[half], number);
            sums[2 + i] += (double)lower * value(right.b[half], number);
        }
    }
    host_add_cut(c, sums);
    host_cuda::leave();
}

template <vt_type TYPE>
__device__ static inline void vt_multiply_halves(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    host_multiply(c, a, b, 2,
                  [](uint32_t pair, int number) { return vt_widen(TYPE, (uint16_t)(pair >> 16 * number)); });
}

/* The low 13 bits are ignored. */
__device__ static inline void vt_multiply_tf32(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    host_multiply(c, a, b, 1, [](uint32_t bits, int) { return vt_from_bits(bits & 0xffffe000u); });
}

__device__ static inline uint32_t vt_to_tf32(float value)
{
    const uint32_t bits = vt_bits(value);
    return isnan(value) || isinf(value) ? bits : (bits + 0x1000) & 0xffffe000u;
}

__device__ static inline void vt_copy_16(void *shared, const void *global)
{
    host_cuda::copy_later(shared, global);
}

__device__ static inline void vt_copies_wait()
{
    host_cuda::copies_wait();
}

#endif

/* a = big + small, both TF32: together 21 bits after the leading one. */
__device__ static inline void vt_split_tf32(float value, uint32_t *big, uint32_t *small)
{
    *big = vt_to_tf32(value);
    *small = vt_to_tf32(value - vt_from_bits(*big));
}

/* c += a b in TF32. exact: three products, as accurate as float32 (the fourth is below its rounding). They are summed
 * separately and then added with rounding: over a long row of tiles, the tensor cores' truncation would add up (Ootomo
 * and Yokota 2022, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
 * performance"). */
__device__ static inline void vt_multiply_float32(float c[4], const float a[4], const float b[2], bool exact)
{
    uint32_t big_a[4], big_b[2], small_a[4], small_b[2];
    float part[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++) vt_split_tf32(a[i], &big_a[i], &small_a[i]);
    for (int i = 0; i < 2; i++) vt_split_tf32(b[i], &big_b[i], &small_b[i]);
    if (!exact) {
        vt_multiply_tf32(c, big_a, big_b);
        return;
    }
    vt_multiply_tf32(part, small_a, big_b);
    vt_multiply_tf32(part, big_a, small_b);
    vt_multiply_tf32(part, big_a, big_b);
    for (int i = 0; i < 4; i++) c[i] += part[i];
}

#endif
