#include "optimizer/gradient_sync.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "optimizer/kinds.h"

/* A bucket's reduction: at most three operations, one after another. */
enum { MOST_PHASES = 3 };

typedef struct {
    const vt_bucket *bucket;
    float *gradients; /* the whole bucket */
    vt_group *phases[MOST_PHASES];
    int phase_count;
    int phase; /* under way; phase_count: none is */
    vt_request request;
    int64_t place; /* of the bucket in the room of its unit (ZeRO 2 and 3) */
    double begun;
} bucket_state;

/* Two units lie whole in memory at a time: the one in use and the one before or after it. */
typedef struct {
    float *values;
    uint16_t *halves;
    float *gradients;
    int64_t values_unit; /* whose values are here or on their way; -1: none's */
    bool arrived;
} unit_room;

struct vt_gradient_sync {
    const vt_config *config;
    vt_backend *backend;
    vt_parameters *parameters;
    vt_engine *engine; /* over all ranks */
    vt_group *shards;
    bool last;
    bucket_state *buckets;
    vt_request *gathers;    /* [bucket] */
    int64_t count, trained; /* buckets; the first of them, which have gradients, and whose values change */
    bucket_state **queue;   /* [count]: the buckets under way, in the order in which they started */
    int64_t queued;
    unit_room rooms[2];
    int64_t room_elements[VT_BLOCK_MOMENTS]; /* of values and of gradients */
    double unit_begin;
    vt_sync_trace *trace;      /* or NULL */
    const char *unit_backward; /* the name of a unit's backward there */
};

/* ---- how it is split ---- */

static vt_scope shard_scope(const vt_config *config)
{
    return config->zero_group == VT_ZERO_NODE ? VT_SCOPE_WITHIN_NODE : VT_SCOPE_ALL;
}

vt_status vt_gradient_sync_storage(const vt_config *config, vt_world *world, vt_backend *backend,
                                   vt_parameters_storage *storage)
{
    vt_status status = VT_OK;
    vt_group *group = NULL;
    const vt_optimizer_kind *optimizer = vt_optimizer_kinds[config->optimizer];
    *storage = (vt_parameters_storage){config->bucket_cap_mb * 1024 * 1024, (int)config->zero_stage, 1, 0,
                                       optimizer->grain != NULL ? optimizer->grain(config) : 1};
    if (config->zero_stage == 0) return VT_OK;
    VT_TRY(vt_world_group(world, VT_AXES(VT_AXIS_DATA), shard_scope(config), "gradients", backend, &group));
    double sums[3] = {1, group->size, (double)group->size * group->size};
    vt_world_sum(world, sums, 3);
    double mean = sums[1] / sums[0];
    VT_CHECK(sums[2] == mean * mean * sums[0],
             "zero_group node: the nodes have different numbers of data-parallel ranks (%d here, %g on average); start "
             "as many on each, or use zero_group all",
             group->size, mean);
    storage->shards = group->size;
    storage->shard = group->rank;
done:
    return status;
}

/* ---- a bucket's reduction ---- */

static void start_phase(vt_gradient_sync *sync, bucket_state *state)
{
    const int64_t slice = state->bucket->slice;
    vt_group *group = state->phases[state->phase];
    const double before = group->volume.bytes;
    if (group != sync->shards) {
        vt_group_all_reduce(group, VT_SUM_FLOAT32, state->gradients + sync->shards->rank * slice, slice,
                            &state->request);
    } else {
        int64_t lengths[group->size];
        for (int i = 0; i < group->size; i++) lengths[i] = slice;
        vt_group_reduce_scatter(group, state->gradients, lengths, &state->request);
    }
    vt_group_note_padding(group, before, state->bucket->padding);
}

/* Starts to gather a bucket's values into `whole` from the slices that its shards keep. */
static void gather_bucket(vt_gradient_sync *sync, int64_t index, float *whole)
{
    const vt_bucket *bucket = sync->buckets[index].bucket;
    const double before = sync->shards->volume.bytes;
    const float *slice =
        sync->parameters->values + vt_parameters_slice_offset(sync->parameters, bucket, VT_BLOCK_VALUES);
    float *place = whole + sync->shards->rank * bucket->slice;
    size_t bytes[sync->shards->size];
    for (int i = 0; i < sync->shards->size; i++) bytes[i] = (size_t)bucket->slice * sizeof(float);
    if (place != slice) sync->backend->copy(sync->backend, place, slice, bytes[0]);
    vt_group_all_gather(sync->shards, whole, bytes, &sync->gathers[index]);
    vt_group_note_padding(sync->shards, before, bucket->padding);
}

