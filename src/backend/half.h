/* Conversion of 16-bit numbers, one or a row at a time. Compiled into each file that uses it, with that file's
 * instruction set: rows of half precision are converted by F16C, AVX-512 or NEON where the file has them, everything
 * else by loops that the compiler vectorises. */
#ifndef VT_BACKEND_HALF_H
#define VT_BACKEND_HALF_H

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/bfloat16.h"
#include "base/float16.h"

#include "backend/backend.h"

static inline float vt_half_widen(vt_type type, uint16_t half)
{
    return type == VT_FLOAT16 ? vt_float16_widen(half) : vt_bfloat16_widen(half);
}

static inline uint16_t vt_half_round(vt_type type, float value)
{
    return type == VT_FLOAT16 ? vt_float16_round(value) : vt_bfloat16_round(value);
}

/* to [count] = from; type is from's. */
static inline void vt_half_widen_row(vt_type type, const uint16_t *from, int64_t count, float *to)
{
    int64_t i = 0;
    if (type == VT_BFLOAT16) {
#pragma omp simd
        for (int64_t j = 0; j < count; j++) to[j] = vt_bfloat16_widen(from[j]);
        return;
    }
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + i))));
#endif
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#endif
#if defined(__aarch64__)
    for (; i + 4 <= count; i += 4) vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
#endif
#pragma omp simd
    for (int64_t j = i; j < count; j++) to[j] = vt_float16_widen(from[j]);
}

/* to [count] = from, rounded; type is to's. */
static inline void vt_half_round_row(vt_type type, const float *from, int64_t count, uint16_t *to)
{
    int64_t i = 0;
    if (type == VT_BFLOAT16) {
#pragma omp simd
        for (int64_t j = 0; j < count; j++) to[j] = vt_bfloat16_round(from[j]);
        return;
    }
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(__aarch64__)
    for (; i + 4 <= count; i += 4) vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
#endif
#pragma omp simd
    for (int64_t j = i; j < count; j++) to[j] = vt_float16_round(from[j]);
}

/* to = from: widened, rounded or copied; two 16-bit matrices are of the same type. Threads share the rows. */
static inline void vt_half_convert(vt_matrix from, vt_matrix to)
{
    VT_ASSERT(from.type == to.type || from.type == VT_FLOAT32 || to.type == VT_FLOAT32);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < from.rows; r++) {
        if (from.type == to.type && from.type == VT_FLOAT32)
            memcpy(to.data + r * to.stride, from.data + r * from.stride, (size_t)from.columns * sizeof *to.data);
        else if (from.type == to.type)
            memcpy(to.half + r * to.stride, from.half + r * from.stride, (size_t)from.columns * sizeof *to.half);
        else if (from.type == VT_FLOAT32)
            vt_half_round_row(to.type, from.data + r * from.stride, from.columns, to.half + r * to.stride);
        else
            vt_half_widen_row(from.type, from.half + r * from.stride, from.columns, to.data + r * to.stride);
    }
}

#endif
