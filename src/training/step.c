#include "training/step.h"

#include <stdlib.h>

/* Samples first … first + count - 1 of a batch, as the model sees them. */
typedef struct {
    vt_pass pass;
    vt_vit_input input;
    const float *target; /* [count, n_out_channels, height, width], in the back end's memory */
} micro_batch;

static micro_batch take_samples(vt_trainer *trainer, const vt_batch *batch, int64_t first, int64_t count, bool training)
{
    const vt_config *config = trainer->config;
    vt_backend *backend = trainer->backend;
    int64_t plane = config->img_size[0] * config->img_size[1];
    int64_t input_size = config->n_in_channels * plane, target_size = config->n_out_channels * plane;
    const float *input = batch->input != NULL ? batch->input + first * input_size : NULL;
    const float *target = batch->target != NULL ? batch->target + first * target_size : NULL;
    if (!backend->shares_host_memory) {
        backend->copy_from_host(backend, trainer->batch_input, input, (size_t)(count * input_size) * sizeof(float));
        backend->copy_from_host(backend, trainer->batch_target, target, (size_t)(count * target_size) * sizeof(float));
        input = trainer->batch_input;
        target = trainer->batch_target;
    }
    return (micro_batch){.pass = {.backend = backend,
                                  .arena = &trainer->arena,
                                  .batch = count,
                                  .tokens = trainer->tokens,
                                  .type = vt_trainer_type(config),
                                  .fused = config->enable_jit,
                                  .training = training,
                                  .seed = (uint64_t)config->seed,
                                  .step = (uint32_t)trainer->steps_done,
                                  .first_sample = (uint32_t)first},
                         .input = {input, trainer->input_mean, trainer->input_inverse_std},
                         .target = target};
}

/* Fields [batch, field_channels, …] as tokens beside the model's output, normalised. */
static vt_matrix load_target(vt_trainer *trainer, const vt_pass *pass, const float *fields, int64_t field_channels)
{
    vt_patch_grid grid = vt_vit_output_grid(trainer->model, pass->batch);
    grid.field_channels = field_channels;
    vt_matrix target = vt_pass_push_wide(pass, vt_pass_rows(pass), grid.channels * grid.patch * grid.patch);
    pass->backend->patches_load(pass->backend, &grid, fields, trainer->target_mean, trainer->target_inverse_std,
                                target);
    return target;
}

/* Sum of the samples' losses of one prediction; the squared norms stay for backward. */
static double score(vt_trainer *trainer, const vt_pass *pass, vt_matrix prediction, vt_matrix target)
{
    vt_backend *backend = pass->backend;
    double sum = 0;
    backend->squared_norms(backend, pass->batch, prediction, target, trainer->squares);
    backend->relative_l2(backend, pass->batch, trainer->squares, trainer->losses);
    backend->copy_to_host(backend, trainer->host_losses, trainer->losses, (size_t)pass->batch * sizeof(float));
    for (int64_t i = 0; i < pass->batch; i++) sum += (double)trainer->host_losses[i];
    return sum;
}

static vt_status fail_nonfinite(vt_trainer *trainer, double loss)
{
    vt_status status = VT_OK;
    const char *name = vt_optimizer_first_nonfinite(trainer->optimizer);
    VT_FAIL("step %lld: the gradients are not finite (loss %g, first in %s), so no update was made. A lower --lr, "
            "--warmup or "
            "--grad_clip=1 often helps",
            (long long)trainer->steps_done, loss, name != NULL ? name : "their norm");
done:
    return status;
}

vt_status vt_step_train(vt_trainer *trainer, const vt_batch *batch, vt_step_figures *figures)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    int64_t micro = batch->sample_count / trainer->config->grad_accumulation;
    double loss_sum = 0;
    backend->zero(backend, vt_parameters_gradients(trainer->parameters),
                  (size_t)vt_parameters_element_count(trainer->parameters) * sizeof(float));
    for (int64_t first = 0; first < batch->sample_count; first += micro) {
        micro_batch samples = take_samples(trainer, batch, first, micro, true);
        size_t mark = trainer->arena.used;
        vt_matrix prediction = vt_vit_forward(trainer->model, &samples.pass, &samples.input);
        vt_matrix target = load_target(trainer, &samples.pass, samples.target, trainer->config->n_out_channels);
        loss_sum += score(trainer, &samples.pass, prediction, target);
        vt_matrix dprediction = prediction; /* in its place, where the type is the same */
        if (samples.pass.type != VT_FLOAT32)
            dprediction = vt_pass_push(&samples.pass, prediction.rows, prediction.columns);
        backend->relative_l2_backward(backend, micro, prediction, target, trainer->squares,
                                      1.0f / (float)batch->sample_count, dprediction);
        vt_vit_backward(trainer->model, &samples.pass, &samples.input, dprediction);
        vt_arena_pop(&trainer->arena, mark);
    }
    figures->loss = loss_sum / (double)batch->sample_count;
    figures->learning_rate = vt_schedule_rate(&trainer->schedule, trainer->steps_done);
    vt_optimizer_step(trainer->optimizer, figures->learning_rate, &figures->gradient_norm);
    vt_parameters_refresh(trainer->parameters);
    VT_TRY(backend->check(backend));
    if (!isfinite(figures->gradient_norm)) VT_TRY(fail_nonfinite(trainer, figures->loss));
    trainer->steps_done++;
