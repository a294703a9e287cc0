/* The back end that computes nothing: the same step runs over it to learn how much memory and how many FLOPs it takes.
 * FLOPs count matrix products (a multiply-add is two), attention's included; the rest is bound by memory, not by them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

#include "backend/backend.h"

static vt_dry_count *count_of(vt_backend *backend)
{
    return backend->state;
}

static double dry_available_memory(vt_backend *backend)
{
    (void)backend;
    return -1;
}

static vt_status dry_allocate(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    count_of(backend)->bytes[category] += bytes;
    *memory = (void *)(uintptr_t)256; /* an address that looks aligned and must never be used */
    return VT_OK;
}

static void dry_release(vt_backend *backend, void *memory)
{
    (void)backend, (void)memory;
}

static void dry_zero(vt_backend *backend, void *memory, size_t bytes)
{
    (void)backend, (void)memory, (void)bytes;
}

static void dry_copy_from_host(vt_backend *backend, void *memory, const void *host, size_t bytes)
{
    (void)backend, (void)memory, (void)host, (void)bytes;
}

/* What comes to the host is 0. */
static void dry_copy_to_host(vt_backend *backend, void *host, const void *memory, size_t bytes)
{
    (void)backend, (void)memory;
    for (size_t i = 0; i < bytes; i++) ((char *)host)[i] = 0;
}

static vt_status dry_check(vt_backend *backend)
{
    (void)backend;
    return VT_OK;
}

static void dry_close(vt_backend *backend)
{
    free(backend->state);
}

static void convert(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    (void)backend, (void)from, (void)to;
}

static void weights_changed(vt_backend *backend)
{
    (void)backend;
}

static void linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    (void)weight, (void)bias;
    count_of(backend)->flops += 2.0 * (double)x.rows * (double)x.columns * (double)y.columns;
}

static void linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    (void)weight;
    count_of(backend)->flops += 2.0 * (double)dy.rows * (double)dy.columns * (double)dx.columns;
}

static void linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    (void)dweight, (void)dbias;
    count_of(backend)->flops += 2.0 * (double)x.rows * (double)x.columns * (double)dy.columns;
}

static void layer_norm_forward(vt_backend *backend, vt_matrix x, const float *weight, const float *bias, float epsilon,
                               vt_matrix y, float *mean, float *rstd)
{
    (void)backend, (void)x, (void)weight, (void)bias, (void)epsilon, (void)y, (void)mean, (void)rstd;
}

static void layer_norm_backward(vt_backend *backend, vt_matrix x, const float *weight, const float *mean,
                                const float *rstd, vt_matrix dy, vt_matrix dx, float *dweight, float *dbias)
{
    (void)backend, (void)x, (void)weight, (void)mean, (void)rstd, (void)dy, (void)dx, (void)dweight, (void)dbias;
}

static void gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
    (void)backend, (void)kind, (void)x, (void)y;
}

static void gelu_backward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y)
{
    (void)backend, (void)kind, (void)x, (void)dy, (void)dx, (void)y;
}

static void linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                vt_matrix hidden, vt_matrix active)
{
    (void)kind, (void)active;
    linear_forward(backend, x, weight, bias, hidden);
}

static void residual_layer_norm(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                const float *weight, const float *bias, float epsilon, vt_matrix y, vt_matrix normed,
                                float *mean, float *rstd)
{
    (void)backend, (void)x, (void)branch, (void)mask, (void)weight, (void)bias, (void)epsilon, (void)y, (void)normed,
        (void)mean, (void)rstd;
}

/* FLOPs of one product of queries × keys × head_dim over all heads and samples. */
static double attention_product(const vt_attention_shape *shape)
{
    return 2.0 * (double)(shape->batch * shape->heads) * (double)shape->queries * (double)shape->keys *
           (double)shape->head_dim;
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    (void)q, (void)k, (void)v, (void)out, (void)log_sum;
    count_of(backend)->flops += 2 * attention_product(shape);
}

static void attention_merge(vt_backend *backend, const vt_attention_shape *shape, vt_matrix part,
                            const float *part_log_sum, vt_matrix out, float *log_sum)
{
    (void)backend, (void)shape, (void)part, (void)part_log_sum, (void)out, (void)log_sum;
}

