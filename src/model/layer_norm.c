#include "model/layer_norm.h"

void vt_layer_norm_build(vt_layer_norm *norm, vt_parameters *parameters, const char *prefix, int64_t dim, float epsilon)
{
    norm->epsilon = epsilon;
    norm->dim = dim;
    norm->weight = vt_parameters_add(parameters, prefix, "weight", 1, &dim, VT_START_ONE, 0);
    norm->bias = vt_parameters_add(parameters, prefix, "bias", 1, &dim, VT_START_ZERO, 0);
}

vt_layer_norm_saved vt_layer_norm_reserve(const vt_pass *pass)
{
    vt_layer_norm_saved saved;
    size_t bytes = (size_t)vt_pass_rows(pass) * sizeof(float);
    saved.mean = vt_arena_push(pass->arena, bytes);
    saved.rstd = vt_arena_push(pass->arena, bytes);
    return saved;
}

void vt_layer_norm_forward(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix y,
                           const vt_layer_norm_saved *saved)
{
    pass->backend->layer_norm_forward(pass->backend, x, norm->weight->value, norm->bias->value, norm->epsilon, y,
                                      saved->mean, saved->rstd);
}

void vt_layer_norm_residual(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix branch,
                            const vt_mask *mask, vt_matrix y, vt_matrix normed, const vt_layer_norm_saved *saved)
{
    vt_backend *backend = pass->backend;
    if (pass->fused) {
        backend->residual_layer_norm(backend, x, branch, mask, norm->weight->value, norm->bias->value, norm->epsilon, y,
                                     normed, saved->mean, saved->rstd);
    } else {
        backend->residual_add(backend, x, branch, mask, y);
        vt_layer_norm_forward(norm, pass, y, normed, saved);
    }
}

void vt_layer_norm_backward(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                            const vt_layer_norm_saved *saved)
{
    pass->backend->layer_norm_backward(pass->backend, x, norm->weight->value, saved->mean, saved->rstd, dy, dx,
                                       norm->weight->gradient, norm->bias->gradient);
}
