/* Which elements a dropout keeps: the same answer for every layout, thread and device, because it is a function of the
 * stream and the element's coordinates alone (Philox, base/random.h). */
#ifndef VT_BACKEND_DROPOUT_H
#define VT_BACKEND_DROPOUT_H

#include "backend/backend.h"
#include "base/random.h"

/* Where in a layer a dropout stands; VT_SITE_ATTENTION is for head 0, head h has VT_SITE_ATTENTION + h. */
enum {
    VT_SITE_POSITION = 0,
    VT_SITE_PROJECTION = 1,
    VT_SITE_GELU = 2,
    VT_SITE_FC2 = 3,
    VT_SITE_PATH_ATTENTION = 4,
    VT_SITE_PATH_MLP = 5,
    VT_SITE_NOISE = 6, /* of fields, whose channel is the layer */
    VT_SITE_SIGN = 7,
    VT_SITE_MEMBER = 8, /* of a forecast's noise, whose step of a rollout is the layer */
    VT_SITE_ATTENTION = 16
};

/* Uniform numbers of the four elements 4 * quad … 4 * quad + 3 of row `row` (a token, or a query) of sample `sample`
 * (position in the global batch). */
VT_ON_DEVICE_TOO static inline vt_random_block vt_dropout_block(const vt_dropout *dropout, uint32_t sample,
                                                                uint32_t row, uint32_t quad)
{
    const uint32_t key[2] = {(uint32_t)dropout->seed ^ (dropout->layer * 0x9E3779B9u),
                             (uint32_t)(dropout->seed >> 32) ^ (dropout->site * 0x85EBCA6Bu + 1)};
    const uint32_t counter[4] = {quad, row, sample, *dropout->step};
    return vt_random_philox(key, counter);
}

/* What an element of row `row`, column `column` is multiplied by: 0, or 1 / (1 - rate). */
VT_ON_DEVICE_TOO static inline float vt_dropout_factor(const vt_dropout *dropout, uint32_t sample, uint32_t row,
                                                       uint32_t column)
{
    vt_random_block block = vt_dropout_block(dropout, sample, row, column / 4);
    return vt_random_uniform(block.word[column % 4]) < dropout->rate ? 0.0f : 1.0f / (1.0f - dropout->rate);
}

/* What a whole sample is multiplied by. */
VT_ON_DEVICE_TOO static inline float vt_dropout_sample_factor(const vt_dropout *dropout, uint32_t sample)
{
    return dropout->rate > 0 ? vt_dropout_factor(dropout, sample, 0, 0) : 1.0f;
}

VT_ON_DEVICE_TOO static inline vt_random_block vt_disturbance_block(const vt_disturbance *how, const uint32_t *step,
                                                                    uint32_t site, uint32_t channel, uint32_t sample,
                                                                    uint32_t row, uint32_t quad)
{
    const vt_dropout stream = {0, how->seed, step, channel, site, 0};
    return vt_dropout_block(&stream, sample, row, quad);
}

/* What the fields of a sample (position in the global batch) are multiplied by: -1 or 1. */
VT_ON_DEVICE_TOO static inline float vt_disturbed_sign(const vt_disturbance *how, const uint32_t *step, uint32_t sample)
{
    const vt_random_block block = vt_disturbance_block(how, step, VT_SITE_SIGN, 0, sample, 0, 0);
    return how->flips && vt_random_uniform(block.word[0]) < 0.5f ? -1.0f : 1.0f;
}

/* Standard normal numbers 4 * quad … 4 * quad + 3 of a row of the noise: of its token, or of the whole row. */
#define VT_NOISE_WHOLE UINT32_MAX
VT_ON_DEVICE_TOO static inline void vt_noise_normals(const vt_noise *how, const uint32_t *step, const uint32_t *keys,
                                                     int64_t row, uint32_t token, uint32_t quad, float normals[4])
{
    const vt_dropout stream = {
        0, how->seed, keys != NULL ? &keys[2 * row + 1] : step, how->rollout_step, VT_SITE_MEMBER, 0};
    const uint32_t name = keys != NULL ? keys[2 * row] : how->first_row + (uint32_t)row;
    vt_random_normals(vt_dropout_block(&stream, name, token, quad), normals);
}

/* Standard normal numbers of columns 4 * quad … 4 * quad + 3 of a row of the whole field. */
VT_ON_DEVICE_TOO static inline void vt_disturbed_noise(const vt_disturbance *how, const uint32_t *step, uint32_t sample,
                                                       uint32_t channel, uint32_t row, uint32_t quad, float normals[4])
{
    vt_random_normals(vt_disturbance_block(how, step, VT_SITE_NOISE, channel, sample, row, quad), normals);
}

#endif
