/* The 3-D U-Net of the 2022 tutorial: cubes of fields, channels last, to cubes of other fields. Names and shapes of the
 * parameters are those of its PyTorch state_dict. Each layer is a unit, in the order of computing: down 1 … depth, up
 * depth … 2, last. What goes down at a level, and what comes up to it, lie side by side in one matrix, so that nothing
 * has to be joined. An up layer is a convolution's data gradient with the same array of weights. */
#include "base/memory.h"
#include "base/text.h"
#include "model/model.h"

enum { IN_CHANNELS = 4, TAPS = 64, MOST_DEPTH = 6, MOST_LAYERS = 2 * MOST_DEPTH };

typedef struct {
    vt_parameter *weight;
    const vt_parameter *bias;
    bool up;
    int64_t level;   /* of its finer side: 0 is the whole cube */
    int64_t in, out; /* channels of what it reads and writes */
    vt_activation activation;
} layer;

typedef struct {
    vt_model model;
    int64_t depth, count;
    int64_t channels[MOST_DEPTH + 1]; /* that go down to a level, from 1 on */
    layer layers[MOST_LAYERS];
} unet;

typedef struct {
    vt_saved saved;
    /* Of level 1 … depth: [batch * side³, what came up and what went down], and the gradient (recomputing: of what went
     * down alone). Nothing comes up to the lowest level. In backward the gradient of what went down, as it comes from
     * the level below, takes the place of the gradient of what came up. */
    vt_matrix level[MOST_DEPTH + 1], gradient[MOST_DEPTH + 1];
    vt_matrix bias_sums[MOST_DEPTH + 1]; /* recomputing: the gradient of the bias of what came up, until its unit */
    vt_matrix input;                     /* in the pass's type */
    vt_matrix output;                    /* the prediction as forward made it */
} unet_saved;

static int64_t depth_of(const vt_config *config)
{
    return config->full_scale ? 6 : 5;
}

static vt_status check(const vt_config *config, const vt_backend *backend)
{
    vt_status status = VT_OK;
    const int64_t multiple = (int64_t)1 << depth_of(config);
    VT_CHECK(config->data_size % multiple == 0, "data_size %ld: expected a multiple of %ld with full_scale %s",
             config->data_size, multiple, config->full_scale ? "true" : "false");
    VT_CHECK(backend == NULL || backend->convolution_forward != NULL,
             "model unet3d needs cuDNN on a GPU, and there is none that can be used; --device=cpu runs without it");
done:
    return status;
}

static char *describe(const vt_config *config)
{
    return vt_text_format("3-D U-Net, width %ld, %ld levels, cubes of %ld³ points, %d channels to %ld",
                          config->unet_width, depth_of(config), config->data_size, IN_CHANNELS, config->N_out_channels);
}

static int64_t tokens(const vt_config *config)
{
    return config->data_size * config->data_size * config->data_size;
}

static vt_span part_needed(const vt_config *config, vt_span needed)
{
    (void)needed;
    return (vt_span){0, config->data_size};
}

/* ---- parameters ---- */

static void build(unet *model, const vt_config *config, vt_parameters *parameters, const char *name, layer l)
{
    /* as PyTorch has it: [out, in] of a convolution, [in, out] of a transposed one */
    const int64_t first = l.up ? l.in : l.out, second = l.up ? l.out : l.in;
    const bool is_uniform = isnan(config->weight_init_conv_bias);
    if (model->count > 0) vt_parameters_next_unit(parameters);
    l.weight = vt_parameters_add(parameters, name, "weight", 5, (const int64_t[]){first, second, 4, 4, 4},
                                 VT_START_NORMAL, config->weight_init_conv_scale);
    l.bias = vt_parameters_add(parameters, name, "bias", 1, &l.out, is_uniform ? VT_START_UNIFORM : VT_START_VALUE,
                               is_uniform ? 1 / sqrt((double)(TAPS * second)) : config->weight_init_conv_bias);
    model->layers[model->count++] = l;
}

