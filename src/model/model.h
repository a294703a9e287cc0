/* A model turns the tensors of a batch into a prediction. Each kind of model is one file (vit.c) and one row of the
 * list VT_MODELS in config/kinds.def; option `model` chooses one. Everything outside the model's own file calls it
 * through the functions below and through model->kind.
 *
 * A model is a sequence of units, numbered as in its registry of parameters (vt_parameters_next_unit): a vision
 * transformer's are the embedding, each block, and the head. A unit is gathered (ZeRO stage 3) and recomputed as a
 * whole, and a pipeline stage has a span of units. Between two units goes one float32 matrix, the stream. */
#ifndef VT_MODEL_MODEL_H
#define VT_MODEL_MODEL_H

#include "model/linear.h"

typedef struct vt_model_kind vt_model_kind;

/* What every kind's own struct begins with, which is one piece of memory. A model does not change while passes run:
 * several may be in flight. */
typedef struct {
    /* vt_model_open sets these */
    const vt_model_kind *kind;
    const vt_config *config;
    const vt_parameters *parameters;
    const vt_parallel *parallel;
    int64_t first_trained; /* backward ends with this unit: nothing below it is trained (option freeze) */
    /* `open` of the kind sets these */
    size_t saved_bytes; /* of the kind's own struct that begins with vt_saved */
    /* A last linear layer that `forward` leaves to the loss, because what it makes of the prediction is too large to be
     * whole in memory: the loss runs it over some rows at a time (pass->head), backward too. It belongs to the last
     * unit. NULL: there is none. */
    const vt_linear *head;
} vt_model;

/* What forward keeps of one micro-batch for backward, for a span of the model's units. Its matrices lie in that
 * micro-batch's arena, pass->arena. Each kind's own struct begins with this. */
typedef struct {
    vt_span units;
} vt_saved;

/* A tensor of a micro-batch: [batch, channels, rows, …], of which this rank has the rows that its tokens need. In the
 * back end's memory, and unchanged until backward. It may be the first piece of a list, whose channels follow one
 * another. */
typedef struct vt_model_tensor vt_model_tensor;
struct vt_model_tensor {
    const void *values;
    int64_t channels;
    const float *mean, *inverse_std; /* [channels], what normalises the values */
    int64_t sample_channels;         /* of a sample in memory, of which these are the first ones; 0: `channels` */
    float *gradient;             /* backward adds to it, which is laid out as the values are; NULL: it is not wanted */
    const vt_model_tensor *more; /* the next piece; NULL: this is the last one */
};

/* Channels of a sample in memory. */
static inline int64_t vt_model_tensor_stride(const vt_model_tensor *tensor)
{
    return tensor->sample_channels > 0 ? tensor->sample_channels : tensor->channels;
}

/* One row of the table. Matrices that these functions return are pushed on pass->arena. Functions that get a pass are
 * called by all ranks that share the pass's samples. */
struct vt_model_kind {
    const char *name;
    unsigned axes; /* along which a sample or the model can be split (VT_AXES) */
    /* Options that parameters are made for, although no shape shows them; ends with NULL. */
    const char *const *identity;
    bool takes_forcings; /* forward reads a tensor of forcings (data/batch.h), where there is one */
    /* A prediction can be the next step's input: forward takes an input in pieces, and backward adds to their
     * gradients. */
    bool rolls_out;

    /* ---- of a configuration ---- */

    /* Do the options that shape this model go together, and can the back end (NULL: any) compute it? NULL: always. */
    vt_status (*check)(const vt_config *config, const vt_backend *backend);
    /* The model's sizes in a few words, for the log; malloc'd. */
    char *(*describe)(const vt_config *config);
    /* What each rank of the tensor axis has of the model, "heads    8, 2 on each rank"; malloc'd. NULL: nothing. */
    char *(*describe_shares)(const vt_config *config);
    /* How many units, from the first on behind unit 0, are blocks, whose activations offload_activations takes away.
     * NULL: none. */
    int64_t (*blocks)(const vt_config *config);
    /* How many tokens a sample has: what the context axis shares out. */
    int64_t (*tokens)(const vt_config *config);
    /* How many of them lie along each side of the grid that a parameter "pos_embed" has a row for each token of. NULL:
     * there is none. */
    void (*grid)(const vt_config *config, int64_t sides[2]);
    /* The rows of a sample's tensors that are needed for these of its tokens. */
    vt_span (*part_needed)(const vt_config *config, vt_span tokens);

    /* ---- of a model ---- */

    /* Registers the parameters, which the caller allocates, and returns the kind's own struct, as malloc gives it. */
    vt_status (*open)(const vt_config *config, vt_parameters *parameters, vt_model **model);

