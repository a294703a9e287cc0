/* The random numbers of dropout, a vector of blocks at a time: each block has those of four neighbouring elements. */
#ifndef VT_BACKEND_CPU_VECTOR_RANDOM_VECTORS_H
#define VT_BACKEND_CPU_VECTOR_RANDOM_VECTORS_H

#include "backend/cpu/vector/elements.h"
#include "backend/dropout.h"

/* The upper halves of the products of all lanes; *low gets the lower ones. */
INLINE vector_word multiply_words(vector_word words, uint32_t factor, vector_word *low)
{
    typedef uint64_t pairs __attribute__((vector_size(LANES * 4)));
    const pairs all = (pairs)words, other = all >> 32, factors = (pairs){0} + factor;
#if defined(__AVX512F__)
    const pairs even = (pairs)_mm512_mul_epu32((__m512i)all, (__m512i)factors);
    const pairs odd = (pairs)_mm512_mul_epu32((__m512i)other, (__m512i)factors);
#elif defined(__AVX2__)
    const pairs even = (pairs)_mm256_mul_epu32((__m256i)all, (__m256i)factors);
    const pairs odd = (pairs)_mm256_mul_epu32((__m256i)other, (__m256i)factors);
#elif defined(__SSE2__)
    const pairs even = (pairs)_mm_mul_epu32((__m128i)all, (__m128i)factors);
    const pairs odd = (pairs)_mm_mul_epu32((__m128i)other, (__m128i)factors);
#else
    const pairs even = (all & 0xffffffffu) * factors, odd = other * factors;
#endif
    *low = (vector_word)((even & 0xffffffffu) | odd << 32);
    return (vector_word)(even >> 32 | (odd & ~(uint64_t)0xffffffffu));
}

/* first, first + 1, … */
INLINE vector_word count_from(uint32_t first)
{
    vector_word lanes = {0};
#pragma GCC unroll 16
    for (uint32_t i = 0; i < LANES; i++) lanes[i] = i; /* a constant */
    return lanes + first;
}

/* vt_dropout_block of the lanes' rows and quads; block[i]: word i of each. */
INLINE void random_blocks(const vt_dropout *dropout, uint32_t sample, vector_word rows, vector_word quads,
                          vector_word block[4])
{
    uint32_t key0 = (uint32_t)dropout->seed ^ (dropout->layer * 0x9E3779B9u);
    uint32_t key1 = (uint32_t)(dropout->seed >> 32) ^ (dropout->site * 0x85EBCA6Bu + 1);
    vector_word c0 = quads, c1 = rows, c2 = (vector_word){0} + sample, c3 = (vector_word){0} + *dropout->step;
    for (int round = 0; round < 10; round++) {
        vector_word low0, low1;
        const vector_word high0 = multiply_words(c0, 0xD2511F53u, &low0);
        const vector_word high1 = multiply_words(c2, 0xCD9E8D57u, &low1);
        c0 = high1 ^ c1 ^ key0;
        c2 = high0 ^ c3 ^ key1;
        c1 = low1;
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    block[0] = c0;
    block[1] = c1;
    block[2] = c2;
    block[3] = c3;
}

/* What elements with these random words are multiplied by: 0, or `keep`. */
INLINE vector factor_of(const vt_dropout *dropout, vector_word words, float keep)
{
    const vector uniform = (__builtin_convertvector((vector_bits)(words >> 9), vector) + splat(0.5f)) * splat(0x1p-23f);
    return choose(uniform < splat(dropout->rate), splat(0), splat(keep));
}

/* What the 4 · LANES elements of a row from quad `first` on are multiplied by. */
INLINE void make_factors(const vt_dropout *dropout, uint32_t sample, uint32_t row, uint32_t first, float keep,
                         vector factors[4])
{
    vector_word words[4];
    vector made[4];
    random_blocks(dropout, sample, (vector_word){0} + row, count_from(first), words);
    for (int i = 0; i < 4; i++) made[i] = factor_of(dropout, words[i], keep);
    for (int half = 0; half < 2; half++) { /* a quad's four side by side */
        const vector even = interleave(made[0], made[2], half), odd = interleave(made[1], made[3], half);
        factors[2 * half] = interleave(even, odd, 0);
        factors[2 * half + 1] = interleave(even, odd, 1);
    }
}

#endif
