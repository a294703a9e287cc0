/* LayerNorm over the last dimension, with weight and bias, and the residual stream that it reads. */
#ifndef VT_MODEL_LAYER_NORM_H
#define VT_MODEL_LAYER_NORM_H

#include "model/parameters.h"
#include "model/pass.h"

typedef struct {
    const vt_parameter *weight;
    const vt_parameter *bias;
    float epsilon;
} vt_layer_norm;

/* What forward keeps for backward. */
typedef struct {
    float *mean, *rstd; /* [rows], in the arena */
} vt_layer_norm_saved;

/* The residual stream, to which a branch may still have to be added. The LayerNorm that reads it next does that, where
 * the pass is fused in the same pass over memory; vt_residual_finish does it alone. */
typedef struct {
    vt_matrix sum;       /* [rows, dim] float32: the stream, or where x + masked(branch) goes */
    vt_matrix x, branch; /* branch.data NULL: `sum` is complete. x may be `sum` */
    vt_mask mask;
} vt_residual;

void vt_residual_finish(const vt_pass *pass, vt_residual *stream);

void vt_layer_norm_build(vt_layer_norm *norm, vt_parameters *parameters, const char *prefix, int64_t dim,
                         float epsilon);

/* Pushes mean and rstd on the arena, before forward. */
vt_layer_norm_saved vt_layer_norm_reserve(const vt_pass *pass);

/* x [rows, dim] in float32, y [rows, dim] in the pass's type. y is not kept: backward may call this again for the same
 * y. */
void vt_layer_norm_forward(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix y,
                           const vt_layer_norm_saved *saved);

/* normed [rows, dim] = norm(stream->sum), which is complete then; in the pass's type, and may be the branch. */
void vt_layer_norm_residual(const vt_layer_norm *norm, const vt_pass *pass, vt_residual *stream, vt_matrix normed,
                            const vt_layer_norm_saved *saved);

/* Adds the gradient of x to dx, and those of weight and bias to theirs. x as in forward; dy, dx [rows, dim], dx
 * float32. rounded: dx once more, in 16 bits, unless rounded.data is NULL; may be dy. */
void vt_layer_norm_backward(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                            vt_matrix rounded, const vt_layer_norm_saved *saved);

#endif
