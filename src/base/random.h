/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
 * 1, 2, 3", SC11). The same key and counter give the same numbers on every rank, thread and device. */
#ifndef VT_BASE_RANDOM_H
#define VT_BASE_RANDOM_H

#include <math.h>
#include <stdint.h>

/* Precedes functions that CUDA kernels call, too. */
#ifdef __CUDACC__
#define VT_ON_DEVICE_TOO __host__ __device__
#else
#define VT_ON_DEVICE_TOO
#endif

typedef struct {
    uint32_t word[4];
} vt_random_block;

/* One block of 128 random bits. */
VT_ON_DEVICE_TOO static inline vt_random_block vt_random_philox(const uint32_t key[2], const uint32_t counter[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vt_random_block block = {{c0, c1, c2, c3}};
    return block;
}

/* Uniform in (0, 1): 23 bits and a half, so never 0 and never 1. (24 bits and a half don't fit a float: the largest
 * would round to 1.) */
VT_ON_DEVICE_TOO static inline float vt_random_uniform(uint32_t bits)
{
    return ((float)(bits >> 9) + 0.5f) * 0x1p-23f;
}

/* Four standard normal numbers (Box, Muller 1958). */
VT_ON_DEVICE_TOO static inline void vt_random_normals(vt_random_block block, float normals[4])
{
    for (int i = 0; i < 4; i += 2) {
        const float radius = sqrtf(-2.0f * logf(vt_random_uniform(block.word[i])));
        const float angle = 6.28318530717958648f * vt_random_uniform(block.word[i + 1]);
        normals[i] = radius * cosf(angle);
        normals[i + 1] = radius * sinf(angle);
    }
}

/* 64-bit FNV-1a of a name: turns a parameter's or a stream's name into key bits. */
uint64_t vt_random_name_key(const char *name);

/* Element `index` of the stream (seed, name): uniform in (0, 1) with 53 bits. */
double vt_random_element(uint64_t seed, uint64_t name_key, uint64_t index);

/* The inverse of the standard normal distribution function, |relative error| < 1e-15 (Wichura, AS 241, PPND16). */
double vt_random_normal_quantile(double p);

/* Fills order[0..count-1] with a permutation of 0..count-1 that depends only on (seed, epoch) (Fisher-Yates). */
void vt_random_permutation(uint64_t seed, uint64_t epoch, int64_t count, int64_t *order);

/* Place `index` of another permutation of 0..count-1, which likewise depends only on (seed, epoch), and needs no
 * memory: four rounds of a Feistel network (Luby, Rackoff 1988). */
int64_t vt_random_permuted(uint64_t seed, uint64_t epoch, int64_t count, int64_t index);

#endif
