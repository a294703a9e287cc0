#include <math.h>

#include "backend/cpu/vector/vector.h"

/* Sums are taken over a fixed number of runs, then over the runs in order: the same bits for any number of threads. */
static void sum_of_squares(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    (void)backend;
    enum { RUNS = 256, SUMS = 32 }; /* so many sums that none waits for the one before */
    double partial[RUNS] = {0};
    int64_t length = (count + RUNS - 1) / RUNS;
#pragma omp parallel for schedule(static)
    for (int64_t run = 0; run < RUNS; run++) {
        int64_t end = (run + 1) * length < count ? (run + 1) * length : count;
        int64_t i = run * length;
        double sum[SUMS] = {0};
        for (; i + SUMS <= end; i += SUMS)
#pragma GCC unroll 32
            for (int j = 0; j < SUMS; j++) sum[j] += (double)x[i + j] * (double)x[i + j];
        for (; i < end; i++) sum[0] += (double)x[i] * (double)x[i];
        for (int j = 0; j < SUMS; j++) partial[run] += sum[j];
    }
    double total = 0;
    for (int run = 0; run < RUNS; run++) total += partial[run];
    *result += weight * total;
}

static void update_adam(const vt_update *update, const vt_step_state *state, const float *gradients, float *parameters,
                        float *moment1, float *moment2, int64_t count)
{
    float scale = state->factor;
    float beta1 = (float)update->beta1, beta2 = (float)update->beta2, epsilon = (float)update->epsilon;
    float rest1 = (float)(1 - update->beta1), rest2 = (float)(1 - update->beta2);
    float step_size = (float)(state->learning_rate / state->correction1);
    float root_correction = (float)(1 / sqrt(state->correction2));
    bool decoupled = update->kind == VT_OPTIMIZER_AdamW;
    float shrink = decoupled ? (float)(state->learning_rate * update->weight_decay) : 0.0f;
    float decay = decoupled ? 0.0f : (float)update->weight_decay;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float parameter = parameters[i], gradient = scale * gradients[i] + decay * parameter;
        float m = beta1 * moment1[i] + rest1 * gradient;
        float v = beta2 * moment2[i] + rest2 * gradient * gradient;
        moment1[i] = m;
        moment2[i] = v;
        parameters[i] = parameter - shrink * parameter - step_size * m / (sqrtf(v) * root_correction + epsilon);
    }
}

static void update_sgd(const vt_update *update, const vt_step_state *state, const float *gradients, float *parameters,
                       float *momentum, int64_t count)
{
    float scale = state->factor, rate = (float)state->learning_rate, decay = (float)update->weight_decay,
          keep = (float)update->beta1;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float velocity = keep * momentum[i] + scale * gradients[i] + decay * parameters[i];
        momentum[i] = velocity;
        parameters[i] -= rate * velocity;
    }
}

/* Without momentum, or with Nesterov's. */
static void update_sgd_otherwise(const vt_update *update, const vt_step_state *state, const float *gradients,
                                 float *parameters, float *momentum, int64_t count)
{
    const float scale = state->factor, rate = (float)state->learning_rate, decay = (float)update->weight_decay,
                keep = (float)update->beta1;
    const bool has_momentum = update->beta1 > 0;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float step = scale * gradients[i] + decay * parameters[i];
        if (has_momentum) {
            const float velocity = keep * momentum[i] + step;
            momentum[i] = velocity;
            step += keep * velocity;
        }
        parameters[i] -= rate * step;
    }
}

static void update_parameters(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                              const float *gradients, float *parameters, float *moment1, float *moment2, int64_t count)
{
    (void)backend;
    if (isnan(state->factor)) return;
    if (update->kind == VT_OPTIMIZER_SGD && (update->nesterov || update->beta1 == 0))
        update_sgd_otherwise(update, state, gradients, parameters, moment1, count);
    else if (update->kind == VT_OPTIMIZER_SGD)
        update_sgd(update, state, gradients, parameters, moment1, count);
    else
        update_adam(update, state, gradients, parameters, moment1, moment2, count);
}

void VT_KERNEL(vt_vector_optimizer_fill)(vt_backend *backend)
{
    backend->sum_of_squares = sum_of_squares;
    backend->update = update_parameters;
}
