/* The learning rate. */
#include "optimizer/optimizer.h"

/* Steps by which the epochs done were shorter than as many of those to come. */
static int64_t shortage(vt_run_length length)
{
    return length.epochs_done * length.epoch - length.steps_done;
}

static bool ends_by_steps(const vt_config *config)
{
    return config->num_iters != VT_UNSET_INTEGER;
}

/* As the 2022 tutorial has it, with i = step + 1: the warm-up's steps count for the cosine, too, whose period is the
 * run, so that with a warm-up it doesn't reach its end. */
static double rate_by_parts(const vt_config *config, vt_run_length length, int64_t step)
{
    const double highest = vt_config_learning_rate(config), end = config->lr_schedule_end_lr, i = (double)step + 1;
    const double warmup = (double)vt_config_warmup(config);
    const double more = ends_by_steps(config) ? 0 : (double)shortage(length);
    if (i < warmup) return highest * i / warmup;
    return end + 0.5 * (highest - end) * (1 + cos(M_PI * (i + more - warmup) / ((double)length.run + more)));
}

double vt_learning_rate_shown(const vt_config *config, vt_run_length length, int64_t steps)
{
    return vt_learning_rate_at(config, length, config->lr_schedule == VT_SCHEDULE_PARTS ? steps - 1 : steps);
}

double vt_learning_rate_at(const vt_config *config, vt_run_length length, int64_t step)
{
    const vt_stages restarts = vt_config_restarts(config);
    if (config->lr_schedule == VT_SCHEDULE_PARTS) return rate_by_parts(config, length, step);
    const int64_t more = shortage(length);
    double factor = 1, rate = vt_config_learning_rate(config);
    int64_t begin = 0, end = length.run, warmup = config->warmup;
    int64_t even = -more; /* where the cosine would have begun, had all its epochs the length of those to come */
    for (int i = 0; i < restarts.count; i++) {
        const int64_t restart = restarts.stages[i].epoch * length.epoch - more;
        if (step < restart) {
            end = restart < end ? restart : end;
            break;
        }
        begin = more != 0 && restart < length.steps_done && length.begun >= 0 ? length.begun : restart;
        even = restart;
        rate = restarts.stages[i].value;
        warmup = config->restart_warmup;
    }
    if (config->lr_schedule == VT_SCHEDULE_COSINE) {
        const int64_t from = ends_by_steps(config) ? begin : even;
        const int64_t steps = end - from, x = step < end ? step - from : steps;
        factor = 0.5 * (1 + cos(M_PI * (double)x / (double)steps));
    }
    if (warmup > 0) factor = fmin(factor, (double)(step - begin + 1) / (double)warmup);
    return rate * factor;
}

bool vt_learning_rate_restarts(const vt_config *config, vt_run_length length, int64_t step)
{
    const vt_stages restarts = vt_config_restarts(config);
    for (int i = 0; i < restarts.count; i++)
        if (step > 0 && step == restarts.stages[i].epoch * length.epoch - shortage(length)) return true;
    return false;
}
