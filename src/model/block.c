#include "model/block.h"

#include <stdio.h>

void vt_block_build(vt_block *block, vt_parameters *parameters, int64_t layer, const vt_block_options *options)
{
    char name[VT_PARAMETER_NAME];
    block->dim = options->dim;
    block->layer = layer;
    block->dropout = options->dropout;
    block->path_rate = options->path_rate;
    snprintf(name, sizeof name, "blocks.%lld.norm1", (long long)layer);
    vt_layer_norm_build(&block->norm1, parameters, name, options->dim, 1e-6f);
    snprintf(name, sizeof name, "blocks.%lld.attn", (long long)layer);
    vt_attention_build(&block->attention, parameters, name,
                       &(vt_attention_options){.layer = layer,
                                               .dim = options->dim,
                                               .heads = options->heads,
                                               .dropout = options->dropout,
                                               .names = {"q", "k", "v", "proj"}});
    snprintf(name, sizeof name, "blocks.%lld.norm2", (long long)layer);
    vt_layer_norm_build(&block->norm2, parameters, name, options->dim, 1e-6f);
    snprintf(name, sizeof name, "blocks.%lld.mlp", (long long)layer);
    vt_mlp_build(&block->mlp, parameters, name, layer, options->dim, options->gelu, options->dropout);
}

/* The dropout after proj or fc2, and the drop path of that branch. */
static vt_mask branch_mask(const vt_block *block, const vt_pass *pass, uint32_t site, uint32_t path_site)
{
    vt_mask mask = vt_pass_mask(pass, block->dropout, block->layer, site);
    mask.path = vt_pass_dropout(pass, block->path_rate, block->layer, path_site);
    return mask;
}

void vt_block_forward(const vt_block *block, const vt_pass *pass, vt_matrix x, vt_matrix output, vt_block_saved *saved)
{
    vt_backend *backend = pass->backend;
    vt_mask attention_mask = branch_mask(block, pass, VT_SITE_PROJECTION, VT_SITE_PATH_ATTENTION);
    vt_mask mlp_mask = branch_mask(block, pass, VT_SITE_FC2, VT_SITE_PATH_MLP);
    saved->input = x;
    saved->output = output;
    saved->norm1 = vt_layer_norm_reserve(pass);
    saved->norm2 = vt_layer_norm_reserve(pass);
    saved->attention = vt_attention_reserve(&block->attention, pass);
    saved->mlp = vt_mlp_reserve(&block->mlp, pass);
    saved->middle = vt_pass_push_wide(pass, x.rows, block->dim);

    size_t mark = pass->arena->used;
    vt_matrix branch = vt_pass_push_wide(pass, x.rows, block->dim);
    vt_matrix normed = pass->type == VT_FLOAT32 ? branch : vt_pass_push(pass, x.rows, block->dim);
    vt_layer_norm_forward(&block->norm1, pass, x, normed, &saved->norm1);
    vt_attention_forward(&block->attention, pass, normed, (vt_matrix){0}, branch, &saved->attention);
    vt_layer_norm_residual(&block->norm2, pass, x, branch, &attention_mask, saved->middle, normed, &saved->norm2);
    vt_mlp_forward(&block->mlp, pass, normed, branch, &saved->mlp);
    backend->residual_add(backend, saved->middle, branch, &mlp_mask, output);
    vt_arena_pop(pass->arena, mark);
}

/* The gradient of a branch's output, in the pass's type: dx itself, or masked or converted into `room`. */
static vt_matrix branch_gradient(const vt_pass *pass, const vt_mask *mask, vt_matrix dx, vt_matrix room)
{
    if (vt_mask_is_active(mask))
        pass->backend->mask_multiply(pass->backend, dx, mask, room);
    else if (pass->type == VT_FLOAT32)
        return dx;
    else
        pass->backend->convert(pass->backend, dx, room);
    return room;
}

void vt_block_backward(const vt_block *block, const vt_pass *pass, vt_matrix dx, const vt_block_saved *saved)
{
    vt_mask attention_mask = branch_mask(block, pass, VT_SITE_PROJECTION, VT_SITE_PATH_ATTENTION);
    vt_mask mlp_mask = branch_mask(block, pass, VT_SITE_FC2, VT_SITE_PATH_MLP);
    size_t mark = pass->arena->used;
    vt_matrix normed = vt_pass_push(pass, dx.rows, block->dim);
    vt_matrix gradient = vt_pass_push_wide(pass, dx.rows, block->dim);
    vt_matrix room = pass->type == VT_FLOAT32 ? gradient : vt_pass_push(pass, dx.rows, block->dim);

    vt_layer_norm_forward(&block->norm2, pass, saved->middle, normed, &saved->norm2); /* recomputed, not kept */
    vt_mlp_backward(&block->mlp, pass, normed, branch_gradient(pass, &mlp_mask, dx, room), gradient, &saved->mlp);
    vt_layer_norm_backward(&block->norm2, pass, saved->middle, gradient, dx, &saved->norm2);

    vt_layer_norm_forward(&block->norm1, pass, saved->input, normed, &saved->norm1);
    vt_attention_backward(&block->attention, pass, normed, (vt_matrix){0},
                          branch_gradient(pass, &attention_mask, dx, room), gradient, (vt_matrix){0},
                          &saved->attention);
    vt_layer_norm_backward(&block->norm1, pass, saved->input, gradient, dx, &saved->norm1);
    vt_arena_pop(pass->arena, mark);
}