static vt_status unet_open(const vt_config *config, vt_parameters *parameters, vt_model **result)
{
    static const int64_t widths[] = {0, 1, 2, 4, 8, 8, 8};
    unet *model = vt_allocate(1, sizeof *model, "the model");
    char name[VT_PARAMETER_NAME];
    const int64_t depth = depth_of(config);
    model->model.saved_bytes = sizeof(unet_saved);
    model->depth = depth;
    model->channels[0] = IN_CHANNELS;
    int64_t *channels = model->channels;
    for (int64_t i = 1; i <= depth; i++) {
        channels[i] = widths[i] * config->unet_width;
        snprintf(name, sizeof name, "conv_down%ld.0", i);
        build(model, config, parameters, name,
              (layer){.level = i - 1, .in = channels[i - 1], .out = channels[i], .activation = VT_ACTIVATION_LEAKY});
    }
    for (int64_t i = depth; i >= 2; i--) {
        snprintf(name, sizeof name, "conv_up%ld.0", i);
        build(model, config, parameters, name,
              (layer){.up = true,
                      .level = i - 1,
                      .in = (i == depth ? 1 : 2) * channels[i],
                      .out = channels[i - 1],
                      .activation = VT_ACTIVATION_RELU});
    }
    build(model, config, parameters, "conv_last",
          (layer){.up = true, .in = 2 * channels[1], .out = config->N_out_channels, .activation = VT_ACTIVATION_TANH});
    *result = &model->model;
    return VT_OK;
}

/* ---- the units ---- */

static int64_t side_of(const unet *model, int64_t level)
{
    return model->model.config->data_size >> level;
}

static vt_matrix weight_of(const layer *l)
{
    vt_matrix weight = vt_parameter_matrix(l->weight);
    weight.rows = l->up ? l->in : l->out;
    weight.columns = weight.stride = TAPS * (l->up ? l->out : l->in);
    return weight;
}

static vt_convolution shape_of(const unet *model, const vt_pass *pass, const layer *l)
{
    return (vt_convolution){.batch = pass->batch,
                            .side = side_of(model, l->level + 1),
                            .in = l->up ? l->out : l->in,
                            .out = l->up ? l->in : l->out};
}

/* What went down to a level, and what came up to it. */
static vt_matrix down_part(const unet *model, vt_matrix both, int64_t level)
{
    return level == model->depth ? both : vt_matrix_columns(both, model->channels[level], model->channels[level]);
}

static vt_matrix up_part(const unet *model, vt_matrix both, int64_t level)
{
    return vt_matrix_columns(both, 0, model->channels[level]);
}

static int64_t columns_of(const unet *model, int64_t level)
{
    return (level == model->depth ? 1 : 2) * model->channels[level];
}

static int64_t rows_of(const unet *model, const vt_pass *pass, int64_t level)
{
    const int64_t side = side_of(model, level);
    return pass->batch * side * side * side;
}

/* ---- recomputing: backward keeps the gradient of what came up to a level in the place of what came up, of which it
 * then needs no more than the sign, and the gradient of what went down beside the activations. The prediction, which
 * the loss's gradient may have replaced, is computed again, where the gradients will be. ---- */

static vt_matrix up_gradient(const unet *model, const unet_saved *saved, int64_t level)
{
    return up_part(model, vt_model_recomputes(model->model.config) ? saved->level[level] : saved->gradient[level],
                   level);
}

/* Behind the last unit of forward, for backward. */
static void reserve_gradients(const unet *model, const vt_pass *pass, unet_saved *saved)
{
    vt_arena *arena = pass->arena;
    const size_t begin = arena->used;
    size_t end = begin;
    if (vt_model_recomputes(model->model.config) && pass->type == VT_FLOAT32) {
        saved->output = vt_pass_push_float32(pass, vt_pass_rows(pass), model->model.config->N_out_channels);
        end = arena->used;
        vt_arena_pop(arena, begin);
    }
    for (int64_t i = 1; i <= model->depth; i++) {
        const int64_t columns = vt_model_recomputes(model->model.config) ? model->channels[i] : columns_of(model, i);
        saved->gradient[i] = vt_pass_push(pass, rows_of(model, pass, i), columns);
    }
    if (end > arena->used) vt_arena_push(arena, end - arena->used);
    for (int64_t i = 1; i < model->depth; i++)
        if (vt_model_recomputes(model->model.config))
            saved->bias_sums[i] = vt_pass_push_float32(pass, 1, model->channels[i]);
}

