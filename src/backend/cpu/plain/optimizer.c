#include "backend/cpu/cpu.h"

/* Partial sums over runs of this many elements, added in order: the same bits for any number of threads. */
enum { RUN = 4096 };

static void sum_of_squares(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    (void)backend;
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

static void clip_scale(vt_backend *backend, const double *squares, double maximum, float *scale)
{
    (void)backend;
    if (!isfinite(*squares)) {
        *scale = NAN;
        return;
    }
    double ratio = maximum / (sqrt(*squares) + 1e-6);
    *scale = ratio < 1 ? (float)ratio : 1.0f;
}

/* Kingma, Ba 2015, algorithm 1; AdamW: Loshchilov, Hutter 2019, algorithm 2. */
static void update_adam(const vt_update *update, float scale, const float *gradients, float *parameters, float *moment1,
                        float *moment2, int64_t count)
{
    double correction1 = 1 - pow(update->beta1, (double)update->step);
    double correction2 = 1 - pow(update->beta2, (double)update->step);
    bool decoupled = update->kind == VT_OPTIMIZER_ADAMW;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        double parameter = (double)parameters[i], gradient = (double)scale * (double)gradients[i];
        if (decoupled)
            parameter -= update->learning_rate * update->weight_decay * parameter;
        else
            gradient += update->weight_decay * parameter;
        double m = update->beta1 * (double)moment1[i] + (1 - update->beta1) * gradient;
        double v = update->beta2 * (double)moment2[i] + (1 - update->beta2) * gradient * gradient;
        double step = m / correction1 / (sqrt(v / correction2) + update->epsilon);
        moment1[i] = (float)m;
        moment2[i] = (float)v;
        parameters[i] = (float)(parameter - update->learning_rate * step);
    }
}

/* torch.optim.SGD: the momentum buffer adds up gradients without damping. */
static void update_sgd(const vt_update *update, float scale, const float *gradients, float *parameters, float *momentum,
                       int64_t count)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        double parameter = (double)parameters[i];
        double gradient = (double)scale * (double)gradients[i] + update->weight_decay * parameter;
        double velocity = update->beta1 * (double)momentum[i] + gradient;
        momentum[i] = (float)velocity;
        parameters[i] = (float)(parameter - update->learning_rate * velocity);
    }
}

static void update_parameters(vt_backend *backend, const vt_update *update, const float *scale, const float *gradients,
                              float *parameters, float *moment1, float *moment2, int64_t count)
{
    (void)backend;
    if (isnan(*scale)) return;
    if (update->kind == VT_OPTIMIZER_SGD)
        update_sgd(update, *scale, gradients, parameters, moment1, count);
    else
        update_adam(update, *scale, gradients, parameters, moment1, moment2, count);
}

void vt_plain_optimizer_fill(vt_backend *backend)
{
    backend->sum_of_squares = sum_of_squares;
    backend->clip_scale = clip_scale;
    backend->update = update_parameters;
}
