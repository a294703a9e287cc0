#include "optimizer/optimizer.h"

#include <stdlib.h>

#include "backend/step_state.h"
#include "base/memory.h"

/* What begins a step, as vt_step_state has it. More of them than steps can be pending: a device may read one late. */
enum { BEGUN = 4, BEGUN_BYTES = offsetof(vt_step_state, step) + sizeof(uint32_t) };
_Static_assert(offsetof(vt_step_state, learning_rate) == 0, "what begins a step comes first");

enum { MOST_KEPT = VT_OPTIMIZER_STATES + 1 };
static const vt_optimizer_state_kind average = {"average", "average of", VT_FLOAT32, VT_BLOCK_MOMENTS};

struct vt_optimizer {
    const vt_optimizer_kind *kind;
    vt_update rule;
    vt_backend *backend;
    vt_parameters *parameters;
    void *kept[MOST_KEPT];           /* kind->states, then the average; NULL behind the last */
    double first_scale;              /* of the loss, if it is scaled */
    double average_decay;            /* NAN: there is no average */
    vt_group *world;                 /* all ranks, over the back end's memory */
    vt_step_state *state;            /* in the back end's memory, as the rest is */
    vt_step_state *begun;            /* [BEGUN], host memory that the device reaches by itself */
    int64_t *ranges[VT_BLOCK_COUNT]; /* offset and length of each parameter in a block */
    int32_t *first;
};

/* Where each parameter, or what this rank keeps of it, lies in a block. */
static vt_status upload_ranges(vt_optimizer *optimizer, vt_block_kind block)
{
    vt_status status = VT_OK;
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const int64_t count = vt_parameters_count(parameters);
    const size_t bytes = 2 * (size_t)count * sizeof(int64_t);
    int64_t *host = vt_allocate(2 * (size_t)count, sizeof *host, "the optimizer");
    void *memory = NULL;
    for (int64_t i = 0; i < count; i++) {
        vt_piece piece = vt_parameters_piece(parameters, vt_parameters_at(parameters, i), block);
        host[2 * i] = piece.offset;
        host[2 * i + 1] = piece.count;
    }
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &memory));
    optimizer->ranges[block] = memory;
    backend->copy_from_host(backend, memory, host, bytes);
done:
    free(host);
    return status;
}

static vt_update rule_of(const vt_config *config, const vt_optimizer_kind *kind)
{
    vt_update rule = kind->rule;
    if (kind->configure != NULL) kind->configure(config, &rule);
    rule.weight_decay = config->weight_decay;
    rule.gradient_clip = isnan(config->grad_clip) ? INFINITY : config->grad_clip;
    rule.stops = config->on_nonfinite == VT_NONFINITE_STOP;
    rule.scales_loss = config->amp_mode == VT_AMP_FP16;
    rule.fixed_scale = config->loss_scale > 0;
    rule.refills = config->loss_scale_refill;
    rule.window = (int32_t)config->loss_scale_window;
    rule.hysteresis = (int16_t)config->loss_scale_hysteresis;
    rule.least_scale = isnan(config->loss_scale_min) ? 0 : config->loss_scale_min;
    return rule;
}

vt_status vt_optimizer_open(const vt_config *config, vt_backend *backend, vt_parameters *parameters,
                            vt_optimizer **result)
{
    vt_status status = VT_OK;
    vt_optimizer *optimizer = vt_allocate(1, sizeof *optimizer, "the optimizer");
    optimizer->kind = vt_optimizer_chosen(config);
    optimizer->rule = rule_of(config, optimizer->kind);
    optimizer->first_scale = config->loss_scale > 0 ? config->loss_scale : ldexp(1, (int)config->loss_scale_power);
    optimizer->average_decay = config->ema_decay;
    optimizer->backend = backend;
    optimizer->parameters = parameters;
    void *memory = NULL;
    VT_TRY(vt_world_group(vt_parameters_parallel(parameters)->world, VT_AXES_ALL, VT_SCOPE_ALL, NULL, backend,
                          &optimizer->world));
    for (int i = 0; i < vt_optimizer_kept_count(optimizer); i++) {
        const vt_optimizer_state_kind *state = vt_optimizer_kept_kind(optimizer, i);
        size_t bytes = (size_t)vt_parameters_block_elements(parameters, state->block) * vt_type_size(state->type);
        VT_TRY(backend->allocate(backend, VT_MEMORY_OPTIMIZER, bytes, &optimizer->kept[i]));
    }
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, sizeof(vt_step_state), &memory));
    optimizer->state = memory;
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, sizeof(int32_t), &memory));
    optimizer->first = memory;
    VT_TRY(backend->allocate_host(backend, BEGUN * sizeof *optimizer->begun, &memory));
    optimizer->begun = memory;
    for (int block = 0; block < VT_BLOCK_COUNT; block++) VT_TRY(upload_ranges(optimizer, (vt_block_kind)block));
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
    for (int i = 0; i < MOST_KEPT; i++) o->backend->release(o->backend, o->kept[i]);
    for (int i = 0; i < VT_BLOCK_COUNT; i++) o->backend->release(o->backend, o->ranges[i]);
    o->backend->release(o->backend, o->state);
    o->backend->release(o->backend, o->first);
    if (o->begun != NULL) o->backend->release_host(o->backend, o->begun);
    free(o);
    *optimizer = NULL;
}

