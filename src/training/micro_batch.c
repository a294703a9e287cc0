/* The samples of a micro-batch: their upload, their way through the model, and their losses. */
#include "training/trainer_inside.h"

vt_batch vt_batch_upload(vt_trainer *trainer, const vt_batch *batch)
{
    vt_backend *backend = trainer->backend;
    vt_batch here = *batch;
    if (backend->shares_host_memory) return here;
    for (int t = 0; t < trainer->tensor_count; t++) here.tensors[t] = trainer->batch[t];
    for (int i = 0; i < 2 && batch->tensors[VT_TENSOR_INPUT] == NULL; i++)
        if (trainer->caches[i] != NULL && vt_device_cache_source(trainer->caches[i]) == batch->source)
            vt_device_cache_batch(trainer->caches[i], batch, trainer->batch);
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

/* The micro-batch `index` that is in flight; -1: a free place for one. */
vt_micro_batch *vt_micro_batch_in_flight(vt_trainer *trainer, int64_t index)
{
    int64_t i = 0;
    while (i < trainer->most_in_flight && trainer->in_flight[i].index != index) i++;
    VT_ASSERT(i < trainer->most_in_flight);
    return &trainer->in_flight[i];
}

vt_micro_batch *vt_micro_batch_take(vt_trainer *trainer, const vt_batch *batch, int64_t index, int64_t first,
                                    int64_t count, bool training)
{
    const vt_config *config = trainer->config;
    vt_micro_batch *samples = vt_micro_batch_in_flight(trainer, -1);
    samples->index = index;
    samples->pass = (vt_pass){.backend = trainer->backend,
                              .arena = &samples->arena,
                              .parallel = trainer->parallel,
                              .batch = count,
                              .type = vt_trainer_type(config),
                              .fused = config->enable_jit,
                              .training = training,
                              .density_weight = config->lambda_rho,
                              .seed = (uint64_t)config->seed,
                              .step = &vt_optimizer_state(trainer->optimizer)->step,
                              .first_sample = (uint32_t)(batch->first_in_batch + first)};
    vt_rollout_begin(samples->rollout, &samples->pass, batch, first, training && batch->steps > 1 ? batch->steps : 1);
    samples->shared = samples->arena.used;
    return samples;
}

void vt_micro_batch_release(vt_micro_batch *samples)
{
    vt_arena_pop(&samples->arena, 0);
    samples->index = -1;
}

void vt_micro_batch_step(vt_micro_batch *samples, int64_t step)
{
    samples->pass.rollout_step = (uint32_t)step;
    vt_rollout_step(samples->rollout, step);
}

vt_matrix vt_micro_batch_state(vt_trainer *trainer, const vt_micro_batch *samples)
{
    vt_pipeline_stage *stage = &trainer->stage;
    const vt_pass *pass = &samples->pass;
    const vt_rollout *rollout = samples->rollout;
    const vt_matrix in = vt_stage_take_stream(stage, pass);
    const vt_matrix out = vt_model_forward(trainer->model, pass, rollout->tensors, in, samples->saved);
    if (stage->is_last) return vt_rollout_state(rollout, pass, out);
    vt_stage_pass_stream(stage, out);
    return (vt_matrix){0};
}

void vt_micro_batch_predict(vt_trainer *trainer, vt_micro_batch *samples)
{
    samples->prediction = vt_micro_batch_state(trainer, samples);
    if (trainer->stage.is_last) samples->target = vt_rollout_target(samples->rollout, &samples->pass);
}

/* Those of the current step. */
static double *loss_sums(const vt_trainer *trainer, const vt_micro_batch *samples)
{
    return samples->loss_sums + samples->rollout->step * samples->pass.batch * trainer->loss->sums;
}

void vt_micro_batch_losses(const vt_trainer *trainer, vt_micro_batch *samples, vt_matrix prediction, float *losses,
                           double *total)
{
    const vt_loss_kind *loss = trainer->loss;
    const vt_pass *pass = &samples->pass;
    double *sums = loss_sums(trainer, samples);
    loss->partials(loss, pass, prediction, samples->target, trainer->loss_weights, sums);
    vt_group_all_reduce(trainer->parallel->tokens, VT_SUM_FLOAT64, sums, loss->sums * pass->batch, NULL);
    loss->finish(loss, pass, sums, losses, total);
}

/* The gradient of the model's output. */
static vt_matrix output_gradient(const vt_trainer *trainer, const vt_micro_batch *samples, float scale)
{
    const vt_pass *pass = &samples->pass;
    const vt_rollout *rollout = samples->rollout;
    vt_matrix dstate = samples->prediction; /* in its place, where the type is the same */
    if (pass->type != VT_FLOAT32 && !vt_rollout_adds_gradients(rollout))
        dstate = vt_pass_push(pass, dstate.rows, dstate.columns);
    trainer->loss->backward(trainer->loss, pass, samples->prediction, samples->target, trainer->loss_weights,
                            loss_sums(trainer, samples), scale, &vt_optimizer_state(trainer->optimizer)->loss_scale,
                            dstate);
    return vt_rollout_backward(rollout, pass, dstate);
}

void vt_micro_batch_backward(vt_trainer *trainer, vt_micro_batch *samples, float scale)
{
    vt_pipeline_stage *stage = &trainer->stage;
    const vt_pass *pass = &samples->pass;
    const vt_matrix dout =
        stage->is_last ? output_gradient(trainer, samples, scale) : vt_stage_take_gradient(stage, pass);
    const vt_matrix din = vt_model_backward(trainer->model, pass, samples->rollout->tensors, dout, samples->saved);
    vt_stage_pass_gradient(stage, din);
}
