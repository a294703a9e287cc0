/* The schedule of a step: in which order a stage of a pipeline makes the forward and backward passes of the step's
 * micro-batches. One rank with the whole model is a pipeline of one stage. Backwards run in the order 0, 1, … in every
 * schedule, so that gradients are added up alike.
 *
 * Trained over several steps of forecast (rollout), a micro-batch goes through the stages once for each of them: what
 * the last stage predicts goes back to the first, as its next input, and in backward the gradient of that input goes
 * from the first stage to the last. All micro-batches make the first step of forecast, then all the second, and so on,
 * so that no stage waits as long as there are as many of them as stages. Backward begins with the last step of
 * forecast; that of an earlier one computes its forward again. On one stage a micro-batch's backwards end before the
 * next one begins. */
#ifndef VT_TRAINING_SCHEDULE_H
#define VT_TRAINING_SCHEDULE_H

#include "config/config.h"

typedef enum {
    VT_STEP_ENDS,
    VT_PREDICT, /* a forward of which the prediction alone is kept */
    VT_FORWARD, /* one of which backward's needs are kept */
    VT_BACKWARD
} vt_action_kind;

typedef struct {
    vt_action_kind kind;
    int64_t micro_batch; /* 0, 1, … */
    int64_t step;        /* of the forecast: 0, 1, … */
    /* Of the messages between the ends of the pipeline, so many have to be taken before: forecasts on the first stage,
     * gradients on the last, in the order of the passes that they come from. All are taken as soon as the order allows,
     * since a stage whose last message is still on its way can't go on. */
    int64_t taken;
} vt_action;

/* What the order depends on. */
typedef struct {
    int64_t stages, stage; /* how many there are, and which one this is */
    int64_t micro_batches;
    int64_t rollout; /* steps of forecast; 0: 1 */
    bool last_alone; /* only the last of them has a backward (rollout_gradient: last) */
    /* False: 1F1B (Narayanan et al. 2021, "PipeDream-flush"): a stage makes as many forwards as there are stages behind
     * it, then a forward and a backward in turn, then the backwards that are left. On one stage: each micro-batch's
     * forward and backward. True: all forwards, then all backwards (Huang et al. 2019, "GPipe"); of a rollout, for each
     * step of forecast. */
    bool gpipe;
} vt_step_shape;

/* Action `index` (0, 1, …) of a step; VT_STEP_ENDS behind the last one. */
vt_action vt_schedule_action(const vt_step_shape *shape, int64_t index);

/* The shape of a step over `rollout` steps of forecast; of this stage. */
vt_step_shape vt_schedule_shape(const vt_config *config, int64_t stage, int64_t rollout);

/* How many passes a stage makes, and how many messages go from the last stage to the first, and back. */
typedef struct {
    int64_t micro_batches, forwards, backwards, forecasts, gradients;
} vt_step_counts;

vt_step_counts vt_schedule_counts(const vt_step_shape *shape);

/* The micro-batch and step of forecast whose prediction (VT_PREDICT) is message `index` (0, 1, …) of the forecasts, or
 * whose gradient (VT_BACKWARD) is that of the gradients. */
vt_action vt_schedule_message(const vt_step_shape *shape, vt_action_kind kind, int64_t index);

/* How many micro-batches are in flight at once, at most: between their forward and the end of their backward. */
int64_t vt_schedule_in_flight(const vt_step_shape *shape);

/* How many micro-batches, at most, have begun their first pass and not ended their last. */
int64_t vt_schedule_begun(const vt_step_shape *shape);

/* How long a stage waits in a step, in the time that all passes of one micro-batch take it, if all stages take equally
 * long and a backward takes as long as two forwards: stages - 1 without a rollout. And the part of the step that this
 * is. */
double vt_schedule_bubble(const vt_step_shape *shape);
double vt_schedule_idle(const vt_step_shape *shape);

#endif
