/* Numbers of a vt_matrix as vectors of float32, whatever type they are stored in. */
#ifndef VT_BACKEND_CPU_VECTOR_ELEMENTS_H
#define VT_BACKEND_CPU_VECTOR_ELEMENTS_H

#if defined(__SSE2__) && !defined(__AVX__)
#include <emmintrin.h>
#endif

#include "backend/cpu/vector/vector.h"
#include "backend/half.h"

typedef uint16_t vector_half __attribute__((vector_size(LANES * 2)));

INLINE vector widen_bfloat16(const uint16_t *from)
{
    vector_half half;
    memcpy(&half, from, sizeof half);
#if defined(__AVX512F__) /* gcc 12 would widen two halves, one after the other */
    return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)half), 16);
#elif defined(__AVX2__)
    return (vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)half), 16);
#else
    return (vector)(__builtin_convertvector(half, vector_word) << 16);
#endif
}

/* The upper halves of the lanes. */
INLINE vector_half upper_halves(vector_word bits)
{
#if defined(__AVX512BW__)
    const __m512i odd = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 31, 29, 27, 25, 23,
                                         21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return (vector_half)_mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, (__m512i)bits));
#elif defined(__AVX2__)
    const __m256i odd =
        _mm256_broadcastsi128_si256(_mm_set_epi8(15, 14, 11, 10, 7, 6, 3, 2, 15, 14, 11, 10, 7, 6, 3, 2));
    const __m256i both = _mm256_shuffle_epi8((__m256i)bits, odd);
    return (vector_half)_mm256_castsi256_si128(_mm256_permute4x64_epi64(both, 0x08));
#elif defined(__SSE2__)
    const __m128i high = _mm_srai_epi32((__m128i)bits, 16), packed = _mm_packs_epi32(high, high);
    vector_half half;
    memcpy(&half, &packed, sizeof half);
    return half;
#else
    return __builtin_convertvector(bits >> 16, vector_half);
#endif
}

/* As vt_bfloat16_round of a result of arithmetic, whose NaNs are quiet; denormals become 0 where the processor
 * rounds. */
INLINE void round_bfloat16(vector value, uint16_t *to)
{
#if defined(__AVX512BF16__)
    __m256bh half = _mm512_cvtneps_pbh((__m512)value);
#else
    vector_word bits = (vector_word)value, half_unit = (bits >> 16 & 1) + 0x7fff;
#if defined(__AVX512F__)
    const __mmask16 number = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_ORD_Q);
    vector_half half =
        upper_halves((vector_word)_mm512_mask_add_epi32((__m512i)bits, number, (__m512i)bits, (__m512i)half_unit));
#else
    vector_half half = upper_halves(bits + (half_unit & (vector_word)(value == value)));
#endif
#endif
    memcpy(to, &half, sizeof half);
}

/* Elements index … of a matrix's memory. */
INLINE vector load_elements(const vt_matrix *from, int64_t index)
{
    if (from->type == VT_FLOAT32) return load(from->data + index);
    if (from->type == VT_BFLOAT16) return widen_bfloat16(from->half + index);
    float wide[LANES];
    vt_half_widen_row(from->type, from->half + index, LANES, wide);
    return load(wide);
}

INLINE void store_elements(const vt_matrix *to, int64_t index, vector value)
{
    if (to->type == VT_FLOAT32) {
        store(to->data + index, value);
    } else if (to->type == VT_BFLOAT16) {
        round_bfloat16(value, to->half + index);
    } else {
        float wide[LANES];
        store(wide, value);
        vt_half_round_row(to->type, wide, LANES, to->half + index);
    }
}

/* The first `count` < LANES of them; the other lanes are 0. */
INLINE vector load_some(const vt_matrix *from, int64_t index, int64_t count)
{
    if (from->type == VT_FLOAT32) return load_part(from->data + index, count);
#if defined(__AVX512BW__)
    if (from->type == VT_BFLOAT16) {
        uint16_t half[LANES];
        const __m256i some = _mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), from->half + index);
        memcpy(half, &some, sizeof half);
        return widen_bfloat16(half);
    }
