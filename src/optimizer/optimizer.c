#include "optimizer/optimizer.h"

#include <stdlib.h>

#include "base/memory.h"

/* What begins a step, as vt_step_state has it. More of them than steps can be pending: a device may read one late. */
enum { BEGUN = 4, BEGUN_BYTES = offsetof(vt_step_state, step) + sizeof(uint32_t) };
_Static_assert(offsetof(vt_step_state, learning_rate) == 0, "what begins a step comes first");

/* Where what this rank keeps of each parameter's gradient lies. */
static vt_status upload_ranges(vt_optimizer *optimizer)
{
    vt_status status = VT_OK;
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const int64_t count = parameters->count;
    int64_t *host = vt_allocate(2 * (size_t)count, sizeof *host, "the optimizer");
    for (int64_t i = 0; i < count; i++) {
        vt_piece piece = vt_parameters_piece(parameters, parameters->list[i], VT_BLOCK_GRADIENTS);
        host[2 * i] = piece.offset;
        host[2 * i + 1] = piece.count;
    }
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, 2 * count, optimizer->ranges);
    backend->copy_from_host(backend, optimizer->ranges, host, 2 * (size_t)count * sizeof *host);
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

/* ---- spans ---- */

/* `count` elements of this rank's slice of a bucket, from element `first` on, with what is kept in blocks. */
static vt_optimizer_span span_of(const vt_optimizer *optimizer, const vt_bucket *bucket, int64_t first, int64_t count)
{
    const vt_parameters *parameters = optimizer->parameters;
    int64_t at[VT_BLOCK_COUNT];
    for (int block = 0; block < VT_BLOCK_COUNT; block++)
        at[block] = vt_parameters_slice_offset(parameters, bucket, (vt_block_kind)block) + first;
    vt_optimizer_span own = {.count = count,
                             .gradients = parameters->gradients + at[VT_BLOCK_GRADIENTS],
                             .values = parameters->values + at[VT_BLOCK_VALUES],
                             .rounded = vt_parameters_rounded(parameters, at[VT_BLOCK_VALUES])};
    for (int i = 0; i < VT_KEPT_PLACES; i++)
        if (optimizer->kept->places[i].is_block)
            own.kept[i].numbers = optimizer->kept->places[i].memory.numbers + at[VT_BLOCK_MOMENTS];
    return own;
}

static vt_optimizer_span span_of_bucket(const vt_optimizer *optimizer, int64_t index)
{
    const vt_bucket *bucket = &optimizer->parameters->buckets[index];
    return span_of(optimizer, bucket, 0, bucket->slice);
}

/* What this rank updates of a parameter. */
static vt_optimizer_span span_of_parameter(const vt_optimizer *optimizer, const vt_parameter *parameter)
{
    const vt_parameters *parameters = optimizer->parameters;
    const vt_piece piece = vt_parameters_piece(parameters, parameter, VT_BLOCK_MOMENTS);
    const vt_bucket *bucket = &parameters->buckets[parameter->bucket];
    const int64_t slice = bucket->first + parameters->storage.shard * bucket->slice;
    const int64_t first = piece.count > 0 ? parameter->offset + piece.first - slice : 0;
    vt_optimizer_span own = span_of(optimizer, bucket, first, piece.count);
    for (int i = 0; i < VT_KEPT_PLACES; i++)
        if (optimizer->kept->places[i].state != NULL)
            own.kept[i] = optimizer->kept->places[i].parts[parameter->index].memory;
    return own;
}

/* Does `next` begin where `last` ends, in all memory? */
static bool follows(const vt_optimizer_span *last, const vt_optimizer_span *next, int64_t code_block)
{
    if (next->values != last->values + last->count || next->gradients != last->gradients + last->count) return false;
    for (int i = 0; i < VT_OPTIMIZER_STATES; i++) {
        const vt_kept_memory *from = &last->kept[i], *to = &next->kept[i];
        if (from->codes != NULL && last->count % code_block != 0) return false;
        if (to->codes != (from->codes != NULL ? from->codes + last->count : NULL)) return false;
        if (to->numbers != (from->numbers != NULL ? from->numbers + last->count : NULL)) return false;
    }
    return true; /* scales follow where codes do */
}

static void add_span(vt_optimizer *optimizer, const vt_optimizer_span *next)
{
    const int64_t last = optimizer->span_count - 1;
    if (next->count == 0) return;
    if (last >= 0 && follows(&optimizer->spans[last], next, optimizer->rule.block))
        optimizer->spans[last].count += next->count;
    else
        optimizer->spans[optimizer->span_count++] = *next;
}

/* Is this parameter updated as a whole tensor? */
static bool is_whole(const vt_optimizer *optimizer, const vt_parameter *parameter)
{
    const vt_whole_update *whole = optimizer->kind->whole;
    return whole != NULL && (whole->takes == NULL || whole->takes(parameter));
}

/* Buckets that follow one another become one span; without ZeRO all of them do. Where all parameters keep the same,
 * spans include the gaps between them, whose numbers are 0 and stay so. */
