/* y = x weightᵀ + bias. weight [out, in], as torch.nn.Linear. */
#ifndef VT_MODEL_LINEAR_H
#define VT_MODEL_LINEAR_H

#include "model/parameters.h"
#include "model/pass.h"

typedef struct {
    const vt_parameter *weight;
    const vt_parameter *bias; /* NULL: none */
    int64_t in, out;
} vt_linear;

/* Registers prefix.weight (normal, std 0.02) and, with_bias, prefix.bias (0). */
void vt_linear_build(vt_linear *linear, vt_parameters *parameters, const char *prefix, int64_t in, int64_t out,
                     bool with_bias);

/* The weight [out, in], in the type that products take. */
vt_matrix vt_linear_weight(const vt_linear *linear);

/* x [rows, in] to y [rows, out]. */
void vt_linear_forward(const vt_linear *linear, const vt_pass *pass, vt_matrix x, vt_matrix y);

/* Adds to the parameters' gradients; dx [rows, in] is overwritten, unless dx.data is NULL. */
void vt_linear_backward(const vt_linear *linear, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx);

#endif
