/* The vision transformer (Dosovitskiy et al. 2021) that maps fields to fields: patch embedding, position, blocks, norm,
 * head. Names and shapes of the parameters are those of the tutorials' PyTorch state_dict. Its units are the embedding
 * (0), the blocks (1 … depth) and the head (depth + 1); its tensors are fields, 0 the input, 1 the target and 2 the
 * forcings, whose channels follow the input's in each patch. */
#include "base/memory.h"
#include "base/profile.h"
#include "base/text.h"
#include "config/fit.h"
#include "config/roles.h"
#include "config/stages.h"
#include "model/block.h"
#include "model/model.h"

typedef struct {
    vt_model model;
    vt_linear patch_embed; /* a convolution with kernel = stride = patch is a linear map of each patch */
    const vt_parameter *pos_embed;
    vt_linear noise; /* of the random numbers of a row and of a token; only in a run with loss crps */
    vt_layer_norm norm;
    vt_linear head;
    vt_block blocks[]; /* [depth] */
} vit;

typedef struct {
    vt_saved saved;
    vt_residual stream;        /* behind the last unit that has run: [vt_pass_rows, dim] */
    vt_matrix stream_gradient; /* of the same shape, float32, on its way down from the head */
    /* In the pass's type: what goes into a branch and comes out of it; in backward, what went in, made again, and the
     * branch's gradient. */
    vt_matrix branch, gradient;
    vt_layer_norm_saved norm;
    vt_block_saved blocks[]; /* [depth] */
} vit_saved;

static void build_patch_embed(vt_linear *linear, vt_parameters *parameters, const vt_config *config)
{
    const int64_t dim = config->embed_dim, patch = config->patch_size;
    const int64_t channels =
        config->n_in_channels * (config->mask_channels ? 2 : 1) + vt_config_forcing_channels(config);
    linear->in = channels * patch * patch;
    linear->out = dim;
    double bound = 1 / sqrt((double)linear->in); /* torch.nn.Conv2d's default */
    linear->without_bias = false;
    linear->weight = vt_parameters_add(parameters, "patch_embed.proj", "weight", 4,
                                       (const int64_t[]){dim, channels, patch, patch}, VT_START_UNIFORM, bound);
    linear->bias = vt_parameters_add(parameters, "patch_embed.proj", "bias", 1, &dim, VT_START_UNIFORM, bound);
}

static vt_status vit_open(const vt_config *config, vt_parameters *parameters, vt_model **result)
{
    const int64_t dim = config->embed_dim, depth = config->depth;
    const vt_parallel *parallel = parameters->parallel;
    vit *model = vt_allocate(1, sizeof *model + (size_t)depth * sizeof model->blocks[0], "the model");
    model->model.saved_bytes = sizeof(vit_saved) + (size_t)depth * sizeof(vt_block_saved);
    build_patch_embed(&model->patch_embed, parameters, config);
    vt_parameter *position = vt_parameters_add(parameters, "", "pos_embed", 3,
                                               (const int64_t[]){1, parallel->token_count, dim}, VT_START_NORMAL, 0.02);
    vt_parameter_split(position, 1, parallel->token_axes, parallel->own);
    model->pos_embed = position;
    if (vt_config_members(config) > 1) {
        vt_linear_build(&model->noise, parameters, "noise_embed", 2 * config->noise_dim, dim, VT_LINEAR_WHOLE, false);
        model->noise.weight->spread = config->noise_init;
        model->noise.weight->comes_later = true;
    }
    for (int64_t i = 0; i < depth; i++) {
        vt_parameters_next_unit(parameters);
        vt_block_build(&model->blocks[i], parameters, i, config);
    }
    vt_parameters_next_unit(parameters);
    vt_layer_norm_build(&model->norm, parameters, "norm", dim, 1e-6f);
    vt_linear_build(&model->head, parameters, "head", dim,
                    config->n_out_channels * config->patch_size * config->patch_size, VT_LINEAR_WHOLE, false);
    *result = &model->model;
    return VT_OK;
}