static void find_spans(vt_optimizer *optimizer)
{
    const vt_parameters *parameters = optimizer->parameters;
    bool alike = optimizer->kind->whole == NULL;
    for (int i = 0; i < VT_OPTIMIZER_STATES; i++)
        alike = alike && (optimizer->kept->places[i].state == NULL || optimizer->kept->places[i].is_block);
    const int64_t count = alike ? parameters->trained_buckets : parameters->count;
    optimizer->spans = vt_allocate((size_t)count + 1, sizeof *optimizer->spans, "the optimizer");
    for (int64_t i = 0; i < count; i++) {
        if (!alike && (parameters->list[i]->frozen || is_whole(optimizer, parameters->list[i]))) continue;
        const vt_optimizer_span own =
            alike ? span_of_bucket(optimizer, i) : span_of_parameter(optimizer, parameters->list[i]);
        add_span(optimizer, &own);
    }
}

/* Several ranks may update the same elements of a bucket. Each adds this share of their squares to the norm: 1 / the
 * number of these ranks. */
static double share_of(const vt_optimizer *optimizer, const vt_bucket *bucket)
{
    const vt_parameters *parameters = optimizer->parameters;
    return 1 / (double)vt_parameters_copies(parameters, bucket, vt_parameters_is_sliced(parameters, VT_BLOCK_MOMENTS));
}

/* ---- whole tensors ---- */

static vt_whole_part whole_part_of(const vt_optimizer *optimizer, const vt_parameter *parameter)
{
    const vt_parameters *parameters = optimizer->parameters;
    const vt_world *world = parameters->parallel->world;
    vt_whole_part part = {.parameter = parameter,
                          .first = vt_parameters_piece(parameters, parameter, VT_BLOCK_MOMENTS).first,
                          .own = span_of_parameter(optimizer, parameter),
                          .counts = true,
                          .share = share_of(optimizer, &parameters->buckets[parameter->bucket])};
    for (int axis = 0; axis < VT_AXIS_COUNT; axis++)
        if ((optimizer->kind->whole->axes & ~parameter->split_axes & VT_AXES(axis)) != 0)
            part.counts = part.counts && world->coordinate[axis] == 0;
    return part;
}

/* Collective. */
static vt_status open_whole_tensors(vt_optimizer *optimizer)
{
    vt_status status = VT_OK;
    const vt_parameters *parameters = optimizer->parameters;
    vt_world *world = parameters->parallel->world;
    if (optimizer->kind->whole == NULL) return VT_OK;
    const bool sliced = vt_parameters_is_sliced(parameters, VT_BLOCK_MOMENTS);
    const bool within = sliced && optimizer->config->zero_group == VT_ZERO_NODE;
    vt_whole *whole = &optimizer->whole;
    whole->parts = vt_allocate((size_t)parameters->count + 1, sizeof *whole->parts, "the optimizer");
    const unsigned axes = optimizer->kind->whole->axes;
    int64_t ranks = parameters->storage.shards;
    for (int axis = 0; axis < VT_AXIS_COUNT; axis++)
        if ((axes & VT_AXES(axis)) != 0) ranks *= world->layout.size[axis];
    VT_TRY(vt_world_group(world, axes | (sliced ? VT_AXES(VT_AXIS_DATA) : 0),
                          within ? VT_SCOPE_WITHIN_NODE : VT_SCOPE_ALL, "optimizer", optimizer->backend,
                          &whole->group));
    VT_CHECK(whole->group->size == ranks,
             "optimizer %s needs all %ld ranks that share a tensor on one node with zero_group node; use zero_group "
             "all",
             optimizer->kind->name, ranks);
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        if (parameter->count > 0 && !parameter->frozen && is_whole(optimizer, parameter))
            whole->parts[whole->count++] = whole_part_of(optimizer, parameter);
    }
    VT_TRY(optimizer->kind->whole->open(optimizer));
done:
    return status;
}

vt_status vt_optimizer_open(const vt_config *config, vt_backend *backend, vt_parameters *parameters,
                            vt_optimizer **result)
{
    vt_status status = VT_OK;
    vt_optimizer *optimizer = vt_allocate(1, sizeof *optimizer, "the optimizer");
    optimizer->config = config;
    optimizer->kind = vt_optimizer_kinds[config->optimizer];
    optimizer->rule = rule_of(config, optimizer->kind);
    optimizer->rule.rounded = parameters->type;
    optimizer->backend = backend;
    optimizer->parameters = parameters;
    void *memory = NULL;
    VT_TRY(vt_world_group(parameters->parallel->world, VT_AXES_ALL, VT_SCOPE_ALL, NULL, backend, &optimizer->world));
    VT_TRY(vt_kept_open(config, backend, parameters, &optimizer->kept));
    find_spans(optimizer);
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, 1, optimizer->state);
    VT_TRY(backend->allocate_host(backend, BEGUN * sizeof *optimizer->begun, &memory));
    optimizer->begun = memory;
    VT_TRY(upload_ranges(optimizer));
    vt_optimizer_set_progress(optimizer, &(vt_optimizer_progress){0});
