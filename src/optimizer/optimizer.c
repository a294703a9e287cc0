#include "optimizer/optimizer.h"

#include <stdlib.h>

#include "base/memory.h"

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
    vt_group *world; /* all ranks, over the back end's memory */
    scalars *device;
    int64_t step;
};

vt_status vt_optimizer_open(const vt_optimizer_options *options, vt_backend *backend, vt_parameters *parameters,
                            vt_optimizer **result)
{
    vt_status status = VT_OK;
    vt_optimizer *optimizer = vt_allocate(1, sizeof *optimizer, "the optimizer");
    optimizer->options = *options;
    optimizer->backend = backend;
    optimizer->parameters = parameters;
    size_t bytes = (size_t)vt_parameters_block_elements(parameters, 1) * sizeof(float);
    void *memory = NULL;
    VT_TRY(vt_world_group(vt_parameters_parallel(parameters)->world, VT_AXES_ALL, VT_SCOPE_ALL, NULL, backend,
                          &optimizer->world));
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

/* What this rank updates of a bucket: where it begins in each block. */
typedef struct {
    int64_t value, gradient, moment, count;
} range;

static range range_of(const vt_parameters *parameters, const vt_bucket *bucket)
{
    int shards = vt_parameters_is_sliced(parameters, 1) ? vt_parameters_storage_of(parameters)->shards : 1;
    return (range){.value = vt_parameters_slice_offset(parameters, bucket, 3),
                   .gradient = vt_parameters_slice_offset(parameters, bucket, 2),
                   .moment = vt_parameters_slice_offset(parameters, bucket, 1),
                   .count = bucket->count / shards};
}

/* The sum over the model: each element counts once, however many ranks hold it. */
static void sum_squares(vt_optimizer *optimizer)
{
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const float *gradients = vt_parameters_gradients(parameters);
    bool sliced = vt_parameters_is_sliced(parameters, 1);
    backend->zero(backend, &optimizer->device->squares, sizeof optimizer->device->squares);
    for (int64_t i = 0; i < vt_parameters_bucket_count(parameters); i++) {
        const vt_bucket *bucket = vt_parameters_bucket(parameters, i);
        range r = range_of(parameters, bucket);
        backend->sum_of_squares(backend, gradients + r.gradient, r.count,
                                1 / (double)vt_parameters_copies(parameters, bucket, sliced),
                                &optimizer->device->squares);
    }
    vt_group_all_reduce(optimizer->world, VT_SUM_FLOAT64, &optimizer->device->squares, 1, NULL);
}

static void update_range(vt_optimizer *optimizer, const vt_update *update, const range *r)
{
    vt_backend *backend = optimizer->backend;
    backend->update(backend, update, &optimizer->device->scale,
                    vt_parameters_gradients(optimizer->parameters) + r->gradient,
                    vt_parameters_values(optimizer->parameters) + r->value, optimizer->moment1 + r->moment,
                    optimizer->moment2 != NULL ? optimizer->moment2 + r->moment : NULL, r->count);
}

/* Buckets that go on where the one before ended, in all blocks, are updated in one go: all of them without ZeRO. */
static void update_all(vt_optimizer *optimizer, const vt_update *update)
{
    const vt_parameters *parameters = optimizer->parameters;
    range whole = {0};
    for (int64_t i = 0; i < vt_parameters_bucket_count(parameters); i++) {
        range r = range_of(parameters, vt_parameters_bucket(parameters, i));
        if (r.value == whole.value + whole.count && r.gradient == whole.gradient + whole.count &&
            r.moment == whole.moment + whole.count) {
            whole.count += r.count;
            continue;
        }
        if (whole.count > 0) update_range(optimizer, update, &whole);
        whole = r;
    }
    if (whole.count > 0) update_range(optimizer, update, &whole);
}

void vt_optimizer_step(vt_optimizer *optimizer, double learning_rate, double *gradient_norm)
{
    vt_backend *backend = optimizer->backend;
    const vt_optimizer_options *options = &optimizer->options;
    bool momentum = options->kind == VT_OPTIMIZER_SGD;
    vt_update update = {.kind = options->kind,
                        .learning_rate = learning_rate,
                        .beta1 = 0.9,
                        .beta2 = momentum ? 0 : 0.95,
                        .epsilon = 1e-8,
                        .weight_decay = options->weight_decay,
                        .step = ++optimizer->step};
    sum_squares(optimizer);
    backend->clip_scale(backend, &optimizer->device->squares, options->gradient_clip, &optimizer->device->scale);
    update_all(optimizer, &update);
    double squares = 0;
    backend->copy_to_host(backend, &squares, &optimizer->device->squares, sizeof squares);
    *gradient_norm = sqrt(squares);
    if (!isfinite(*gradient_norm)) optimizer->step--;
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

const char *vt_optimizer_first_nonfinite(vt_optimizer *optimizer, vt_optimizer_block block)
{
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const float *const blocks[] = {vt_parameters_gradients(parameters), vt_parameters_values(optimizer->parameters),
                                   optimizer->moment1, optimizer->moment2};
    static const int sliced_from[] = {2, 3, 1, 1}; /* the stage of ZeRO */
    int64_t count = vt_parameters_count(parameters);
    if (blocks[block] == NULL) return NULL;
    double *bad = vt_allocate((size_t)count + 1, sizeof *bad, "the optimizer");
    for (int64_t i = 0; i < count; i++) {
        vt_piece piece = vt_parameters_piece(parameters, vt_parameters_at(parameters, i), sliced_from[block]);
        double squares = 0;
        backend->zero(backend, &optimizer->device->squares, sizeof squares);
        backend->sum_of_squares(backend, blocks[block] + piece.offset, piece.count, 1, &optimizer->device->squares);
        backend->copy_to_host(backend, &squares, &optimizer->device->squares, sizeof squares);
        bad[i] = isfinite(squares) ? 0 : 1;
    }
    vt_world_sum(vt_parameters_parallel(parameters)->world, bad, count);
    const char *name = NULL;
    for (int64_t i = count - 1; i >= 0; i--)
        if (bad[i] > 0) name = vt_parameters_at(parameters, i)->name;
    free(bad);
    return name;
}