/* Adds this rank's slice of a reduced bucket to the gradients of the micro-batches before. */
static void keep_slice(vt_gradient_sync *sync, const bucket_state *state)
{
    const int64_t slice = state->bucket->slice;
    float *kept =
        sync->parameters->gradients + vt_parameters_slice_offset(sync->parameters, state->bucket, VT_BLOCK_GRADIENTS);
    vt_matrix sum = vt_matrix_make(kept, 1, slice);
    vt_matrix part = vt_matrix_make(state->gradients + sync->shards->rank * slice, 1, slice);
    vt_matrix_add(sync->backend, sum, part, sum);
}

/* Advances a reduction as far as it goes without waiting, or to its end when `wait`. It never overtakes the one that
 * started before it (`ahead`, or NULL), so that all ranks start each phase of all buckets in the same order. */
static void advance(vt_gradient_sync *sync, bucket_state *state, const bucket_state *ahead, bool wait)
{
    while (state->phase < state->phase_count) {
        if (wait)
            vt_request_wait(&state->request);
        else if (!vt_request_test(&state->request))
            return;
        bool is_last = state->phase + 1 == state->phase_count;
        if (!is_last && ahead != NULL && ahead->phase <= state->phase) return;
        if (++state->phase < state->phase_count) {
            start_phase(sync, state);
            continue;
        }
        if (vt_parameters_is_sliced(sync->parameters, VT_BLOCK_GRADIENTS)) keep_slice(sync, state);
        vt_sync_trace_note(sync->trace, "bucket", state - sync->buckets, state->bucket->count * (int64_t)sizeof(float),
                           state->begun);
    }
}

/* Advances all reductions; with `wait` it waits for those up to `last`, or for all when that is NULL. */
static void advance_all(vt_gradient_sync *sync, bool wait, const bucket_state *last)
{
    const bucket_state *ahead = NULL;
    int64_t left = 0;
    for (int64_t i = 0; i < sync->queued; i++) {
        bucket_state *state = sync->queue[i];
        advance(sync, state, ahead, wait);
        if (last != NULL && state == last) wait = false;
        if (state->phase == state->phase_count) continue; /* it no longer holds up those behind it */
        ahead = state;
        sync->queue[left++] = state;
    }
    sync->queued = left;
}

static void start_bucket(vt_gradient_sync *sync, bucket_state *state)
{
    state->begun = vt_clock_seconds();
    if (state->phase_count == 0) return; /* there is no one else */
    state->phase = 0;
    sync->queue[sync->queued++] = state;
    start_phase(sync, state);
    while (state->phase + 1 < state->phase_count &&
           vt_request_chain(&state->request, state->phases[state->phase + 1])) {
        state->phase++;
        start_phase(sync, state);
    }
}

/* ---- units ---- */

static bool has_unit(const bucket_state *state, int64_t unit)
{
    return state->bucket->first_unit <= unit && unit <= state->bucket->last_unit;
}

static unit_room *room_of(vt_gradient_sync *sync, int64_t unit)
{
    return &sync->rooms[unit % 2];
}

/* Starts to gather the values of a unit into its room, unless they are there. */
static void gather_begin(vt_gradient_sync *sync, int64_t unit)
{
    unit_room *room = room_of(sync, unit);
    if (room->values_unit == unit) return;
    room->values_unit = unit;
    room->arrived = false;
    for (int64_t i = 0; i < sync->count; i++) {
        if (has_unit(&sync->buckets[i], unit)) gather_bucket(sync, i, room->values + sync->buckets[i].place);
    }
}

static void gather_end(vt_gradient_sync *sync, int64_t unit)
{
    unit_room *room = room_of(sync, unit);
    if (room->arrived) return;
    room->arrived = true;
    for (int64_t i = 0; i < sync->count; i++) {
        bucket_state *state = &sync->buckets[i];
        if (!has_unit(state, unit)) continue;
        vt_request_wait(&sync->gathers[i]);
        uint16_t *half = room->halves != NULL ? room->halves + state->place : NULL;
        if (half != NULL)
            vt_parameters_round(sync->parameters, vt_matrix_make(room->values + state->place, 1, state->bucket->count),
                                half);
        vt_parameters_place_values(sync->parameters, state->bucket, room->values + state->place, half);
    }
}

/* Clears the room for a unit's gradients, after those that were there have been reduced. */
static void clear_gradients(vt_gradient_sync *sync, int64_t unit)
{
    vt_backend *backend = sync->backend;
    unit_room *room = room_of(sync, unit);
    const bucket_state *last = NULL; /* that used the room */
    for (int64_t i = 0; i < sync->queued; i++)
        if (sync->queue[i]->bucket->first_unit % 2 == unit % 2) last = sync->queue[i];
    if (last != NULL) advance_all(sync, true, last);
    for (int64_t i = 0; i < sync->trained; i++) {
        bucket_state *state = &sync->buckets[i];
        if (!has_unit(state, unit)) continue;
        state->gradients = room->gradients + state->place;
        vt_parameters_place_gradients(sync->parameters, state->bucket, state->gradients);
        backend->zero(backend, state->gradients, (size_t)state->bucket->count * sizeof(float));
    }
}

