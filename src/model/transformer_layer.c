#include "model/transformer_layer.h"

#include <stdio.h>

double vt_xavier_bound(int64_t rows, int64_t columns)
{
    return sqrt(6.0 / (double)(rows + columns));
}

/* number: tells its dropout from that of other layers. */
static void build_attention(vt_attention *attention, vt_parameters *parameters, const char *prefix, const char *name,
                            const vt_config *config, int64_t number, bool crosses)
{
    char full[VT_PARAMETER_NAME];
    const int64_t dim = config->embed_dim;
    /* as torch.nn.Transformer names and starts its parameters; else each linear layer has a name */
    const bool in_one = config->model == VT_MODEL_transformer;
    const double bias_bound = in_one ? 0 : 1 / sqrt((double)dim); /* of torch.nn.Linear's biases */
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    vt_attention_options own = {.layer = number,
                                .dim = dim,
                                .heads = config->num_heads,
                                .dropout = config->dropout,
                                .crosses = crosses,
                                .causal = config->causal,
                                .unscaled = config->attention_scale == VT_SCALE_NONE,
                                .names = {"linear_Q", "linear_K", "linear_V", "out_proj"},
                                .in_one = in_one,
                                .weight_bound = vt_xavier_bound(in_one ? 3 * dim : dim, dim),
                                .bias_bound = bias_bound};
    vt_attention_build(attention, parameters, full, &own);
    vt_linear_start(&attention->proj, vt_xavier_bound(dim, dim), bias_bound);
}

void vt_transformer_layer_build(vt_transformer_layer *layer, vt_parameters *parameters, const char *prefix,
                                const vt_config *config, int64_t number)
{
    char name[VT_PARAMETER_NAME];
    const int64_t dim = config->embed_dim, hidden = config->ffn_dim;
    layer->config = config;
    layer->dim = dim;
    layer->layer = number;
    layer->is_decoder = number >= config->depth;
    build_attention(&layer->attention, parameters, prefix, "self_attn", config, number, false);
    if (layer->is_decoder)
        build_attention(&layer->cross, parameters, prefix, "multihead_attn", config, config->depth + number, true);
    vt_mlp_build(&layer->mlp, parameters, prefix,
                 &(vt_mlp_options){.layer = number,
                                   .dim = dim,
                                   .hidden = hidden,
                                   .relu = true,
                                   .dropout = config->dropout,
                                   .names = {"linear1", "linear2"}});
    vt_linear_start(&layer->mlp.fc1, vt_xavier_bound(hidden, dim), 1 / sqrt((double)dim));
    vt_linear_start(&layer->mlp.fc2, vt_xavier_bound(dim, hidden), 1 / sqrt((double)hidden));
    for (int i = 0, number_of_norm = 1; i < 3; i++) {
        if (i == 1 && !layer->is_decoder) continue;
        snprintf(name, sizeof name, "%s.norm%d", prefix, number_of_norm++);
        vt_layer_norm_build(&layer->norms[i], parameters, name, dim, 1e-5f);
    }
}

/* ---- the layer ---- */

/* The dropout of what is added to the stream in front of norm `i`. */
static vt_mask branch_mask(const vt_transformer_layer *layer, const vt_pass *pass, int i)
{
    const int64_t number = i == 1 ? layer->cross.options.layer : layer->layer;
    return vt_pass_mask(pass, layer->config->dropout, number, i == 2 ? VT_SITE_FC2 : VT_SITE_PROJECTION);
}

/* output = norms[i](x + masked(branch)) */
static void add_and_norm(const vt_transformer_layer *layer, const vt_pass *pass, int i, vt_matrix x, vt_matrix branch,
                         vt_matrix output, const vt_transformer_layer_saved *saved)
{
    vt_residual stream = {saved->sums[i], x, branch, branch_mask(layer, pass, i)};
    vt_layer_norm_residual(&layer->norms[i], pass, &stream, output, &saved->norms[i]);
}

void vt_transformer_layer_begin(const vt_transformer_layer *layer, const vt_pass *pass, bool keeps,
                                vt_transformer_layer_saved *saved)
{
    vt_attention_begin(&layer->attention, pass, keeps, &saved->attention);
    if (layer->is_decoder) vt_attention_begin(&layer->cross, pass, keeps, &saved->cross);
}

void vt_transformer_layer_reserve(const vt_transformer_layer *layer, const vt_pass *pass, int64_t rows,
                                  vt_transformer_layer_saved *saved)
{
    for (int i = 0; i < 3; i++) {
        if (i == 1 && !layer->is_decoder) continue;
        saved->sums[i] = vt_pass_push_float32(pass, rows, layer->dim);
        saved->norms[i] = vt_layer_norm_reserve(pass);
    }
    vt_attention_reserve(&layer->attention, pass, &saved->attention);
    if (layer->is_decoder) vt_attention_reserve(&layer->cross, pass, &saved->cross);
    saved->mlp = vt_mlp_reserve(&layer->mlp, pass);
}

