#include "model/vit.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/profile.h"

struct vt_vit {
    vt_vit_options options;
    const vt_parameters *parameters;
    const vt_parallel *parallel;
    vt_linear patch_embed; /* a convolution with kernel = stride = patch is a linear map of each patch */
    const vt_parameter *pos_embed;
    vt_block *blocks;
    vt_layer_norm norm;
    vt_linear head;
    vt_matrix stream;          /* the residual stream behind the last block */
    vt_matrix stream_gradient; /* [rows, dim]: of the residual stream, all the way down */
};

static void build_patch_embed(vt_linear *linear, vt_parameters *parameters, const vt_vit_options *o)
{
    const int64_t channels = o->in_channels * (o->mask_channels ? 2 : 1);
    linear->in = channels * o->patch * o->patch;
    linear->out = o->dim;
    double bound = 1 / sqrt((double)linear->in); /* torch.nn.Conv2d's default */
    linear->without_bias = false;
    linear->weight =
        vt_parameters_add(parameters, "patch_embed.proj", "weight", 4,
                          (const int64_t[]){o->dim, channels, o->patch, o->patch}, VT_START_UNIFORM, bound);
    linear->bias = vt_parameters_add(parameters, "patch_embed.proj", "bias", 1, &o->dim, VT_START_UNIFORM, bound);
}

vt_status vt_vit_open(const vt_vit_options *options, vt_parameters *parameters, vt_vit **result)
{
    vt_vit *model = vt_allocate(1, sizeof *model, "the model");
    model->options = *options;
    model->blocks = vt_allocate((size_t)options->depth, sizeof *model->blocks, "the model");
    model->parameters = parameters;
    model->parallel = vt_parameters_parallel(parameters);
    build_patch_embed(&model->patch_embed, parameters, options);
    vt_parameter *position =
        vt_parameters_add(parameters, "", "pos_embed", 3,
                          (const int64_t[]){1, model->parallel->token_count, options->dim}, VT_START_NORMAL, 0.02);
    vt_parameter_split(position, 1, model->parallel->token_axes, model->parallel->own);
    model->pos_embed = position;
    for (int64_t i = 0; i < options->depth; i++) {
        double path_rate = options->depth > 1 ? options->dropout * (double)i / (double)(options->depth - 1) : 0;
        vt_block_options block = {options->dim, options->heads, options->gelu, options->dropout, path_rate};
        vt_parameters_next_unit(parameters);
        vt_block_build(&model->blocks[i], parameters, i, &block);
    }
    vt_parameters_next_unit(parameters);
    vt_layer_norm_build(&model->norm, parameters, "norm", options->dim);
    vt_linear_build(&model->head, parameters, "head", options->dim,
                    options->out_channels * options->patch * options->patch, VT_LINEAR_WHOLE, false);
    *result = model;
    return VT_OK;
}

void vt_vit_close(vt_vit **model)
{
    if (*model == NULL) return;
    free((*model)->blocks);
    free(*model);
    *model = NULL;
}

/* ---- units: the embedding, each block, the head ---- */

static int64_t head_unit(const vt_vit *model)
{
    return model->options.depth + 1;
}

static void need(const vt_vit *model, int64_t unit, bool backward)
{
    int64_t next = backward ? unit - 1 : unit + 1;
    vt_parameters_need(model->parameters, unit, next > head_unit(model) ? -1 : next, backward);
}

void vt_vit_visit(const vt_vit *model)
{
    for (int64_t unit = 0; unit <= head_unit(model); unit++) need(model, unit, false);
}

/* ---- fields and patches ---- */

static int64_t tokens_across(const vt_vit_options *options)
{
    return (options->width + options->patch - 1) / options->patch;
}

int64_t vt_vit_tokens(const vt_vit_options *options)
{
    return (options->height + options->patch - 1) / options->patch * tokens_across(options);
}

vt_span vt_vit_rows(const vt_vit_options *options, vt_span tokens)
{
    const int64_t across = tokens_across(options), first = tokens.first / across * options->patch;
    const int64_t end = ((tokens.first + tokens.count - 1) / across + 1) * options->patch;
    return (vt_span){first, (end < options->height ? end : options->height) - first};
}

static vt_patch_grid grid_of(const vt_vit *model, int64_t batch, int64_t channels, vt_patch_order order)
{
    const vt_vit_options *o = &model->options;
    vt_span tokens = model->parallel->own, rows = vt_vit_rows(o, tokens);
    return (vt_patch_grid){.batch = batch,
                           .field_channels = channels,
                           .channels = channels,
                           .height = rows.count,
                           .width = o->width,
                           .patch = o->patch,
                           .order = order,
                           .first_token = tokens.first - rows.first / o->patch * tokens_across(o),
                           .tokens = tokens.count};
}

vt_patch_grid vt_vit_input_grid(const vt_vit *model, int64_t batch)
{
    const vt_vit_options *o = &model->options;
    vt_patch_grid grid = grid_of(model, batch, o->in_channels, VT_PATCH_CHANNEL_FIRST);
    grid.beyond = o->beyond;
    grid.missing = o->masked ? VT_MISSING_MEAN : VT_MISSING_STAYS;
    grid.with_mask = o->mask_channels;
    return grid;
}

vt_patch_grid vt_vit_output_grid(const vt_vit *model, int64_t batch)
{
    vt_patch_grid grid = grid_of(model, batch, model->options.out_channels, VT_PATCH_CHANNEL_LAST);
    grid.missing = model->options.masked ? VT_MISSING_LEFT_OUT : VT_MISSING_STAYS;
    return grid;
}

