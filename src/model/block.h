/* One pre-norm transformer block: x += path(attention(norm1(x))); x += path(mlp(norm2(x))). */
#ifndef VT_MODEL_BLOCK_H
#define VT_MODEL_BLOCK_H

#include "model/attention.h"
#include "model/layer_norm.h"
#include "model/mlp.h"

typedef struct {
    const vt_config *config;
    int64_t layer;
    double path_rate; /* of dropping a whole sample's branch (stochastic depth) */
    vt_layer_norm norm1, norm2;
    vt_attention attention;
    vt_mlp mlp;
} vt_block;

/* What forward keeps for backward. */
typedef struct {
    vt_matrix input, middle; /* the residual stream before attention and before the MLP */
    vt_layer_norm_saved norm1, norm2;
    vt_matrix normed1, normed2; /* what they made; data NULL: it is computed again */
    vt_attention_saved attention;
    vt_mlp_saved mlp;
} vt_block_saved;

/* Registers blocks.<layer>.… The configuration outlives the block. */
void vt_block_build(vt_block *block, vt_parameters *parameters, int64_t layer, const vt_config *config);

/* Pushes what forward keeps on the arena. output [vt_pass_rows, dim] float32: the one that forward will be given.
 * for_backward: the stream before the MLP gets memory of its own; otherwise it is made in `output`. */
void vt_block_reserve(const vt_block *block, const vt_pass *pass, vt_matrix output, bool for_backward,
                      vt_block_saved *saved);

/* Takes the stream through the block. Its last branch is not added yet: who reads the stream next does that, into
 * `output`. The sum that the stream came with must stay as it is until backward. All matrices are [vt_pass_rows, dim];
 * `branch`, the room for both branches, is in the pass's type. */
void vt_block_forward(const vt_block *block, const vt_pass *pass, vt_residual *stream, vt_matrix output,
                      vt_matrix branch, vt_block_saved *saved);

/* Does LayerNorm's backward also write the stream's gradient in 16 bits? Not in float32, nor with dropout, which masks
 * it first. */
bool vt_pass_rounds_gradient(const vt_pass *pass, double dropout);

/* dx [vt_pass_rows, dim] float32: on entry the gradient of the output, on return that of the input. gradient and
 * room, in the pass's type, are scratch; where vt_pass_rounds_gradient says so, `gradient` always holds a rounded dx.
 */
void vt_block_backward(const vt_block *block, const vt_pass *pass, vt_matrix dx, vt_matrix gradient, vt_matrix room,
                       const vt_block_saved *saved);

#endif