static void needed(void *context, int64_t unit, int64_t next, bool backward)
{
    vt_gradient_sync *sync = context;
    if (sync->engine->advance != NULL) sync->engine->advance(sync->engine);
    if (vt_parameters_is_sliced(sync->parameters, VT_BLOCK_VALUES)) {
        gather_begin(sync, unit);
        gather_end(sync, unit);
        if (next >= 0) gather_begin(sync, next);
    }
    if (!backward) return;
    if (vt_parameters_is_sliced(sync->parameters, VT_BLOCK_GRADIENTS)) clear_gradients(sync, unit);
    sync->unit_begin = vt_clock_seconds();
}

static void gradients_ready(void *context, int64_t unit)
{
    vt_gradient_sync *sync = context;
    vt_sync_trace_note(sync->trace, sync->unit_backward, unit, 0, sync->unit_begin);
    bool reduce = vt_parameters_is_sliced(sync->parameters, VT_BLOCK_GRADIENTS) || sync->last;
    for (int64_t i = 0; i < sync->trained; i++) {
        bucket_state *state = &sync->buckets[i];
        if (reduce && state->bucket->first_unit == unit) start_bucket(sync, state);
    }
    advance_all(sync, false, NULL);
}

/* ---- a step ---- */

void vt_gradient_sync_begin(vt_gradient_sync *sync, int64_t step, bool last)
{
    vt_sync_trace_begin(sync->trace, step);
    sync->last = last;
}

void vt_gradient_sync_finish(vt_gradient_sync *sync)
{
    const double begin = vt_clock_seconds();
    advance_all(sync, true, NULL);
    vt_sync_trace_end(sync->trace, begin);
}

void vt_gradient_sync_forget(vt_gradient_sync *sync)
{
    for (int64_t i = 0; i < sync->count; i++) vt_request_wait(&sync->gathers[i]);
    for (int i = 0; i < 2; i++) sync->rooms[i].values_unit = -1;
}

void vt_gradient_sync_values_changed(vt_gradient_sync *sync)
{
    if (vt_parameters_is_sliced(sync->parameters, VT_BLOCK_VALUES)) {
        vt_gradient_sync_forget(sync);
        return;
    }
    const bool is_sliced = vt_parameters_is_sliced(sync->parameters, VT_BLOCK_MOMENTS);
    for (int64_t i = 0; is_sliced && i < sync->trained; i++)
        gather_bucket(sync, i, sync->parameters->values + sync->buckets[i].bucket->first);
    for (int64_t i = 0; is_sliced && i < sync->trained; i++) vt_request_wait(&sync->gathers[i]);
    vt_parameters_refresh(sync->parameters);
}

void vt_gradient_sync_values_updated(vt_gradient_sync *sync)
{
    if (vt_parameters_rounded(sync->parameters, 0) == NULL) vt_gradient_sync_values_changed(sync);
}

/* ---- opening ---- */

/* Which groups of ranks sum a bucket's gradients, one after another. sum: the axes along which they must be summed,
 * besides data. */
static vt_status choose_phases(vt_gradient_sync *sync, unsigned sum, bucket_state *state)
{
    vt_status status = VT_OK;
    vt_world *world = sync->parameters->parallel->world;
    const unsigned data = VT_AXES(VT_AXIS_DATA);
    vt_group *groups[MOST_PHASES] = {NULL};
    if (sync->shards->size == 1) {
        VT_TRY(vt_world_group(world, sync->config->noddp ? sum : sum | data, VT_SCOPE_ALL, "gradients", sync->backend,
                              &groups[0]));
    } else {
        groups[0] = sync->shards;
        if (shard_scope(sync->config) == VT_SCOPE_WITHIN_NODE)
            VT_TRY(vt_world_group(world, data, VT_SCOPE_ACROSS_NODES, "gradients", sync->backend, &groups[1]));
        if (sum != 0) VT_TRY(vt_world_group(world, sum, VT_SCOPE_ALL, "gradients", sync->backend, &groups[2]));
    }
    for (int i = 0; i < MOST_PHASES; i++)
        if (groups[i] != NULL && groups[i]->size > 1) state->phases[state->phase_count++] = groups[i];
    state->phase = state->phase_count;
done:
    return status;
}

/* Where each bucket lies in the room of its unit, and how large a room must be. Frozen ones are the last. */
static void place_units(vt_gradient_sync *sync)
{
    int64_t units = sync->parameters->unit_count;
    for (int64_t unit = 0; unit < units; unit++) {
        int64_t place = 0;
        for (int64_t i = 0; i < sync->count; i++) {
            if (!has_unit(&sync->buckets[i], unit)) continue;
            sync->buckets[i].place = place;
            place += sync->buckets[i].bucket->count;
            for (int block = 0; block <= (i < sync->trained); block++)
                if (place > sync->room_elements[block]) sync->room_elements[block] = place;
        }
    }
}

