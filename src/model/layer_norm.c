#include "model/layer_norm.h"

void vt_layer_norm_build(vt_layer_norm *norm, vt_parameters *parameters, const char *prefix, int64_t dim, float epsilon)
{
    norm->epsilon = epsilon;
    norm->weight = vt_parameters_add(parameters, prefix, "weight", 1, &dim, VT_START_VALUE, 1);
    norm->bias = vt_parameters_add(parameters, prefix, "bias", 1, &dim, VT_START_VALUE, 0);
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

void vt_residual_finish(const vt_pass *pass, vt_residual *stream)
{
    if (stream->branch.data != NULL)
        pass->backend->residual_add(pass->backend, stream->x, stream->branch, &stream->mask, stream->sum);
    stream->branch.data = NULL;
}

void vt_layer_norm_residual(const vt_layer_norm *norm, const vt_pass *pass, vt_residual *stream, vt_matrix normed,
                            const vt_layer_norm_saved *saved)
{
    if (pass->fused && stream->branch.data != NULL) {
        pass->backend->residual_layer_norm(pass->backend, stream->x, stream->branch, &stream->mask, norm->weight->value,
                                           norm->bias->value, norm->epsilon, stream->sum, normed, saved->mean,
                                           saved->rstd);
        stream->branch.data = NULL;
    } else {
        vt_residual_finish(pass, stream);
        vt_layer_norm_forward(norm, pass, stream->sum, normed, saved);
    }
}

void vt_layer_norm_backward(const vt_layer_norm *norm, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                            vt_matrix rounded, const vt_layer_norm_saved *saved)
{
    const size_t mark = pass->arena->used;
    float *dweight = vt_pass_gradient(pass, norm->weight), *dbias = vt_pass_gradient(pass, norm->bias);
    pass->backend->layer_norm_backward(pass->backend, x, norm->weight->value, saved->mean, saved->rstd, dy, dx, rounded,
                                       dweight, dbias);
    vt_arena_pop(pass->arena, mark);
}