/* Four products are the gradient's own; the fifth, the scores once more, is an implementation's, not counted. */
static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    (void)q, (void)k, (void)v, (void)out, (void)log_sum, (void)dout, (void)dq, (void)dk, (void)dv;
    count_of(backend)->flops += 4 * attention_product(shape);
}

static void residual_add(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y)
{
    (void)backend, (void)x, (void)branch, (void)mask, (void)y;
}

static void mask_multiply(vt_backend *backend, vt_matrix x, const vt_mask *mask, vt_matrix y)
{
    (void)backend, (void)x, (void)mask, (void)y;
}

static void position(vt_backend *backend, vt_matrix x, vt_matrix positions)
{
    (void)backend, (void)x, (void)positions;
}

static void patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                         const float *inverse_std, vt_matrix patches)
{
    (void)backend, (void)grid, (void)fields, (void)mean, (void)inverse_std, (void)patches;
}

static void patches_store(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, const float *mean,
                          const float *inverse_std, float *fields)
{
    (void)backend, (void)grid, (void)patches, (void)mean, (void)inverse_std, (void)fields;
}

static void squared_norms(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target, double *squares)
{
    (void)backend, (void)batch, (void)prediction, (void)target, (void)squares;
}

static void relative_l2(vt_backend *backend, int64_t batch, const double *squares, float *losses)
{
    (void)backend, (void)batch, (void)squares, (void)losses;
}

static void relative_l2_backward(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target,
                                 const double *squares, float scale, vt_matrix dprediction)
{
    (void)backend, (void)batch, (void)prediction, (void)target, (void)squares, (void)scale, (void)dprediction;
}

static void channel_squares(vt_backend *backend, const vt_patch_grid *grid, vt_matrix prediction, vt_matrix target,
                            const float *latitude_weights, double *squares)
{
    (void)backend, (void)grid, (void)prediction, (void)target, (void)latitude_weights, (void)squares;
}

static void sum_of_squares(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    (void)backend, (void)x, (void)count, (void)weight, (void)result;
}

static void clip_scale(vt_backend *backend, const double *squares, double maximum, float *scale)
{
    (void)backend, (void)squares, (void)maximum, (void)scale;
}

static void update_parameters(vt_backend *backend, const vt_update *update, const float *scale, const float *gradients,
                              float *parameters, float *moment1, float *moment2, int64_t count)
{
    (void)backend, (void)update, (void)scale, (void)gradients, (void)parameters, (void)moment1, (void)moment2,
        (void)count;
}

vt_status vt_backend_open_dry(vt_backend **result)
{
    vt_backend *backend = vt_allocate(1, sizeof *backend, "the dry back end");
    vt_dry_count *count = vt_allocate(1, sizeof *count, "the dry back end");
    *backend = (vt_backend){.state = count,
                            .shares_host_memory = true,
                            .close = dry_close,
                            .check = dry_check,
                            .available_memory = dry_available_memory,
                            .allocate = dry_allocate,
                            .release = dry_release,
                            .zero = dry_zero,
                            .copy_from_host = dry_copy_from_host,
                            .copy_to_host = dry_copy_to_host,
                            .convert = convert,
                            .weights_changed = weights_changed,
                            .linear_forward = linear_forward,
                            .linear_backward_input = linear_backward_input,
                            .linear_backward_weight = linear_backward_weight,
                            .layer_norm_forward = layer_norm_forward,
                            .layer_norm_backward = layer_norm_backward,
                            .gelu_forward = gelu_forward,
                            .gelu_backward = gelu_backward,
                            .linear_gelu_forward = linear_gelu_forward,
                            .residual_layer_norm = residual_layer_norm,
                            .attention_forward = attention_forward,
                            .attention_merge = attention_merge,
                            .attention_backward = attention_backward,
                            .residual_add = residual_add,
                            .mask_multiply = mask_multiply,
                            .position_add = position,
                            .position_backward = position,
                            .patches_load = patches_load,
                            .patches_store = patches_store,
                            .squared_norms = squared_norms,
                            .relative_l2 = relative_l2,
                            .relative_l2_backward = relative_l2_backward,
                            .channel_squares = channel_squares,
                            .sum_of_squares = sum_of_squares,
                            .clip_scale = clip_scale,
                            .update = update_parameters};
    snprintf(backend->name, sizeof backend->name, "dry");
    *result = backend;
    return VT_OK;
}

const vt_dry_count *vt_backend_dry_count(const vt_backend *backend)
{
    return backend->state;
}