static vt_status take_rooms(vt_gradient_sync *sync)
{
    vt_status status = VT_OK;
    place_units(sync);
    for (int i = 0; i < 2; i++) {
        unit_room *room = &sync->rooms[i];
        VT_TAKE(sync->backend, VT_MEMORY_GRADIENTS, sync->room_elements[VT_BLOCK_GRADIENTS], room->gradients);
        if (!vt_parameters_is_sliced(sync->parameters, VT_BLOCK_VALUES)) continue;
        VT_TAKE(sync->backend, VT_MEMORY_PARAMETERS, sync->room_elements[VT_BLOCK_VALUES], room->values);
        if (vt_type_is_half(sync->parameters->type))
            VT_TAKE(sync->backend, VT_MEMORY_PARAMETERS, sync->room_elements[VT_BLOCK_VALUES], room->halves);
    }
done:
    return status;
}

vt_status vt_gradient_sync_open(const vt_config *config, vt_backend *backend, vt_parameters *parameters,
                                vt_gradient_sync **result)
{
    vt_status status = VT_OK;
    vt_gradient_sync *sync = vt_allocate(1, sizeof *sync, "the gradients' buckets");
    vt_world *world = parameters->parallel->world;
    sync->config = config;
    sync->backend = backend;
    sync->parameters = parameters;
    sync->engine = world->device_engine;
    sync->count = parameters->bucket_count;
    sync->trained = parameters->trained_buckets;
    sync->buckets = vt_allocate((size_t)sync->count + 1, sizeof *sync->buckets, "the gradients' buckets");
    sync->gathers = vt_allocate((size_t)sync->count + 1, sizeof *sync->gathers, "the gradients' buckets");
    sync->queue = vt_allocate((size_t)sync->count + 1, sizeof *sync->queue, "the gradients' buckets");
    for (int i = 0; i < 2; i++) sync->rooms[i].values_unit = -1;
    /* without slices a group of this rank alone */
    bool sliced = vt_parameters_is_sliced(parameters, VT_BLOCK_MOMENTS);
    VT_TRY(vt_world_group(world, sliced ? VT_AXES(VT_AXIS_DATA) : 0, sliced ? shard_scope(config) : VT_SCOPE_ALL,
                          "gradients", backend, &sync->shards));
    /* all ranks make all groups, those for the parameters of other stages, too */
    for (int64_t i = 0; i < parameters->count; i++) {
        bucket_state other = {0};
        VT_TRY(choose_phases(sync, parameters->list[i]->sum_axes, &other));
    }
    for (int64_t i = 0; i < sync->count; i++) {
        bucket_state *state = &sync->buckets[i];
        state->bucket = &parameters->buckets[i];
        if (!vt_parameters_is_sliced(parameters, VT_BLOCK_GRADIENTS) && i < sync->trained)
            state->gradients = parameters->gradients + state->bucket->first;
        VT_TRY(choose_phases(sync, state->bucket->sum_axes, state));
    }
    if (vt_parameters_is_sliced(parameters, VT_BLOCK_GRADIENTS)) VT_TRY(take_rooms(sync));
    parameters->hooks = (vt_parameters_hooks){sync, needed, gradients_ready};
done:
    if (status != VT_OK) vt_gradient_sync_close(&sync);
    *result = sync;
    return status;
}

void vt_gradient_sync_close(vt_gradient_sync **sync)
{
    vt_gradient_sync *s = *sync;
    if (s == NULL) return;
    for (int64_t i = 0; i < s->count; i++) vt_request_wait(&s->gathers[i]);
    for (int i = 0; i < 2; i++) {
        s->backend->release(s->backend, s->rooms[i].values);
        s->backend->release(s->backend, s->rooms[i].halves);
        s->backend->release(s->backend, s->rooms[i].gradients);
    }
    vt_sync_trace_close(&s->trace);
    free(s->queue);
    free(s->buckets);
    free(s->gathers);
    free(s);
    *sync = NULL;
}

vt_status vt_gradient_sync_trace(vt_gradient_sync *sync, const char *path)
{
    const vt_world *world = sync->parameters->parallel->world;
    /* "backward" is a micro-batch's where there are stages */
    sync->unit_backward = world->layout.size[VT_AXIS_PIPELINE] > 1 ? "unit" : "backward";
    return vt_sync_trace_open(path, world->rank, &sync->trace);
}

vt_sync_trace *vt_gradient_sync_rows(const vt_gradient_sync *sync)
{
    return sync->trace;
}
