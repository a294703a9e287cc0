#include "optimizer/schedule.h"

double vt_schedule_rate(const vt_config *config, int64_t length, int64_t step)
{
    double factor = 1;
    if (config->lr_schedule == VT_SCHEDULE_COSINE) {
        int64_t x = step < length ? step : length;
        factor = 0.5 * (1 + cos(M_PI * (double)x / (double)length));
    }
    if (config->warmup > 0) factor = fmin(factor, (double)(step + 1) / (double)config->warmup);
    return vt_config_learning_rate(config) * factor;
}
