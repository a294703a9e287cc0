/* The back end that computes nothing: the same step runs over it to learn how much memory and how many FLOPs it takes.
 * FLOPs count matrix products (a multiply-add is two), attention's included; the rest is bound by memory, not by them:
 * of it the bytes are counted that are read and written. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

#include "backend/backend.h"

static vt_dry_count *count_of(vt_backend *backend)
{
    return backend->state;
}

static double bytes_of(vt_matrix matrix)
{
    return (double)matrix.rows * (double)matrix.columns * (double)vt_type_size(matrix.type);
}

/* An operation that reads and writes `bytes`. */
static void moves(vt_backend *backend, vt_work work, double bytes)
{
    count_of(backend)->moved[work] += bytes;
    count_of(backend)->operations++;
}

/* A product of a and b into c; one more size than there is room for joins the last. */
static void multiplies(vt_backend *backend, vt_matrix a, vt_matrix b, vt_matrix c, double flops)
{
    vt_dry_count *count = count_of(backend);
    double bytes = bytes_of(a) + bytes_of(b) + bytes_of(c);
    int i = 0;
    count->flops += flops;
    count->operations++;
    while (i < count->product_count && (count->products[i].flops != flops || count->products[i].bytes != bytes)) i++;
    if (i == VT_DRY_PRODUCTS) i--;
    if (i == count->product_count) count->products[count->product_count++] = (vt_dry_product){flops, bytes, 0};
    count->products[i].calls++;
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
    (void)memory;
    moves(backend, VT_WORK_OPTIMIZER, (double)bytes);
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
    moves(backend, VT_WORK_RESIDUAL, bytes_of(from) + bytes_of(to));
}

static void linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    (void)bias;
    multiplies(backend, x, weight, y, 2.0 * (double)x.rows * (double)x.columns * (double)y.columns);
}

static void linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    multiplies(backend, dy, weight, dx, 2.0 * (double)dy.rows * (double)dy.columns * (double)dx.columns);
}

static void linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    (void)dbias;
    vt_matrix sum = vt_matrix_make(dweight, dy.columns, x.columns); /* read and written */
    sum.columns *= 2;
    multiplies(backend, x, dy, sum, 2.0 * (double)x.rows * (double)x.columns * (double)dy.columns);
}

static void layer_norm_forward(vt_backend *backend, vt_matrix x, const float *weight, const float *bias, float epsilon,
                               vt_matrix y, float *mean, float *rstd)
{
    (void)weight, (void)bias, (void)epsilon, (void)mean, (void)rstd;
    moves(backend, VT_WORK_NORM, bytes_of(x) + bytes_of(y));
}

static void layer_norm_backward(vt_backend *backend, vt_matrix x, const float *weight, const float *mean,
                                const float *rstd, vt_matrix dy, vt_matrix dx, float *dweight, float *dbias)
{
    (void)weight, (void)mean, (void)rstd, (void)dweight, (void)dbias;
    moves(backend, VT_WORK_NORM, bytes_of(x) + bytes_of(dy) + 2 * bytes_of(dx));
}

static void gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
    (void)kind;
    moves(backend, VT_WORK_GELU, bytes_of(x) + bytes_of(y));
}

static void gelu_backward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y)
{
    (void)kind;
    moves(backend, VT_WORK_GELU, bytes_of(x) + bytes_of(dy) + bytes_of(dx) + (y.data != NULL ? bytes_of(y) : 0));
}

static void linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                vt_matrix hidden, vt_matrix active)
{
    (void)kind;
    linear_forward(backend, x, weight, bias, hidden);
    count_of(backend)->moved[VT_WORK_GELU] += bytes_of(active); /* written beside the product's result */
}

static void residual_layer_norm(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                const float *weight, const float *bias, float epsilon, vt_matrix y, vt_matrix normed,
                                float *mean, float *rstd)
{
    (void)mask, (void)weight, (void)bias, (void)epsilon, (void)mean, (void)rstd;
    moves(backend, VT_WORK_NORM, bytes_of(x) + bytes_of(branch) + bytes_of(y) + bytes_of(normed));
}

static void attends(vt_backend *backend, double flops)
{
    count_of(backend)->flops += flops;
    count_of(backend)->attention_flops += flops;
    count_of(backend)->operations++;
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
    attends(backend, 2 * attention_product(shape));
}

static void attention_merge(vt_backend *backend, const vt_attention_shape *shape, vt_matrix part,
                            const float *part_log_sum, vt_matrix out, float *log_sum)
{
    (void)shape, (void)part_log_sum, (void)log_sum;
    moves(backend, VT_WORK_RESIDUAL, bytes_of(part) + 2 * bytes_of(out));
}

