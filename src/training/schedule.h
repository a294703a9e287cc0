/* The schedule of a step: in which order forward and backward passes of its micro-batches are made. */
#ifndef VT_TRAINING_SCHEDULE_H
#define VT_TRAINING_SCHEDULE_H

#include <stdint.h>

typedef enum { VT_STEP_ENDS, VT_FORWARD, VT_BACKWARD } vt_action_kind;

typedef struct {
    vt_action_kind kind;
    int64_t micro_batch; /* 0, 1, … */
} vt_action;

/* Action `index` (0, 1, …) of a step of `micro_batches`; VT_STEP_ENDS behind the last one. Each micro-batch has one
 * forward, and one backward after it. */
typedef vt_action vt_step_schedule(int64_t micro_batches, int64_t index);

/* Forward and backward of each micro-batch in turn: what one rank does that has the whole model. */
vt_step_schedule vt_schedule_in_turn;

/* How many micro-batches are in flight at once, at most: between their forward and the end of their backward. */
int64_t vt_schedule_in_flight(vt_step_schedule *schedule, int64_t micro_batches);

#endif
