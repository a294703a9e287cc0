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
                              .seed = (uint64_t)config->seed,
                              .step = &vt_optimizer_state(trainer->optimizer)->step,
                              .first_sample = (uint32_t)(batch->first_in_batch + first)};
    for (int i = 0; i < 2; i++) {
        const vt_normalisation *as = &trainer->task->normalisation[i];
        const void *values = vt_batch_tensor(batch, trainer->specs, i, first);
        samples->tensors[i] = (vt_model_tensor){values, as->count, as->mean, as->inverse_std};
    }
    return samples;
}

void vt_micro_batch_release(vt_micro_batch *samples)
{
    vt_arena_pop(&samples->arena, 0);
    samples->index = -1;
}

void vt_micro_batch_predict(const vt_trainer *trainer, vt_micro_batch *samples)
{
    const vt_model *model = trainer->model;
    samples->prediction = vt_model_forward(model, &samples->pass, samples->tensors, (vt_matrix){0}, samples->saved);
    samples->target = model->kind->lay_out(model, &samples->pass, &samples->tensors[VT_TENSOR_TARGET]);
}

void vt_micro_batch_losses(const vt_trainer *trainer, vt_micro_batch *samples, vt_matrix prediction, float *losses,
                           double *total)
{
    const vt_loss_kind *loss = trainer->loss;
    const vt_pass *pass = &samples->pass;
    double *sums = samples->loss_sums;
    loss->partials(loss, pass, prediction, samples->target, trainer->loss_weights, sums);
    vt_group_all_reduce(trainer->parallel->tokens, VT_SUM_FLOAT64, sums, loss->sums * pass->batch, NULL);
    loss->finish(loss, pass, sums, losses, total);
}
