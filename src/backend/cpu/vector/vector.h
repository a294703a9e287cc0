/* Short vectors of float32 for kernels that are compiled once per instruction set (VT_ISA: baseline, avx2, avx512,
 * amx), in the compiler's portable vector extension: 16 lanes with AVX-512, 8 with AVX2, 4 elsewhere. */
#ifndef VT_BACKEND_CPU_VECTOR_VECTOR_H
#define VT_BACKEND_CPU_VECTOR_VECTOR_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE__)
#include <xmmintrin.h> /* immintrin.h takes longer to read than most kernels to compile */
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "backend/cpu/vector/kernels.h"

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

#if defined(__AVX512F__) || defined(__aarch64__)
enum { REGISTERS = 32 };
#else
enum { REGISTERS = 16 };
#endif

typedef float vector __attribute__((vector_size(LANES * 4)));
typedef int32_t vector_bits __attribute__((vector_size(LANES * 4)));
typedef uint32_t vector_word __attribute__((vector_size(LANES * 4)));

/* Half as many numbers, in float32 and in float64. */
typedef float vector_narrow __attribute__((vector_size(LANES * 2)));
typedef double vector_wide __attribute__((vector_size(LANES * 4)));
typedef int64_t vector_wide_bits __attribute__((vector_size(LANES * 4)));
enum { WIDE_LANES = LANES / 2 };

#define INLINE static inline __attribute__((always_inline))

/* ---- how work is divided ---- */

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How many pieces of at most `most` are needed for `count`. */
static inline int64_t pieces(int64_t count, int64_t most)
{
    return (count + most - 1) / most;
}

/* 0 … count - 1 in `parts` pieces of nearly the same size: where piece `index` begins. */
static inline int64_t piece_begin(int64_t count, int64_t parts, int64_t index)
{
    return count / parts * index + smaller(index, count % parts);
}

/* ---- vectors ---- */

INLINE vector load(const float *from)
{
#if defined(__aarch64__) /* gcc 12 copies 16 bytes by way of the stack and two registers of 64 bits */
    return (vector)vld1q_f32(from);
#else
    vector value;
    memcpy(&value, from, sizeof value);
    return value;
#endif
}

INLINE vector_narrow load_narrow(const float *from)
{
    vector_narrow values;
    memcpy(&values, from, sizeof values);
    return values;
}

INLINE void store(float *to, vector value)
{
#if defined(__aarch64__)
    vst1q_f32(to, (float32x4_t)value);
#else
    memcpy(to, &value, sizeof value);
#endif
}

/* The first `count` < LANES elements; the other lanes are 0. */
INLINE vector load_part(const float *from, int64_t count)
{
#if defined(__AVX512F__)
    return (vector)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#else
    vector value = {0};
    memcpy(&value, from, (size_t)count * sizeof(float));
    return value;
#endif
}

INLINE void store_part(float *to, vector value, int64_t count)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)value);
#else
    memcpy(to, &value, (size_t)count * sizeof(float));
#endif
}

/* The first `count` elements, but LANES at most. */
INLINE vector load_up_to(const float *from, int64_t count)
{
    return count >= LANES ? load(from) : load_part(from, count);
}

INLINE void store_up_to(float *to, vector value, int64_t count)
{
    if (count >= LANES)
        store(to, value);
    else
        store_part(to, value, count);
}

INLINE vector splat(float value)
{
    return value - (vector){0};
}

INLINE vector choose(vector_bits mask, vector yes, vector no)
{
    return (vector)(((vector_bits)yes & mask) | ((vector_bits)no & ~mask));
}

/* Whether the mask is set in any lane. */
INLINE bool any_lane(vector_bits mask)
{
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#else
    int32_t any = 0;
    for (int i = 0; i < LANES; i++) any |= mask[i];
    return any != 0;
#endif
}

/* The larger one; b if either is NaN (as x86's own instruction does). */
INLINE vector largest(vector a, vector b)
{
#if defined(__AVX512F__)
    return (vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (vector)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE__)
    return (vector)_mm_max_ps((__m128)a, (__m128)b);
#else
    return choose(a > b, a, b);
#endif
}

