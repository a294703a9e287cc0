/* Autoregressive rollouts, where each step takes the prediction of the step before, for one micro-batch: what the model
 * sees in each step, and the state that its output stands for. Step 0 sees the fields that were read; a later one sees
 * as its newest times what the steps before it predicted. All states are normalised. */
#ifndef VT_TASK_ROLLOUT_H
#define VT_TASK_ROLLOUT_H

#include "task/task.h"

/* A model in stages: the first one sees the fields, the last one predicts; others keep nothing. */
typedef struct {
    bool is_first, is_last;
} vt_rollout_place;

typedef struct {
    const vt_task *task;
    const vt_model *model;
    vt_backend *backend;
    vt_rollout_place place;
    int tensor_count;                       /* of a sample */
    vt_tensor_spec specs[VT_BATCH_TENSORS]; /* of a sample's tensors, as this rank has them */
    int64_t first_row;                      /* of this rank's rows of the fields */
    /* [fields]: 0, 1, -1, 1 only for the fields of a forecast that the next input holds, too, a member's share in their
     * mean, and that share minus 1; on the back end */
    float *constants[6];

    vt_model_tensor given[VT_BATCH_TENSORS];   /* what was read */
    vt_model_tensor read[VT_BATCH_TENSORS];    /* of step 0: the same, or what training made of it, for each member */
    int64_t steps, step;                       /* how many there are, and the current one: 0, 1, … */
    vt_model_tensor tensors[VT_BATCH_TENSORS]; /* of that step */
    vt_model_tensor *pieces;                   /* [times of the input + 1]: what the input consists of */
    /* [steps - 1]: what steps 0, 1, … predicted, and the gradients of that; NULL: not needed in this place */
    float **states, **gradients;
} vt_rollout;

/* Does training need the input that was read, in this place? */
bool vt_rollout_reads_input(const vt_config *config, vt_rollout_place place);

/* For rollouts of up to `most` steps of samples of these tensors, by a model whose rank has the rows `rows`. On the
 * first and the last place the states and gradients of all steps are kept, as far as they are needed there. */
vt_status vt_rollout_open(const vt_task *task, const vt_model *model, vt_backend *backend, int tensor_count,
                          const vt_tensor_spec *specs, vt_span rows, int64_t most, vt_rollout_place place,
                          vt_rollout **rollout);
void vt_rollout_close(vt_rollout **rollout);

/* For `steps` steps of the pass's samples, the first of which is sample `first` of the batch. Pushes on the arena what
 * all steps share. */
void vt_rollout_begin(vt_rollout *rollout, const vt_pass *pass, const vt_batch *batch, int64_t first, int64_t steps);

/* Makes `step` the current step; after vt_rollout_begin, too. Pushes on the arena what the step alone uses. */
void vt_rollout_step(vt_rollout *rollout, const vt_pass *pass, int64_t step);

/* In the rows and columns of the model's output: the state that this output stands for, and the target, one of each
 * sample. */
vt_matrix vt_rollout_state(const vt_rollout *rollout, const vt_pass *pass, vt_matrix output);
vt_matrix vt_rollout_target(const vt_rollout *rollout, const vt_pass *pass);

/* The mean of each sample's members, laid out as they are; of one member the state itself. */
vt_matrix vt_rollout_mean(const vt_rollout *rollout, const vt_pass *pass, vt_matrix state);

/* Keeps the state that the current step predicts, as input of later steps, and returns its fields. Pushes on the
 * arena. */
vt_matrix vt_rollout_keep(const vt_rollout *rollout, const vt_pass *pass, vt_matrix state);

/* The fields that step `step` predicted, or their gradients: [samples and channels, plane]. */
vt_matrix vt_rollout_fields(const vt_rollout *rollout, const vt_pass *pass, float *fields);

/* Where the gradient of the state is to be made: in its place, unless something still needs the state, such as loss
 * crps, or bounds; float32 with these, or if something is added to it or scales it, else of the pass's type. */
vt_matrix vt_rollout_gradient_place(const vt_rollout *rollout, const vt_pass *pass, vt_matrix state);

/* dstate: the gradient of the current step's loss with respect to its state, in that place. Adds the gradients of later
 * steps' losses; the sum is 0 where the state is at a bound. With predict: tendency the state is also the input's
 * newest state plus a change: that state's gradient is added here. Returns the gradient of the model's output, in the
 * pass's type. */
vt_matrix vt_rollout_backward(const vt_rollout *rollout, const vt_pass *pass, vt_matrix state, vt_matrix dstate);

#endif
