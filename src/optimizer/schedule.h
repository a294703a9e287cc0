/* The learning rate of each optimizer step. */
#ifndef VT_OPTIMIZER_SCHEDULE_H
#define VT_OPTIMIZER_SCHEDULE_H

#include "config/stages.h"

typedef struct {
    int64_t run, epoch; /* optimizer steps of them */
    /* Of a run that continues: epochs that are done, and their steps, which may have been more or fewer a piece than
     * `epoch`; the step with which the schedule last began anew, -1: not known. */
    int64_t epochs_done, steps_done, begun;
} vt_schedule_length;

/* Step x = 0, 1, … since the run's start or the last of lr_restarts: rate · min((x + 1) / warmup,
 * ½ (1 + cos(π x / length))), without the parts that the configuration leaves out, length being the steps until the
 * next restart or the run's end (Loshchilov, Hutter 2017). Beyond the end the cosine stays at 0. With lr_schedule
 * parts: i = x + 1, w = warmup_steps if scaling is on and global_batch_size > base_batch_size, else 0; for i < w
 * rate · i / w, then end_lr + ½ (rate - end_lr) (1 + cos(π (i - w) / length of the run)). Where epochs done had another
 * length than those to come, restarts are in their epochs, and each cosine goes on from where it was, as the share of
 * epochs done (of steps, if it ends with num_iters): what is left of it is spread over the steps that are left. */
double vt_schedule_rate(const vt_config *config, vt_schedule_length length, int64_t step);

/* What curves show after `steps` steps: the rate of the next step, as the tutorials' scheduler leaves it; with
 * lr_schedule parts that of the last one, as their code of 2022 sets it. */
double vt_schedule_shown(const vt_config *config, vt_schedule_length length, int64_t steps);

/* Does it begin again with this step? */
bool vt_schedule_restarts(const vt_config *config, vt_schedule_length length, int64_t step);

#endif
