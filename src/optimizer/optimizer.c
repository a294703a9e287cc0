#include "optimizer/optimizer.h"

#include <stdlib.h>

#include "backend/step_state.h"
#include "base/memory.h"

/* What begins a step, as vt_step_state has it. More of them than steps can be pending: a device may read one late. */
enum { BEGUN = 4, BEGUN_BYTES = offsetof(vt_step_state, step) + sizeof(uint32_t) };
_Static_assert(offsetof(vt_step_state, learning_rate) == 0, "what begins a step comes first");

struct vt_optimizer {
    vt_update update;
    vt_backend *backend;
    vt_parameters *parameters;
    float *moment1, *moment2;
    vt_group *world;      /* all ranks, over the back end's memory */
    vt_step_state *state; /* in the back end's memory, as the rest is */
    vt_step_state *begun; /* [BEGUN], host memory that the device reaches by itself */
    int64_t *ranges[3];   /* offset and length of each parameter in a block, by what slices it: ZeRO 1, 2, 3 */
    int32_t *first;
};

/* Where each parameter, or this rank's part of it, lies in a block that is sliced from a stage of ZeRO on. */
static vt_status upload_ranges(vt_optimizer *optimizer, int stage)
{
    vt_status status = VT_OK;
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const int64_t count = vt_parameters_count(parameters);
    const size_t bytes = 2 * (size_t)count * sizeof(int64_t);
    int64_t *host = vt_allocate(2 * (size_t)count, sizeof *host, "the optimizer");
    void *memory = NULL;
    for (int64_t i = 0; i < count; i++) {
        vt_piece piece = vt_parameters_piece(parameters, vt_parameters_at(parameters, i), stage);
        host[2 * i] = piece.offset;
        host[2 * i + 1] = piece.count;
    }
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &memory));
    optimizer->ranges[stage - 1] = memory;
    backend->copy_from_host(backend, memory, host, bytes);
done:
    free(host);
    return status;
}

vt_status vt_optimizer_open(const vt_optimizer_options *options, vt_backend *backend, vt_parameters *parameters,
                            vt_optimizer **result)
{
    vt_status status = VT_OK;
    vt_optimizer *optimizer = vt_allocate(1, sizeof *optimizer, "the optimizer");
    optimizer->update = (vt_update){.kind = options->kind,
                                    .beta1 = 0.9,
                                    .beta2 = options->kind == VT_OPTIMIZER_SGD ? 0 : 0.95,
                                    .epsilon = 1e-8,
                                    .weight_decay = options->weight_decay,
                                    .gradient_clip = options->gradient_clip,
                                    .scales_loss = options->scales_loss,
                                    .stops = options->stops};
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
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, sizeof(vt_step_state), &memory));
    optimizer->state = memory;
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, sizeof(int32_t), &memory));
    optimizer->first = memory;
    VT_TRY(backend->allocate_host(backend, BEGUN * sizeof *optimizer->begun, &memory));
    optimizer->begun = memory;
    for (int stage = 1; stage <= 3; stage++) VT_TRY(upload_ranges(optimizer, stage));
    vt_optimizer_set_progress(optimizer, &(vt_optimizer_progress){0});
done:
    if (status != VT_OK) vt_optimizer_close(&optimizer);
    *result = optimizer;
    return status;
}

void vt_optimizer_close(vt_optimizer **optimizer)
{
    vt_optimizer *o = *optimizer;
    if (o == NULL) return;
    void *const memory[] = {o->moment1, o->moment2, o->state, o->first, o->ranges[0], o->ranges[1], o->ranges[2]};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) o->backend->release(o->backend, memory[i]);
    if (o->begun != NULL) o->backend->release_host(o->backend, o->begun);
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
    for (int64_t i = 0; i < vt_parameters_bucket_count(parameters); i++) {
        const vt_bucket *bucket = vt_parameters_bucket(parameters, i);
        range r = range_of(parameters, bucket);
        backend->sum_of_squares(backend, gradients + r.gradient, r.count,
                                1 / (double)vt_parameters_copies(parameters, bucket, sliced),
                                &optimizer->state->squares);
    }
}

static void update_range(vt_optimizer *optimizer, const range *r)
{
    vt_backend *backend = optimizer->backend;
    backend->update(backend, &optimizer->update, optimizer->state,
                    vt_parameters_gradients(optimizer->parameters) + r->gradient,
                    vt_parameters_values(optimizer->parameters) + r->value, optimizer->moment1 + r->moment,
                    optimizer->moment2 != NULL ? optimizer->moment2 + r->moment : NULL, r->count);
}

