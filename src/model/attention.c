#include "model/attention.h"

#include <stdio.h>

/* All three weights first, then all three biases, so that each kind is one block [3 dim, dim] and [3 dim]. */
static void build_qkv(vt_linear *qkv, vt_parameters *parameters, const char *prefix, int64_t dim)
{
    static const char *const names[3] = {"q", "k", "v"};
    const vt_parameter *weights[3], *biases[3];
    char full[VT_PARAMETER_NAME];
    for (int i = 0; i < 3; i++) {
        snprintf(full, sizeof full, "%s.%s", prefix, names[i]);
        weights[i] =
            vt_parameters_add(parameters, full, "weight", 2, (const int64_t[]){dim, dim}, VT_START_NORMAL, 0.02);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(full, sizeof full, "%s.%s", prefix, names[i]);
        biases[i] = vt_parameters_add(parameters, full, "bias", 1, &dim, VT_START_ZERO, 0);
    }
    *qkv = (vt_linear){.weight = weights[0], .bias = biases[0], .in = dim, .out = 3 * dim};
}

void vt_attention_build(vt_attention *attention, vt_parameters *parameters, const char *prefix, int64_t layer,
                        int64_t dim, int64_t heads, double dropout)
{
    char name[VT_PARAMETER_NAME];
    attention->dim = dim;
    attention->heads = heads;
    attention->layer = layer;
    attention->dropout = dropout;
    build_qkv(&attention->qkv, parameters, prefix, dim);
    snprintf(name, sizeof name, "%s.proj", prefix);
    vt_linear_build(&attention->proj, parameters, name, dim, dim, true);
}

void vt_attention_reserve(vt_attention *attention, const vt_pass *pass)
{
    int64_t rows = vt_pass_rows(pass);
    attention->qkv_out = vt_pass_push(pass, rows, 3 * attention->dim);
    attention->out = vt_pass_push(pass, rows, attention->dim);
    attention->log_sum = vt_arena_push(pass->arena, (size_t)(rows * attention->heads) * sizeof(float));
}

static vt_attention_shape shape_of(const vt_attention *attention, const vt_pass *pass)
{
    return (vt_attention_shape){.batch = pass->batch,
                                .heads = attention->heads,
                                .head_dim = attention->dim / attention->heads,
                                .queries = pass->tokens,
                                .keys = pass->tokens,
                                .dropout =
                                    vt_pass_dropout(pass, attention->dropout, attention->layer, VT_SITE_ATTENTION)};
}

void vt_attention_forward(vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix y)
{
    vt_attention_shape shape = shape_of(attention, pass);
    int64_t dim = attention->dim;
    vt_matrix q = vt_matrix_columns(attention->qkv_out, 0, dim);
    vt_matrix k = vt_matrix_columns(attention->qkv_out, dim, dim);
    vt_matrix v = vt_matrix_columns(attention->qkv_out, 2 * dim, dim);
    vt_linear_forward(&attention->qkv, pass, x, attention->qkv_out);
    pass->backend->attention_forward(pass->backend, &shape, q, k, v, attention->out, attention->log_sum);
    vt_linear_forward(&attention->proj, pass, attention->out, y);
}

void vt_attention_backward(const vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx)
{
    vt_attention_shape shape = shape_of(attention, pass);
    int64_t dim = attention->dim;
    size_t mark = pass->arena->used;
    vt_matrix dout = vt_pass_push(pass, x.rows, dim);
    vt_matrix dqkv = vt_pass_push(pass, x.rows, 3 * dim);
    vt_linear_backward(&attention->proj, pass, attention->out, dy, dout);
    pass->backend->attention_backward(pass->backend, &shape, vt_matrix_columns(attention->qkv_out, 0, dim),
                                      vt_matrix_columns(attention->qkv_out, dim, dim),
                                      vt_matrix_columns(attention->qkv_out, 2 * dim, dim), attention->out,
                                      attention->log_sum, dout, vt_matrix_columns(dqkv, 0, dim),
                                      vt_matrix_columns(dqkv, dim, dim), vt_matrix_columns(dqkv, 2 * dim, dim));
    vt_linear_backward(&attention->qkv, pass, x, dqkv, dx);
    vt_arena_pop(pass->arena, mark);
}
