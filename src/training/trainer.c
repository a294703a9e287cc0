/* Opening and closing a trainer, and what others ask it. */
#include <stdlib.h>

#include "base/memory.h"
#include "config/stages.h"
#include "source/sources.h"
#include "training/plan.h"
#include "training/trainer_inside.h"

vt_type vt_trainer_type(const vt_config *config)
{
    if (config->amp_mode == VT_AMP_NONE) return VT_FLOAT32;
    return config->amp_mode == VT_AMP_BF16 ? VT_BFLOAT16 : VT_FLOAT16;
}

int64_t vt_trainer_micro_batch(const vt_config *config)
{
    return config->global_batch_size / config->data_parallel / config->grad_accumulation;
}

int64_t vt_trainer_rows(const vt_trainer *trainer)
{
    return vt_trainer_micro_batch(trainer->config) * (trainer->loss->of_members ? trainer->crps.how.members : 1);
}

static vt_status take_batch_memory(vt_trainer *trainer)
{
    vt_status status = VT_OK;
    const vt_config *config = trainer->config;
    vt_backend *backend = trainer->backend;
    const int64_t own = config->global_batch_size / config->data_parallel;
    VT_TAKE(backend, VT_MEMORY_DATA, own, trainer->losses);
    trainer->host_losses = vt_allocate((size_t)vt_trainer_micro_batch(config), sizeof(float), "the trainer");
    for (int i = 0; i < VT_STEPS_AHEAD; i++) {
        vt_started_step *started = &trainer->started[i];
        void *state = NULL, *losses = NULL;
        VT_TRY(backend->allocate_host(backend, sizeof *started->state, &state));
        started->state = state;
        VT_TRY(backend->allocate_host(backend, (size_t)own * sizeof(float), &losses));
        started->losses = losses;
        started->samples = vt_allocate((size_t)own, sizeof(int64_t), "the trainer");
    }
    const int64_t other = vt_reader_batch(config, false) / config->data_parallel, most = own > other ? own : other;
    for (int i = 0; i < trainer->tensor_count && !backend->shares_host_memory; i++) {
        const size_t bytes = (size_t)most * vt_tensor_bytes(&trainer->specs[i]);
        VT_TRY(backend->allocate(backend, VT_MEMORY_DATA, bytes, &trainer->batch[i]));
        VT_TRY(backend->allocate(backend, VT_MEMORY_DATA, bytes, &trainer->staged[i]));
    }
done:
    return status;
}

/* Room for as many micro-batches as the schedule has at once. */
static vt_status take_micro_batch_memory(vt_trainer *trainer, vt_span rows, vt_arena_sizes sizes)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    const int64_t most = vt_config_longest_rollout(trainer->config), micro = vt_trainer_micro_batch(trainer->config);
    trainer->room_count = vt_schedule_in_flight(&trainer->shape);
    trainer->rooms = vt_allocate((size_t)trainer->room_count, sizeof *trainer->rooms, "the trainer");
    for (int64_t i = 0; i < trainer->room_count; i++) {
        vt_saved_open(trainer->model, trainer->parameters->units, &trainer->rooms[i].saved);
        VT_TRY(vt_arena_open(backend, sizes.room, &trainer->rooms[i].arena));
        if (trainer->config->offload_activations == VT_OFFLOAD_HOST)
            VT_TRY(vt_offload_open(backend, trainer->parameters->units, vt_model_blocks(trainer->model), sizes.offload,
                                   &trainer->rooms[i].offload));
    }
    trainer->micro_batch_count = vt_schedule_begun(&trainer->shape);
    trainer->micro_batches =
        vt_allocate((size_t)trainer->micro_batch_count, sizeof *trainer->micro_batches, "the trainer");
    for (int64_t i = 0; i < trainer->micro_batch_count; i++) {
        vt_micro_batch *micro_batch = &trainer->micro_batches[i];
        micro_batch->index = -1;
        VT_TRY(vt_rollout_open(trainer->task, trainer->model, backend, trainer->tensor_count, trainer->specs, rows,
                               most, trainer->stage.place, &micro_batch->rollout));
        VT_TAKE(backend, VT_MEMORY_DATA, most * micro * VT_LOSS_SUMS, micro_batch->loss_sums);
        VT_TRY(vt_arena_open(backend, sizes.shared, &micro_batch->shared));
    }
done:
    return status;
}

