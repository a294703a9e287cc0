#include "optimizer/schedule.h"

double vt_schedule_rate(const vt_config *config, vt_schedule_length length, int64_t step)
{
    const vt_stages restarts = vt_config_restarts(config);
    double factor = 1, rate = vt_config_learning_rate(config);
    int64_t begin = 0, end = length.run, warmup = config->warmup;
    for (int i = 0; i < restarts.count; i++) {
        const int64_t restart = restarts.stages[i].epoch * length.epoch;
        if (step < restart) {
            end = restart < end ? restart : end;
            break;
        }
        begin = restart;
        rate = restarts.stages[i].value;
        warmup = config->restart_warmup;
    }
    if (config->lr_schedule == VT_SCHEDULE_COSINE) {
        const int64_t steps = end - begin, x = step < end ? step - begin : steps;
        factor = 0.5 * (1 + cos(M_PI * (double)x / (double)steps));
    }
    if (warmup > 0) factor = fmin(factor, (double)(step - begin + 1) / (double)warmup);
    return rate * factor;
}

bool vt_schedule_restarts(const vt_config *config, vt_schedule_length length, int64_t step)
{
    const vt_stages restarts = vt_config_restarts(config);
    for (int i = 0; i < restarts.count; i++)
        if (step > 0 && step == restarts.stages[i].epoch * length.epoch) return true;
    return false;
}