/* min(|x|, most); either of them if x is NaN. */
INLINE vector size_up_to(float most, vector x)
{
#if defined(__AVX512DQ__)
    return (vector)_mm512_range_ps((__m512)x, (__m512)splat(most), 10); /* the smaller size, with a plus */
#elif defined(__AVX__)
    return (vector)_mm256_min_ps((__m256)splat(most), _mm256_andnot_ps((__m256)splat(-0.0f), (__m256)x));
#else
    return -largest(splat(-most), -largest(x, -x));
#endif
}

/* 1 / x to 2e-7, x finite and not 0: one Newton step after the processor's estimate; a division takes longer. */
INLINE vector reciprocal(vector x)
{
#if defined(__AVX512F__)
    vector near = (vector)_mm512_rcp14_ps((__m512)x);
    return near + near * (1.0f - x * near);
#else
    return 1.0f / x;
#endif
}

INLINE vector square_root(vector x)
{
#if defined(__AVX512F__)
    return (vector)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__)
    return (vector)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE__)
    return (vector)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

/* The sum of the lanes, always in the same order: lanes are added half to half until one is left. */
INLINE float sum_lanes(vector value)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)value);
#else
    float lanes[LANES];
    store(lanes, value);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    return lanes[0];
#endif
}

/* Interleaves the lanes of both: a0 b0 a1 b1 …, of the lower halves (upper: of the upper ones). */
INLINE vector interleave(vector a, vector b, int upper)
{
#if defined(__clang__) /* it takes only constant indices */
    vector all[2] = {a, b}, mixed;
    for (int i = 0; i < LANES; i++) mixed[i] = all[i % 2][i / 2 + (upper ? LANES / 2 : 0)];
    return mixed;
#else
#if defined(__AVX512F__)
    const vector_bits low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
#elif defined(__AVX__)
    const vector_bits low = {0, 8, 1, 9, 2, 10, 3, 11};
#else
    const vector_bits low = {0, 4, 1, 5};
#endif
    return __builtin_shuffle(a, b, upper ? low + LANES / 2 : low);
#endif
}

/* rows becomes its transpose: log2(LANES) times the perfect shuffle. */
INLINE void transpose(vector rows[LANES])
{
#pragma GCC unroll 4
    for (int width = LANES; width > 1; width /= 2) {
        vector next[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = interleave(rows[i], rows[i + LANES / 2], 0);
            next[2 * i + 1] = interleave(rows[i], rows[i + LANES / 2], 1);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) rows[i] = next[i];
    }
}

/* 2^fraction · 2^n, by adding to the exponent. `shifted` is n + 1.5·2^23, whose lowest bits hold n. */
INLINE vector scale_power(vector power, vector shifted)
{
    return (vector)((vector_word)power + ((vector_word)shifted << 23)); /* unsigned: padded keys may overflow */
}

/* 2^x for x <= 127; below -80 it is 2^-80 (8e-25), which is negligible beside the largest weight or activation: smaller
 * results would turn what they are multiplied with into denormal numbers, each of which costs the processor a hundred
 * cycles and more. Relative error below 2e-7. */
static const float smallest_exponent = -80;

#if defined(__AVX512F__)
/* 2^(i/32) comes from a table in two registers; the remainder f, |f| <= 1/64, gives 1 + c1 f + c2 f²: c1 = ln 2 + ¾
 * ln³2/6 / 64² removes three quarters of the largest error that the missing cube causes (Chebyshev). */
