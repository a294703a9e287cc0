/* The samples of a micro-batch: their upload, their way through the model, and their losses. */
#include <stdlib.h>

#include "base/memory.h"
#include "training/trainer_inside.h"

vt_batch vt_batch_upload(vt_trainer *trainer, const vt_batch *batch)
{
    vt_backend *backend = trainer->backend;
    vt_batch here = *batch;
    if (backend->shares_host_memory) return here;
    for (int t = 0; t < trainer->tensor_count; t++) here.tensors[t] = trainer->batch[t];
    for (int i = 0; i < 2 && batch->tensors[VT_TENSOR_INPUT] == NULL; i++)
        if (trainer->caches[i] != NULL) vt_device_cache_batch(trainer->caches[i], batch, trainer->batch);
    for (int ended = 0; ended < 2; ended++) {
        for (int t = 0; t < trainer->tensor_count; t++) {
            const size_t bytes = (size_t)batch->sample_count * vt_tensor_bytes(&trainer->specs[t]);
            if (batch->tensors[t] == NULL || bytes == 0) continue;
            if (ended == 0)
                backend->upload(backend, trainer->staged[t], batch->tensors[t], bytes);
            else
                backend->upload_end(backend, trainer->batch[t], trainer->staged[t], bytes);
        }
    }
    return here;
}

vt_micro_batch *vt_micro_batch_find(vt_trainer *trainer, int64_t index)
{
    for (int64_t i = 0; i < trainer->micro_batch_count; i++)
        if (trainer->micro_batches[i].index == index) return &trainer->micro_batches[i];
    return NULL;
}

/* What the noise of each row depends on where nothing is trained: on what the batch says of its members, else on the
 * sample and the member alone. */
static const uint32_t *take_noise_keys(vt_micro_batch *samples, const vt_batch *batch, int64_t first)
{
    const vt_pass *pass = &samples->pass;
    const int64_t members = vt_pass_members(pass);
    const size_t bytes = 2 * (size_t)pass->batch * sizeof(uint32_t);
    uint32_t *own = vt_allocate(1, bytes, "the noise"), *keys = vt_arena_push(&samples->shared, bytes);
    for (int64_t i = 0; i < pass->batch; i++) {
        const int64_t at = first + i / members;
        const int64_t sample = batch->samples != NULL ? batch->samples[at] : batch->first_sample + at;
        own[2 * i] = (uint32_t)(sample * members + i % members);
        own[2 * i + 1] = UINT32_MAX;
    }
    pass->backend->copy_from_host(pass->backend, keys, batch->noise_keys != NULL ? batch->noise_keys + 2 * first : own,
                                  bytes);
    free(own);
    return keys;
}

vt_micro_batch *vt_micro_batch_take(vt_trainer *trainer, const vt_batch *batch, int64_t index, int64_t first,
                                    int64_t count, bool training)
{
    const vt_config *config = trainer->config;
    vt_micro_batch *samples = vt_micro_batch_find(trainer, -1);
    const vt_crps_terms *crps = trainer->loss->of_members ? &trainer->crps : NULL;
    const int64_t members = crps != NULL && batch->noise_keys == NULL ? crps->how.members : 1;
    VT_ASSERT(samples != NULL);
    samples->index = index;
    samples->lead = batch->lead;
    samples->pass = (vt_pass){.backend = trainer->backend,
                              .arena = &samples->shared,
                              .parallel = trainer->parallel,
                              .batch = count * members,
                              .members = members,
                              .crps = crps,
                              .type = vt_trainer_type(config),
                              .fused = config->enable_jit,
                              .training = training,
                              .has_backward = training,
                              .keeps = config->keep_outputs == VT_KEEP_TRUE,
                              .head = trainer->model->head,
                              .density_weight = config->lambda_rho,
                              .seed = (uint64_t)config->seed,
                              .step = &trainer->optimizer->state->step,
                              .first_sample = (uint32_t)((batch->first_in_batch + first) * members)};
    if (crps != NULL && !training) samples->pass.noise_keys = take_noise_keys(samples, batch, first);
    vt_rollout_begin(samples->rollout, &samples->pass, batch, first, training && batch->steps > 1 ? batch->steps : 1);
    return samples;
}

void vt_micro_batch_release(vt_micro_batch *samples)
{
    vt_micro_batch_end_step(samples);
    vt_arena_pop(&samples->shared, 0);
    samples->index = -1;
}

void vt_micro_batch_end_step(vt_micro_batch *samples)
{
    if (samples->room == NULL) return;
    vt_arena_pop(&samples->room->arena, 0);
    samples->room->is_taken = false;
    samples->room = NULL;
}