/* What the numbers of a prediction count in the loss, laid out as it is. */
static vt_status take_loss_weights(vt_trainer *trainer)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    vt_arena *arena = &trainer->rooms[0].arena;
    const vt_pass pass = {.backend = backend, .arena = arena, .parallel = trainer->parallel, .batch = 1};
    if (trainer->task->kind->weigh == NULL) return VT_OK;
    vt_matrix weights = trainer->task->kind->weigh(trainer->task, &pass), *kept = &trainer->loss_weights;
    if (weights.data == NULL) return VT_OK;
    *kept = vt_matrix_make(NULL, weights.rows, weights.columns);
    VT_TAKE(backend, VT_MEMORY_DATA, weights.rows * weights.columns, kept->data);
    backend->copy(backend, kept->data, weights.data, (size_t)vt_matrix_bytes(weights));
done:
    vt_arena_pop(arena, 0);
    return status;
}

/* What loss crps compares, for micro-batches of any size. */
static vt_status take_crps(vt_trainer *trainer)
{
    vt_status status = VT_OK;
    const vt_config *config = trainer->config;
    const vt_model *model = trainer->model;
    vt_crps *how = &trainer->crps.how;
    if (!trainer->loss->of_members) return VT_OK;
    how->grid = model->kind->prediction_grid(model, 1);
    how->members = config->ensemble_size;
    how->alpha = config->crps_alpha;
    VT_TRY(vt_config_scales(config, how->sides, &how->scale_count));
    trainer->crps.units = trainer->task->crps_units;
done:
    return status;
}

/* Of a micro-batch's predicted fields, if they are the input of a next step. */
static int64_t forecast_numbers(const vt_trainer *trainer)
{
    const vt_tensor_spec *input = &trainer->specs[VT_TENSOR_INPUT];
    if (vt_config_longest_rollout(trainer->config) == 1) return 0;
    return vt_trainer_rows(trainer) * trainer->task->normalisation[VT_TENSOR_TARGET].count *
           (vt_tensor_values(input) / input->shape[0]);
}

vt_status vt_trainer_build(const vt_config *config, const vt_trainer_options *options, vt_backend *backend,
                           vt_arena_sizes sizes, vt_trainer **result)
{
    vt_status status = VT_OK;
    vt_world *world = options->world;
    vt_trainer *trainer = vt_allocate(1, sizeof *trainer, "the trainer");
    const vt_model_kind *model = vt_model_kind_of(config);
    trainer->config = config;
    trainer->backend = backend;
    trainer->world = world;
    trainer->loss = vt_loss_kind_of(config);
    vt_parameters_storage storage;
    trainer->shape = vt_schedule_shape(config, world->coordinate[VT_AXIS_PIPELINE], vt_config_longest_rollout(config));
    trainer->shape.gpipe = trainer->shape.gpipe || options->gpipe;
    trainer->length.run = options->steps;
    VT_TRY(vt_model_check(config, backend));
    if (options->task == NULL) VT_TRY(vt_task_kind_of(config)->open(config, NULL, NULL, &trainer->own_task));
    trainer->task = options->task != NULL ? options->task : trainer->own_task;
    VT_TRY(vt_parallel_open(config, world, backend, model->tokens(config), &trainer->parallel));
    VT_TRY(vt_parameters_open(backend, trainer->parallel, &trainer->parameters));
    VT_TRY(vt_model_open(config, trainer->parameters, &trainer->model));
    VT_TRY(vt_stage_open(config, world, trainer->parameters, &trainer->stage));
    trainer->stage.first_trained = trainer->model->first_trained;
    VT_TRY(vt_gradient_sync_storage(config, world, backend, &storage));
    /* memory may be short on one rank alone, and what follows makes groups, for which all ranks must be there */
    VT_TRY(vt_world_agree(world, vt_parameters_allocate(trainer->parameters, vt_trainer_type(config), &storage)));
    VT_TRY(vt_world_agree(world, vt_gradient_sync_open(config, backend, trainer->parameters, &trainer->sync)));
    VT_TRY(vt_world_agree(world, vt_optimizer_open(config, backend, trainer->parameters, &trainer->optimizer)));
    const vt_span rows = model->part_needed(config, trainer->parallel->own);
    const int64_t micro = vt_trainer_micro_batch(config);
    const vt_task_kind *task = trainer->task->kind;
    trainer->task->backend = backend;
    if (task->place != NULL)
        VT_TRY(vt_world_agree(world, task->place(trainer->task, backend, trainer->model, rows, micro)));
    trainer->tensor_count = vt_source_kind_of(config)->specs(config, rows, trainer->specs);
    VT_TRY(take_crps(trainer));
    VT_TRY(vt_stage_connect(config, world, backend, vt_trainer_rows(trainer) * trainer->parallel->own.count,
                            forecast_numbers(trainer), &trainer->stage));
    VT_TRY(take_batch_memory(trainer));
    VT_TRY(take_micro_batch_memory(trainer, rows, sizes));
    VT_TRY(take_loss_weights(trainer));
done:
    if (status != VT_OK) vt_trainer_close(&trainer);
    *result = trainer;
    return status;
}

