/* Numbers of a vt_matrix as vectors of float32, whatever type they are stored in. */
#ifndef VT_BACKEND_CPU_VECTOR_ELEMENTS_H
#define VT_BACKEND_CPU_VECTOR_ELEMENTS_H

#include "backend/cpu/vector/vector.h"
#include "backend/half.h"

typedef uint16_t vector_half __attribute__((vector_size(LANES * 2)));

INLINE vector widen_bfloat16(const uint16_t *from)
{
    vector_half half;
    memcpy(&half, from, sizeof half);
    return (vector)(__builtin_convertvector(half, vector_word) << 16);
}

/* As vt_bfloat16_round; denormals become 0 where the processor rounds. */
INLINE void round_bfloat16(vector value, uint16_t *to)
{
#if defined(__AVX512BF16__)
    __m256bh half = _mm512_cvtneps_pbh((__m512)value);
#else
    vector_word bits = (vector_word)value, nan = (vector_word)(value != value);
    vector_word rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    vector_half half = __builtin_convertvector((quiet & nan) | (rounded & ~nan), vector_half);
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

INLINE void prefetch_write(const vt_matrix *to, int64_t index)
{
    __builtin_prefetch(to->type == VT_FLOAT32 ? (const void *)(to->data + index) : to->half + index, 1);
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
    if (vt_type_is_half(matrix.type))
        matrix.half += row * matrix.stride;
    else
        matrix.data += row * matrix.stride;
    matrix.rows -= row;
    return matrix;
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
