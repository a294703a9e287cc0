/* The update of all parameters at once by one of the kinds of optimizers, with the norm of all gradients; what an
 * optimizer keeps beside the values; and the learning rate of each step. */
#ifndef VT_OPTIMIZER_OPTIMIZER_H
#define VT_OPTIMIZER_OPTIMIZER_H

#include "config/stages.h"
#include "optimizer/kinds.h"

/* ---- what an optimizer keeps beside the values, on this rank (kept.c) ---- */

/* What is kept of a parameter at one place. In the host's memory it is float32, whatever its form is. */
typedef struct {
    vt_kept_form form;
    vt_piece piece; /* of the parameter; `offset` of the block VT_BLOCK_MOMENTS. Of rows and columns: all of them */
    vt_kept_memory memory; /* of the piece, the back end's */
} vt_kept_part;

/* What all parameters keep under one name. */
typedef struct {
    const vt_optimizer_state_kind *state; /* NULL: nothing is kept here */
    vt_kept_part *parts;                  /* [parameter] */
    bool is_block;                        /* numbers of all that are trained, laid out as block VT_BLOCK_MOMENTS */
    int64_t number_count, code_count;
    vt_kept_memory memory; /* of all parts */
} vt_kept_place;

/* The places are the states of the optimizer's kind, and the average of the values. Only kept.c changes it. */
typedef struct {
    vt_backend *backend;
    const vt_parameters *parameters;
    int64_t code_block;
    vt_kept_place places[VT_KEPT_PLACES];
    /* In the back end's memory, for vt_kept_first_nonfinite: */
    int64_t *ranges; /* [parameter, 2] */
    int32_t *found;
} vt_kept;

/* Takes the memory, zeroed, for the optimizer that the configuration chooses. */
vt_status vt_kept_open(const vt_config *config, vt_backend *backend, const vt_parameters *parameters, vt_kept **kept);
void vt_kept_close(vt_kept **kept);

static inline bool vt_kept_averages(const vt_kept *kept)
{
    return kept->places[VT_KEPT_AVERAGE].state != NULL;
}

/* host [piece.count] = the part, and host is returned; and the part = host. */
const float *vt_kept_fetch(const vt_kept *kept, const vt_kept_part *part, float *host);
void vt_kept_put(const vt_kept *kept, const vt_kept_part *part, const float *host);

/* The part as it lies in memory, in `bytes`, a multiple of 4: a copy of it in host memory, which is whole once the back
 * end has done what was asked for so far; and later, in any thread, its numbers: in the copy itself, or decoded into
 * `room` [piece.count]. */
size_t vt_kept_raw_bytes(const vt_kept *kept, const vt_kept_part *part);
void vt_kept_copy_raw(const vt_kept *kept, const vt_kept_part *part, void *raw);
const float *vt_kept_decode(const vt_kept *kept, const vt_kept_part *part, const void *raw, float *room);

/* The index of the first parameter that holds a NaN or Inf at this place (-1: in its values), or the number of
 * parameters. */
int32_t vt_kept_first_nonfinite(const vt_kept *kept, int place);

/* All states, but not the average, become 0. */
void vt_kept_clear(const vt_kept *kept);

/* ---- the optimizer ---- */

/* Only optimizer.c changes it, and kinds their whole.memory. */
struct vt_optimizer {
    const vt_config *config;
    const vt_optimizer_kind *kind;
    vt_update rule;
    vt_backend *backend;
    vt_parameters *parameters;
    vt_kept *kept;            /* beside the values */
    vt_optimizer_span *spans; /* [span_count]: what this rank updates, but for `whole` */
    int64_t span_count;
    vt_whole whole;  /* tensors that are updated as wholes */
    vt_group *world; /* all ranks, over the back end's memory */
    /* What a step changes, in the back end's memory, as the rest is: the loss is added to its `losses`, dropout reads
     * its `step`. */
    vt_step_state *state;
    vt_step_state *begun; /* [BEGUN], for steps in turn: what a step begins with, on the host */
    int64_t *ranges;      /* offset and length of each parameter among the gradients */
};

/* The optimizer that the configuration chooses. Takes the memory of its states, zeroed: of the elements that this rank
 * updates. */
