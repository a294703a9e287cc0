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
} vt_block;

/* What forward keeps for backward, in the arena. */
typedef struct {
    vt_matrix input, middle, output; /* the residual stream before attention, before the MLP and behind it */
    vt_layer_norm_saved norm1, norm2;
    vt_attention_saved attention;
    vt_mlp_saved mlp;
} vt_block_saved;

typedef struct {
    int64_t dim, heads;
    vt_gelu gelu;
    double dropout;
    double path_rate; /* of dropping a whole sample's branch (stochastic depth) */
} vt_block_options;

/* Registers blocks.<layer>.… */
void vt_block_build(vt_block *block, vt_parameters *parameters, int64_t layer, const vt_block_options *options);

/* output = block(x), both [vt_pass_rows, dim] float32; both must stay as they are until backward. Pushes what backward
 * needs on the arena. */
void vt_block_forward(const vt_block *block, const vt_pass *pass, vt_matrix x, vt_matrix output, vt_block_saved *saved);

/* dx [vt_pass_rows, dim] float32: on entry the gradient of the output, on return that of the input. */
void vt_block_backward(const vt_block *block, const vt_pass *pass, vt_matrix dx, const vt_block_saved *saved);

#endif
