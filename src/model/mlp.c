#include "model/mlp.h"

#include <stdio.h>

void vt_mlp_build(vt_mlp *mlp, vt_parameters *parameters, const char *prefix, const vt_mlp_options *options)
{
    char name[VT_PARAMETER_NAME];
    const int64_t dim = options->dim, hidden = options->hidden;
    mlp->options = *options;
    snprintf(name, sizeof name, "%s.%s", prefix, options->names[0]);
    vt_linear_build(&mlp->fc1, parameters, name, dim, hidden, VT_LINEAR_BY_OUTPUT, true);
    mlp->first_column = vt_parallel_share(parameters->parallel, hidden).first;
    snprintf(name, sizeof name, "%s.%s", prefix, options->names[1]);
    vt_linear_build(&mlp->fc2, parameters, name, hidden, dim, VT_LINEAR_BY_INPUT, true);
}

vt_mlp_saved vt_mlp_reserve(const vt_mlp *mlp, const vt_pass *pass)
{
    const int64_t rows = vt_pass_inner_rows(pass), columns = mlp->fc1.out;
    vt_mlp_saved saved = {.hidden = vt_pass_push(pass, rows, columns)};
    if (pass->keeps && !mlp->options.relu) saved.active = vt_pass_push(pass, rows, columns);
    return saved;
}

static vt_mask hidden_mask(const vt_mlp *mlp, const vt_pass *pass)
{
    return (vt_mask){.elements = vt_pass_dropout(pass, mlp->options.dropout, mlp->options.layer, VT_SITE_GELU),
                     .tokens = pass->parallel->inner.count,
                     .first_token = pass->parallel->inner.first,
                     .first_column = mlp->first_column};
}

/* What goes into fc2, or the room where it is computed. */
static vt_matrix active_of(const vt_mlp *mlp, const vt_pass *pass, const vt_mlp_saved *saved)
{
    if (mlp->options.relu) return saved->hidden;
    return pass->keeps ? saved->active : vt_pass_push(pass, saved->hidden.rows, mlp->fc1.out);
}

void vt_mlp_forward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix y, const vt_mlp_saved *saved)
{
    vt_backend *backend = pass->backend;
    const vt_parallel *parallel = pass->parallel;
    const vt_gelu gelu = mlp->options.gelu;
    const vt_matrix weight = vt_linear_weight(&mlp->fc1), hidden = saved->hidden;
    vt_mask mask = hidden_mask(mlp, pass);
    size_t mark = pass->arena->used;
    vt_matrix input = vt_region_enter(parallel, pass->arena, pass->batch, x);
    vt_matrix output = vt_region_room(parallel, pass->arena, pass->batch, y);
    vt_matrix active = active_of(mlp, pass, saved);
    if (mlp->options.relu) {
        backend->linear_forward(backend, input, weight, NULL, NULL, hidden);
        backend->bias_activation_forward(backend, VT_ACTIVATION_RELU, mlp->fc1.bias->value, hidden);
    } else if (pass->fused) {
        backend->linear_gelu_forward(backend, gelu, input, weight, mlp->fc1.bias->value, mlp->fc1.bias->half, hidden,
                                     active);
    } else {
        vt_linear_forward(&mlp->fc1, pass, input, hidden);
        backend->gelu_forward(backend, gelu, hidden, active);
    }
    if (vt_mask_is_active(&mask)) backend->mask_multiply(backend, active, &mask, active);
    vt_linear_forward(&mlp->fc2, pass, active, output);
    vt_region_leave(parallel, pass->arena, pass->batch, output, y);
    vt_arena_pop(pass->arena, mark);
}

/* From the gradient of fc2's output to that of fc1's, dhidden; `again` is GELU's output once more, if it has memory.
 * Returns whether the gradient of fc1's bias is complete, too. What dropout made 0 has no gradient, so what is kept
 * behind it tells where ReLU had one. */
static bool backward_between(const vt_mlp *mlp, const vt_pass *pass, const vt_mask *mask, vt_matrix doutput,
                             vt_matrix hidden, vt_matrix dhidden, vt_matrix again)
{
    vt_backend *backend = pass->backend;
    const vt_gelu gelu = mlp->options.gelu;
    const vt_matrix weight = vt_linear_weight(&mlp->fc2), none = {0};
    const bool relu = mlp->options.relu, masked = vt_mask_is_active(mask), fused = pass->fused && !relu;
    float *dbias = vt_pass_gradient(pass, mlp->fc1.bias);
    if (fused && !masked && again.data == NULL && backend->linear_gelu_backward != NULL) {
        backend->linear_gelu_backward(backend, gelu, doutput, weight, hidden, dhidden, dbias);
        return true;
    }
    backend->linear_backward_input(backend, doutput, weight, dhidden);
    if (masked) backend->mask_multiply(backend, dhidden, mask, dhidden);
    const bool with_bias = relu || (fused && backend->gelu_backward_bias != NULL);
    if (relu)
        backend->bias_activation_backward(backend, VT_ACTIVATION_RELU, hidden, dhidden, none, dhidden, dbias);
    else if (with_bias)
        backend->gelu_backward_bias(backend, gelu, hidden, dhidden, dhidden, again, dbias);
    else
        backend->gelu_backward(backend, gelu, hidden, dhidden, dhidden, again);
    return with_bias;
}

void vt_mlp_backward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                     const vt_mlp_saved *saved)
{
    vt_backend *backend = pass->backend;
    const vt_parallel *parallel = pass->parallel;
    const vt_matrix none = {0}, hidden = saved->hidden;
    vt_mask mask = hidden_mask(mlp, pass);
    size_t mark = pass->arena->used;
    vt_matrix input = vt_region_enter(parallel, pass->arena, pass->batch, x);
    vt_matrix doutput = vt_region_enter(parallel, pass->arena, pass->batch, dy);
    vt_matrix dinput = vt_region_room(parallel, pass->arena, pass->batch, dx);
    const bool computes = !mlp->options.relu && !pass->keeps; /* `active` again */
    vt_matrix active = active_of(mlp, pass, saved), again = computes ? active : none;
    vt_matrix dhidden = vt_pass_push(pass, input.rows, mlp->fc1.out);
    vt_linear fc1 = mlp->fc1;
    if (backward_between(mlp, pass, &mask, doutput, hidden, dhidden, again)) fc1.bias = NULL;
    if (vt_mask_is_active(&mask) && computes) backend->mask_multiply(backend, active, &mask, active);
    vt_linear_backward(&mlp->fc2, pass, active, doutput, none); /* the gradient of its input was computed above */
    vt_linear_backward(&fc1, pass, input, dhidden, dinput);
    vt_region_leave(parallel, pass->arena, pass->batch, dinput, dx);
    vt_arena_pop(pass->arena, mark);
}
