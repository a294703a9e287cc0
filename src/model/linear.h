/* y = x weightᵀ + bias. weight [out, in], as in torch.nn.Linear. The tensor axis (Shoeybi et al. 2019, "Megatron-LM")
 * splits it by output (column parallel: each rank computes its own columns of y) or by input (row parallel: each rank's
 * y is one summand of the result, and the first rank adds the bias). */
#ifndef VT_MODEL_LINEAR_H
#define VT_MODEL_LINEAR_H

#include "model/parameters.h"
#include "model/pass.h"

typedef struct vt_linear {
    vt_parameter *weight, *bias; /* bias NULL: none */
    int64_t in, out;             /* of this rank's part */
    bool without_bias;           /* another rank of the tensor axis adds it */
} vt_linear;

typedef enum { VT_LINEAR_WHOLE, VT_LINEAR_BY_OUTPUT, VT_LINEAR_BY_INPUT } vt_linear_split;

/* Registers prefix.weight [out, in] (normal, std 0.02) and, with_bias, prefix.bias (0). */
void vt_linear_build(vt_linear *linear, vt_parameters *parameters, const char *prefix, int64_t in, int64_t out,
                     vt_linear_split split, bool with_bias);

/* Both start uniform, in ±weight_bound and ±bias_bound. */
void vt_linear_start(vt_linear *linear, double weight_bound, double bias_bound);

/* The weight [out, in] of this rank, in the type that matrix products take. */
vt_matrix vt_linear_weight(const vt_linear *linear);

/* x [rows, in] in the pass's type, y [rows, out] in it or float32. */
void vt_linear_forward(const vt_linear *linear, const vt_pass *pass, vt_matrix x, vt_matrix y);

/* Adds to the gradients of weight and bias that are not frozen. x, dy [rows, out] as in forward, dy in the pass's type.
 * dx [rows, in] is overwritten; it is not computed if dx.data is NULL. */
void vt_linear_backward(const vt_linear *linear, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx);

#endif
