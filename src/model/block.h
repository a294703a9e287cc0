/* One pre-norm transformer block: x += path(attention(norm1(x))); x += path(mlp(norm2(x))). */
#ifndef VT_MODEL_BLOCK_H
#define VT_MODEL_BLOCK_H

#include "model/attention.h"
#include "model/layer_norm.h"
#include "model/mlp.h"

typedef struct {
    vt_layer_norm norm1, norm2;
    vt_attention attention;
    vt_mlp mlp;
    int64_t dim, layer;
    double dropout, path_rate;
    vt_matrix input, middle; /* the residual stream before attention and before the MLP; [rows, dim], until backward */
} vt_block;

typedef struct {
    int64_t dim, heads;
    vt_gelu gelu;
    double dropout;
    double path_rate; /* of dropping a whole sample's branch (stochastic depth) */
} vt_block_options;

/* Registers blocks.<layer>.… */
void vt_block_build(vt_block *block, vt_parameters *parameters, int64_t layer, const vt_block_options *options);

/* output = block(x), both [rows, dim]; x must stay as it is until backward. What backward needs is pushed on the arena.
 */
void vt_block_forward(vt_block *block, const vt_pass *pass, vt_matrix x, vt_matrix output);

/* dx [rows, dim]: the gradient of the output on entry, of the input on return. */
void vt_block_backward(vt_block *block, const vt_pass *pass, vt_matrix dx);

#endif
