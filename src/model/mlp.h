/* fc2(dropout(GELU(fc1(x)))); the hidden layer is four times as wide. */
#ifndef VT_MODEL_MLP_H
#define VT_MODEL_MLP_H

#include "model/linear.h"

typedef struct {
    vt_linear fc1, fc2;
    vt_gelu gelu;
    int64_t layer;
    int64_t first_column; /* where this rank's columns of the hidden layer begin */
    double dropout;
} vt_mlp;

/* What forward keeps for backward. */
typedef struct {
    /* [vt_pass_inner_rows, this rank's columns]: fc1's output before GELU, and what goes into fc2 (active.data NULL: it
     * is computed again), in the arena */
    vt_matrix hidden, active;
} vt_mlp_saved;

/* Registers prefix.fc1.{weight,bias} and prefix.fc2.{weight,bias}. */
void vt_mlp_build(vt_mlp *mlp, vt_parameters *parameters, const char *prefix, int64_t layer, int64_t dim, vt_gelu gelu,
                  double dropout);

/* Pushes what forward keeps on the arena. */
vt_mlp_saved vt_mlp_reserve(const vt_mlp *mlp, const vt_pass *pass);

/* x [vt_pass_rows, dim] in the pass's type, y [vt_pass_rows, dim]; y may be x. */
void vt_mlp_forward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix y, const vt_mlp_saved *saved);

/* x as in forward; dy as x; dx [vt_pass_rows, dim] is overwritten and may be dy. */
void vt_mlp_backward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                     const vt_mlp_saved *saved);

#endif