static vt_matrix down_gradient(const unet *model, const unet_saved *saved, int64_t level)
{
    return vt_model_recomputes(model->model.config) ? saved->gradient[level]
                                                    : down_part(model, saved->gradient[level], level);
}

/* The gradient of what an up layer read, of which dy is the result's. */
static void up_backward_input(const unet *model, const vt_pass *pass, const layer *l, vt_matrix dy, unet_saved *saved)
{
    vt_backend *backend = pass->backend;
    vt_convolution shape = shape_of(model, pass, l);
    const int64_t level = l->level + 1, columns = model->channels[level];
    const vt_matrix gradient = saved->gradient[level], sums = saved->bias_sums[level];
    vt_matrix weight = weight_of(l);
    if (vt_model_recomputes(model->model.config) && level < model->depth) {
        /* what came up by itself, and then what went down */
        const vt_matrix up = up_part(model, saved->level[level], level);
        weight.rows = shape.out = columns;
        backend->convolution_forward(backend, &shape, dy, weight, gradient);
        backend->zero(backend, sums.data, (size_t)columns * sizeof(float));
        backend->bias_activation_backward(backend, VT_ACTIVATION_RELU, up, gradient, (vt_matrix){0}, up, sums.data);
        weight = vt_matrix_columns(weight, columns * weight.stride, weight.columns); /* its second half of rows */
    }
    backend->convolution_forward(backend, &shape, dy, weight, gradient);
}

static vt_matrix volume_of(const vt_pass *pass, const vt_model_tensor *tensor)
{
    const int64_t columns = tensor->channels, stride = vt_model_tensor_stride(tensor);
    vt_matrix volume = vt_matrix_make((float *)(uintptr_t)tensor->values, vt_pass_rows(pass), columns);
    volume.stride = stride; /* channels last: each point's lie together */
    return volume;
}

static void up_forward(const unet *model, const vt_pass *pass, const layer *l, const unet_saved *saved, vt_matrix out)
{
    vt_backend *backend = pass->backend;
    const vt_convolution shape = shape_of(model, pass, l);
    backend->convolution_backward_input(backend, &shape, saved->level[l->level + 1], weight_of(l), out);
    backend->bias_activation_forward(backend, l->activation, l->bias->value, out);
}

static vt_matrix forward(const vt_model *base, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                         vt_matrix in, vt_saved *units)
{
    const unet *model = (const unet *)base;
    unet_saved *saved = (unet_saved *)units;
    const layer *l = &model->layers[unit];
    vt_backend *backend = pass->backend;
    const vt_convolution shape = shape_of(model, pass, l);
    vt_matrix out = {0};
    (void)in;
    if (unit == 0) saved->input = vt_pass_typed(pass, volume_of(pass, &tensors[0]));
    if (l->up) {
        out = l->level == 0 ? vt_pass_push_float32(pass, vt_pass_rows(pass), l->out)
                            : up_part(model, saved->level[l->level], l->level);
        up_forward(model, pass, l, saved, out);
    } else {
        const int64_t level = l->level + 1;
        saved->level[level] = vt_pass_push(pass, rows_of(model, pass, level), columns_of(model, level));
        out = down_part(model, saved->level[level], level);
        backend->convolution_forward(backend, &shape,
                                     unit == 0 ? saved->input : down_part(model, saved->level[l->level], l->level),
                                     weight_of(l), out);
        backend->bias_activation_forward(backend, l->activation, l->bias->value, out);
    }
    if (l->level > 0 || !l->up || !pass->has_backward) return out;
    saved->output = out;
    if (pass->type == VT_FLOAT32 && !vt_model_recomputes(model->model.config)) {
        /* the loss's gradient may replace the prediction */
        saved->output = vt_pass_push_float32(pass, out.rows, out.columns);
        backend->convert(backend, out, saved->output);
    }
    reserve_gradients(model, pass, saved);
    return out;
}

