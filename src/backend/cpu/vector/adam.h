/* Adam (Kingma, Ba 2015) and AdamW (Loshchilov, Hutter 2019), a vector of numbers at a time. */
#ifndef VT_BACKEND_CPU_VECTOR_ADAM_H
#define VT_BACKEND_CPU_VECTOR_ADAM_H

#include <math.h>

#include "backend/cpu/vector/vector.h"

/* Numbers that are the same for all elements. */
typedef struct {
    float scale, beta1, beta2, rest1, rest2, epsilon, step_size, root_correction, shrink, decay;
} adam_numbers;

static inline adam_numbers adam_numbers_of(const vt_update *update, const vt_step_state *state)
{
    const bool decoupled = update->kind == VT_OPTIMIZER_AdamW;
    return (adam_numbers){.scale = state->factor,
                          .beta1 = (float)update->beta1,
                          .beta2 = (float)update->beta2,
                          .rest1 = (float)(1 - update->beta1),
                          .rest2 = (float)(1 - update->beta2),
                          .epsilon = (float)update->epsilon,
                          .step_size = (float)(state->learning_rate / state->correction1),
                          .root_correction = (float)(1 / sqrt(state->correction2)),
                          .shrink = decoupled ? (float)(state->learning_rate * update->weight_decay) : 0.0f,
                          .decay = decoupled ? 0.0f : (float)update->weight_decay};
}

/* Updates the first `count` numbers, but LANES at most, and returns their new values. */
INLINE vector update_adam(const adam_numbers *n, vector gradient, float *values, float *moment1, float *moment2,
                          int64_t count)
{
    const vector value = load_up_to(values, count), slope = n->scale * gradient + n->decay * value;
    const vector m = n->beta1 * load_up_to(moment1, count) + n->rest1 * slope;
    const vector v = n->beta2 * load_up_to(moment2, count) + n->rest2 * slope * slope;
    store_up_to(moment1, m, count);
    store_up_to(moment2, v, count);
    const vector now =
        value - n->shrink * value - n->step_size * m / (square_root(v) * n->root_correction + n->epsilon);
    store_up_to(values, now, count);
    return now;
}

#endif
