/* Dropout and drop path on the device: the numbers of backend/dropout.h, eight columns at a time. */
#ifndef VT_CUDA_MASK_H
#define VT_CUDA_MASK_H

#include "elements.h"

#include "backend/dropout.h"

/* values[i] *= the mask's factor at row `row`, column `column` + i. Divides the row by the tokens of a sample only
 * once. */
__device__ static inline void vt_mask_apply(const vt_mask &mask, int64_t row, int64_t column, float values[VT_GROUP])
{
    uint32_t sample = (uint32_t)(row / mask.tokens);
    uint32_t token = (uint32_t)(mask.first_token + row % mask.tokens);
    float path = vt_dropout_sample_factor(&mask.path, mask.path.first_sample + sample);
    if (mask.elements.rate <= 0) {
        for (int i = 0; i < VT_GROUP; i++) values[i] *= path;
        return;
    }
    float keep = path / (1.0f - mask.elements.rate);
    int64_t first = mask.first_column + column;
    uint32_t quad = (uint32_t)(first / 4), words[3 * 4] = {};
    int shift = (int)(first % 4);
#pragma unroll
    for (int q = 0; q < 3; q++) {
        if (q == 2 && shift == 0) break;
        vt_random_block block =
            vt_dropout_block(&mask.elements, mask.elements.first_sample + sample, token, quad + (uint32_t)q);
        for (int i = 0; i < 4; i++) words[4 * q + i] = block.word[i];
    }
    uint32_t drawn[VT_GROUP] = {};
#pragma unroll
    for (int possible = 0; possible < 4; possible++) { /* constant indices keep `words` in registers */
        if (shift != possible) continue;
#pragma unroll
        for (int i = 0; i < VT_GROUP; i++) drawn[i] = words[possible + i];
    }
#pragma unroll
    for (int i = 0; i < VT_GROUP; i++)
        values[i] = vt_random_uniform(drawn[i]) < mask.elements.rate ? 0.0f : keep * values[i];
}

#endif