static char *describe(const vt_config *config)
{
    return vt_text_format("embed_dim %ld, depth %ld, %ld heads, %ld tokens of %ld×%ld points", config->embed_dim,
                          config->depth, config->num_heads, vt_fit_tokens(config), config->patch_size,
                          config->patch_size);
}

static char *describe_shares(const vt_config *config)
{
    const int64_t ranks = config->tensor_parallel, heads = config->num_heads, columns = 4 * config->embed_dim;
    return vt_text_format("heads    %ld, %ld on each rank (of width %ld; %ld of the MLP's %ld columns)", heads,
                          heads / ranks, config->embed_dim / heads, columns / ranks, columns);
}

static int64_t blocks(const vt_config *config)
{
    return config->depth;
}

static int64_t head_unit(const vit *model)
{
    return model->model.config->depth + 1;
}

/* ---- fields and patches ---- */

static int64_t tokens_across(const vt_config *config)
{
    return (config->img_size[1] + config->patch_size - 1) / config->patch_size;
}

static void grid(const vt_config *config, int64_t sides[2])
{
    sides[1] = tokens_across(config);
    sides[0] = vt_fit_tokens(config) / sides[1];
}

static vt_span part_needed(const vt_config *config, vt_span tokens)
{
    const int64_t across = tokens_across(config), patch = config->patch_size, height = config->img_size[0];
    const int64_t first = tokens.first / across * patch;
    const int64_t end = ((tokens.first + tokens.count - 1) / across + 1) * patch;
    return (vt_span){first, (end < height ? end : height) - first};
}

/* This rank's tokens, in this rank's rows of the fields. */
static vt_patch_grid grid_of(const vit *model, int64_t batch, int64_t channels, vt_patch_order order)
{
    const vt_config *config = model->model.config;
    vt_span tokens = model->model.parallel->own, rows = part_needed(config, tokens);
    return (vt_patch_grid){.batch = batch,
                           .field_channels = channels,
                           .channels = channels,
                           .height = rows.count,
                           .width = config->img_size[1],
                           .patch = config->patch_size,
                           .order = order,
                           .first_token = tokens.first - rows.first / config->patch_size * tokens_across(config),
                           .tokens = tokens.count};
}

static vt_patch_grid output_grid(const vt_model *base, int64_t batch)
{
    const vit *model = (const vit *)base;
    vt_patch_grid grid = grid_of(model, batch, model->model.config->n_out_channels, VT_PATCH_CHANNEL_LAST);
    grid.missing = model->model.config->missing == VT_GAPS_MASK ? VT_MISSING_LEFT_OUT : VT_MISSING_STAYS;
    return grid;
}

static vt_patch_grid input_grid(const vit *model, int64_t batch, const vt_model_tensor *piece)
{
    vt_patch_grid grid = grid_of(model, batch, piece->channels, VT_PATCH_CHANNEL_FIRST);
    grid.field_channels = vt_model_tensor_stride(piece);
    grid.beyond = model->model.config->pad == VT_PAD_WRAP ? VT_BEYOND_WRAP : VT_BEYOND_EDGE;
    grid.missing = model->model.config->missing == VT_GAPS_MASK ? VT_MISSING_MEAN : VT_MISSING_STAYS;
    return grid;
}

/* The columns of channels `first` … of the input's patches. */
static vt_matrix piece_of(const vit *model, vt_matrix patches, int64_t first, int64_t channels)
{
    const int64_t points = model->model.config->patch_size * model->model.config->patch_size;
    return vt_matrix_columns(patches, first * points, channels * points);
}

static void load_piece(const vt_pass *pass, const vt_patch_grid *grid, const vt_model_tensor *piece, vt_matrix patches)
{
    pass->backend->patches_load(pass->backend, grid, piece->values, piece->mean, piece->inverse_std, patches);
}