done:
    return status;
}

/* Latitude-weighted RMSE of each channel, summed over the samples. */
static void add_rmse(vt_trainer *trainer, const vt_pass *pass, vt_matrix prediction, vt_matrix target, double *sums)
{
    vt_backend *backend = pass->backend;
    vt_patch_grid grid = vt_vit_output_grid(trainer->model, pass->batch);
    int64_t count = grid.batch * grid.channels;
    double points = (double)(trainer->config->img_size[0] * trainer->config->img_size[1]);
    backend->channel_squares(backend, &grid, prediction, target, trainer->latitude_weights, trainer->channel_squares);
    backend->copy_to_host(backend, trainer->host_squares, trainer->channel_squares, (size_t)count * sizeof(double));
    for (int64_t i = 0; i < count; i++) sums[i % grid.channels] += sqrt(trainer->host_squares[i] / points);
}

vt_status vt_step_evaluate(vt_trainer *trainer, const vt_batch *batch, bool with_persistence, vt_evaluation *evaluation)
{
    const vt_config *config = trainer->config;
    int64_t micro = vt_trainer_micro_batch(config), recent = config->n_in_channels / (config->n_history + 1);
    for (int64_t first = 0; first < batch->sample_count; first += micro) {
        int64_t count = batch->sample_count - first < micro ? batch->sample_count - first : micro;
        micro_batch samples = take_samples(trainer, batch, first, count, false);
        size_t mark = trainer->arena.used;
        vt_matrix prediction = vt_vit_forward(trainer->model, &samples.pass, &samples.input);
        vt_matrix target = load_target(trainer, &samples.pass, samples.target, config->n_out_channels);
        evaluation->loss += score(trainer, &samples.pass, prediction, target);
        add_rmse(trainer, &samples.pass, prediction, target, evaluation->rmse);
        if (with_persistence && recent >= config->n_out_channels) {
            vt_matrix unchanged = load_target(trainer, &samples.pass, samples.input.fields, config->n_in_channels);
            evaluation->persistence_loss += score(trainer, &samples.pass, unchanged, target);
        } else {
            evaluation->persistence_loss = NAN;
        }
        vt_arena_pop(&trainer->arena, mark);
    }
    evaluation->samples += batch->sample_count;
    return trainer->backend->check(trainer->backend);
}

vt_status vt_step_forecast(vt_trainer *trainer, const vt_batch *batch, int64_t sample, int64_t channel, float *field)
{
    vt_backend *backend = trainer->backend;
    micro_batch samples = take_samples(trainer, batch, sample, 1, false);
    size_t mark = trainer->arena.used;
    vt_matrix prediction = vt_vit_forward(trainer->model, &samples.pass, &samples.input);
    vt_patch_grid grid = vt_vit_output_grid(trainer->model, 1);
    vt_matrix fields = vt_arena_push_matrix(&trainer->arena, VT_FLOAT32, grid.channels, grid.height * grid.width);
    backend->patches_store(backend, &grid, prediction, trainer->target_mean, trainer->target_inverse_std, fields.data);
    backend->copy_to_host(backend, field, fields.data + channel * fields.stride,
                          (size_t)fields.columns * sizeof *field);
    vt_arena_pop(&trainer->arena, mark);
    return backend->check(backend);
}

void vt_evaluation_open(const vt_config *config, vt_evaluation *evaluation)
{
    *evaluation = (vt_evaluation){.rmse = calloc((size_t)config->n_out_channels, sizeof(double))};
    VT_ASSERT(evaluation->rmse != NULL);
}

void vt_evaluation_close(vt_evaluation *evaluation)
{
    free(evaluation->rmse);
    *evaluation = (vt_evaluation){0};
}