static void up_backward(const unet *model, const vt_pass *pass, const layer *l, vt_matrix dout, unet_saved *saved)
{
    vt_backend *backend = pass->backend;
    const vt_convolution shape = shape_of(model, pass, l);
    const vt_matrix out = l->level == 0 ? saved->output : up_part(model, saved->level[l->level], l->level);
    const vt_matrix dy = l->level == 0 ? dout : up_gradient(model, saved, l->level);
    if (vt_model_recomputes(model->model.config) && l->level == 0 && pass->type == VT_FLOAT32)
        up_forward(model, pass, l, saved, out);
    float *dbias = vt_pass_gradient(pass, l->bias);
    if (vt_model_recomputes(model->model.config) && l->level > 0)
        backend->position_backward(backend, saved->bias_sums[l->level], vt_matrix_make(dbias, 1, l->out));
    else
        backend->bias_activation_backward(backend, l->activation, out, dy, (vt_matrix){0}, dy, dbias);
    if (!l->weight->frozen)
        backend->convolution_backward_weight(backend, &shape, dy, saved->level[l->level + 1], l->weight->gradient);
    up_backward_input(model, pass, l, dy, saved);
}

static void down_backward(const unet *model, const vt_pass *pass, const layer *l, unet_saved *saved)
{
    vt_backend *backend = pass->backend;
    const vt_convolution shape = shape_of(model, pass, l);
    const int64_t level = l->level + 1;
    const vt_matrix out = down_part(model, saved->level[level], level), dy = down_gradient(model, saved, level);
    const vt_matrix more = level == model->depth ? (vt_matrix){0} : up_gradient(model, saved, level);
    const vt_matrix x = l->level == 0 ? saved->input : down_part(model, saved->level[l->level], l->level);
    backend->bias_activation_backward(backend, l->activation, out, dy, more, dy, vt_pass_gradient(pass, l->bias));
    if (!l->weight->frozen) backend->convolution_backward_weight(backend, &shape, x, dy, l->weight->gradient);
    if (l->level > 0)
        backend->convolution_backward_input(backend, &shape, dy, weight_of(l), up_gradient(model, saved, l->level));
}

static vt_matrix backward(const vt_model *base, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                          vt_matrix dout, vt_saved *units)
{
    const unet *model = (const unet *)base;
    const layer *l = &model->layers[unit];
    (void)tensors;
    if (l->up)
        up_backward(model, pass, l, dout, (unet_saved *)units);
    else
        down_backward(model, pass, l, (unet_saved *)units);
    return (vt_matrix){0};
}

/* ---- what the prediction is compared with: the volumes as they are ---- */

static vt_matrix lay_out(const vt_model *base, const vt_pass *pass, const vt_model_tensor *tensor)
{
    const unet *model = (const unet *)base;
    vt_matrix volume = volume_of(pass, tensor);
    volume.columns = model->model.config->N_out_channels;
    return volume;
}

static vt_patch_grid prediction_grid(const vt_model *base, int64_t batch)
{
    const unet *model = (const unet *)base;
    const int64_t side = model->model.config->data_size, channels = model->model.config->N_out_channels;
    return (vt_patch_grid){.batch = batch,
                           .field_channels = channels,
                           .channels = channels,
                           .height = side * side,
                           .width = side,
                           .patch = 1,
                           .order = VT_PATCH_CHANNEL_LAST,
                           .tokens = side * side * side};
}

static const char *const identity[] = {"data_size", "full_scale", NULL};

const vt_model_kind vt_model_unet3d = {.name = "unet3d",
                                       .identity = identity,
                                       .check = check,
                                       .describe = describe,
                                       .tokens = tokens,
                                       .part_needed = part_needed,
                                       .open = unet_open,
                                       .forward = forward,
                                       .backward = backward,
                                       .prediction_grid = prediction_grid,
                                       .lay_out = lay_out};