/* The last channels of the input's patches; of these no missing points are shown. */
static void load_forcings(const vit *model, const vt_pass *pass, const vt_model_tensor *forcings, vt_matrix patches)
{
    const vt_config *config = model->model.config;
    const int64_t first = config->n_in_channels * (config->mask_channels ? 2 : 1);
    if (vt_config_forcing_channels(config) == 0) return;
    const vt_patch_grid grid = input_grid(model, pass->batch, forcings);
    load_piece(pass, &grid, forcings, piece_of(model, patches, first, forcings->channels));
}

static vt_matrix load_input(const vit *model, const vt_pass *pass, const vt_model_tensor *tensors)
{
    const vt_config *config = model->model.config;
    vt_matrix patches = vt_pass_push(pass, vt_pass_rows(pass), model->patch_embed.in);
    int64_t channel = 0;
    VT_ASSERT(tensors != NULL);
    for (const vt_model_tensor *piece = &tensors[0]; piece != NULL; channel += piece->channels, piece = piece->more) {
        vt_patch_grid grid = input_grid(model, pass->batch, piece);
        load_piece(pass, &grid, piece, piece_of(model, patches, channel, piece->channels));
        if (!config->mask_channels) continue;
        grid.missing = VT_MISSING_SHOWN;
        load_piece(pass, &grid, piece, piece_of(model, patches, config->n_in_channels + channel, piece->channels));
    }
    load_forcings(model, pass, &tensors[2], patches);
    return patches;
}

/* The gradients of the input's pieces, as far as they are wanted. */
static void backward_input(const vit *model, const vt_pass *pass, const vt_model_tensor *input, vt_matrix dembedding)
{
    bool any = false;
    for (const vt_model_tensor *piece = input; piece != NULL; piece = piece->more) any = any || piece->gradient != NULL;
    if (!any) return;
    vt_backend *backend = pass->backend;
    vt_matrix dpatches = vt_pass_push(pass, dembedding.rows, model->patch_embed.in);
    backend->linear_backward_input(backend, dembedding, vt_linear_weight(&model->patch_embed), dpatches);
    int64_t channel = 0;
    for (const vt_model_tensor *piece = input; piece != NULL; channel += piece->channels, piece = piece->more) {
        const vt_patch_grid grid = input_grid(model, pass->batch, piece);
        if (piece->gradient != NULL)
            backend->patches_load_backward(backend, &grid, piece_of(model, dpatches, channel, piece->channels),
                                           piece->values, piece->gradient);
    }
}

/* ---- the embedding ---- */

static vt_matrix position(const vit *model, float *data)
{
    return vt_matrix_make(data, model->model.parallel->own.count, model->model.config->embed_dim);
}

static vt_mask position_mask(const vit *model, const vt_pass *pass)
{
    return vt_pass_mask(pass, model->model.config->dropout, model->model.config->depth, VT_SITE_POSITION);
}

/* The random numbers of this pass's rows and tokens: the same whenever they are drawn. */
static vt_matrix draw_noise(const vit *model, const vt_pass *pass)
{
    const vt_span tokens = model->model.parallel->own;
    const vt_noise how = {.seed = pass->seed,
                          .first_row = pass->first_sample,
                          .rollout_step = pass->rollout_step,
                          .rows = pass->batch,
                          .first_token = tokens.first,
                          .tokens = tokens.count,
                          .numbers = model->noise.in / 2};
    vt_matrix numbers = vt_pass_push(pass, vt_pass_rows(pass), model->noise.in);
    pass->backend->noise_draw(pass->backend, &how, pass->step, pass->noise_keys, numbers);
    return numbers;
}

static void add_noise(const vit *model, const vt_pass *pass, vt_matrix x)
{
    const size_t mark = pass->arena->used;
    if (pass->crps == NULL) return;
    vt_matrix noise = vt_pass_push_float32(pass, x.rows, x.columns);
    vt_linear_forward(&model->noise, pass, draw_noise(model, pass), noise);
    vt_matrix_add(pass->backend, x, noise, x);
    vt_arena_pop(pass->arena, mark);
}

