/* fc2(dropout(activation(fc1(x)))), where the activation is GELU or ReLU. */
#ifndef VT_MODEL_MLP_H
#define VT_MODEL_MLP_H

#include "model/linear.h"

typedef struct {
    int64_t layer; /* its dropout's */
    int64_t dim, hidden;
    bool relu; /* else gelu */
    vt_gelu gelu;
    double dropout;
    const char *names[2]; /* of the linear layers */
} vt_mlp_options;

typedef struct {
    vt_mlp_options options;
    vt_linear fc1, fc2;
    int64_t first_column; /* where this rank's columns of the hidden layer begin */
} vt_mlp;

/* What forward keeps for backward. */
typedef struct {
    /* [vt_pass_inner_rows, this rank's columns], in the arena: fc1's output, before GELU but after ReLU and dropout;
     * and behind GELU what goes into fc2 (active.data NULL: it is computed again) */
    vt_matrix hidden, active;
} vt_mlp_saved;

/* Registers prefix.NAME.{weight,bias} of both linear layers. */
void vt_mlp_build(vt_mlp *mlp, vt_parameters *parameters, const char *prefix, const vt_mlp_options *options);

/* Pushes what forward keeps on the arena. */
vt_mlp_saved vt_mlp_reserve(const vt_mlp *mlp, const vt_pass *pass);

/* x [vt_pass_rows, dim] in the pass's type, y [vt_pass_rows, dim]; y may be x. */
void vt_mlp_forward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix y, const vt_mlp_saved *saved);

/* x as in forward; dy as x; dx [vt_pass_rows, dim] is overwritten and may be dy. */
void vt_mlp_backward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                     const vt_mlp_saved *saved);

#endif
