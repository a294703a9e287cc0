#include "training/trainer.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/sources.h"
#include "training/step.h"

vt_type vt_trainer_type(const vt_config *config)
{
    if (config->amp_mode == VT_AMP_NONE) return VT_FLOAT32;
    return config->amp_mode == VT_AMP_BF16 ? VT_BFLOAT16 : VT_FLOAT16;
}

int64_t vt_trainer_micro_batch(const vt_config *config)
{
    return config->global_batch_size / config->data_parallel / config->grad_accumulation;
}

static vt_status allocate_floats(vt_backend *backend, vt_memory_category category, int64_t count, float **memory)
{
    void *taken = NULL;
    vt_status status = backend->allocate(backend, category, (size_t)count * sizeof(float), &taken);
    *memory = taken;
    return status;
}

static vt_status allocate_doubles(vt_backend *backend, int64_t count, double **memory)
{
    void *taken = NULL;
    vt_status status = backend->allocate(backend, VT_MEMORY_DATA, (size_t)count * sizeof(double), &taken);
    *memory = taken;
    return status;
}

/* Device arrays of `count` channels; channel c of a stacked history is channel c % file_channels of the file. */
static vt_status upload_normalisation(vt_backend *backend, const vt_trainer_data *data, int64_t count, int64_t period,
                                      float **mean, float **inverse_std)
{
    vt_status status = VT_OK;
    float *host = vt_allocate(2 * (size_t)count, sizeof *host, "the trainer");
    for (int64_t c = 0; c < count; c++) {
        host[c] = data->means[c % period];
        host[count + c] = (float)(1 / (double)data->stds[c % period]);
    }
    VT_TRY(allocate_floats(backend, VT_MEMORY_DATA, count, mean));
    VT_TRY(allocate_floats(backend, VT_MEMORY_DATA, count, inverse_std));
    backend->copy_from_host(backend, *mean, host, (size_t)count * sizeof *host);
    backend->copy_from_host(backend, *inverse_std, host + count, (size_t)count * sizeof *host);
done:
    free(host);
    return status;
}

/* w ∝ cos(latitude), scaled to mean 1 over all rows; of this rank's rows, and their sum over all points. */
static vt_status upload_latitude_weights(vt_trainer *trainer, const vt_trainer_data *data)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    const int64_t height = trainer->config->img_size[0], width = trainer->config->img_size[1];
    const vt_span rows = trainer->rows;
    float *host = vt_allocate((size_t)height, sizeof *host, "the trainer");
    double sum = 0;
    for (int64_t row = 0; row < height; row++) sum += cos(data->latitudes[row] * M_PI / 180);
    for (int64_t row = 0; row < height; row++)
        host[row] = (float)(cos(data->latitudes[row] * M_PI / 180) * (double)height / sum);
    for (int64_t row = 0; row < height; row++) trainer->weight_sum += (double)host[row] * (double)width;
    VT_TRY(allocate_floats(backend, VT_MEMORY_DATA, rows.count, &trainer->latitude_weights));
    backend->copy_from_host(backend, trainer->latitude_weights, host + rows.first, (size_t)rows.count * sizeof *host);
done:
    free(host);
    return status;
}

static vt_status take_batch_memory(vt_trainer *trainer, const vt_trainer_data *data)
{
    vt_status status = VT_OK;
    const vt_config *config = trainer->config;
    vt_backend *backend = trainer->backend;
    int64_t batch = vt_trainer_micro_batch(config), in = config->n_in_channels, out = config->n_out_channels;
    int64_t own = config->global_batch_size / config->data_parallel;
    VT_TRY(upload_normalisation(backend, data, in, in / (config->n_history + 1), &trainer->input_mean,
                                &trainer->input_inverse_std));
    VT_TRY(upload_normalisation(backend, data, out, out, &trainer->target_mean, &trainer->target_inverse_std));
    VT_TRY(upload_latitude_weights(trainer, data));
    VT_TRY(allocate_floats(backend, VT_MEMORY_DATA, own, &trainer->losses));
    VT_TRY(allocate_doubles(backend, 2 * batch, &trainer->squares));
    VT_TRY(allocate_doubles(backend, 2 * batch * out, &trainer->channel_squares));
    trainer->host_figures = vt_allocate(2 * (size_t)(batch * out), sizeof(double), "the trainer");
    trainer->host_losses = vt_allocate((size_t)batch, sizeof(float), "the trainer");
    for (int i = 0; i < VT_STEPS_AHEAD; i++) {
        vt_started_step *started = &trainer->started[i];
        void *state = NULL, *losses = NULL;
        VT_TRY(backend->allocate_host(backend, sizeof *started->state, &state));
        started->state = state;
        VT_TRY(backend->allocate_host(backend, (size_t)own * sizeof(float), &losses));
        started->losses = losses;
        started->samples = vt_allocate((size_t)own, sizeof(int64_t), "the trainer");
    }
    for (int t = 0; t < trainer->tensor_count && !backend->shares_host_memory; t++) {
        const size_t bytes = (size_t)own * vt_tensor_bytes(&trainer->specs[t]);
        VT_TRY(backend->allocate(backend, VT_MEMORY_DATA, bytes, &trainer->batch_tensors[t]));
        VT_TRY(backend->allocate(backend, VT_MEMORY_DATA, bytes, &trainer->staged_tensors[t]));
    }
done:
    return status;
}