    /* One unit. in: the stream in front of it, which must not change until backward; not read by unit 0, which reads
     * `tensors`, those of the batch in their order. Returns the stream behind the unit; behind the last one this is the
     * prediction [vt_pass_rows, columns], float32. */
    vt_matrix (*forward)(const vt_model *model, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                         vt_matrix in, vt_saved *saved);
    /* Adds to the gradients of the unit's parameters. dout: the gradient of what forward returned, which is used up; of
     * the prediction it has the pass's type, of a stream float32. Returns the gradient of `in`, nothing for unit 0. The
     * caller pops what this function pushes, so the returned matrix is dout, or was pushed by forward. */
    vt_matrix (*backward)(const vt_model *model, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                          vt_matrix dout, vt_saved *saved);

    /* ---- what the prediction is compared with ---- */

    /* Where the points of fields stand in a prediction of `batch` samples, of this rank's rows. NULL: it has no
     * fields. */
    vt_patch_grid (*prediction_grid)(const vt_model *model, int64_t batch);
    /* vt_model_lay_out where the tensors of a batch do not lie as fields do; NULL: they do. */
    vt_matrix (*lay_out)(const vt_model *model, const vt_pass *pass, const vt_model_tensor *tensor);
};

/* Does a model keep only each layer's input, and compute the rest again in backward (Chen et al. 2016, "Training deep
 * nets with sublinear memory cost")? */
static inline bool vt_model_recomputes(const vt_config *config)
{
    return config->recompute != VT_RECOMPUTE_NONE;
}

/* Does a unit's backward follow its forward? */
static inline bool vt_model_keeps(const vt_model *model, const vt_pass *pass, int64_t unit)
{
    return pass->has_backward && unit >= model->first_trained;
}

/* The row that the configuration chooses. */
const vt_model_kind *vt_model_kind_of(const vt_config *config);

/* The rows of a sample's tensors that a rank needs. */
vt_span vt_model_part(const vt_config *config, const vt_layout *layout, int rank);

/* Fails when the model can't be split as the configuration asks, when its sizes don't go together, or when the back end
 * (NULL: any) can't compute it. */
vt_status vt_model_check(const vt_config *config, const vt_backend *backend);
/* The part of it that models with attention share: on a GPU, its kernels are made for heads up to a width. */
vt_status vt_model_check_heads(const vt_config *config, const vt_backend *backend);

/* Registers all parameters, and freezes those that the configuration names; the caller allocates the registry. Registry
 * and configuration outlive the model. */
vt_status vt_model_open(const vt_config *config, vt_parameters *parameters, vt_model **model);
void vt_model_close(vt_model **model);

/* The units of this rank that are blocks (vt_model_kind.blocks). */
vt_span vt_model_blocks(const vt_model *model);

/* Room to keep what passes over these units need; each micro-batch in flight has its own. */
void vt_saved_open(const vt_model *model, vt_span units, vt_saved **saved);
void vt_saved_close(vt_saved **saved);

/* Runs the units of `saved`. in: the stream that the unit before them returned; not read when they begin with unit 0.
 * Returns what the last of them returns. */
vt_matrix vt_model_forward(const vt_model *model, const vt_pass *pass, const vt_model_tensor *tensors, vt_matrix in,
                           vt_saved *saved);

/* Asks for the parameters of the last of these units, and their gradients, which making `dout` below may need. */
void vt_model_backward_begin(const vt_model *model, const vt_saved *saved);

/* Runs them backward, after vt_model_forward with the same pass, tensors and saved, and vt_model_backward_begin; adds
 * to their parameters' gradients. dout: the gradient of what forward returned, which is overwritten; in the pass's type
 * if forward returned the prediction, else in float32. Returns the gradient of `in`, nothing when the units begin with
 * unit 0. It ends with the unit model->first_trained: what it then returns nobody needs. */
vt_matrix vt_model_backward(const vt_model *model, const vt_pass *pass, const vt_model_tensor *tensors, vt_matrix dout,
                            vt_saved *saved);

/* Asks for the parameters of the units of `saved` in the order of a forward pass, and computes nothing. With ZeRO stage
 * 3 all ranks must ask for them together, including those that have no sample. */
void vt_model_visit(const vt_model *model, const vt_saved *saved);

/* A tensor in the rows and columns of the prediction, normalised, float32: the target, say. Of more channels than the
 * prediction has, the first ones. */
vt_matrix vt_model_lay_out(const vt_model *model, const vt_pass *pass, const vt_model_tensor *tensor);

/* The inverse, of fields, for whole samples: a prediction, or what vt_model_lay_out returned, as [batch * channels,
 * points], in the units of the data. Gathers from the ranks that share a sample; the batch is then one sample. */
vt_matrix vt_model_restore(const vt_model *model, const vt_pass *pass, vt_matrix rows, const float *mean,
                           const float *inverse_std);

#endif