/* Four products are the gradient's own; the fifth, the scores once more, is an implementation's, not counted. */
static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    (void)q, (void)k, (void)v, (void)out, (void)log_sum, (void)dout, (void)dq, (void)dk, (void)dv;
    attends(backend, 4 * attention_product(shape));
}

static void residual_add(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y)
{
    double again = vt_mask_is_active(mask) ? bytes_of(branch) : 0;
    moves(backend, VT_WORK_RESIDUAL, bytes_of(x) + bytes_of(branch) + bytes_of(y) + again);
}

static void mask_multiply(vt_backend *backend, vt_matrix x, const vt_mask *mask, vt_matrix y)
{
    (void)mask;
    moves(backend, VT_WORK_RESIDUAL, bytes_of(x) + bytes_of(y));
}

static void position_add(vt_backend *backend, vt_matrix x, vt_matrix positions)
{
    moves(backend, VT_WORK_RESIDUAL, 2 * bytes_of(x) + bytes_of(positions));
}

static void position_backward(vt_backend *backend, vt_matrix dx, vt_matrix dpositions)
{
    moves(backend, VT_WORK_RESIDUAL, bytes_of(dx) + 2 * bytes_of(dpositions));
}

static void patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                         const float *inverse_std, vt_matrix patches)
{
    (void)grid, (void)fields, (void)mean, (void)inverse_std;
    vt_matrix wide = patches; /* the fields are float32 */
    wide.type = VT_FLOAT32;
    moves(backend, VT_WORK_PATCHES, bytes_of(wide) + bytes_of(patches));
}

static void patches_store(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, const float *mean,
                          const float *inverse_std, float *fields)
{
    (void)grid, (void)mean, (void)inverse_std, (void)fields;
    moves(backend, VT_WORK_PATCHES, 2 * bytes_of(patches));
}

static void squared_norms(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target, double *squares)
{
    (void)batch, (void)squares;
    moves(backend, VT_WORK_PATCHES, bytes_of(prediction) + bytes_of(target));
}

static void relative_l2(vt_backend *backend, int64_t batch, const double *squares, float *losses, double *sum)
{
    (void)batch, (void)squares, (void)losses, (void)sum;
    count_of(backend)->operations++;
}

static void relative_l2_backward(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target,
                                 const double *squares, float scale, const double *loss_scale, vt_matrix dprediction)
{
    (void)batch, (void)squares, (void)scale, (void)loss_scale;
    moves(backend, VT_WORK_PATCHES, bytes_of(prediction) + bytes_of(target) + bytes_of(dprediction));
}

static void channel_squares(vt_backend *backend, const vt_patch_grid *grid, vt_matrix prediction, vt_matrix target,
                            const float *latitude_weights, double *squares)
{
    (void)grid, (void)latitude_weights, (void)squares;
    moves(backend, VT_WORK_PATCHES, bytes_of(prediction) + bytes_of(target));
}

static void sum_of_squares(vt_backend *backend, const float *x, int64_t count, double weight, double *result)
{
    (void)x, (void)weight, (void)result;
    moves(backend, VT_WORK_OPTIMIZER, 4.0 * (double)count);
}

static void first_nonfinite(vt_backend *backend, const float *x, const int64_t *ranges, int64_t count,
                            const double *figure, int32_t *first)
{
    (void)x, (void)ranges, (void)count, (void)figure, (void)first; /* counted as if all is well */
    count_of(backend)->operations++;
}

static void step_decide(vt_backend *backend, const vt_update *update, vt_step_state *state)
{
    (void)update, (void)state;
    count_of(backend)->operations++;
}

static void update_parameters(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                              const float *gradients, float *parameters, float *moment1, float *moment2, int64_t count)
{
    (void)state, (void)gradients, (void)parameters, (void)moment1, (void)moment2;
    /* gradients read; parameters and moments read and written */
    moves(backend, VT_WORK_OPTIMIZER, 4.0 * (double)count * (update->kind == VT_OPTIMIZER_SGD ? 5 : 7));
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
                            .position_add = position_add,
                            .position_backward = position_backward,
                            .patches_load = patches_load,
                            .patches_store = patches_store,
                            .squared_norms = squared_norms,
                            .relative_l2 = relative_l2,
                            .relative_l2_backward = relative_l2_backward,
                            .channel_squares = channel_squares,
                            .sum_of_squares = sum_of_squares,
                            .first_nonfinite = first_nonfinite,
                            .step_decide = step_decide,
                            .update = update_parameters};
    vt_backend_fill_immediate(backend);
    snprintf(backend->name, sizeof backend->name, "dry");
    *result = backend;
    return VT_OK;
}

const vt_dry_count *vt_backend_dry_count(const vt_backend *backend)
{
    return backend->state;
}
