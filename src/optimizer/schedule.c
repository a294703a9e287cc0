#include "optimizer/schedule.h"

double vt_schedule_rate(const vt_schedule *schedule, int64_t step)
{
    double factor = 1;
    if (schedule->kind == VT_SCHEDULE_COSINE) {
        int64_t x = step < schedule->length ? step : schedule->length;
        factor = 0.5 * (1 + cos(M_PI * (double)x / (double)schedule->length));
    }
    if (schedule->warmup > 0) factor = fmin(factor, (double)(step + 1) / (double)schedule->warmup);
    return schedule->rate * factor;
}
