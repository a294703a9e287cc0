#include "model/block.h"

#include <stdio.h>

void vt_block_build(vt_block *block, vt_parameters *parameters, int64_t layer, const vt_config *config)
{
    char name[VT_PARAMETER_NAME];
    const int64_t dim = config->embed_dim;
    block->config = config;
    block->layer = layer;
    block->path_rate = config->depth > 1 ? config->dropout * (double)layer / (double)(config->depth - 1) : 0;
    snprintf(name, sizeof name, "blocks.%ld.norm1", layer);
    vt_layer_norm_build(&block->norm1, parameters, name, dim, 1e-6f);
    snprintf(name, sizeof name, "blocks.%ld.attn", layer);
    vt_attention_build(&block->attention, parameters, name,
                       &(vt_attention_options){.layer = layer,
                                               .dim = dim,
                                               .heads = config->num_heads,
                                               .dropout = config->dropout,
                                               .names = {"q", "k", "v", "proj"}});
    snprintf(name, sizeof name, "blocks.%ld.norm2", layer);
    vt_layer_norm_build(&block->norm2, parameters, name, dim, 1e-6f);
    snprintf(name, sizeof name, "blocks.%ld.mlp", layer);
    vt_mlp_build(&block->mlp, parameters, name,
                 &(vt_mlp_options){.layer = layer,
                                   .dim = dim,
                                   .hidden = 4 * dim,
                                   .gelu = (vt_gelu)config->gelu,
                                   .dropout = config->dropout,
                                   .names = {"fc1", "fc2"}});
}

/* The dropout after proj or fc2, and the drop path of that branch. */
static vt_mask branch_mask(const vt_block *block, const vt_pass *pass, uint32_t site, uint32_t path_site)
{
    vt_mask mask = vt_pass_mask(pass, block->config->dropout, block->layer, site);
    mask.path = vt_pass_dropout(pass, block->path_rate, block->layer, path_site);
    return mask;
}

void vt_block_reserve(const vt_block *block, const vt_pass *pass, vt_matrix output, bool for_backward,
                      vt_block_saved *saved)
{
    const int64_t rows = output.rows;
    saved->norm1 = vt_layer_norm_reserve(pass);
    saved->norm2 = vt_layer_norm_reserve(pass);
    vt_attention_reserve(&block->attention, pass, &saved->attention);
    saved->mlp = vt_mlp_reserve(&block->mlp, pass);
    saved->middle = for_backward ? vt_pass_push_float32(pass, rows, block->config->embed_dim) : output;
    saved->normed1 = pass->keeps ? vt_pass_push(pass, rows, block->config->embed_dim) : (vt_matrix){0};
    saved->normed2 = pass->keeps ? vt_pass_push(pass, rows, block->config->embed_dim) : (vt_matrix){0};
}

void vt_block_forward(const vt_block *block, const vt_pass *pass, vt_residual *stream, vt_matrix output,
                      vt_matrix branch, vt_block_saved *saved)
{
    saved->input = stream->sum;
    /* where they are not kept, a branch takes the place of the rows that it was made of */
    const vt_matrix normed1 = pass->keeps ? saved->normed1 : branch, normed2 = pass->keeps ? saved->normed2 : branch;
    vt_layer_norm_residual(&block->norm1, pass, stream, normed1, &saved->norm1);
    vt_attention_forward(&block->attention, pass, normed1, (vt_matrix){0}, branch, &saved->attention);
    *stream = (vt_residual){saved->middle, saved->input, branch,
                            branch_mask(block, pass, VT_SITE_PROJECTION, VT_SITE_PATH_ATTENTION)};
    vt_layer_norm_residual(&block->norm2, pass, stream, normed2, &saved->norm2);
    vt_mlp_forward(&block->mlp, pass, normed2, branch, &saved->mlp);
    *stream = (vt_residual){output, saved->middle, branch, branch_mask(block, pass, VT_SITE_FC2, VT_SITE_PATH_MLP)};
}

bool vt_pass_rounds_gradient(const vt_pass *pass, double dropout)
{
    return pass->type != VT_FLOAT32 && !(pass->training && dropout > 0);
}

/* The gradient of a branch's output, in the pass's type: dx itself, or in `gradient`, masked or rounded. */
static vt_matrix branch_gradient(const vt_pass *pass, const vt_mask *mask, vt_matrix dx, vt_matrix gradient)
{
    if (vt_mask_is_active(mask)) pass->backend->mask_multiply(pass->backend, dx, mask, gradient);
    return pass->type == VT_FLOAT32 && !vt_mask_is_active(mask) ? dx : gradient;
}

/* What a LayerNorm made of x, kept or made again. */
static vt_matrix normed_again(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix kept,
                              vt_matrix room, const vt_layer_norm_saved *saved)
{
    if (kept.data != NULL) return kept;
    vt_layer_norm_forward(norm, pass, x, room, saved);
    return room;
}

void vt_block_backward(const vt_block *block, const vt_pass *pass, vt_matrix dx, vt_matrix gradient, vt_matrix room,
                       const vt_block_saved *saved)
{
    const vt_mask attention_mask = branch_mask(block, pass, VT_SITE_PROJECTION, VT_SITE_PATH_ATTENTION);
    const vt_mask mlp_mask = branch_mask(block, pass, VT_SITE_FC2, VT_SITE_PATH_MLP);
    const vt_matrix none = {0}, rounded = vt_pass_rounds_gradient(pass, block->config->dropout) ? gradient : none;
    vt_matrix normed = normed_again(&block->norm2, pass, saved->middle, saved->normed2, room, &saved->norm2);
    vt_mlp_backward(&block->mlp, pass, normed, branch_gradient(pass, &mlp_mask, dx, gradient), gradient, &saved->mlp);
    vt_layer_norm_backward(&block->norm2, pass, saved->middle, gradient, dx, rounded, &saved->norm2);

    normed = normed_again(&block->norm1, pass, saved->input, saved->normed1, room, &saved->norm1);
    vt_attention_backward(&block->attention, pass, normed, none, branch_gradient(pass, &attention_mask, dx, gradient),
                          gradient, none, &saved->attention);
    vt_layer_norm_backward(&block->norm1, pass, saved->input, gradient, dx, rounded, &saved->norm1);
}
