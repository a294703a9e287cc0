/* The update of all parameters at once by one of the kinds of optimizers, with the norm of all gradients. */
#ifndef VT_OPTIMIZER_OPTIMIZER_H
#define VT_OPTIMIZER_OPTIMIZER_H

#include "optimizer/kept.h"

typedef struct vt_optimizer vt_optimizer;

/* The optimizer that the configuration chooses. Takes the memory of its states, zeroed: of the elements that this rank
 * updates. */
vt_status vt_optimizer_open(const vt_config *config, vt_backend *backend, vt_parameters *parameters,
                            vt_optimizer **optimizer);
void vt_optimizer_close(vt_optimizer **optimizer);

/* What a step changes, in the back end's memory: the loss is added to its `losses`, dropout reads its `step`. */
vt_step_state *vt_optimizer_state(const vt_optimizer *optimizer);

/* Forgets what the kind keeps of earlier steps, as if no update had been made. The values stay. */
void vt_optimizer_restart(vt_optimizer *optimizer);

/* Step `step` (0, 1, …) begins, with this learning rate; its sums are 0. Not to be recorded. */
void vt_optimizer_begin(vt_optimizer *optimizer, int64_t step, double learning_rate);

/* Collective. Sums the squares of all gradients, and the losses, over all ranks; decides by them whether there is an
 * update, the same on every rank, and makes it: of the values that this rank keeps. Nothing is waited for: what came of
 * it stands in the state (vt_step_decide), with the first of this rank's gradients that is not finite. */
void vt_optimizer_step(vt_optimizer *optimizer);

/* What is kept beside the values. */
const vt_kept *vt_optimizer_kept(const vt_optimizer *optimizer);

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

/* Collective. The name of the first parameter that holds a NaN or Inf in what is kept at this place (-1: in its
 * values), or NULL. */
const char *vt_optimizer_first_nonfinite(vt_optimizer *optimizer, int place);

/* Collective. The same of a step's gradients, from what the ranks found in them (vt_step_state's first_nonfinite). */
const char *vt_optimizer_nonfinite_name(const vt_optimizer *optimizer, int32_t first);

#endif