void vt_transformer_layer_forward(const vt_transformer_layer *layer, const vt_pass *pass, vt_matrix x, vt_matrix memory,
                                  vt_matrix output, const vt_matrix cache[2], vt_transformer_layer_saved *saved)
{
    saved->input = x;
    if (cache != NULL) {
        saved->attention.cache = cache[0];
        saved->cross.cache = cache[1];
    }
    const size_t mark = pass->arena->used;
    vt_matrix branch = vt_pass_push_float32(pass, x.rows, layer->dim);
    vt_matrix stream = vt_pass_push_float32(pass, x.rows, layer->dim);
    const size_t inner = pass->arena->used;
    vt_attention_forward(&layer->attention, pass, vt_pass_typed(pass, x), (vt_matrix){0}, branch, &saved->attention);
    vt_arena_pop(pass->arena, inner);
    add_and_norm(layer, pass, 0, x, branch, stream, saved);
    if (layer->is_decoder) {
        vt_matrix query = vt_pass_typed(pass, stream);
        vt_attention_forward(&layer->cross, pass, query, vt_pass_typed(pass, memory), branch, &saved->cross);
        vt_arena_pop(pass->arena, inner);
        add_and_norm(layer, pass, 1, stream, branch, stream, saved);
    }
    vt_mlp_forward(&layer->mlp, pass, vt_pass_typed(pass, stream), branch, &saved->mlp);
    vt_arena_pop(pass->arena, inner);
    add_and_norm(layer, pass, 2, stream, branch, output, saved);
    vt_arena_pop(pass->arena, mark);
}

/* The gradient of the branch in front of norm `i`, in the pass's type: dsum itself, or masked or rounded on the arena.
 */
static vt_matrix branch_gradient(const vt_transformer_layer *layer, const vt_pass *pass, int i, vt_matrix dsum)
{
    const vt_mask mask = branch_mask(layer, pass, i);
    if (!vt_mask_is_active(&mask)) return vt_pass_typed(pass, dsum);
    vt_matrix masked = vt_pass_push(pass, dsum.rows, dsum.columns);
    pass->backend->mask_multiply(pass->backend, dsum, &mask, masked);
    return masked;
}

/* dsum = the gradient of what norm `i` normalises, from that of its output. */
static void norm_backward(const vt_transformer_layer *layer, const vt_pass *pass, int i, vt_matrix doutput,
                          vt_matrix dsum, const vt_transformer_layer_saved *saved)
{
    vt_matrix_clear(pass->backend, dsum);
    vt_layer_norm_backward(&layer->norms[i], pass, saved->sums[i], doutput, dsum, (vt_matrix){0}, &saved->norms[i]);
}

void vt_transformer_layer_backward(const vt_transformer_layer *layer, const vt_pass *pass, vt_matrix memory,
                                   vt_matrix dx, vt_matrix dmemory, const vt_transformer_layer_saved *saved)
{
    const size_t mark = pass->arena->used;
    vt_matrix dsum = vt_pass_push_float32(pass, dx.rows, layer->dim);
    vt_matrix dbranch = vt_pass_push_float32(pass, dx.rows, layer->dim);
    vt_matrix stream = vt_pass_push_float32(pass, dx.rows, layer->dim); /* in front of a branch; made again, not kept */
    const int before = layer->is_decoder ? 1 : 0;
    const size_t inner = pass->arena->used;

    norm_backward(layer, pass, 2, dx, dsum, saved);
    vt_layer_norm_forward(&layer->norms[before], pass, saved->sums[before], stream, &saved->norms[before]);
    vt_matrix dlast = branch_gradient(layer, pass, 2, dsum);
    vt_mlp_backward(&layer->mlp, pass, vt_pass_typed(pass, stream), dlast, dbranch, &saved->mlp);
    vt_matrix_add(pass->backend, dsum, dbranch, dx);
    vt_arena_pop(pass->arena, inner);

    if (layer->is_decoder) {
        norm_backward(layer, pass, 1, dx, dsum, saved);
        vt_layer_norm_forward(&layer->norms[0], pass, saved->sums[0], stream, &saved->norms[0]);
        vt_matrix dout = branch_gradient(layer, pass, 1, dsum), dkeys = vt_pass_push_float32(pass, dx.rows, layer->dim);
        vt_attention_backward(&layer->cross, pass, vt_pass_typed(pass, stream), vt_pass_typed(pass, memory), dout,
                              dbranch, dkeys, &saved->cross);
        vt_matrix_add(pass->backend, dsum, dbranch, dx);
        vt_matrix_add(pass->backend, dmemory, dkeys, dmemory);
        vt_arena_pop(pass->arena, inner);
    }

    norm_backward(layer, pass, 0, dx, dsum, saved);
    vt_matrix dout = branch_gradient(layer, pass, 0, dsum);
    vt_attention_backward(&layer->attention, pass, vt_pass_typed(pass, saved->input), (vt_matrix){0}, dout, dbranch,
                          (vt_matrix){0}, &saved->attention);
    vt_matrix_add(pass->backend, dsum, dbranch, dx);
    vt_arena_pop(pass->arena, mark);
}