#endif
    float wide[LANES] = {0};
    vt_half_widen_row(from->type, from->half + index, count, wide);
    return load(wide);
}

INLINE void store_some(const vt_matrix *to, int64_t index, vector value, int64_t count)
{
    if (to->type == VT_FLOAT32) {
        store_part(to->data + index, value, count);
        return;
    }
#if defined(__AVX512BW__)
    if (to->type == VT_BFLOAT16) {
        __m256i half;
        round_bfloat16(value, (uint16_t *)&half);
        _mm256_mask_storeu_epi16(to->half + index, (__mmask16)((1u << count) - 1), half);
        return;
    }
#endif
    float wide[LANES];
    store(wide, value);
    vt_half_round_row(to->type, wide, count, to->half + index);
}

/* The first `count` of them, but LANES at most. */
INLINE vector load_elements_up_to(const vt_matrix *from, int64_t index, int64_t count)
{
    return count >= LANES ? load_elements(from, index) : load_some(from, index, count);
}

INLINE void store_elements_up_to(const vt_matrix *to, int64_t index, vector value, int64_t count)
{
    if (count >= LANES)
        store_elements(to, index, value);
    else
        store_some(to, index, value, count);
}

/* Prefetches the cache line that holds element `index`. */
INLINE void prefetch_read(const vt_matrix *from, int64_t index)
{
    __builtin_prefetch(from->type == VT_FLOAT32 ? (const void *)(from->data + index) : from->half + index);
}

/* The same into the second-level cache, where the first one has no room. */
INLINE void prefetch_second(const vt_matrix *from, int64_t index)
{
    const void *place = from->type == VT_FLOAT32 ? (const void *)(from->data + index) : from->half + index;
    __builtin_prefetch(place, 0, 2);
}

INLINE void prefetch_write(const vt_matrix *to, int64_t index)
{
    __builtin_prefetch(to->type == VT_FLOAT32 ? (const void *)(to->data + index) : to->half + index, 1);
}

/* Prefetches rows first … first + rows - 1, columns begin … end - 1 of a matrix: each row may be on a page of its own,
 * where the processor does not prefetch by itself. */
INLINE void look_ahead_rows(const vt_matrix *matrix, int64_t first, int64_t rows, int64_t begin, int64_t end, int write)
{
    int64_t size = (int64_t)vt_type_size(matrix->type);
    for (int64_t r = first; r < first + rows; r++) {
        const char *row = (const char *)matrix->data + (r * matrix->stride + begin) * size;
        for (int64_t byte = 0; byte < (end - begin) * size; byte += 64) {
            if (write)
                __builtin_prefetch(row + byte, 1);
            else
                __builtin_prefetch(row + byte, 0);
        }
    }
}

/* Rounds a number to the type of a matrix. */
INLINE vector as_stored(const vt_matrix *in, vector value)
{
    uint16_t half[LANES];
    const vt_matrix stored = {.half = half, .type = in->type};
    if (in->type == VT_FLOAT32) return value;
    store_elements(&stored, 0, value);
    return load_elements(&stored, 0);
}

/* The matrix from row `row` on. */
static inline vt_matrix from_row(vt_matrix matrix, int64_t row)
{
    return vt_matrix_rows(matrix, row, matrix.rows - row);
}

/* Calls function(type, ...) with `type` as a constant: a loop of its own for each type. */
#define FOR_EACH_TYPE(type, function, ...)                                                                             \
    if ((type) == VT_FLOAT32)                                                                                          \
        function(VT_FLOAT32, __VA_ARGS__);                                                                             \
    else if ((type) == VT_BFLOAT16)                                                                                    \
        function(VT_BFLOAT16, __VA_ARGS__);                                                                            \
    else                                                                                                               \
        function(VT_FLOAT16, __VA_ARGS__)

#endif
