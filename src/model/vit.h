/* The vision transformer (Dosovitskiy et al. 2021) that maps fields to fields: patch embedding, position, blocks, norm,
 * head. Names and shapes of the parameters are those of the tutorials' PyTorch state_dict. */
#ifndef VT_MODEL_VIT_H
#define VT_MODEL_VIT_H

#include "model/block.h"

typedef struct {
    int64_t height, width, patch;
    int64_t in_channels, out_channels;
    int64_t dim, depth, heads;
    vt_gelu gelu;
    double dropout;
    bool recompute; /* keep only each block's input, and compute the rest of it once more in backward (Chen et al. 2016,
                     * "Training deep nets with sublinear memory cost") */
} vt_vit_options;

/* The input of a pass: fields [batch, in_channels, height, width] in the file's units, and what normalises them. All in
 * the back end's memory, and unchanged until backward. */
typedef struct {
    const float *fields;
    const float *mean, *inverse_std; /* [in_channels] */
} vt_vit_input;

typedef struct vt_vit vt_vit;

/* Registers all parameters; the caller allocates the registry. */
vt_status vt_vit_open(const vt_vit_options *options, vt_parameters *parameters, vt_vit **model);
void vt_vit_close(vt_vit **model);

/* The grid of fields and patches of a batch: of the input, or of the output beside the target. */
vt_patch_grid vt_vit_input_grid(const vt_vit *model, int64_t batch);
vt_patch_grid vt_vit_output_grid(const vt_vit *model, int64_t batch);

/* prediction [batch * tokens, patch² · out_channels], normalised, in VT_PATCH_CHANNEL_LAST order, pushed on the arena
 * along with all that backward needs. */
vt_matrix vt_vit_forward(vt_vit *model, const vt_pass *pass, const vt_vit_input *input);

/* Adds to all parameters' gradients. dprediction: prediction's shape, the pass's type; it may be prediction itself. */
void vt_vit_backward(vt_vit *model, const vt_pass *pass, const vt_vit_input *input, vt_matrix dprediction);

#endif
