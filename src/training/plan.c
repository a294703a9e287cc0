#include "training/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "config/stages.h"
#include "source/sources.h"
#include "training/trainer_inside.h"

/* What both sets hold; and the readers' rings: the batches ahead and the one in use, for training and for validation.
 */
static void plan_data(const vt_trainer *trainer, const vt_plan_options *options, vt_plan *plan)
{
    const vt_config *config = trainer->config;
    const vt_source_kind *source = vt_source_kind_of(config);
    const vt_span rows = vt_model_kind_of(config)->part_needed(config, trainer->parallel->own);
    plan->held_bytes = source->held_bytes != NULL ? source->held_bytes(config, rows) : 0;
    plan->chunk_bytes = options->chunk_bytes;
    plan->ring_bytes = plan->held_bytes + plan->chunk_bytes;
    for (int training = 0; training < 2; training++) {
        const int64_t batches = (training ? config->prefetch : VT_VALIDATION_PREFETCH) + 1;
        const size_t samples = (size_t)(batches * (vt_reader_batch(config, training) / config->data_parallel));
        const unsigned unread = vt_stage_unread(config, trainer->world, training);
        for (int t = 0; t < trainer->tensor_count; t++)
            if ((unread & 1u << t) == 0) plan->ring_bytes += samples * vt_tensor_bytes(&trainer->specs[t]);
    }
    if (!options->device_memory) plan->bytes[VT_MEMORY_DATA] += plan->ring_bytes;
}

/* Notes the work done so far. */
static void note_work(const vt_world *world, const vt_backend *dry, vt_plan *plan)
{
    plan->step = *vt_backend_dry_count(dry);
    const int *node_of = world->node_of;
    VT_ASSERT(world->group_count <= VT_PLAN_GROUPS);
    plan->group_count = world->group_count;
    for (int i = 0; i < world->group_count; i++) {
        const vt_group *group = world->groups[i];
        vt_plan_group *noted = &plan->groups[i];
        *noted = (vt_plan_group){.size = group->size, .volume = group->volume};
        memcpy(noted->name, group->name, sizeof noted->name);
        for (int j = 0; j < group->size; j++) noted->in_node += node_of[group->members[j]] == node_of[world->rank];
    }
}

/* Adds `times` micro-batches to `plan`, which was noted after a step of 2, as `before` was before it, and `more` after
 * another step of 3: what one micro-batch adds is (more - plan) - (plan - before). All three have products and groups
 * in the same order. */
static void add_micro_batches(vt_plan *plan, const vt_plan *before, const vt_plan *more, int64_t times)
{
    const vt_dry_count *a = &before->step, *c = &more->step;
    vt_dry_count *b = &plan->step;
    double factor = (double)times;
    for (int i = 0; i < b->product_count; i++)
        b->products[i].calls += times * (c->products[i].calls - 2 * b->products[i].calls + a->products[i].calls);
    for (int i = 0; i < VT_WORK_COUNT; i++) b->moved[i] += factor * (c->moved[i] - 2 * b->moved[i] + a->moved[i]);
    b->flops += factor * (c->flops - 2 * b->flops + a->flops);
    b->attention_flops += factor * (c->attention_flops - 2 * b->attention_flops + a->attention_flops);
    b->operations += times * (c->operations - 2 * b->operations + a->operations);
    for (int i = 0; i < plan->group_count; i++) {
        const vt_volume *first = &before->groups[i].volume, *last = &more->groups[i].volume;
        vt_volume *volume = &plan->groups[i].volume;
        volume->operations += times * (last->operations - 2 * volume->operations + first->operations);
        volume->bytes += factor * (last->bytes - 2 * volume->bytes + first->bytes);
        volume->padding += factor * (last->padding - 2 * volume->padding + first->padding);
    }
}

static vt_status plan_step(vt_trainer *trainer, vt_config *config, int64_t micro_batches, vt_plan *plan)
{
    vt_status status = VT_OK;
    vt_step_figures figures;
    int64_t samples = micro_batches * vt_trainer_micro_batch(config);
    vt_batch batch = {.sample_count = samples,
                      .global_count = samples * config->data_parallel,
                      .steps = vt_config_longest_rollout(config)};
    config->grad_accumulation = trainer->shape.micro_batches = micro_batches;
    config->global_batch_size = batch.global_count;
    VT_TRY(vt_step_train(trainer, &batch, &figures));
    note_work(trainer->world, trainer->backend, plan);
done:
    return status;
}

/* A step of many micro-batches is extrapolated from steps of 2 and 3, to the same figures: of thousands it would take
 * minutes. `config` is the trainer's own. */
static vt_status plan_work(vt_trainer *trainer, vt_config *config, vt_plan *plan)
{
    enum { FEW = 5 };
    vt_status status = VT_OK;
    const int64_t micro_batches = config->grad_accumulation, batch = config->global_batch_size;
    vt_plan *noted = vt_allocate(2, sizeof *noted, "the plan of a step");
    note_work(trainer->world, trainer->backend, &noted[0]);
    VT_TRY(plan_step(trainer, config, micro_batches <= FEW ? micro_batches : 2, plan));
    if (micro_batches > FEW) {
        VT_TRY(plan_step(trainer, config, 3, &noted[1]));
        add_micro_batches(plan, &noted[0], &noted[1], micro_batches - 2);
    }
    config->grad_accumulation = trainer->shape.micro_batches = micro_batches;
    config->global_batch_size = batch;
    for (int i = 0; i < plan->group_count; i++) {
        vt_volume *sum = &plan->communication[vt_traffic_of(plan->groups[i].name)];
        vt_volume own = plan->groups[i].volume;
        vt_volume_add(&own, &noted[0].groups[i].volume, -1);
        vt_volume_add(sum, &own, 1);
    }
done:
    free(noted);
    return status;
}

