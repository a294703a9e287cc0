/* Numbers in 8 bits: the codes of Adam8bit and AdamW8bit (Dettmers et al. 2021, "8-bit Optimizers via Block-wise
 * Quantization", appendix F). A block of neighbours has one scale, its number of largest magnitude with its sign (of
 * two the positive one); x is kept as the code nearest to x / scale (of two equally near ones the lower). A block whose
 * largest magnitude is below 1e-30 is 0.
 *
 * A map's positive codes are 10^(i - 6) (0.1 + 0.9 (j + 1/2) / n), i = 0 … 6, j = 0 … n - 1, with n = 2^i in the signed
 * map, which also has their negatives, 0 and 1 (not -1), and n = 2^(i + 1) in the unsigned one, which also has 0 and 1.
 * A code is its place among them in ascending order. */
#ifndef VT_BACKEND_CODES_H
#define VT_BACKEND_CODES_H

#include <stdint.h>

#include "base/random.h" /* VT_ON_DEVICE_TOO */

enum { VT_CODES = 256, VT_CODE_DECADES = 8 };

/* Sizes at or above edge[k] have, for the last such k, the place slope[k] * size + offset[k] among 0 and the positive
 * codes, cut to a whole number, but limit[k] at most. */
typedef struct {
    float edge[VT_CODE_DECADES], slope[VT_CODE_DECADES], offset[VT_CODE_DECADES], limit[VT_CODE_DECADES];
} vt_code_lines;

typedef struct {
    float value[VT_CODES];
    int zero;            /* the code of 0 */
    vt_code_lines lines; /* a shorter way to a code, which may take the other one where two are equally near */
} vt_code_map;

/* For first moments, which have both signs, and for second moments, which have none. The same every time. */
const vt_code_map *vt_code_map_signed(void);
const vt_code_map *vt_code_map_unsigned(void);

/* The scale of a block whose largest and least numbers these are; 0: all of it is 0. */
VT_ON_DEVICE_TOO static inline float vt_code_scale(float largest, float least)
{
    const float scale = largest >= -least ? largest : least;
    return scale < 1e-30f && scale > -1e-30f ? 0.0f : scale;
}

/* The place of a size (0 … 1) among 0 and the positive codes. */
VT_ON_DEVICE_TOO static inline int vt_code_place(const vt_code_lines *lines, float size)
{
    float slope = 0, offset = 0, limit = 0, place;
    for (int k = 0; k < VT_CODE_DECADES; k++) {
        slope = size >= lines->edge[k] ? lines->slope[k] : slope;
        offset = size >= lines->edge[k] ? lines->offset[k] : offset;
        limit = size >= lines->edge[k] ? lines->limit[k] : limit;
    }
    place = slope * size + offset;
    return (int)(place < limit ? place : limit);
}

/* The code of x / scale by these lines. */
VT_ON_DEVICE_TOO static inline int vt_code_signed(const vt_code_lines *lines, float ratio)
{
    const int place = vt_code_place(lines, ratio < 0 ? -ratio : ratio);
    return ratio < 0 ? 127 - (place < 127 ? place : 127) : 127 + place;
}

/* What is more than 0 never becomes 0: its element's steps would be far too large. */
VT_ON_DEVICE_TOO static inline int vt_code_unsigned(const vt_code_lines *lines, float ratio)
{
    const int place = vt_code_place(lines, ratio);
    return ratio > 0 && place < 1 ? 1 : place;
}

/* x [count] in codes [count] and scales [⌈count / block⌉], and back: in the host's memory, without the lines. */
void vt_codes_encode(const vt_code_map *map, const float *x, int64_t count, int64_t block, uint8_t *codes,
                     float *scales);
void vt_codes_decode(const vt_code_map *map, const uint8_t *codes, const float *scales, int64_t count, int64_t block,
                     float *x);

#endif
