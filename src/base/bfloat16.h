/* bfloat16: the upper 16 bits of a float32. */
#ifndef VT_BASE_BFLOAT16_H
#define VT_BASE_BFLOAT16_H

#include <stdint.h>
#include <string.h>

/* To nearest, ties to even; a NaN stays NaN. */
static inline uint16_t vt_bfloat16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(value != value ? bits >> 16 | 0x40 : rounded);
}

static inline float vt_bfloat16_widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
