#include "model/linear.h"

void vt_linear_build(vt_linear *linear, vt_parameters *parameters, const char *prefix, int64_t in, int64_t out,
                     vt_linear_split split, bool with_bias)
{
    const vt_parallel *parallel = parameters->parallel;
    const unsigned tensor = VT_AXES(VT_AXIS_TENSOR);
    vt_parameter *weight =
        vt_parameters_add(parameters, prefix, "weight", 2, (const int64_t[]){out, in}, VT_START_NORMAL, 0.02);
    vt_parameter *bias = with_bias ? vt_parameters_add(parameters, prefix, "bias", 1, &out, VT_START_VALUE, 0) : NULL;
    *linear = (vt_linear){.weight = weight, .bias = bias, .in = in, .out = out};
    if (split == VT_LINEAR_BY_OUTPUT) {
        vt_span share = vt_parallel_share(parallel, out);
        linear->out = share.count;
        vt_parameter_split(weight, 0, tensor, share);
        if (with_bias) vt_parameter_split(bias, 0, tensor, share);
    } else if (split == VT_LINEAR_BY_INPUT) {
        vt_span share = vt_parallel_share(parallel, in);
        linear->in = share.count;
        linear->without_bias = parallel->tensor->rank != 0;
        vt_parameter_split(weight, 1, tensor, share);
        if (with_bias) bias->sum_axes &= ~tensor; /* every rank gets dy of all tokens, from vt_region_enter */
    }
}

void vt_linear_start(vt_linear *linear, double weight_bound, double bias_bound)
{
    linear->weight->start = linear->bias->start = VT_START_UNIFORM;
    linear->weight->spread = weight_bound;
    linear->bias->spread = bias_bound;
}

vt_matrix vt_linear_weight(const vt_linear *linear)
{
    vt_matrix weight = vt_parameter_matrix(linear->weight);
    weight.rows = linear->out; /* more than the parameter's own rows where q, k and v are one product */
    weight.columns = weight.stride = linear->in;
    return weight;
}

void vt_linear_forward(const vt_linear *linear, const vt_pass *pass, vt_matrix x, vt_matrix y)
{
    const vt_parameter *bias = linear->without_bias ? NULL : linear->bias;
    pass->backend->linear_forward(pass->backend, x, vt_linear_weight(linear), bias != NULL ? bias->value : NULL,
                                  bias != NULL ? bias->half : NULL, y);
}

void vt_linear_backward(const vt_linear *linear, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx)
{
    vt_backend *backend = pass->backend;
    const bool has_bias = linear->bias != NULL && !linear->bias->frozen;
    float *dweight = linear->weight->gradient, *dbias = has_bias ? linear->bias->gradient : NULL;
    const size_t mark = pass->arena->used;
    if (linear->weight->frozen &&
        has_bias) { /* the bias's sums come with a product: one of few columns, which nothing reads */
        enum { FEW = 8 };
        x = vt_matrix_columns(x, 0, x.columns < FEW ? x.columns : FEW);
        dweight = vt_arena_push(pass->arena, (size_t)(dy.columns * x.columns) * sizeof(float));
    }
    if (!linear->weight->frozen || has_bias) backend->linear_backward_weight(backend, x, dy, dweight, dbias);
    vt_arena_pop(pass->arena, mark);
    if (dx.data != NULL) backend->linear_backward_input(backend, dy, vt_linear_weight(linear), dx);
}
