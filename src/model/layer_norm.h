/* LayerNorm over the last dimension, with weight and bias. */
#ifndef VT_MODEL_LAYER_NORM_H
#define VT_MODEL_LAYER_NORM_H

#include "model/parameters.h"
#include "model/pass.h"

typedef struct {
    const vt_parameter *weight;
    const vt_parameter *bias;
    int64_t dim;
    float epsilon;
} vt_layer_norm;

/* What forward keeps for backward. */
typedef struct {
    float *mean, *rstd; /* [rows], in the arena */
} vt_layer_norm_saved;

void vt_layer_norm_build(vt_layer_norm *norm, vt_parameters *parameters, const char *prefix, int64_t dim,
                         float epsilon);

/* Pushes mean and rstd on the arena, before forward. */
vt_layer_norm_saved vt_layer_norm_reserve(const vt_pass *pass);

/* x [rows, dim] in float32, y [rows, dim] in the pass's type. y is not kept: backward may call this again for the same
 * y. */
void vt_layer_norm_forward(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix y,
                           const vt_layer_norm_saved *saved);

/* y = x + masked(branch), normed = norm(y): in one pass over memory where the pass is fused. All [rows, dim]; normed is
 * in the pass's type, the others are float32. */
void vt_layer_norm_residual(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix branch,
                            const vt_mask *mask, vt_matrix y, vt_matrix normed, const vt_layer_norm_saved *saved);

/* Adds the gradient of x to dx, and those of weight and bias to theirs. x as in forward; dy, dx [rows, dim] float32. */
void vt_layer_norm_backward(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                            const vt_layer_norm_saved *saved);

#endif