void vt_micro_batch_step(vt_trainer *trainer, vt_micro_batch *samples, int64_t step)
{
    for (int64_t i = 0; i < trainer->room_count && samples->room == NULL; i++)
        if (!trainer->rooms[i].is_taken) samples->room = &trainer->rooms[i];
    VT_ASSERT(samples->room != NULL);
    samples->room->is_taken = true;
    samples->pass.arena = &samples->room->arena;
    samples->pass.offload = samples->room->offload;
    samples->pass.rollout_step = (uint32_t)(samples->lead + step);
    vt_rollout_step(samples->rollout, &samples->pass, step);
}

vt_matrix vt_micro_batch_state(vt_trainer *trainer, const vt_micro_batch *samples)
{
    vt_pipeline_stage *stage = &trainer->stage;
    const vt_pass *pass = &samples->pass;
    const vt_rollout *rollout = samples->rollout;
    const vt_matrix in = vt_stage_receive(stage, pass, VT_SENT_STREAM);
    const vt_matrix out = vt_model_forward(trainer->model, pass, rollout->tensors, in, samples->room->saved);
    if (stage->place.is_last) return vt_rollout_state(rollout, pass, out);
    vt_stage_pass(stage, VT_SENT_STREAM, out);
    return (vt_matrix){0};
}

void vt_micro_batch_predict(vt_trainer *trainer, vt_micro_batch *samples)
{
    samples->prediction = vt_micro_batch_state(trainer, samples);
    if (trainer->stage.place.is_last) samples->target = vt_rollout_target(samples->rollout, &samples->pass);
}

/* Of the current step. */
static vt_compared compared(const vt_trainer *trainer, const vt_micro_batch *samples, vt_matrix prediction)
{
    const vt_pass *pass = &samples->pass;
    return (vt_compared){.kind = trainer->loss,
                         .pass = pass,
                         .prediction = prediction,
                         .target = samples->target,
                         .weights = trainer->loss_weights,
                         .sums = samples->loss_sums + samples->rollout->step * vt_pass_samples(pass) * VT_LOSS_SUMS};
}

void vt_micro_batch_losses(const vt_trainer *trainer, const vt_micro_batch *samples, vt_matrix prediction,
                           float *losses, double *total)
{
    const vt_compared what = compared(trainer, samples, prediction);
    if (!trainer->loss->sums_in_backward || !samples->pass.training) trainer->loss->partials(&what);
    vt_loss_finish(&what, losses, total);
}

void vt_micro_batch_add_losses(const vt_trainer *trainer, const vt_micro_batch *samples)
{
    double *total = vt_trainer_counts_in_sums(trainer) ? &trainer->optimizer->state->losses : NULL;
    const int64_t count = vt_pass_samples(&samples->pass);
    const vt_matrix sum = vt_matrix_make(trainer->losses + samples->index * count, 1, count);
    const bool is_first = samples->rollout->step == 0 || trainer->shape.last_alone;
    const vt_matrix own = is_first ? sum : vt_pass_push_float32(&samples->pass, 1, count);
    vt_micro_batch_losses(trainer, samples, samples->prediction, own.data, total);
    if (!is_first) vt_matrix_add(trainer->backend, sum, own, sum);
}

/* The gradient of the model's output. */
static vt_matrix output_gradient(const vt_trainer *trainer, const vt_micro_batch *samples, float scale)
{
    const vt_pass *pass = &samples->pass;
    const vt_rollout *rollout = samples->rollout;
    const vt_compared what = compared(trainer, samples, samples->prediction);
    const vt_matrix dstate = vt_rollout_gradient_place(rollout, pass, samples->prediction);
    trainer->loss->backward(&what, scale, &trainer->optimizer->state->loss_scale, dstate);
    if (trainer->loss->sums_in_backward) vt_micro_batch_add_losses(trainer, samples);
    return vt_rollout_backward(rollout, pass, samples->prediction, dstate);
}

void vt_micro_batch_backward(vt_trainer *trainer, vt_micro_batch *samples, float scale)
{
    vt_pipeline_stage *stage = &trainer->stage;
    const vt_pass *pass = &samples->pass;
    const vt_rollout *rollout = samples->rollout;
    vt_model_backward_begin(trainer->model, samples->room->saved);
    const vt_matrix dout = stage->place.is_last ? output_gradient(trainer, samples, scale)
                                                : vt_stage_receive(stage, pass, VT_SENT_GRADIENT);
    const vt_matrix din = vt_model_backward(trainer->model, pass, rollout->tensors, dout, samples->room->saved);
    vt_stage_pass(stage, VT_SENT_GRADIENT, din);
    if (stage->place.is_first && rollout->step > 0 && rollout->gradients[rollout->step - 1] != NULL)
        vt_stage_pass(stage, VT_SENT_FORECAST_GRADIENT,
                      vt_rollout_fields(rollout, pass, rollout->gradients[rollout->step - 1]));
}
