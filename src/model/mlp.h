/* fc2(dropout(GELU(fc1(x)))), four times as wide inside. */
#ifndef VT_MODEL_MLP_H
#define VT_MODEL_MLP_H

#include "model/linear.h"

typedef struct {
    vt_linear fc1, fc2;
    vt_gelu gelu;
    int64_t layer;
    int64_t first_column; /* of the hidden layer, this rank's */
    double dropout;
    vt_matrix
        hidden; /* [rows, this rank's columns]: fc1's output before GELU, in the arena, from forward to backward */
} vt_mlp;

/* Registers prefix.fc1.{weight,bias} and prefix.fc2.{weight,bias}. */
void vt_mlp_build(vt_mlp *mlp, vt_parameters *parameters, const char *prefix, int64_t layer, int64_t dim, vt_gelu gelu,
                  double dropout);

void vt_mlp_reserve(vt_mlp *mlp, const vt_pass *pass);

/* x, y [rows, dim]; y may be x. */
void vt_mlp_forward(vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix y);

/* x as in forward; dx [rows, dim] is overwritten and may be dy. GELU's output is computed once more, not kept. */
void vt_mlp_backward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx);

#endif