INLINE vector exp2_vector(vector x)
{
    static const float powers[2 * LANES] = {
        0x1p0f,        0x1.059b0ep0f, 0x1.0b5586p0f, 0x1.11301ep0f, 0x1.172b84p0f, 0x1.1d4874p0f, 0x1.2387a6p0f,
        0x1.29e9ep0f,  0x1.306fep0f,  0x1.371a74p0f, 0x1.3dea64p0f, 0x1.44e086p0f, 0x1.4bfdaep0f, 0x1.5342b6p0f,
        0x1.5ab07ep0f, 0x1.6247ecp0f, 0x1.6a09e6p0f, 0x1.71f75ep0f, 0x1.7a1148p0f, 0x1.82589ap0f, 0x1.8ace54p0f,
        0x1.93737cp0f, 0x1.9c4918p0f, 0x1.a5503cp0f, 0x1.ae89fap0f, 0x1.b7f77p0f,  0x1.c199bep0f, 0x1.cb720ep0f,
        0x1.d5818ep0f, 0x1.dfc974p0f, 0x1.ea4afap0f, 0x1.f50766p0f,
    };
    const vector shift = splat(0x1.8p18f);    /* float32 numbers near it are multiples of 1/32 */
    x = largest(splat(smallest_exponent), x); /* a NaN stays NaN */
    vector shifted = x + shift, nearest = shifted - shift, f = x - nearest;
    vector power = (vector)_mm512_permutex2var_ps((__m512)load(powers), (__m512i)shifted, (__m512)load(powers + LANES));
    power += power * (f * (splat(2.40226507e-1f) * f + splat(6.93157346e-1f)));
    return (vector)_mm512_scalef_ps((__m512)power, (__m512)nearest);
}
#else
/* The polynomial's part of the error is 2e-9: 1 + f P(f), degree 5, fitted to the smallest relative error over
 * |f| <= ½. */
INLINE vector exp2_vector(vector x)
{
    const vector shift = splat(0x1.8p23f);
    x = largest(splat(smallest_exponent), x); /* a NaN stays NaN */
    vector shifted = x + shift, f = x - (shifted - shift);
    vector power = splat(1.53533561e-4f);
    power = power * f + splat(1.33988773e-3f);
    power = power * f + splat(9.61843785e-3f);
    power = power * f + splat(5.55033237e-2f);
    power = power * f + splat(2.40226477e-1f);
    power = power * f + splat(6.93147182e-1f);
    power = power * f + splat(1.0f);
    return scale_power(power, shifted) + (f - f); /* the bits of a NaN may become a number's */
}
#endif

/* To 3 units of the last place. |x| < 0.625: x + x³ P(x²), Cephes's polynomial (S. L. Moshier, tanhf.c); else
 * 1 - 2 / (e^2|x| + 1) with x's sign. */
INLINE vector tanh_vector(vector x)
{
    const vector size = largest(x, -x), square = x * x;
    vector series = splat(-5.70498872745e-3f);
    series = series * square + splat(2.06390887954e-2f);
    series = series * square - splat(5.37397155531e-2f);
    series = series * square + splat(1.33314422036e-1f);
    series = series * square - splat(3.33332819422e-1f);
    /* e^2|x| up to 2^40, where tanh is 1; `largest` lets a NaN through */
    const vector power = exp2_vector(-largest(splat(-40), -size * splat(2.88539008f))), far = 1 - 2 / (power + 1);
    return choose(size < splat(0.625f), x + x * square * series, choose(x < 0, -far, far));
}

/* ln x for normal x > 0; non-finite values stay. x = 2^n m with m between the square roots of ½ and 2; ln m = 2
 * artanh(t), t = (m - 1) / (m + 1), |t| < 0.172: its series up to t^9 omits less than 1e-9. */
INLINE vector log_vector(vector x)
{
    const vector_word root = (vector_word)splat(0.707106781f);
    const vector_bits n = (vector_bits)((vector_word)x - root) >> 23;
    vector m = (vector)((vector_word)x - ((vector_word)n << 23)), t = (m - 1) / (m + 1), square = t * t;
    vector series = splat(1 / 9.0f);
    series = series * square + splat(1 / 7.0f);
    series = series * square + splat(1 / 5.0f);
    series = series * square + splat(1 / 3.0f);
    vector logarithm = 2 * t + 2 * t * square * series;
    logarithm += splat(0.693147181f) * __builtin_convertvector(n, vector);
    return choose(x <= 3.40282347e38f, logarithm, x);
}

#endif