vt_status vt_trainer_open(const vt_config *config, const vt_trainer_options *options, vt_backend *backend,
                          vt_trainer **trainer)
{
    vt_status status = VT_OK;
    vt_plan plan;
    vt_trainer_options whole = *options;
    vt_world *own_world = NULL;
    *trainer = NULL;
    if (whole.world == NULL) {
        const vt_launch alone = {.world_size = 1, .local_size = 1};
        VT_TRY(vt_world_open(config, &alone, &own_world));
        whole.world = own_world;
    }
    vt_plan_options planned = vt_plan_options_of(whole.world, backend);
    planned.gpipe = whole.gpipe;
    VT_TRY(vt_plan_make(config, &planned, &plan));
    VT_TRY(vt_trainer_build(config, &whole, backend,
                            (vt_arena_sizes){plan.arena_bytes, plan.shared_bytes, plan.offload}, trainer));
    (*trainer)->own_world = own_world;
    vt_parameters_start((*trainer)->parameters, (uint64_t)config->seed, "");
    vt_optimizer_average_begin((*trainer)->optimizer);
    return VT_OK;
done:
    vt_world_close(&own_world, false);
    return status;
}

void vt_trainer_close(vt_trainer **trainer)
{
    vt_trainer *t = *trainer;
    if (t == NULL) return;
    t->backend->check(t->backend); /* what is on its way to the host has arrived */
    t->backend->release(t->backend, t->losses);
    t->backend->release(t->backend, t->loss_weights.data);
    vt_device_cache_close(&t->caches[0]);
    vt_device_cache_close(&t->caches[1]);
    for (int i = 0; i < VT_BATCH_TENSORS; i++) {
        t->backend->release(t->backend, t->batch[i]);
        t->backend->release(t->backend, t->staged[i]);
    }
    for (int64_t i = 0; i < t->micro_batch_count; i++) {
        t->backend->release(t->backend, t->micro_batches[i].loss_sums);
        vt_rollout_close(&t->micro_batches[i].rollout);
        vt_arena_close(&t->micro_batches[i].shared);
    }
    for (int64_t i = 0; i < t->room_count; i++) {
        vt_arena_close(&t->rooms[i].arena);
        vt_offload_close(&t->rooms[i].offload);
        vt_saved_close(&t->rooms[i].saved);
    }
    vt_stage_close(&t->stage);
    free(t->micro_batches);
    free(t->rooms);
    for (int i = 0; i < VT_STEPS_AHEAD; i++) {
        t->backend->release_host(t->backend, t->started[i].state);
        t->backend->release_host(t->backend, t->started[i].losses);
        free(t->started[i].samples);
    }
    free(t->host_losses);
    vt_optimizer_close(&t->optimizer);
    vt_gradient_sync_close(&t->sync);
    vt_model_close(&t->model);
    vt_parameters_close(&t->parameters);
    vt_parallel_close(&t->parallel);
    vt_task_close(&t->own_task);
    vt_world_close(&t->own_world, false);
    free(t);
    *trainer = NULL;
}

/* ---- what others ask ---- */

const vt_model *vt_trainer_model(const vt_trainer *trainer)
{
    return trainer->model;
}

vt_parameters *vt_trainer_parameters(const vt_trainer *trainer)
{
    return trainer->parameters;
}

vt_checkpoint_subject vt_trainer_subject(const vt_trainer *trainer)
{
    return (vt_checkpoint_subject){.config = trainer->config,
                                   .world = trainer->world,
                                   .backend = trainer->backend,
                                   .parameters = trainer->parameters,
                                   .optimizer = trainer->optimizer,
                                   .sync = trainer->sync,
                                   .task = trainer->task};
}

void vt_trainer_exchange_average(vt_trainer *trainer)
{
    if (!vt_kept_averages(trainer->optimizer->kept)) return;
    vt_optimizer_average_exchange(trainer->optimizer);
    vt_gradient_sync_values_changed(trainer->sync);
}

void vt_trainer_resume(vt_trainer *trainer, int64_t steps, vt_run_length length)
{
    trainer->steps_started = steps;
    trainer->length = length;
}

/* A step that was recorded with another loss is recorded anew. */
void vt_trainer_set_epoch(vt_trainer *trainer, int64_t epoch)
{
    const vt_loss_kind *loss = vt_loss_kind_at(trainer->config, epoch);
    trainer->record_anew = trainer->record_anew || loss != trainer->loss;
    trainer->loss = loss;
}

bool vt_trainer_counts_in_sums(const vt_trainer *trainer)
{
    return trainer->stage.place.is_last && trainer->world->coordinate[VT_AXIS_TENSOR] == 0 &&
           trainer->world->coordinate[VT_AXIS_CONTEXT] == 0;
}
