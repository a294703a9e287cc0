/* Operands of tile products. They consist of pairs: two bfloat16 numbers that are neighbours along the depth of the
 * product, the first in the lower half of a 32-bit word (the memory order on little-endian machines). A left operand's
 * tile is 16 rows × 16 pairs, a right one's 16 pairs × 16 columns. */
#ifndef VT_BACKEND_CPU_AMX_PAIRS_H
#define VT_BACKEND_CPU_AMX_PAIRS_H

#include "backend/cpu/amx/tiles.h"
#include "backend/cpu/vector/elements.h"

typedef uint32_t pair;

enum {
    SIDE = 16,        /* rows of a tile; also columns of sums or pairs in a tile */
    DEPTH = 2 * SIDE, /* depth of one product of tiles */
    TILE_PAIRS = SIDE * SIDE
};

/* ---- rounding to pairs, as vt_bfloat16_round does; denormals become 0 where the processor rounds ---- */

#if defined(__AVX512BF16__)

/* Pair i = (first[i], second[i]), for each lane. */
INLINE void store_pairs(pair *to, vector first, vector second)
{
    const __m512i by_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                              6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(by_turns, rounded));
}

/* Pair i = numbers 2i and 2i + 1 of the lanes of both. */
INLINE void store_neighbours(pair *to, vector first, vector second)
{
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
}

#else

/* The rounded number in the upper half of each lane; the lower half is undefined. */
INLINE vector_word round_upper(vector value)
{
    vector_word bits = (vector_word)value, nan = (vector_word)(value != value);
    return ((bits | 0x400000) & nan) | ((bits + 0x7fff + (bits >> 16 & 1)) & ~nan);
}

INLINE void store_pairs(pair *to, vector first, vector second)
{
    vector_word pairs = round_upper(first) >> 16 | (round_upper(second) & 0xffff0000u);
    memcpy(to, &pairs, sizeof pairs);
}

INLINE void store_neighbours(pair *to, vector first, vector second)
{
    typedef uint16_t halves __attribute__((vector_size(LANES * 2)));
    halves rounded[2] = {__builtin_convertvector(round_upper(first) >> 16, halves),
                         __builtin_convertvector(round_upper(second) >> 16, halves)};
    memcpy(to, rounded, sizeof rounded);
}

#endif

/* ---- moving them ---- */

/* to [16 × 16] = transposed from. */
static inline void transpose_pairs(const pair *from, pair *to)
{
    for (int i = 0; i < SIDE; i += LANES) {
        for (int j = 0; j < SIDE; j += LANES) {
            vector square[LANES];
            for (int k = 0; k < LANES; k++) memcpy(&square[k], from + (i + k) * SIDE + j, sizeof square[k]);
            transpose(square);
            for (int k = 0; k < LANES; k++) memcpy(to + (j + k) * SIDE + i, &square[k], sizeof square[k]);
        }
    }
}

/* Pairs of two rows of 16 numbers. */
INLINE void join_rows(const pair *first, const pair *second, pair *to)
{
    for (int c = 0; c < SIDE; c += LANES) {
        const vector lower = widen_bfloat16((const uint16_t *)first + c);
        const vector upper = widen_bfloat16((const uint16_t *)second + c);
        const vector_word pairs = (vector_word)lower >> 16 | (vector_word)upper;
        memcpy(to + c, &pairs, sizeof pairs);
    }
}

#endif
