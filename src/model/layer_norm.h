/* LayerNorm over the last dimension, eps 1e-6, with weight and bias. */
#ifndef VT_MODEL_LAYER_NORM_H
#define VT_MODEL_LAYER_NORM_H

#include "model/parameters.h"
#include "model/pass.h"

typedef struct {
    const vt_parameter *weight;
    const vt_parameter *bias;
    int64_t dim;
    float *mean, *rstd; /* [rows], in the arena, from forward to backward */
} vt_layer_norm;

void vt_layer_norm_build(vt_layer_norm *norm, vt_parameters *parameters, const char *prefix, int64_t dim);

/* Takes room for mean and rstd in the arena, before forward. */
void vt_layer_norm_reserve(vt_layer_norm *norm, const vt_pass *pass);

/* x, y [rows, dim]. May be called again in backward for the same y: nothing else is kept of it. */
void vt_layer_norm_forward(vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix y);

/* y = x + masked(branch), normed = norm(y): in one pass over memory where the pass is fused. */
void vt_layer_norm_residual(vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix branch,
                            const vt_mask *mask, vt_matrix y, vt_matrix normed);

/* Adds the gradient of x into dx. */
void vt_layer_norm_backward(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx);

#endif