vt_plan_options vt_plan_options_of(const vt_world *world, const vt_backend *backend)
{
    return (vt_plan_options){.rank = world->rank,
                             .node_of = world->node_of,
                             .device_memory = backend != NULL && !backend->shares_host_memory,
                             .draws_ahead = backend != NULL && backend->draws_ahead};
}

static void plan_offload(const vt_trainer *trainer, vt_plan *plan)
{
    const vt_offload *offload = trainer->rooms[0].offload;
    const size_t rooms = (size_t)trainer->room_count;
    plan->in_flight = trainer->room_count;
    plan->offload = offload != NULL ? vt_offload_needed(offload) : (vt_offload_sizes){0};
    plan->offloaded_bytes = (double)plan->offload.host * (double)vt_schedule_counts(&trainer->shape).backwards;
    plan->bytes[VT_MEMORY_ACTIVATIONS] += rooms * vt_offload_device_bytes(plan->offload);
    plan->pinned_bytes += rooms * plan->offload.host;
}

vt_status vt_plan_make(const vt_config *config, const vt_plan_options *options, vt_plan *plan)
{
    vt_status status = VT_OK;
    vt_world *world = NULL;
    vt_backend *dry = NULL;
    vt_trainer *trainer = NULL;
    vt_evaluation evaluation = {0};
    vt_config own = *config; /* its strings stay the configuration's */
    const vt_task_kind *kind = vt_task_kind_of(config);
    const vt_picture_part pictured = kind->pictured != NULL ? kind->pictured(config) : (vt_picture_part){0};
    const int64_t plane = pictured.height * pictured.width;
    float *fields = vt_allocate(2 * (size_t)plane + 1, sizeof *fields, "the plan");
    memset(plan->communication, 0, sizeof plan->communication);
    int64_t micro = vt_trainer_micro_batch(config);
    vt_batch batch = {.sample_count = micro, .global_count = micro * config->data_parallel};
    VT_TRY(vt_backend_open_dry(&dry));
    dry->shares_host_memory = !options->device_memory;
    dry->draws_ahead = options->draws_ahead;
    VT_TRY(vt_world_open_dry(config, options->rank, (int)config->ranks, options->node_of, &world));
    const vt_trainer_options built = {.world = world, .steps = 1, .gpipe = options->gpipe};
    VT_TRY(vt_trainer_build(&own, &built, dry, (vt_arena_sizes){SIZE_MAX, SIZE_MAX, {SIZE_MAX, SIZE_MAX, SIZE_MAX}},
                            &trainer));
    VT_TRY(plan_work(trainer, &own, plan));
    vt_step_evaluation_open(trainer, true, &evaluation);
    VT_TRY(vt_step_evaluate(trainer, &batch, &evaluation));
    if (plane > 0) VT_TRY(vt_step_forecast(trainer, &batch, pictured, fields, fields + plane));
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) plan->bytes[i] = vt_backend_dry_count(dry)->bytes[i];
    plan->pinned_bytes = 0;
    if (config->async_checkpoint) {
        const vt_checkpoint_subject subject = vt_trainer_subject(trainer);
        *(options->device_memory ? &plan->pinned_bytes : &plan->bytes[VT_MEMORY_WORKSPACE]) +=
            vt_checkpoint_copy_bytes(&subject);
    }
    plan_offload(trainer, plan);
    plan->arena_bytes = trainer->rooms[0].arena.peak;
    plan->shared_bytes = trainer->micro_batches[0].shared.peak;
    plan->message_bytes = options->device_memory ? 0 : world->engine->most_copies + world->engine->hole;
    plan->bytes[VT_MEMORY_ACTIVATIONS] +=
        (size_t)trainer->room_count * plan->arena_bytes + (size_t)trainer->micro_batch_count * plan->shared_bytes;
    plan_data(trainer, options, plan);
done:
    free(fields);
    vt_evaluation_close(&evaluation);
    vt_trainer_close(&trainer);
    vt_world_close(&world, false);
    vt_backend_close(&dry);
    return status;
}

double vt_plan_bytes(const vt_plan *plan, vt_memory_category category)
{
    return (double)plan->bytes[category] + (category == VT_MEMORY_WORKSPACE ? (double)plan->message_bytes : 0);
}

double vt_plan_total(const vt_plan *plan)
{
    double total = 0;
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) total += vt_plan_bytes(plan, (vt_memory_category)i);
    return total;
}

void vt_plan_describe(const vt_plan *plan, char *buffer, size_t size)
{
    static const char *const names[VT_MEMORY_CATEGORY_COUNT] = {"parameters",  "gradients", "optimizer",
                                                                "activations", "data",      "workspace"};
    char number[VT_NUMBER_SIZE];
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT && used < size; i++) {
        const double bytes = vt_plan_bytes(plan, (vt_memory_category)i);
        if (bytes == 0) continue;
        used += (size_t)snprintf(buffer + used, size - used, "%s%s %s", used > 0 ? ", " : "", names[i],
                                 vt_text_bytes(bytes, number));
    }
}