static vt_status open_on(const vt_config *config, const vt_trainer_data *data, vt_world *world, vt_backend *backend,
                         size_t arena_bytes, vt_trainer **result)
{
    vt_status status = VT_OK;
    vt_trainer *trainer = vt_allocate(1, sizeof *trainer, "the trainer");
    const vt_model_kind *model = vt_model_kind_of(config);
    trainer->config = config;
    trainer->backend = backend;
    trainer->world = world;
    vt_parameters_storage storage;
    trainer->schedule = (vt_schedule){(vt_schedule_kind)config->lr_schedule, vt_config_learning_rate(config),
                                      config->warmup, data->steps};
    vt_optimizer_options optimizer = {.kind = (vt_optimizer_name)config->optimizer,
                                      .weight_decay = config->weight_decay,
                                      .gradient_clip = isnan(config->grad_clip) ? INFINITY : config->grad_clip,
                                      .scales_loss = config->amp_mode == VT_AMP_FP16,
                                      .stops = config->on_nonfinite == VT_NONFINITE_STOP};
    VT_TRY(vt_model_check(config));
    VT_TRY(vt_parallel_open(config, world, backend, model->tokens(config), &trainer->parallel));
    trainer->rows = model->part_needed(config, trainer->parallel->own);
    trainer->tensor_count = vt_source_kind_of(config)->specs(config, trainer->rows, trainer->specs);
    VT_TRY(vt_parameters_open(backend, trainer->parallel, &trainer->parameters));
    VT_TRY(vt_model_open(config, trainer->parameters, &trainer->model));
    vt_saved_open(trainer->model, vt_model_units(trainer->model), &trainer->saved);
    VT_TRY(vt_gradient_sync_storage(config, world, backend, &storage));
    /* memory may be short on one rank alone, and what follows makes groups, for which all ranks must be there */
    VT_TRY(vt_world_agree(world, vt_parameters_allocate(trainer->parameters, vt_trainer_type(config), &storage)));
    VT_TRY(vt_world_agree(world, vt_gradient_sync_open(config, backend, trainer->parameters, &trainer->sync)));
    VT_TRY(vt_optimizer_open(&optimizer, backend, trainer->parameters, &trainer->optimizer));
    VT_TRY(take_batch_memory(trainer, data));
    VT_TRY(vt_arena_open(backend, arena_bytes, &trainer->arena));
done:
    if (status != VT_OK) vt_trainer_close(&trainer);
    *result = trainer;
    return status;
}

/* The readers' rings: the batches ahead and the one in use, for training and for validation. */
static size_t ring_bytes(const vt_trainer *trainer)
{
    const vt_config *config = trainer->config;
    int64_t batches = config->prefetch + 1 + VT_VALIDATION_PREFETCH + 1;
    size_t sample = 0;
    for (int t = 0; t < trainer->tensor_count; t++) sample += vt_tensor_bytes(&trainer->specs[t]);
    return (size_t)(batches * (config->global_batch_size / config->data_parallel)) * sample;
}

/* The work so far. */
static void note_work(const vt_world *world, const vt_backend *dry, vt_plan *plan)
{
    plan->step = *vt_backend_dry_count(dry);
    const int *node_of = vt_world_node_of(world);
    VT_ASSERT(vt_world_group_count(world) <= VT_PLAN_GROUPS);
    plan->group_count = vt_world_group_count(world);
    for (int i = 0; i < vt_world_group_count(world); i++) {
        const vt_group *group = vt_world_group_at(world, i);
        vt_plan_group *noted = &plan->groups[i];
        *noted = (vt_plan_group){.size = group->size, .volume = group->volume};
        memcpy(noted->name, group->name, sizeof noted->name);
        for (int j = 0; j < group->size; j++)
            noted->in_node += node_of[group->members[j]] == node_of[vt_world_rank(world)];
    }
}

/* plan += times (more - plan - (plan - before)): what lies between `plan` and `more` is a micro-batch more than what
 * lies between `before` and `plan`. Sizes and groups are met in the same order. */
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
    vt_batch batch = {.sample_count = samples, .global_count = samples * config->data_parallel};
    config->grad_accumulation = micro_batches;
    config->global_batch_size = batch.global_count;
    VT_TRY(vt_step_train(trainer, &batch, &figures));
    note_work(trainer->world, trainer->backend, plan);
done:
    return status;
}