/* Buckets that go on where the one before ended, in all blocks, are updated in one go: all of them without ZeRO. */
static void update_all(vt_optimizer *optimizer)
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
        if (whole.count > 0) update_range(optimizer, &whole);
        whole = r;
    }
    if (whole.count > 0) update_range(optimizer, &whole);
}

vt_step_state *vt_optimizer_state(const vt_optimizer *optimizer)
{
    return optimizer->state;
}

void vt_optimizer_begin(vt_optimizer *optimizer, int64_t step, double learning_rate)
{
    vt_backend *backend = optimizer->backend;
    vt_step_state *state = optimizer->state;
    vt_step_state *begun = &optimizer->begun[step % BEGUN];
    begun->learning_rate = learning_rate;
    begun->step = (uint32_t)step;
    backend->copy_from_host(backend, state, begun, BEGUN_BYTES);
    backend->zero(backend, &state->squares, sizeof state->squares + sizeof state->losses);
}

void vt_optimizer_step(vt_optimizer *optimizer)
{
    vt_backend *backend = optimizer->backend;
    vt_step_state *state = optimizer->state;
    const vt_parameters *parameters = optimizer->parameters;
    _Static_assert(offsetof(vt_step_state, losses) == offsetof(vt_step_state, squares) + sizeof(double),
                   "both sums are reduced at once");
    sum_squares(optimizer);
    vt_group_all_reduce(optimizer->world, VT_SUM_FLOAT64, &state->squares, 2, NULL);
    backend->step_decide(backend, &optimizer->update, state);
    backend->first_nonfinite(backend, vt_parameters_gradients(parameters), optimizer->ranges[1],
                             vt_parameters_count(parameters), &state->squares, &state->first_nonfinite);
    update_all(optimizer);
}

float *vt_optimizer_moment(const vt_optimizer *optimizer, int index)
{
    return index == 0 ? optimizer->moment1 : optimizer->moment2;
}

vt_optimizer_progress vt_optimizer_progress_of(const vt_optimizer *optimizer)
{
    vt_step_state state = {0};
    optimizer->backend->copy_to_host(optimizer->backend, &state, optimizer->state, sizeof state);
    return (vt_optimizer_progress){state.updates, optimizer->update.scales_loss ? state.loss_scale : 0,
                                   state.clean_steps};
}

void vt_optimizer_set_progress(vt_optimizer *optimizer, const vt_optimizer_progress *progress)
{
    double scale = progress->loss_scale > 0 ? progress->loss_scale : VT_LOSS_SCALE_START;
    const vt_step_state state = {.updates = progress->updates,
                                 .loss_scale = optimizer->update.scales_loss ? scale : 1,
                                 .clean_steps = progress->clean_steps};
    optimizer->backend->copy_from_host(optimizer->backend, optimizer->state, &state, sizeof state);
}

const char *vt_optimizer_nonfinite_name(const vt_optimizer *optimizer, int32_t first)
{
    const vt_parameters *parameters = optimizer->parameters;
    const int64_t count = vt_parameters_count(parameters);
    double *bad = vt_allocate((size_t)count + 1, sizeof *bad, "the optimizer");
    const char *name = NULL;
    bad[first] = 1;
    vt_world_sum(vt_parameters_parallel(parameters)->world, bad, count);
    for (int64_t i = count - 1; i >= 0; i--)
        if (bad[i] > 0) name = vt_parameters_at(parameters, i)->name;
    free(bad);
    return name;
}

const char *vt_optimizer_first_nonfinite(vt_optimizer *optimizer, vt_optimizer_block block)
{
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const float *const blocks[] = {vt_parameters_gradients(parameters), vt_parameters_values(optimizer->parameters),
                                   optimizer->moment1, optimizer->moment2};
    static const int sliced_from[] = {2, 3, 1, 1}; /* the stage of ZeRO */
    int32_t first = 0;
    if (blocks[block] == NULL) return NULL;
    backend->first_nonfinite(backend, blocks[block], optimizer->ranges[sliced_from[block] - 1],
                             vt_parameters_count(parameters), NULL, optimizer->first);
    backend->copy_to_host(backend, &first, optimizer->first, sizeof first);
    return vt_optimizer_nonfinite_name(optimizer, first);
}
