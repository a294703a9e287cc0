/* The vision transformer (Dosovitskiy et al. 2021) that maps fields to fields: patch embedding, position, blocks, norm,
 * head. Names and shapes of the parameters are those of the tutorials' PyTorch state_dict. */
#ifndef VT_MODEL_VIT_H
#define VT_MODEL_VIT_H

#include "model/block.h"

typedef struct {
    int64_t height, width, patch;
    vt_beyond beyond; /* what the input has beyond height and width, where patches reach farther */
    int64_t in_channels, out_channels;
    bool masked;        /* fields may have missing points: 0 in the input, and VT_NO_POINT in the target */
    bool mask_channels; /* the patch embedding sees in_channels more channels: 1 where there is a point, else 0 */
    int64_t dim, depth, heads;
    vt_gelu gelu;
    double dropout;
    bool recompute; /* keep only each block's input, and compute the rest of it once more in backward (Chen et al. 2016,
                     * "Training deep nets with sublinear memory cost") */
} vt_vit_options;

/* The input of a pass: fields [batch, in_channels, rows, width] in the file's units, of the rows that this rank's
 * tokens touch, and what normalises them. All in the back end's memory, and unchanged until backward. */
typedef struct {
    const float *fields;
    const float *mean, *inverse_std; /* [in_channels] */
} vt_vit_input;

typedef struct vt_vit vt_vit;

/* Registers all parameters; the caller allocates the registry. */
vt_status vt_vit_open(const vt_vit_options *options, vt_parameters *parameters, vt_vit **model);
void vt_vit_close(vt_vit **model);

/* Of a sample. */
int64_t vt_vit_tokens(const vt_vit_options *options);

/* The rows of the fields that a run of tokens touches: what a rank needs of each sample. */
vt_span vt_vit_rows(const vt_vit_options *options, vt_span tokens);

/* The grid of fields and patches of a batch: of the input, or of the output beside the target; of this rank's tokens
 * and rows, or of whole fields. */
vt_patch_grid vt_vit_input_grid(const vt_vit *model, int64_t batch);
vt_patch_grid vt_vit_output_grid(const vt_vit *model, int64_t batch);
vt_patch_grid vt_vit_whole_output_grid(const vt_vit *model, int64_t batch);

/* prediction [batch * own tokens, patch² · out_channels], normalised, in VT_PATCH_CHANNEL_LAST order, pushed on the
 * arena along with all that backward needs. */
vt_matrix vt_vit_forward(vt_vit *model, const vt_pass *pass, const vt_vit_input *input);

/* Calls for every unit's parameters in the order of a forward pass, and computes nothing: where parameters are gathered
 * from several ranks (ZeRO stage 3), all of them must ask for them, also those that have no sample. */
void vt_vit_visit(const vt_vit *model);

/* Adds to all parameters' gradients. dprediction: prediction's shape, the pass's type; it may be prediction itself. */
void vt_vit_backward(vt_vit *model, const vt_pass *pass, const vt_vit_input *input, vt_matrix dprediction);

#endif