/* What this rank updates of a bucket: where it begins in each block. */
typedef struct {
    int64_t offset[VT_BLOCK_COUNT], count;
} range;

static range range_of(const vt_parameters *parameters, const vt_bucket *bucket)
{
    int shards =
        vt_parameters_is_sliced(parameters, VT_BLOCK_MOMENTS) ? vt_parameters_storage_of(parameters)->shards : 1;
    range r = {.count = bucket->count / shards};
    for (int block = 0; block < VT_BLOCK_COUNT; block++)
        r.offset[block] = vt_parameters_slice_offset(parameters, bucket, (vt_block_kind)block);
    return r;
}

/* The sum over the model: each element counts once, however many ranks hold it. */
static void sum_squares(vt_optimizer *optimizer)
{
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const float *gradients = vt_parameters_gradients(parameters);
    bool sliced = vt_parameters_is_sliced(parameters, VT_BLOCK_MOMENTS);
    for (int64_t i = 0; i < vt_parameters_bucket_count(parameters); i++) {
        const vt_bucket *bucket = vt_parameters_bucket(parameters, i);
        range r = range_of(parameters, bucket);
        backend->sum_of_squares(backend, gradients + r.offset[VT_BLOCK_GRADIENTS], r.count,
                                1 / (double)vt_parameters_copies(parameters, bucket, sliced),
                                &optimizer->state->squares);
    }
}

/* The values of a range, and its part of the average. */
static float *values_of(const vt_optimizer *optimizer, const range *r)
{
    return vt_parameters_values(optimizer->parameters) + r->offset[VT_BLOCK_VALUES];
}

static float *average_of(const vt_optimizer *optimizer, const range *r)
{
    return (float *)optimizer->kept[vt_optimizer_average_place(optimizer)] + r->offset[average.block];
}

static void update_range(vt_optimizer *optimizer, const range *r)
{
    vt_backend *backend = optimizer->backend;
    float *values = values_of(optimizer, r);
    void *states[VT_OPTIMIZER_STATES] = {NULL};
    for (int i = 0; i < vt_optimizer_state_count(optimizer->kind); i++) {
        const vt_optimizer_state_kind *state = &optimizer->kind->states[i];
        states[i] = (char *)optimizer->kept[i] + (size_t)r->offset[state->block] * vt_type_size(state->type);
    }
    optimizer->kind->update(backend, &optimizer->rule, optimizer->state,
                            vt_parameters_gradients(optimizer->parameters) + r->offset[VT_BLOCK_GRADIENTS], values,
                            states, r->count);
    if (vt_optimizer_average_place(optimizer) >= 0)
        backend->average(backend, optimizer->average_decay, optimizer->state, values, average_of(optimizer, r),
                         r->count);
}

static void begin_range(vt_optimizer *optimizer, const range *r)
{
    optimizer->backend->copy(optimizer->backend, average_of(optimizer, r), values_of(optimizer, r),
                             (size_t)r->count * sizeof(float));
}

static void exchange_range(vt_optimizer *optimizer, const range *r)
{
    optimizer->backend->exchange(optimizer->backend, values_of(optimizer, r), average_of(optimizer, r), r->count);
}

/* Does `next` begin where `r` ends, in all blocks? */
static bool follows(const range *r, const range *next)
{
    for (int block = 0; block < VT_BLOCK_COUNT; block++)
        if (next->offset[block] != r->offset[block] + r->count) return false;
    return true;
}