vt_status vt_optimizer_open(const vt_config *config, vt_backend *backend, vt_parameters *parameters,
                            vt_optimizer **optimizer);
void vt_optimizer_close(vt_optimizer **optimizer);

/* Forgets what the kind keeps of earlier steps, as if no update had been made. The values stay. */
void vt_optimizer_restart(vt_optimizer *optimizer);

/* Step `step` (0, 1, …) begins, with this learning rate; its sums are 0. Not to be recorded. */
void vt_optimizer_begin(vt_optimizer *optimizer, int64_t step, double learning_rate);

/* Collective. Sums the squares of all gradients, and the losses, over all ranks; decides by them whether there is an
 * update, the same on every rank, and makes it: of the values that this rank keeps. Nothing is waited for: what came of
 * it stands in the state (vt_step_decide), with the first of this rank's gradients that is not finite. */
void vt_optimizer_step(vt_optimizer *optimizer);

/* The average of the values (ema_decay): e is the values after the first update, and then
 * e += (1 - decay) (values - e) after each. Here it begins as the values are now: they were set, not updated. Without
 * an average nothing happens. */
void vt_optimizer_average_begin(vt_optimizer *optimizer);

/* The same between two steps, as if no update had been averaged. */
void vt_optimizer_average_restart(vt_optimizer *optimizer);

/* Average and values change places, of what this rank keeps; once more: they are back, to the bit. The caller tells the
 * gradient_sync that the values have changed. */
void vt_optimizer_average_exchange(vt_optimizer *optimizer);

/* What else a checkpoint keeps. The bias correction depends on the updates made so far. */
typedef struct {
    int64_t updates;
    double loss_scale; /* 0: of a run without one */
    int64_t clean_steps;
    int64_t tolerated; /* overflows until the loss scale is halved; 0: as many as the configuration says */
    int64_t averaged;  /* updates since the average began */
} vt_optimizer_progress;
vt_optimizer_progress vt_optimizer_progress_of(const vt_optimizer *optimizer);
void vt_optimizer_set_progress(vt_optimizer *optimizer, const vt_optimizer_progress *progress);

/* Collective. The name of the first parameter that holds a NaN or Inf, or NULL. first: what this rank has found, in
 * what is kept (vt_kept_first_nonfinite) or in a step's gradients (vt_step_state). */
const char *vt_optimizer_nonfinite_name(const vt_optimizer *optimizer, int32_t first);

/* ---- the learning rate of each optimizer step (learning_rate.c) ---- */

typedef struct {
    int64_t run, epoch; /* optimizer steps of them */
    /* Of a run that continues: epochs that are done, and their steps, which may have been more or fewer a piece than
     * `epoch`; the step with which the schedule last began anew, -1: not known. */
    int64_t epochs_done, steps_done, begun;
} vt_run_length;

/* Step x = 0, 1, … since the run's start or the last of lr_restarts: rate · min((x + 1) / warmup,
 * ½ (1 + cos(π x / length))), without the parts that the configuration leaves out, length being the steps until the
 * next restart or the run's end (Loshchilov, Hutter 2017). Beyond the end the cosine stays at 0. With lr_schedule
 * parts: i = x + 1, w = warmup_steps if scaling is on and global_batch_size > base_batch_size, else 0; for i < w
 * rate · i / w, then end_lr + ½ (rate - end_lr) (1 + cos(π (i - w) / length of the run)). Where epochs done had another
 * length than those to come, restarts are in their epochs, and each cosine goes on from where it was, as the share of
 * epochs done (of steps, if it ends with num_iters): what is left of it is spread over the steps that are left. */
double vt_learning_rate_at(const vt_config *config, vt_run_length length, int64_t step);

/* What curves show after `steps` steps: the rate of the next step, as the tutorials' scheduler leaves it; with
 * lr_schedule parts that of the last one, as their code of 2022 sets it. */
double vt_learning_rate_shown(const vt_config *config, vt_run_length length, int64_t steps);

/* Does it begin again with this step? */
bool vt_learning_rate_restarts(const vt_config *config, vt_run_length length, int64_t step);

#endif