vt_patch_grid vt_vit_whole_output_grid(const vt_vit *model, int64_t batch)
{
    vt_patch_grid grid = vt_vit_output_grid(model, batch);
    grid.height = model->options.height;
    grid.first_token = 0;
    grid.tokens = model->parallel->token_count;
    return grid;
}

static vt_matrix load_patches(const vt_vit *model, const vt_pass *pass, const vt_vit_input *input)
{
    vt_patch_grid grid = vt_vit_input_grid(model, pass->batch);
    vt_matrix patches = vt_pass_push(pass, vt_pass_rows(pass), model->patch_embed.in);
    pass->backend->patches_load(pass->backend, &grid, input->fields, input->mean, input->inverse_std, patches);
    return patches;
}

static vt_matrix position(const vt_vit *model, float *data)
{
    return vt_matrix_make(data, model->parallel->own.count, model->options.dim);
}

static vt_mask position_mask(const vt_vit *model, const vt_pass *pass)
{
    return vt_pass_mask(pass, model->options.dropout, model->options.depth, VT_SITE_POSITION);
}

vt_matrix vt_vit_forward(vt_vit *model, const vt_pass *pass, const vt_vit_input *input)
{
    vt_backend *backend = pass->backend;
    int64_t rows = vt_pass_rows(pass), dim = model->options.dim;
    vt_mask mask = position_mask(model, pass);
    model->stream_gradient = vt_pass_push_wide(pass, rows, dim);
    vt_matrix x = vt_pass_push_wide(pass, rows, dim);

    size_t mark = pass->arena->used;
    need(model, 0, false);
    vt_linear_forward(&model->patch_embed, pass, load_patches(model, pass, input), x);
    vt_arena_pop(pass->arena, mark);
    backend->position_add(backend, x, position(model, model->pos_embed->value));
    if (vt_mask_is_active(&mask)) backend->mask_multiply(backend, x, &mask, x);

    bool keep = pass->training && !model->options.recompute; /* without a backward nothing has to be kept */
    for (int64_t i = 0; i < model->options.depth; i++) {
        vt_matrix output = vt_pass_push_wide(pass, rows, dim);
        mark = pass->arena->used;
        need(model, i + 1, false);
        vt_range_begin("block %lld", (long long)i);
        vt_block_forward(&model->blocks[i], pass, x, output);
        vt_range_end();
        if (!keep) vt_arena_pop(pass->arena, mark);
        x = output;
    }

    model->stream = x;
    need(model, head_unit(model), false);
    vt_layer_norm_reserve(&model->norm, pass);
    vt_matrix prediction = vt_pass_push_wide(pass, rows, model->head.out);
    mark = pass->arena->used;
    vt_matrix normed = vt_pass_push(pass, rows, dim);
    vt_layer_norm_forward(&model->norm, pass, x, normed);
    vt_linear_forward(&model->head, pass, normed, prediction);
    vt_arena_pop(pass->arena, mark);
    return prediction;
}

void vt_vit_backward(vt_vit *model, const vt_pass *pass, const vt_vit_input *input, vt_matrix dprediction)
{
    vt_backend *backend = pass->backend;
    int64_t rows = vt_pass_rows(pass), dim = model->options.dim;
    vt_mask mask = position_mask(model, pass);
    vt_matrix dx = model->stream_gradient;
    backend->zero(backend, dx.data, (size_t)(rows * dim) * sizeof(float));

    size_t mark = pass->arena->used;
    need(model, head_unit(model), true);
    vt_matrix normed = vt_pass_push(pass, rows, dim);
    vt_matrix gradient = vt_pass_push_wide(pass, rows, dim);
    vt_layer_norm_forward(&model->norm, pass, model->stream, normed); /* once more, rather than kept */
    vt_linear_backward(&model->head, pass, normed, dprediction, gradient);
    vt_layer_norm_backward(&model->norm, pass, model->stream, gradient, dx);
    vt_parameters_gradients_ready(model->parameters, head_unit(model));
    vt_arena_pop(pass->arena, mark);

    for (int64_t i = model->options.depth - 1; i >= 0; i--) {
        vt_block *block = &model->blocks[i];
        mark = pass->arena->used;
        need(model, i + 1, true);
        vt_range_begin("block %lld backward", (long long)i);
        if (model->options.recompute) { /* the output is written once more, with the bits that it has, and not read */
            vt_matrix output = i + 1 < model->options.depth ? model->blocks[i + 1].input : model->stream;
            vt_block_forward(block, pass, block->input, output);
        }
        vt_block_backward(block, pass, dx);
        vt_range_end();
        vt_parameters_gradients_ready(model->parameters, i + 1);
        vt_arena_pop(pass->arena, mark);
    }

    need(model, 0, true);
    if (vt_mask_is_active(&mask)) backend->mask_multiply(backend, dx, &mask, dx);
    backend->position_backward(backend, dx, position(model, model->pos_embed->gradient));
    mark = pass->arena->used;
    vt_matrix dembedding = dx;
    if (pass->type != VT_FLOAT32) {
        dembedding = vt_pass_push(pass, rows, dim);
        backend->convert(backend, dx, dembedding);
    }
    vt_linear_backward(&model->patch_embed, pass, load_patches(model, pass, input), dembedding, (vt_matrix){0});
    vt_parameters_gradients_ready(model->parameters, 0);
    vt_arena_pop(pass->arena, mark);
}