/* Visits all that this rank updates; buckets that follow one another at once: without ZeRO all of them. */
static void visit_ranges(vt_optimizer *optimizer, void (*visit)(vt_optimizer *optimizer, const range *r))
{
    const vt_parameters *parameters = optimizer->parameters;
    range whole = {0};
    for (int64_t i = 0; i < vt_parameters_bucket_count(parameters); i++) {
        range r = range_of(parameters, vt_parameters_bucket(parameters, i));
        if (follows(&whole, &r)) {
            whole.count += r.count;
            continue;
        }
        if (whole.count > 0) visit(optimizer, &whole);
        whole = r;
    }
    if (whole.count > 0) visit(optimizer, &whole);
}

void vt_optimizer_average_begin(vt_optimizer *optimizer)
{
    if (vt_optimizer_average_place(optimizer) >= 0) visit_ranges(optimizer, begin_range);
}

void vt_optimizer_average_exchange(vt_optimizer *optimizer)
{
    visit_ranges(optimizer, exchange_range);
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
    backend->step_decide(backend, &optimizer->rule, state);
    backend->first_nonfinite(backend, vt_parameters_gradients(parameters), optimizer->ranges[VT_BLOCK_GRADIENTS],
                             vt_parameters_count(parameters), &state->squares, &state->first_nonfinite);
    visit_ranges(optimizer, update_range);
}

int vt_optimizer_average_place(const vt_optimizer *optimizer)
{
    return isnan(optimizer->average_decay) ? -1 : vt_optimizer_state_count(optimizer->kind);
}

int vt_optimizer_kept_count(const vt_optimizer *optimizer)
{
    return vt_optimizer_state_count(optimizer->kind) + (vt_optimizer_average_place(optimizer) >= 0);
}

const vt_optimizer_state_kind *vt_optimizer_kept_kind(const vt_optimizer *optimizer, int place)
{
    return place < vt_optimizer_state_count(optimizer->kind) ? &optimizer->kind->states[place] : &average;
}

void *vt_optimizer_kept(const vt_optimizer *optimizer, int place)
{
    return optimizer->kept[place];
}

vt_optimizer_progress vt_optimizer_progress_of(const vt_optimizer *optimizer)
{
    vt_step_state state = {0};
    optimizer->backend->copy_to_host(optimizer->backend, &state, optimizer->state, sizeof state);
    return (vt_optimizer_progress){state.updates, optimizer->rule.scales_loss ? state.loss_scale : 0, state.clean_steps,
                                   state.tolerated, state.averaged};
}

void vt_optimizer_set_progress(vt_optimizer *optimizer, const vt_optimizer_progress *progress)
{
    const vt_update *rule = &optimizer->rule;
    const bool goes_on = progress->loss_scale > 0 && !rule->fixed_scale;
    const double scale = goes_on ? progress->loss_scale : optimizer->first_scale;
    const int64_t tolerated =
        progress->tolerated > 0 && progress->tolerated < rule->hysteresis ? progress->tolerated : rule->hysteresis;
    const vt_step_state state = {.updates = progress->updates,
                                 .averaged = (int32_t)progress->averaged,
                                 .tolerated = (int16_t)tolerated,
                                 .loss_scale = rule->scales_loss ? scale : 1,
                                 .clean_steps = (int32_t)progress->clean_steps};
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

const char *vt_optimizer_first_nonfinite(vt_optimizer *optimizer, int place)
{
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const vt_optimizer_state_kind *state = place < 0 ? NULL : vt_optimizer_kept_kind(optimizer, place);
    const vt_block_kind block = state != NULL ? state->block : VT_BLOCK_VALUES;
    const float *numbers = state != NULL ? optimizer->kept[place] : vt_parameters_values(parameters);
    int32_t first = 0;
    VT_ASSERT(state == NULL || state->type == VT_FLOAT32);
    backend->first_nonfinite(backend, numbers, optimizer->ranges[block], vt_parameters_count(parameters), NULL,
                             optimizer->first);
    backend->copy_to_host(backend, &first, optimizer->first, sizeof first);
    return vt_optimizer_nonfinite_name(optimizer, first);
}

void vt_optimizer_restart(vt_optimizer *optimizer)
{
    vt_optimizer_progress progress = vt_optimizer_progress_of(optimizer);
    for (int i = 0; i < vt_optimizer_state_count(optimizer->kind); i++) {
        const vt_optimizer_state_kind *state = &optimizer->kind->states[i];
        optimizer->backend->zero(optimizer->backend, optimizer->kept[i],
                                 (size_t)vt_parameters_block_elements(optimizer->parameters, state->block) *
                                     vt_type_size(state->type));
    }
    progress.updates = 0;
    vt_optimizer_set_progress(optimizer, &progress);
}
