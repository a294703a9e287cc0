/* Which weights of attention dropout keeps, drawn ahead (attention_draw of backend/operations.def), for the elements of
 * a product's result that a thread has: of each 8 columns two neighbours, in two rows, of which the second is 8 below.
 * Element i is one of four that belong to the same 8 columns. What is fetched for rows and columns that are not there
 * is anything. */
#ifndef VT_CUDA_DRAWN_H
#define VT_CUDA_DRAWN_H

#include "backend/backend.h"
#include "language.h"

/* Of one head of one sample. */
typedef struct {
    const uint16_t *words;
    int stride; /* from one to the next 16 keys */
} vt_drawn;

__device__ static inline vt_drawn vt_find_drawn(const uint16_t *words, int64_t unit, int64_t queries, int64_t keys)
{
    const int64_t stride = vt_attention_drawn_stride(queries);
    return vt_drawn{words + unit * vt_attention_drawn_chunks(keys) * stride, (int)stride};
}

/* ---- rows are queries, columns keys ---- */

/* Word i is for the thread's rows query and query + 8, and for the 16 keys from key + 16 * i on; key is a multiple of
 * 16. In each byte, which has 8 keys of a row, bit 7 is the second of the thread's keys,
 * and bit 6 the first. */
template <int WORDS>
__device__ static inline void vt_fetch_drawn_of_queries(const vt_drawn &d, int query, int key, uint32_t (&drawn)[WORDS])
{
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        const uint16_t *word = d.words + (int64_t)(key / 16 + i) * d.stride + query;
        drawn[i] = (word[0] | (uint32_t)word[8] << 16) << (6 - threadIdx.x % 4 * 2);
    }
}

/* `kept_scale` if element i is kept, else 0. */
__device__ static inline float vt_keep_of_queries(const uint32_t *drawn, int i, float kept_scale)
{
    const uint32_t word = i % 2 == 0 ? drawn[i / 8] << 1 : drawn[i / 8], byte = i / 2 % 2 * 2 + i / 4 % 2;
    return vt_from_bits(vt_bits(kept_scale) & vt_spread_signs(word, 0, 0x8888 + byte * 0x1111));
}

/* Of elements i and i + 1, packed as two numbers of 16 bits, those that are kept; i is even. */
__device__ static inline uint32_t vt_keep_pair_of_queries(const uint32_t *drawn, int i, uint32_t pair)
{
    const uint32_t word = drawn[i / 8], byte = i / 2 % 2 * 2 + i / 4 % 2;
    return pair & vt_spread_signs(word << 1, word, 0xcc88 + byte * 0x1111);
}

/* ---- rows are keys, columns queries ---- */

/* Word i is for the queries query + 8 * i and the one behind it, and for the 16 keys from `key` on, of which the thread
 * has two; key is a multiple of 16, query is even. In each byte, which has 8 keys of a query, bit 7 is the thread's. */
template <int WORDS>
__device__ static inline void vt_fetch_drawn_of_keys(const vt_drawn &d, int query, int key, uint32_t (&drawn)[WORDS])
{
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        const uint32_t *both = (const uint32_t *)(d.words + (int64_t)(key / 16) * d.stride + query + 8 * i);
        drawn[i] = *both << (7 - threadIdx.x % 32 / 4);
    }
}

/* As vt_keep_of_queries. */
__device__ static inline float vt_keep_of_keys(const uint32_t *drawn, int i, float kept_scale)
{
    const uint32_t byte = i % 2 * 2 + i / 2 % 2;
    return vt_from_bits(vt_bits(kept_scale) & vt_spread_signs(drawn[i / 4], 0, 0x8888 + byte * 0x1111));
}

/* As vt_keep_pair_of_queries. */
__device__ static inline uint32_t vt_keep_pair_of_keys(const uint32_t *drawn, int i, uint32_t pair)
{
    return pair & vt_spread_signs(drawn[i / 4], 0, 0xaa88 + i / 2 % 2 * 0x1111);
}

#endif
