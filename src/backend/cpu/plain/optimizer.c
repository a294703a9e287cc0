#include "backend/codes.h"
#include "backend/cpu/cpu.h"
#include "backend/step_state.h"

/* Partial sums over runs of this many elements, added in order: the same bits for any number of threads. */
enum { RUN = 4096 };

void vt_plain_sum_of_squares(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    double total = 0;
    int64_t runs = (count + RUN - 1) / RUN;
#pragma omp parallel for ordered schedule(static, 1)
    for (int64_t run = 0; run < runs; run++) {
        int64_t end = (run + 1) * RUN < count ? (run + 1) * RUN : count;
        double sum = 0;
        for (int64_t i = run * RUN; i < end; i++) sum += (double)x[i] * (double)x[i];
#pragma omp ordered
        total += sum;
    }
    *result += weight * total;
}

void vt_plain_first_nonfinite(vt_backend *backend, const float *x, const int64_t *ranges, int64_t count,
                              const double *figure, int32_t *first)
{
    int64_t least = count;
    if (figure == NULL || !isfinite(*figure)) {
#pragma omp parallel for schedule(dynamic) reduction(min : least)
        for (int64_t i = 0; i < count; i++) {
            const float *begin = x + ranges[2 * i], *end = begin + ranges[2 * i + 1];
            while (begin < end && isfinite(*begin)) begin++;
            if (begin < end && i < least) least = i;
        }
    }
    *first = (int32_t)least;
}

void vt_plain_step_decide(vt_backend *backend, const vt_update *update, vt_step_state *state)
{
    vt_step_decide(update, state);
}

/* Kingma, Ba 2015, algorithm 1; AdamW: Loshchilov, Hutter 2019, algorithm 2. */
static void update_adam(const vt_update *update, const vt_step_state *state, const float *gradients, float *parameters,
                        float *moment1, float *moment2, int64_t count)
{
    const double correction1 = state->correction1, correction2 = state->correction2, rate = state->learning_rate;
    const float scale = state->factor;
    bool decoupled = update->kind == VT_OPTIMIZER_AdamW;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        double parameter = (double)parameters[i], gradient = (double)scale * (double)gradients[i];
        if (decoupled)
            parameter -= rate * update->weight_decay * parameter;
        else
            gradient += update->weight_decay * parameter;
        double m = update->beta1 * (double)moment1[i] + (1 - update->beta1) * gradient;
        double v = update->beta2 * (double)moment2[i] + (1 - update->beta2) * gradient * gradient;
        double step = m / correction1 / (sqrt(v / correction2) + update->epsilon);
        moment1[i] = (float)m;
        moment2[i] = (float)v;
        parameters[i] = (float)(parameter - rate * step);
    }
}

/* torch.optim.SGD: the momentum buffer accumulates gradients without damping. Without momentum there is none. */
static void update_sgd(const vt_update *update, const vt_step_state *state, const float *gradients, float *parameters,
                       float *momentum, int64_t count)
{
    const double rate = state->learning_rate;
    const float scale = state->factor;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        double parameter = (double)parameters[i];
        double gradient = (double)scale * (double)gradients[i] + update->weight_decay * parameter;
        double velocity = gradient;
        if (update->beta1 > 0) {
            velocity = update->beta1 * (double)momentum[i] + gradient;
            momentum[i] = (float)velocity;
        }
        if (update->nesterov) velocity = gradient + update->beta1 * velocity;
        parameters[i] = (float)(parameter - rate * velocity);
    }
}

void vt_plain_update(vt_backend *backend, const vt_update *update, const vt_step_state *state, const float *gradients,
                     float *parameters, uint16_t *rounded, float *moment1, float *moment2, int64_t count)
{
    if (isnan(state->factor)) return;
    if (update->kind == VT_OPTIMIZER_SGD)
        update_sgd(update, state, gradients, parameters, moment1, count);
    else
        update_adam(update, state, gradients, parameters, moment1, moment2, count);
    vt_cpu_round_values(update, parameters, rounded, count);
}

void vt_plain_update_in_codes(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                              const float *gradients, float *parameters, uint16_t *rounded, uint8_t *moment1,
                              float *scale1, uint8_t *moment2, float *scale2, int64_t count)
{
    const vt_code_map *first = vt_code_map_signed(), *second = vt_code_map_unsigned();
    if (isnan(state->factor)) return;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < vt_update_blocks(update, count); b++) {
        const int64_t begin = b * update->block, rest = count - begin;
        const int64_t length = rest < update->block ? rest : update->block;
        float m[length], v[length];
        vt_codes_decode(first, moment1 + begin, &scale1[b], length, length, m);
        vt_codes_decode(second, moment2 + begin, &scale2[b], length, length, v);
        update_adam(update, state, gradients + begin, parameters + begin, m, v, length);
        vt_codes_encode(first, m, length, length, moment1 + begin, &scale1[b]);
        vt_codes_encode(second, v, length, length, moment2 + begin, &scale2[b]);
    }
    vt_cpu_round_values(update, parameters, rounded, count);
}

void vt_plain_muon_momentum(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                            const float *gradients, float *moment, float *x, int64_t count)
{
    const float factor = state->factor, keep = (float)update->momentum, rest = (float)(1 - update->momentum);
    if (isnan(factor)) return;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) {
        const float gradient = factor * gradients[i], m = moment[i] + rest * (gradient - moment[i]);
        moment[i] = m;
        x[i] = update->nesterov ? gradient + keep * (m - gradient) : m;
    }
}

void vt_plain_muon_apply(vt_backend *backend, const vt_update *update, const vt_step_state *state, double scale,
                         const float *x, float *values, uint16_t *rounded, int64_t count)
{
    const float shrink = (float)(1 - state->learning_rate * update->weight_decay);
    const float step = (float)(state->learning_rate * scale);
    if (isnan(state->factor)) return;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) values[i] = values[i] * shrink - step * x[i];
    vt_cpu_round_values(update, values, rounded, count);
}

void vt_plain_divide_by_norm(vt_backend *backend, const double *squares, float least, float *x, int64_t count)
{
    const double norm = sqrt(*squares);
    const float factor = (float)(1 / (norm > (double)least ? norm : (double)least));
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) x[i] *= factor;
}

void vt_plain_combine(vt_backend *backend, float a, const float *x, float b, const float *z, float *y, int64_t count)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = a * x[i] + b * z[i];
}

void vt_plain_average(vt_backend *backend, double decay, bool warms_up, const vt_step_state *state, const float *values,
                      float *average, int64_t count)
{
    if (isnan(state->factor)) return;
    const float share = vt_average_share(decay, warms_up, state);
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++)
        average[i] = share == 1 ? values[i] : average[i] + share * (values[i] - average[i]);
}

void vt_plain_exchange(vt_backend *backend, float *a, float *b, int64_t count)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) {
        const float value = a[i];
        a[i] = b[i];
        b[i] = value;
    }
}
