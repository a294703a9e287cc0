#include "optimizer/optimizer.h"

#include <stdlib.h>

/* Device memory for the two scalars of a step. */
typedef struct {
    double squares;
    float scale;
} scalars;

struct vt_optimizer {
    vt_optimizer_options options;
    vt_backend *backend;
    vt_parameters *parameters;
    float *moment1, *moment2;
    scalars *device;
    int64_t step;
};

vt_status vt_optimizer_open(const vt_optimizer_options *options, vt_backend *backend, vt_parameters *parameters,
                            vt_optimizer **result)
{
    vt_status status = VT_OK;
    vt_optimizer *optimizer = calloc(1, sizeof *optimizer);
    VT_ASSERT(optimizer != NULL);
    optimizer->options = *options;
    optimizer->backend = backend;
    optimizer->parameters = parameters;
    size_t bytes = (size_t)vt_parameters_element_count(parameters) * sizeof(float);
    void *memory = NULL;
    VT_TRY(backend->allocate(backend, VT_MEMORY_OPTIMIZER, bytes, &memory));
    optimizer->moment1 = memory;
    if (options->kind != VT_OPTIMIZER_SGD) {
        VT_TRY(backend->allocate(backend, VT_MEMORY_OPTIMIZER, bytes, &memory));
        optimizer->moment2 = memory;
    }
    VT_TRY(backend->allocate(backend, VT_MEMORY_OPTIMIZER, sizeof(scalars), &memory));
    optimizer->device = memory;
done:
    if (status != VT_OK) vt_optimizer_close(&optimizer);
    *result = optimizer;
    return status;
}

void vt_optimizer_close(vt_optimizer **optimizer)
{
    vt_optimizer *o = *optimizer;
    if (o == NULL) return;
    o->backend->release(o->backend, o->moment1);
    o->backend->release(o->backend, o->moment2);
    o->backend->release(o->backend, o->device);
    free(o);
    *optimizer = NULL;
}

void vt_optimizer_step(vt_optimizer *optimizer, double learning_rate, double *gradient_norm)
{
    vt_backend *backend = optimizer->backend;
    const vt_optimizer_options *options = &optimizer->options;
    float *gradients = vt_parameters_gradients(optimizer->parameters);
    int64_t count = vt_parameters_element_count(optimizer->parameters);
    bool momentum = options->kind == VT_OPTIMIZER_SGD;
    vt_update update = {.kind = options->kind,
                        .learning_rate = learning_rate,
                        .beta1 = 0.9,
                        .beta2 = momentum ? 0 : 0.95,
                        .epsilon = 1e-8,
                        .weight_decay = options->weight_decay,
                        .step = ++optimizer->step};
    backend->zero(backend, &optimizer->device->squares, sizeof(double));
    backend->sum_of_squares(backend, gradients, count, 1, &optimizer->device->squares);
    backend->clip_scale(backend, &optimizer->device->squares, options->gradient_clip, &optimizer->device->scale);
    backend->update(backend, &update, &optimizer->device->scale, gradients, vt_parameters_values(optimizer->parameters),
                    optimizer->moment1, optimizer->moment2, count);
    double squares = 0;
    backend->copy_to_host(backend, &squares, &optimizer->device->squares, sizeof squares);
    *gradient_norm = sqrt(squares);
}

float *vt_optimizer_moment(const vt_optimizer *optimizer, int index)
{
    return index == 0 ? optimizer->moment1 : optimizer->moment2;
}

int64_t vt_optimizer_steps(const vt_optimizer *optimizer)
{
    return optimizer->step;
}

void vt_optimizer_set_steps(vt_optimizer *optimizer, int64_t steps)
{
    optimizer->step = steps;
}

const char *vt_optimizer_first_nonfinite(vt_optimizer *optimizer)
{
    vt_backend *backend = optimizer->backend;
    for (int64_t i = 0; i < vt_parameters_count(optimizer->parameters); i++) {
        const vt_parameter *parameter = vt_parameters_at(optimizer->parameters, i);
        double squares = 0;
        backend->zero(backend, &optimizer->device->squares, sizeof(double));
        backend->sum_of_squares(backend, parameter->gradient, parameter->count, 1, &optimizer->device->squares);
        backend->copy_to_host(backend, &squares, &optimizer->device->squares, sizeof squares);
        if (!isfinite(squares)) return parameter->name;
    }
    return NULL;
}