done:
    status = vt_world_agree(parameters->parallel->world, status); /* before the ranks make a group together */
    if (status == VT_OK) status = open_whole_tensors(optimizer);
    if (status != VT_OK) vt_optimizer_close(&optimizer);
    *result = optimizer;
    return status;
}

void vt_optimizer_close(vt_optimizer **optimizer)
{
    vt_optimizer *o = *optimizer;
    if (o == NULL) return;
    if (o->whole.memory != NULL) o->kind->whole->close(o);
    free(o->whole.parts);
    vt_kept_close(&o->kept);
    o->backend->release(o->backend, o->ranges);
    free(o->spans);
    o->backend->release(o->backend, o->state);
    if (o->begun != NULL) o->backend->release_host(o->backend, o->begun);
    free(o);
    *optimizer = NULL;
}

/* The sum over the model: each element counts once, however many ranks hold it. */
static void sum_squares(vt_optimizer *optimizer)
{
    vt_backend *backend = optimizer->backend;
    const vt_parameters *parameters = optimizer->parameters;
    const vt_whole_update *whole = optimizer->kind->whole;
    if (whole != NULL && whole->squares != NULL) {
        whole->squares(optimizer, &optimizer->state->squares);
        return;
    }
    for (int64_t i = 0; i < parameters->trained_buckets; i++) {
        const vt_optimizer_span own = span_of_bucket(optimizer, i);
        const double share = share_of(optimizer, &parameters->buckets[i]);
        backend->sum_of_squares(backend, own.gradients, own.count, share, &optimizer->state->squares);
    }
}

/* How many buckets have an average of their values: those that are trained, or none if the run keeps no average. */
static int64_t averaged_buckets(const vt_optimizer *optimizer)
{
    return vt_kept_averages(optimizer->kept) ? optimizer->parameters->trained_buckets : 0;
}

static void update_spans(vt_optimizer *optimizer)
{
    vt_backend *backend = optimizer->backend;
    const bool warms_up = vt_config_members(optimizer->config) > 1; /* as in a run with loss crps */
    for (int64_t i = 0; i < optimizer->span_count; i++)
        optimizer->kind->update(backend, &optimizer->rule, optimizer->state, &optimizer->spans[i]);
    if (optimizer->kind->whole != NULL) optimizer->kind->whole->step(optimizer);
    for (int64_t i = 0; i < averaged_buckets(optimizer); i++) {
        const vt_optimizer_span own = span_of_bucket(optimizer, i);
        backend->average(backend, optimizer->config->ema_decay, warms_up, optimizer->state, own.values,
                         own.kept[VT_KEPT_AVERAGE].numbers, own.count);
    }
}

void vt_optimizer_average_begin(vt_optimizer *optimizer)
{
    for (int64_t i = 0; i < averaged_buckets(optimizer); i++) {
        const vt_optimizer_span own = span_of_bucket(optimizer, i);
        optimizer->backend->copy(optimizer->backend, own.kept[VT_KEPT_AVERAGE].numbers, own.values,
                                 (size_t)own.count * sizeof(float));
    }
}

void vt_optimizer_average_restart(vt_optimizer *optimizer)
{
    vt_optimizer_progress progress = vt_optimizer_progress_of(optimizer);
    progress.averaged = 0;
    vt_optimizer_set_progress(optimizer, &progress);
    vt_optimizer_average_begin(optimizer);
}

void vt_optimizer_average_exchange(vt_optimizer *optimizer)
{
    for (int64_t i = 0; i < averaged_buckets(optimizer); i++) {
        const vt_optimizer_span own = span_of_bucket(optimizer, i);
        optimizer->backend->exchange(optimizer->backend, own.values, own.kept[VT_KEPT_AVERAGE].numbers, own.count);
    }
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
    backend->first_nonfinite(backend, parameters->gradients, optimizer->ranges, parameters->count, &state->squares,
                             &state->first_nonfinite);
    update_spans(optimizer);
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
    const vt_config *config = optimizer->config;
    const double first = config->loss_scale > 0 ? config->loss_scale : ldexp(1, (int)config->loss_scale_power);
    const double scale = goes_on ? progress->loss_scale : first;
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
    const int64_t count = parameters->count;
    double *bad = vt_allocate((size_t)count + 1, sizeof *bad, "the optimizer");
    const char *name = NULL;
    bad[first] = 1;
    vt_world_sum(parameters->parallel->world, bad, count);
    for (int64_t i = count - 1; i >= 0; i--)
        if (bad[i] > 0) name = parameters->list[i]->name;
    free(bad);
    return name;
}

void vt_optimizer_restart(vt_optimizer *optimizer)
{
    vt_optimizer_progress progress = vt_optimizer_progress_of(optimizer);
    vt_kept_clear(optimizer->kept);
    progress.updates = 0;
    vt_optimizer_set_progress(optimizer, &progress);
}