static vt_matrix forward_embedding(const vit *model, const vt_pass *pass, const vt_model_tensor *tensors)
{
    vt_backend *backend = pass->backend;
    vt_mask mask = position_mask(model, pass);
    vt_matrix x = vt_pass_push_stream(pass, 0, vt_pass_rows(pass), model->model.config->embed_dim);
    size_t mark = pass->arena->used;
    vt_linear_forward(&model->patch_embed, pass, load_input(model, pass, tensors), x);
    vt_arena_pop(pass->arena, mark);
    backend->position_add(backend, x, position(model, model->pos_embed->value));
    add_noise(model, pass, x);
    if (vt_mask_is_active(&mask)) backend->mask_multiply(backend, x, &mask, x);
    return x;
}

static void backward_embedding(const vit *model, const vt_pass *pass, const vt_model_tensor *tensors, vt_matrix dx,
                               const vit_saved *saved)
{
    vt_backend *backend = pass->backend;
    vt_mask mask = position_mask(model, pass);
    if (vt_mask_is_active(&mask)) backend->mask_multiply(backend, dx, &mask, dx);
    if (!model->pos_embed->frozen) backend->position_backward(backend, dx, position(model, model->pos_embed->gradient));
    vt_matrix dembedding = pass->type == VT_FLOAT32 ? dx : saved->gradient;
    if (pass->type != VT_FLOAT32 && !vt_pass_rounds_gradient(pass, model->model.config->dropout))
        backend->convert(backend, dx, dembedding);
    vt_linear_backward(&model->patch_embed, pass, load_input(model, pass, tensors), dembedding, (vt_matrix){0});
    if (pass->crps != NULL)
        vt_linear_backward(&model->noise, pass, draw_noise(model, pass), dembedding, (vt_matrix){0});
    backward_input(model, pass, &tensors[0], dembedding);
}

/* ---- a block ---- */

static void forward_block(const vit *model, const vt_pass *pass, int64_t i, vit_saved *saved)
{
    const bool runs_back = vt_model_keeps(&model->model, pass, i + 1);
    const bool keep = runs_back && !vt_model_recomputes(model->model.config);
    vt_block_saved *kept = &saved->blocks[i];
    vt_matrix output = vt_pass_push_stream(pass, i + 1, vt_pass_rows(pass), model->model.config->embed_dim);
    const vt_pass keeping = vt_pass_keeping(pass, i + 1);
    vt_attention_begin(&model->blocks[i].attention, &keeping,
                       runs_back && model->model.config->recompute == VT_RECOMPUTE_LINEAR, &kept->attention);
    size_t mark = pass->arena->used;
    vt_range_begin("block %ld", i);
    vt_block_reserve(&model->blocks[i], vt_model_recomputes(model->model.config) ? pass : &keeping, output, keep, kept);
    vt_block_forward(&model->blocks[i], pass, &saved->stream, output, saved->branch, kept);
    vt_range_end();
    if (!keep) vt_arena_pop(pass->arena, mark);
}

static void backward_block(const vit *model, const vt_pass *pass, int64_t i, vt_matrix dx, vit_saved *saved)
{
    const vt_block *block = &model->blocks[i];
    vt_block_saved *kept = &saved->blocks[i];
    vt_range_begin("block %ld backward", i);
    if (vt_model_recomputes(model->model.config)) { /* but not its output */
        vt_residual stream = {.sum = kept->input};
        kept->attention.made = kept->attention.kept;
        vt_block_reserve(block, pass, dx, true, kept);
        vt_block_forward(block, pass, &stream, dx, saved->branch, kept);
    }
    vt_block_backward(block, pass, dx, saved->gradient, saved->branch, kept);
    vt_range_end();
}

/* ---- the head ---- */

