#include "model/mlp.h"

#include <stdio.h>

void vt_mlp_build(vt_mlp *mlp, vt_parameters *parameters, const char *prefix, int64_t layer, int64_t dim, vt_gelu gelu,
                  double dropout)
{
    char name[VT_PARAMETER_NAME];
    mlp->gelu = gelu;
    mlp->layer = layer;
    mlp->dropout = dropout;
    snprintf(name, sizeof name, "%s.fc1", prefix);
    vt_linear_build(&mlp->fc1, parameters, name, dim, 4 * dim, VT_LINEAR_BY_OUTPUT, true);
    mlp->first_column = vt_parallel_share(vt_parameters_parallel(parameters), 4 * dim).first;
    snprintf(name, sizeof name, "%s.fc2", prefix);
    vt_linear_build(&mlp->fc2, parameters, name, 4 * dim, dim, VT_LINEAR_BY_INPUT, true);
}

vt_mlp_saved vt_mlp_reserve(const vt_mlp *mlp, const vt_pass *pass)
{
    const int64_t rows = vt_pass_inner_rows(pass), columns = mlp->fc1.out;
    vt_mlp_saved saved = {.hidden = vt_pass_push(pass, rows, columns)};
    if (pass->keeps) saved.active = vt_pass_push(pass, rows, columns);
    return saved;
}

static vt_mask hidden_mask(const vt_mlp *mlp, const vt_pass *pass)
{
    return (vt_mask){.elements = vt_pass_dropout(pass, mlp->dropout, mlp->layer, VT_SITE_GELU),
                     .tokens = pass->parallel->inner.count,
                     .first_token = pass->parallel->inner.first,
                     .first_column = mlp->first_column};
}

void vt_mlp_forward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix y, const vt_mlp_saved *saved)
{
    vt_backend *backend = pass->backend;
    const vt_parallel *parallel = pass->parallel;
    vt_mask mask = hidden_mask(mlp, pass);
    size_t mark = pass->arena->used;
    vt_matrix input = vt_region_enter(parallel, pass->arena, pass->batch, x);
    vt_matrix output = vt_region_room(parallel, pass->arena, pass->batch, y);
    vt_matrix active = pass->keeps ? saved->active : vt_pass_push(pass, input.rows, mlp->fc1.out);
    if (pass->fused) {
        backend->linear_gelu_forward(backend, mlp->gelu, input, vt_linear_weight(&mlp->fc1), mlp->fc1.bias->value,
                                     mlp->fc1.bias->half, saved->hidden, active);
    } else {
        vt_linear_forward(&mlp->fc1, pass, input, saved->hidden);
        backend->gelu_forward(backend, mlp->gelu, saved->hidden, active);
    }
    if (vt_mask_is_active(&mask)) backend->mask_multiply(backend, active, &mask, active);
    vt_linear_forward(&mlp->fc2, pass, active, output);
    vt_region_leave(parallel, pass->arena, pass->batch, output, y);
    vt_arena_pop(pass->arena, mark);
}

void vt_mlp_backward(const vt_mlp *mlp, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                     const vt_mlp_saved *saved)
{
    vt_backend *backend = pass->backend;
    const vt_parallel *parallel = pass->parallel;
    vt_mask mask = hidden_mask(mlp, pass);
    size_t mark = pass->arena->used;
    vt_matrix input = vt_region_enter(parallel, pass->arena, pass->batch, x);
    vt_matrix doutput = vt_region_enter(parallel, pass->arena, pass->batch, dy);
    vt_matrix dinput = vt_region_room(parallel, pass->arena, pass->batch, dx);
    vt_matrix again = pass->keeps ? (vt_matrix){0} : vt_pass_push(pass, input.rows, mlp->fc1.out);
    vt_matrix active = pass->keeps ? saved->active : again;
    vt_matrix dhidden = vt_pass_push(pass, input.rows, mlp->fc1.out);
    backend->linear_backward_input(backend, doutput, vt_linear_weight(&mlp->fc2), dhidden);
    if (vt_mask_is_active(&mask)) backend->mask_multiply(backend, dhidden, &mask, dhidden);
    vt_linear fc1 = mlp->fc1;
    if (pass->fused && backend->gelu_backward_bias != NULL) {
        backend->gelu_backward_bias(backend, mlp->gelu, saved->hidden, dhidden, dhidden, again, fc1.bias->gradient);
        fc1.bias = NULL; /* its gradient is complete */
    } else {
        backend->gelu_backward(backend, mlp->gelu, saved->hidden, dhidden, dhidden, again);
    }
    if (vt_mask_is_active(&mask) && !pass->keeps) backend->mask_multiply(backend, active, &mask, active);
    vt_linear_backward(&mlp->fc2, pass, active, doutput,
                       (vt_matrix){0}); /* the gradient of its input was computed above */
    vt_linear_backward(&fc1, pass, input, dhidden, dinput);
    vt_region_leave(parallel, pass->arena, pass->batch, dinput, dx);
    vt_arena_pop(pass->arena, mark);
}
