/* Adam, AdamW or SGD with momentum over all parameters at once, with the norm of all gradients. */
#ifndef VT_OPTIMIZER_OPTIMIZER_H
#define VT_OPTIMIZER_OPTIMIZER_H

#include "model/parameters.h"

typedef struct vt_optimizer vt_optimizer;

typedef struct {
    vt_optimizer_kind kind;
    double weight_decay;
    double gradient_clip; /* largest norm of all gradients together; INFINITY: no clipping */
} vt_optimizer_options;

/* Takes the moments (none of the second kind for SGD), zeroed: of the elements that this rank updates. */
vt_status vt_optimizer_open(const vt_optimizer_options *options, vt_backend *backend, vt_parameters *parameters,
                            vt_optimizer **optimizer);
void vt_optimizer_close(vt_optimizer **optimizer);

/* Collective. One update, with this learning rate, of the values that this rank keeps. *gradient_norm gets the norm of
 * all gradients of the model before clipping, the same on every rank. When it is not finite nothing is updated or
 * counted, and the caller decides. */
void vt_optimizer_step(vt_optimizer *optimizer, double learning_rate, double *gradient_norm);

/* What a checkpoint keeps. Moment 0 or 1, a block that is sliced from ZeRO stage 1 on (vt_parameters_piece), in the
 * back end's memory; NULL: there is none of that kind. The updates made so far rule the bias correction. */
float *vt_optimizer_moment(const vt_optimizer *optimizer, int index);
int64_t vt_optimizer_steps(const vt_optimizer *optimizer);
void vt_optimizer_set_steps(vt_optimizer *optimizer, int64_t steps);

/* Collective. The name of the first parameter that holds a NaN or Inf in this block, or NULL. */
typedef enum { VT_OF_GRADIENTS, VT_OF_VALUES, VT_OF_MOMENT1, VT_OF_MOMENT2 } vt_optimizer_block;
const char *vt_optimizer_first_nonfinite(vt_optimizer *optimizer, vt_optimizer_block block);

#endif