/* A step of many micro-batches is reckoned from one of two and one of three. `config` is the trainer's own. */
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
    config->grad_accumulation = micro_batches;
    config->global_batch_size = batch;
    plan->step_flops = plan->step.flops;
    for (int i = 0; i < plan->group_count; i++) {
        vt_volume *sum = &plan->communication[vt_traffic_of(vt_world_group_at(trainer->world, i))];
        sum->operations += plan->groups[i].volume.operations - noted[0].groups[i].volume.operations;
        sum->bytes += plan->groups[i].volume.bytes - noted[0].groups[i].volume.bytes;
        sum->padding += plan->groups[i].volume.padding - noted[0].groups[i].volume.padding;
    }
done:
    free(noted);
    return status;
}

vt_status vt_trainer_plan(const vt_config *config, const vt_trainer_data *data, vt_plan *plan)
{
    vt_status status = VT_OK;
    vt_world *world = NULL;
    vt_backend *dry = NULL;
    vt_trainer *trainer = NULL;
    vt_evaluation evaluation = {0};
    vt_config own = *config; /* its strings stay the configuration's */
    int64_t plane = config->img_size[0] * config->img_size[1];
    float *fields = vt_allocate(2 * (size_t)plane, sizeof *fields, "the trainer");
    memset(plan->communication, 0, sizeof plan->communication);
    int64_t micro = vt_trainer_micro_batch(config);
    vt_batch batch = {.sample_count = micro, .global_count = micro * config->data_parallel};
    VT_TRY(vt_backend_open_dry(&dry));
    dry->shares_host_memory = !data->device_memory;
    VT_TRY(vt_world_open_dry(config, data->world != NULL ? vt_world_rank(data->world) : 0, (int)config->ranks,
                             data->world != NULL ? vt_world_node_of(data->world) : NULL, &world));
    VT_TRY(open_on(&own, data, world, dry, SIZE_MAX, &trainer));
    VT_TRY(plan_work(trainer, &own, plan));
    vt_evaluation_open(config, &evaluation);
    VT_TRY(vt_step_evaluate(trainer, &batch, true, &evaluation));
    VT_TRY(vt_step_forecast(trainer, &batch, 0, fields, fields + plane));
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) plan->bytes[i] = vt_backend_dry_count(dry)->bytes[i];
    plan->arena_bytes = trainer->arena.peak;
    plan->message_bytes = data->device_memory ? 0 : vt_world_engine(world)->most_copies + vt_world_engine(world)->hole;
    plan->bytes[VT_MEMORY_ACTIVATIONS] += trainer->arena.peak;
    plan->ring_bytes = ring_bytes(trainer);
    if (!data->device_memory) plan->bytes[VT_MEMORY_DATA] += plan->ring_bytes;
done:
    free(fields);
    vt_evaluation_close(&evaluation);
    vt_trainer_close(&trainer);
    vt_world_close(&world, false);
    vt_backend_close(&dry);
    return status;
}

vt_status vt_trainer_open(const vt_config *config, const vt_trainer_data *data, vt_backend *backend,
                          vt_trainer **trainer)
{
    vt_status status = VT_OK;
    vt_plan plan;
    vt_world *own = NULL;
    *trainer = NULL;
    if (data->world == NULL) {
        const vt_launch alone = {.world_size = 1, .local_size = 1};
        VT_TRY(vt_world_open(config, &alone, &own));
    }
    vt_trainer_data planned = *data;
    planned.device_memory = !backend->shares_host_memory;
    VT_TRY(vt_trainer_plan(config, &planned, &plan));
    VT_TRY(open_on(config, data, own != NULL ? own : data->world, backend, plan.arena_bytes, trainer));
    (*trainer)->own_world = own;
    own = NULL;
    vt_parameters_start((*trainer)->parameters, (uint64_t)config->seed);
done:
    vt_world_close(&own, false);
    return status;
}

void vt_trainer_close(vt_trainer **trainer)
{
    vt_trainer *t = *trainer;
    if (t == NULL) return;
    void *const memory[] = {
        t->input_mean, t->input_inverse_std, t->target_mean,    t->target_inverse_std, t->latitude_weights,
        t->losses,     t->squares,           t->channel_squares};
    t->backend->check(t->backend); /* what is on its way to the host has arrived */
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) t->backend->release(t->backend, memory[i]);
    for (int i = 0; i < VT_BATCH_TENSORS; i++) {
        t->backend->release(t->backend, t->batch_tensors[i]);
        t->backend->release(t->backend, t->staged_tensors[i]);
    }
    for (int i = 0; i < VT_STEPS_AHEAD; i++) {
        t->backend->release_host(t->backend, t->started[i].state);
        t->backend->release_host(t->backend, t->started[i].losses);
        free(t->started[i].samples);
    }
    free(t->host_figures);
    free(t->host_losses);
    vt_arena_close(&t->arena);
    vt_optimizer_close(&t->optimizer);
    vt_gradient_sync_close(&t->sync);
    vt_saved_close(&t->saved);
    vt_model_close(&t->model);
    vt_parameters_close(&t->parameters);
    vt_parallel_close(&t->parallel);
    vt_world_close(&t->own_world, false);
    free(t);
    *trainer = NULL;
}
