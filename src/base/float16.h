/* IEEE 754 half precision: 5 bits of exponent, 10 of mantissa. The largest number is 65504, the smallest normal one
 * 2^-14, subnormal ones are multiples of 2^-24. Uses the processor's instructions if the compiler may (F16C; always on
 * 64-bit ARM), otherwise the code below: both give the same bits, for a NaN, too. */
#ifndef VT_BASE_FLOAT16_H
#define VT_BASE_FLOAT16_H

#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

/* To nearest, ties to even; from 65520 on infinity. A NaN becomes quiet and keeps its upper bits. */
static inline uint16_t vt_float16_round(float value)
{
#if defined(__F16C__)
    return (uint16_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__aarch64__)
    const __fp16 half = (__fp16)value;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
#else
    const uint32_t least_normal = 0x38800000, least_infinite = 0x477ff000, infinity = 0x7f800000;
    const uint32_t other_bias = 112u << 23; /* 127 - 15 */
    uint32_t bits, sum_bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    float magnitude;
    memcpy(&magnitude, &size, sizeof magnitude);
    /* numbers near ½ are multiples of 2^-24, as subnormal halves are: the sum rounds as needed */
    float sum = magnitude + 0.5f;
    memcpy(&sum_bits, &sum, sizeof sum_bits);
    uint32_t subnormal = sum_bits - 0x3f000000;
    uint32_t normal = (size - other_bias + 0xfff + (size >> 13 & 1)) >> 13;
    uint32_t special = size > infinity ? 0x7e00 | (size >> 13 & 0x3ff) : 0x7c00;
    uint32_t finite = size < least_normal ? subnormal : normal;
    return (uint16_t)(sign | (size >= least_infinite ? special : finite));
#endif
}

static inline float vt_float16_widen(uint16_t half)
{
#if defined(__F16C__)
    return _cvtsh_ss(half);
#elif defined(__aarch64__)
    __fp16 number;
    memcpy(&number, &half, sizeof number);
    return number;
#else
    const uint32_t other_bias = 112u << 23, least_normal = 113u << 23;
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff, subnormal_bits;
    uint32_t normal = (size << 13) + other_bias;
    uint32_t special = (normal + other_bias) | (size > 0x7c00 ? 0x400000 : 0);
    float base, sum, value;
    /* 2^-14 is added and subtracted so that no subnormal float32 arises: they are slow */
    subnormal_bits = (size << 13) + least_normal;
    memcpy(&base, &least_normal, sizeof base);
    memcpy(&sum, &subnormal_bits, sizeof sum);
    sum -= base;
    memcpy(&subnormal_bits, &sum, sizeof sum);
    uint32_t finite = size < 0x400 ? subnormal_bits : normal;
    uint32_t bits = sign | (size >= 0x7c00 ? special : finite);
    memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

#endif