static vt_matrix forward_head(const vit *model, const vt_pass *pass, vit_saved *saved)
{
    saved->norm = vt_layer_norm_reserve(pass);
    vt_matrix prediction = vt_pass_push_float32(pass, vt_pass_rows(pass), model->head.out);
    vt_layer_norm_residual(&model->norm, pass, &saved->stream, saved->branch, &saved->norm);
    vt_linear_forward(&model->head, pass, saved->branch, prediction);
    return prediction;
}

static vt_matrix backward_head(const vit *model, const vt_pass *pass, vt_matrix dprediction, vit_saved *saved)
{
    vt_matrix dx = saved->stream_gradient;
    vt_matrix_clear(pass->backend, dx);
    const bool rounds = vt_pass_rounds_gradient(pass, model->model.config->dropout);
    vt_linear_backward(&model->head, pass, saved->branch, dprediction, saved->gradient); /* read by nothing since */
    vt_layer_norm_backward(&model->norm, pass, saved->stream.sum, saved->gradient, dx,
                           rounds ? saved->gradient : (vt_matrix){0}, &saved->norm);
    return dx;
}

/* ---- the units ---- */

static bool is_last(const vt_saved *saved, int64_t unit)
{
    return unit == saved->units.first + saved->units.count - 1;
}

/* What all units use. in: the stream from another stage, or nothing. */
static void begin(const vit *model, const vt_pass *pass, vt_matrix in, vit_saved *saved)
{
    const int64_t rows = vt_pass_rows(pass), dim = model->model.config->embed_dim;
    saved->stream = (vt_residual){.sum = in};
    saved->branch = vt_pass_push(pass, rows, dim);
    if (pass->has_backward) saved->gradient = vt_pass_push(pass, rows, dim);
    if (pass->has_backward && is_last(&saved->saved, head_unit(model)))
        saved->stream_gradient = vt_pass_push_float32(pass, rows, dim);
}

static vt_matrix forward(const vt_model *base, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                         vt_matrix in, vt_saved *units)
{
    const vit *model = (const vit *)base;
    vit_saved *saved = (vit_saved *)units;
    if (unit == units->units.first) begin(model, pass, in, saved);
    if (unit == head_unit(model)) return forward_head(model, pass, saved);
    if (unit == 0)
        saved->stream = (vt_residual){.sum = forward_embedding(model, pass, tensors)};
    else
        forward_block(model, pass, unit - 1, saved);
    if (is_last(units, unit)) vt_residual_finish(pass, &saved->stream);
    return saved->stream.sum;
}

static vt_matrix backward(const vt_model *base, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                          vt_matrix dout, vt_saved *units)
{
    const vit *model = (const vit *)base;
    vit_saved *saved = (vit_saved *)units;
    if (unit == head_unit(model)) return backward_head(model, pass, dout, saved);
    if (is_last(units, unit) &&
        vt_pass_rounds_gradient(pass, model->model.config->dropout)) /* it is from another stage */
        pass->backend->convert(pass->backend, dout, saved->gradient);
    if (unit > 0) {
        backward_block(model, pass, unit - 1, dout, saved);
        return dout;
    }
    backward_embedding(model, pass, tensors, dout, saved);
    return (vt_matrix){0};
}

static const char *const identity[] = {
    "img_size", "num_heads", "gelu", "pad", "mask_channels", "forcings", "n_static_fields", "static_variables", NULL};

const vt_model_kind vt_model_vit = {.name = "vit",
                                    .identity = identity,
                                    .takes_forcings = true,
                                    .rolls_out = true,
                                    .check = vt_model_check_heads,
                                    .axes =
                                        VT_AXES(VT_AXIS_TENSOR) | VT_AXES(VT_AXIS_CONTEXT) | VT_AXES(VT_AXIS_PIPELINE),
                                    .describe = describe,
                                    .describe_shares = describe_shares,
                                    .blocks = blocks,
                                    .tokens = vt_fit_tokens,
                                    .grid = grid,
                                    .part_needed = part_needed,
                                    .open = vit_open,
                                    .forward = forward,
                                    .backward = backward,
                                    .prediction_grid = output_grid};
