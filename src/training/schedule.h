/* The schedule of a step: in which order a stage of a pipeline makes the forward and backward passes of the step's
 * micro-batches. One rank with the whole model is a pipeline of one stage. Backwards run in the order 0, 1, … in every
 * schedule, so that gradients are added up alike. */
#ifndef VT_TRAINING_SCHEDULE_H
#define VT_TRAINING_SCHEDULE_H

#include "config/config.h"

typedef enum { VT_STEP_ENDS, VT_FORWARD, VT_BACKWARD } vt_action_kind;

typedef struct {
    vt_action_kind kind;
    int64_t micro_batch; /* 0, 1, … */
} vt_action;

/* What the order depends on. */
typedef struct {
    int64_t stages, stage; /* how many there are, and which one this is */
    int64_t micro_batches;
} vt_step_shape;

/* Action `index` (0, 1, …) of a step; VT_STEP_ENDS behind the last one. Each micro-batch has one forward, and one
 * backward after it. */
typedef vt_action vt_step_schedule(const vt_step_shape *shape, int64_t index);

/* 1F1B (Narayanan et al. 2021, "PipeDream-flush"): a stage makes as many forwards as there are stages behind it, then
 * a forward and a backward in turn, then the backwards that are left. On one stage: each micro-batch's forward and
 * backward. */
vt_step_schedule vt_schedule_1f1b;

/* All forwards, then all backwards (Huang et al. 2019, "GPipe"). */
vt_step_schedule vt_schedule_gpipe;

/* The one that the configuration chooses. */
vt_step_schedule *vt_schedule_of(const vt_config *config);

/* How many micro-batches are in flight at once, at most: between their forward and the end of their backward. */
int64_t vt_schedule_in_flight(vt_step_schedule *schedule, const vt_step_shape *shape);

/* The part of a step in which a stage waits, if all stages take equally long. */
double vt_schedule_idle(int64_t stages, int64_t micro_batches);

#endif
