#include "training/step.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/profile.h"
#include "base/text.h"
#include "storage/unpack.h"

/* Samples first … first + count - 1 of this rank's part of a batch, as the model sees them. */
typedef struct {
    vt_pass pass;
    vt_model_tensor tensors[2]; /* input and target */
} micro_batch;

/* The batch where the back end can read it, from here on; the loader may have its memory back. */
static vt_batch bring(vt_trainer *trainer, const vt_batch *batch)
{
    vt_backend *backend = trainer->backend;
    vt_batch here = *batch;
    if (backend->shares_host_memory) return here;
    memcpy(here.tensors, trainer->batch_tensors, sizeof here.tensors);
    for (int i = 0; i < 2 && batch->tensors[VT_TENSOR_INPUT] == NULL; i++) {
        const vt_device_cache *cache = trainer->caches[i];
        if (cache == NULL || vt_device_cache_source(cache) != batch->source) continue;
        vt_device_cache_batch(cache, batch, trainer->batch_tensors);
    }
    for (int ended = 0; ended < 2; ended++)
        for (int t = 0; t < trainer->tensor_count; t++) {
            const size_t bytes = (size_t)batch->sample_count * vt_tensor_bytes(&trainer->specs[t]);
            if (batch->tensors[t] == NULL || bytes == 0) continue;
            if (ended == 0)
                backend->upload(backend, trainer->staged_tensors[t], batch->tensors[t], bytes);
            else
                backend->upload_end(backend, trainer->batch_tensors[t], trainer->staged_tensors[t], bytes);
        }
    return here;
}

static micro_batch take_samples(vt_trainer *trainer, const vt_batch *batch, int64_t first, int64_t count, bool training)
{
    const vt_config *config = trainer->config;
    const vt_tensor_spec *specs = trainer->specs;
    return (micro_batch){.pass = {.backend = trainer->backend,
                                  .arena = &trainer->arena,
                                  .parallel = trainer->parallel,
                                  .batch = count,
                                  .type = vt_trainer_type(config),
                                  .fused = config->enable_jit,
                                  .training = training,
                                  .seed = (uint64_t)config->seed,
                                  .step = &vt_optimizer_state(trainer->optimizer)->step,
                                  .first_sample = (uint32_t)(batch->first_in_batch + first)},
                         .tensors = {{vt_batch_tensor(batch, specs, VT_TENSOR_INPUT, first), config->n_in_channels,
                                      trainer->input_mean, trainer->input_inverse_std},
                                     {vt_batch_tensor(batch, specs, VT_TENSOR_TARGET, first), config->n_out_channels,
                                      trainer->target_mean, trainer->target_inverse_std}}};
}

static vt_matrix forward(vt_trainer *trainer, const micro_batch *samples)
{
    return vt_model_forward(trainer->model, &samples->pass, samples->tensors, (vt_matrix){0}, trainer->saved);
}

/* A tensor of fields in the rows and columns of the prediction. */
static vt_matrix lay_out(vt_trainer *trainer, const micro_batch *samples, const vt_model_tensor *tensor)
{
    return trainer->model->kind->lay_out(trainer->model, &samples->pass, tensor);
}

/* The time since the last call is that of `part`; NULL: of none of them. */
static void end_part(vt_trainer *trainer, double *part)
{
    vt_step_times *times = &trainer->times;
    if (!trainer->backend->shares_host_memory) {
        if (!trainer->measured) return;
        trainer->backend->check(trainer->backend);
    }
    double now = vt_clock_seconds(), waited = vt_world_waited(trainer->world);
    if (part != NULL) {
        times->communication += waited - times->waited;
        *part += now - times->mark - (waited - times->waited);
    }
    times->mark = now;
    times->waited = waited;
}

/* losses [batch] of one prediction, over all tokens of its samples, also added to *sum unless it is NULL; the squares
 * stay for backward. */
static void score(vt_trainer *trainer, const vt_pass *pass, vt_matrix prediction, vt_matrix target, float *losses,
                  double *sum)
{
    vt_backend *backend = pass->backend;
    backend->squared_norms(backend, pass->batch, prediction, target, trainer->squares);
    vt_group_all_reduce(trainer->parallel->tokens, VT_SUM_FLOAT64, trainer->squares, 2 * pass->batch, NULL);
    backend->relative_l2(backend, pass->batch, trainer->squares, losses, sum);
}

/* The samples' figures are the same on all ranks that share their tokens: in sums over all ranks one of them counts. */
static double share(const vt_trainer *trainer)
{
    return vt_world_coordinate(trainer->world, VT_AXIS_TENSOR) == 0 &&
                   vt_world_coordinate(trainer->world, VT_AXIS_CONTEXT) == 0
               ? 1
               : 0;
}

/* ---- a training step ---- */

/* forward → loss → backward of one micro-batch, whose gradients are added. */
static void train_micro_batch(vt_trainer *trainer, const vt_batch *batch, int64_t first, int64_t count)
{
    vt_backend *backend = trainer->backend;
    vt_step_state *state = vt_optimizer_state(trainer->optimizer);
    micro_batch samples = take_samples(trainer, batch, first, count, true);
    size_t mark = trainer->arena.used;
    vt_range_begin("forward");
    vt_matrix prediction = forward(trainer, &samples);
    vt_matrix target = lay_out(trainer, &samples, &samples.tensors[1]);
    score(trainer, &samples.pass, prediction, target, trainer->losses + first,
          share(trainer) > 0 ? &state->losses : NULL);
    vt_range_end();
    end_part(trainer, &trainer->times.forward);
    vt_range_begin("backward");
    vt_matrix dprediction = prediction; /* in its place, where the type is the same */
    if (samples.pass.type != VT_FLOAT32) dprediction = vt_pass_push(&samples.pass, prediction.rows, prediction.columns);
    backend->relative_l2_backward(backend, count, prediction, target, trainer->squares,
                                  1.0f / (float)batch->global_count, &state->loss_scale, dprediction);
    vt_model_backward(trainer->model, &samples.pass, samples.tensors, dprediction, trainer->saved);
    end_part(trainer, &trainer->times.backward);
    vt_arena_pop(&trainer->arena, mark);
    vt_range_end();
}

/* All that the device does in a step, with nothing that waits for it: this is what is recorded. */
static void work(vt_trainer *trainer, const vt_batch *batch)
{
    int64_t micro = batch->sample_count / trainer->config->grad_accumulation;
    end_part(trainer, NULL);
    trainer->backend->zero(trainer->backend, vt_parameters_gradients(trainer->parameters),
                           (size_t)vt_parameters_block_elements(trainer->parameters, VT_BLOCK_GRADIENTS) *
                               sizeof(float));
    for (int64_t first = 0; first < batch->sample_count; first += micro) {
        vt_gradient_sync_begin(trainer->sync, trainer->steps_started, first + micro >= batch->sample_count);
        train_micro_batch(trainer, batch, first, micro);
    }
    vt_gradient_sync_finish(trainer->sync);
    end_part(trainer, &trainer->times.communication);
    vt_range_begin("optimizer");
    vt_optimizer_step(trainer->optimizer);
    vt_gradient_sync_values_changed(trainer->sync);
    end_part(trainer, &trainer->times.optimizer);
    vt_range_end();
}

/* The first steps choose algorithms and take the operations' memory; what goes through the host can't be recorded. All
 * training batches of a run have one shape. */
static bool is_recorded(const vt_trainer *trainer)
{
    enum { FIRST_STEPS = 2 };
    return trainer->config->enable_jit && trainer->backend->replay != NULL && trainer->steps_here >= FIRST_STEPS &&
           !trainer->measured && !trainer->config->comm_trace &&
           (trainer->config->profile_graphs || !vt_profile_records()) &&
           (vt_world_ranks(trainer->world) == 1 || vt_world_device_engine(trainer->world)->device_memory);
}

static bool replay(vt_trainer *trainer)
{
    vt_engine *engine = vt_world_device_engine(trainer->world);
    if (trainer->record_anew || !trainer->backend->replay(trainer->backend)) return false;
    vt_gradient_sync_forget(trainer->sync);
    if (engine->replayed != NULL) engine->replayed(engine, trainer->backend);
    return true;
}

static bool record(vt_trainer *trainer, const vt_batch *batch)
{
    vt_backend *backend = trainer->backend;
    vt_gradient_sync_forget(trainer->sync);
    if (!backend->record_begin(backend)) return false;
    work(trainer, batch);
    trainer->record_anew = !backend->record_end(backend);
    return !trainer->record_anew;
}

/* The step's work, replayed where that can be. */
static void work_or_replay(vt_trainer *trainer, const vt_batch *batch)
{
    if (is_recorded(trainer) && (replay(trainer) || (record(trainer, batch) && replay(trainer))))
        trainer->steps_replayed++;
    else
        work(trainer, batch);
}

vt_status vt_step_start(vt_trainer *trainer, const vt_batch *batch)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    const int slot = (int)(trainer->steps_started % VT_STEPS_AHEAD);
    vt_started_step *started = &trainer->started[slot];
    VT_ASSERT(trainer->pending < VT_STEPS_AHEAD);
    vt_range_begin("data copy in %lld", (long long)trainer->step_of_epoch);
    vt_batch here = bring(trainer, batch);
    vt_range_end();
    started->index = trainer->steps_started;
    started->sample_count = batch->sample_count;
    started->global_count = batch->global_count;
    started->source = batch->source;
    started->learning_rate = vt_schedule_rate(&trainer->schedule, trainer->steps_started);
    for (int64_t i = 0; i < batch->sample_count; i++) started->samples[i] = batch->samples ? batch->samples[i] : -1;
    vt_optimizer_begin(trainer->optimizer, trainer->steps_started, started->learning_rate);
    work_or_replay(trainer, &here);
    backend->copy_to_host_later(backend, started->state, vt_optimizer_state(trainer->optimizer),
                                sizeof *started->state);
    backend->copy_to_host_later(backend, started->losses, trainer->losses, (size_t)batch->sample_count * sizeof(float));
    backend->mark(backend, slot);
    if (backend->shares_host_memory) VT_TRY(backend->check(backend));
    trainer->steps_started++;
    trainer->steps_here++;
    trainer->pending++;
done:
    return status;
}

int64_t vt_step_latency(const vt_trainer *trainer)
{
    return trainer->backend->shares_host_memory ? 0 : VT_STEPS_AHEAD - 1;
}

/* Collective: what stands in the way of the update. The first rank with a sample whose loss is not finite names it. */
static void find_nonfinite(vt_trainer *trainer, const vt_started_step *started, vt_step_figures *figures)
{
    vt_world *world = trainer->world;
    double *samples = vt_allocate((size_t)vt_world_ranks(world), sizeof *samples, "a bad sample");
    for (int64_t i = started->sample_count - 1; i >= 0; i--)
        if (!isfinite(started->losses[i])) samples[vt_world_rank(world)] = (double)started->samples[i] + 1;
    vt_world_sum(world, samples, vt_world_ranks(world));
    for (int rank = vt_world_ranks(world) - 1; rank >= 0; rank--)
        if (samples[rank] > 0) figures->bad_sample = (int64_t)samples[rank] - 1;
    free(samples);
    figures->bad_parameter = vt_optimizer_nonfinite_name(trainer->optimizer, started->state->first_nonfinite);
    if (figures->bad_parameter == NULL) figures->bad_parameter = isfinite(figures->loss) ? "their norm" : "the loss";
}

/* Are the data of this rank's samples to blame whose losses are not finite? */
static vt_status check_data(const vt_started_step *started)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; i < started->sample_count && started->source != NULL; i++)
        if (!isfinite(started->losses[i])) VT_TRY(vt_source_check(started->source, started->samples[i]));
done:
    return status;
}

static void drop_pending(vt_trainer *trainer)
{
    for (; trainer->pending > 0; trainer->pending--)
        (void)trainer->backend->wait(trainer->backend,
                                     (int)((trainer->steps_started - trainer->pending) % VT_STEPS_AHEAD));
}

static vt_status fail_nonfinite(const vt_step_figures *figures)
{
    vt_status status = VT_OK;
    VT_FAIL("step %lld: the gradients are not finite (loss %g, first in %s), so no update was made. A lower --lr, "
            "--warmup or --grad_clip=1 often helps; --on_nonfinite=skip leaves out single updates",
            (long long)figures->step, figures->loss, figures->bad_parameter);
done:
    return status;
}

vt_status vt_step_take(vt_trainer *trainer, vt_step_figures *figures)
{
    vt_status status = VT_OK;
    const vt_config *config = trainer->config;
    VT_ASSERT(trainer->pending > 0);
    const int slot = (int)((trainer->steps_started - trainer->pending) % VT_STEPS_AHEAD);
    const vt_started_step *started = &trainer->started[slot];
    trainer->pending--;
    *figures = (vt_step_figures){.step = started->index + 1, .learning_rate = started->learning_rate, .bad_sample = -1};
    VT_TRY(trainer->backend->wait(trainer->backend, slot));
    figures->loss = vt_text_plain_nan(started->state->losses / (double)started->global_count);
    figures->gradient_norm = isfinite(figures->loss) ? vt_text_plain_nan(started->state->gradient_norm) : (double)NAN;
    figures->loss_scale = started->state->loss_scale;
    if (isfinite(figures->gradient_norm)) return VT_OK;
    const bool stops = config->on_nonfinite == VT_NONFINITE_STOP && config->amp_mode != VT_AMP_FP16;
    find_nonfinite(trainer, started, figures);
    status = vt_world_agree(trainer->world, check_data(started));
    figures->bad_data = status != VT_OK;
    if (status == VT_OK && stops) status = fail_nonfinite(figures);
    if (stops) drop_pending(trainer); /* none of them has made an update */
done:
    return status;
}

vt_status vt_step_train(vt_trainer *trainer, const vt_batch *batch, vt_step_figures *figures)
{
    vt_status status = vt_step_start(trainer, batch);
    return status == VT_OK ? vt_step_take(trainer, figures) : status;
}

/* ---- evaluation ---- */

/* The latitude-weighted mean over a channel's points that are there, from the sums of channel_squares; false: there are
 * none. The weights are those of float32, whose sum is not quite the number of points. */
static bool mean_square(const vt_trainer *trainer, const double sums[2], double *mean)
{
    const int64_t *size = trainer->config->img_size;
    const double points = (double)(size[0] * size[1]), there = trainer->weight_sum - sums[1];
    *mean = sums[0] / (sums[1] == 0 ? points : there);
    return there > 1e-12 * points; /* what rounding may leave of nothing */
}

/* Of a micro-batch: each sample's loss, and latitude-weighted RMSE of each channel. */
static void add_scores(vt_trainer *trainer, const vt_pass *pass, vt_matrix prediction, vt_matrix target, double *loss,
                       double *rmse, double *counts)
{
    vt_backend *backend = pass->backend;
    const int64_t channels = trainer->config->n_out_channels, count = 2 * pass->batch * channels;
    double mean = 0;
    score(trainer, pass, prediction, target, trainer->losses, NULL);
    backend->copy_to_host(backend, trainer->host_losses, trainer->losses, (size_t)pass->batch * sizeof(float));
    trainer->model->kind->channel_squares(trainer->model, pass, prediction, target, trainer->latitude_weights,
                                          trainer->channel_squares);
    vt_group_all_reduce(trainer->parallel->tokens, VT_SUM_FLOAT64, trainer->channel_squares, count, NULL);
    backend->copy_to_host(backend, trainer->host_figures, trainer->channel_squares, (size_t)count * sizeof(double));
    for (int64_t i = 0; i < pass->batch; i++) {
        bool any = false;
        for (int64_t c = 0; c < channels; c++) {
            if (!mean_square(trainer, trainer->host_figures + 2 * (i * channels + c), &mean)) continue;
            rmse[c] += sqrt(mean);
            counts[1 + c] += 1;
            any = true;
        }
        if (!any) continue;
        *loss += (double)trainer->host_losses[i];
        counts[0] += 1;
    }
}

static void evaluate_micro_batch(vt_trainer *trainer, const vt_batch *batch, int64_t first, int64_t count,
                                 bool with_persistence, vt_evaluation *evaluation)
{
    micro_batch samples = take_samples(trainer, batch, first, count, false);
    size_t mark = trainer->arena.used;
    vt_matrix prediction = forward(trainer, &samples);
    vt_matrix target = lay_out(trainer, &samples, &samples.tensors[1]);
    add_scores(trainer, &samples.pass, prediction, target, &evaluation->loss, evaluation->rmse, evaluation->counts[0]);
    if (with_persistence) {
        const vt_model_tensor *input = &samples.tensors[0];
        const vt_model_tensor now = {input->values, input->channels, trainer->target_mean, trainer->target_inverse_std};
        vt_matrix unchanged = lay_out(trainer, &samples, &now);
        add_scores(trainer, &samples.pass, unchanged, target, &evaluation->persistence_loss,
                   evaluation->persistence_rmse, evaluation->counts[1]);
    }
    vt_arena_pop(&trainer->arena, mark);
    evaluation->samples += (double)count;
}

/* After a loss that is not finite: what is bad in the batch, which is still there, is read once more, to be told of. */
static vt_status check_batch(const vt_trainer *trainer, const vt_batch *batch)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; i < batch->sample_count && batch->source != NULL; i++) {
        bool finite = true;
        for (int t = 0; t < trainer->tensor_count; t++) {
            const vt_tensor_spec *spec = &trainer->specs[t];
            const float *values = vt_batch_tensor(batch, trainer->specs, t, i);
            if (values != NULL && spec->type == VT_TENSOR_FLOAT32)
                finite = finite && vt_all_finite(values, vt_tensor_values(spec));
        }
        if (!finite) VT_TRY(vt_source_check(batch->source, batch->samples[i]));
    }
done:
    return status;
}

vt_status vt_step_evaluate(vt_trainer *trainer, const vt_batch *batch, bool with_persistence, vt_evaluation *evaluation)
{
    vt_status status = VT_OK;
    const vt_config *config = trainer->config;
    int64_t micro = vt_trainer_micro_batch(config), recent = config->n_in_channels / (config->n_history + 1);
    int64_t most = (batch->global_count + config->data_parallel - 1) / config->data_parallel; /* samples of a rank */
    bool has_persistence = with_persistence && recent >= config->n_out_channels;
    const vt_batch here = bring(trainer, batch);
    trainer->record_anew = vt_world_ranks(trainer->world) > 1;
    for (int64_t first = 0; first < most; first += micro) {
        int64_t left = batch->sample_count - first, count = left < micro ? left : micro;
        if (count > 0)
            evaluate_micro_batch(trainer, &here, first, count, has_persistence, evaluation);
        else
            vt_model_visit(trainer->model, trainer->saved); /* the other ranks need this one's part of the parameters */
    }
    if (!has_persistence) evaluation->persistence_loss = NAN;
    VT_TRY(trainer->backend->check(trainer->backend));
    if (!isfinite(evaluation->loss)) VT_TRY(check_batch(trainer, batch));
done:
    return status;
}

/* Rows of the prediction's form as whole fields in the units of the data. */
static vt_matrix restore(vt_trainer *trainer, const micro_batch *samples, vt_matrix rows)
{
    return trainer->model->kind->restore(trainer->model, &samples->pass, rows, trainer->target_mean,
                                         trainer->target_inverse_std);
}

vt_status vt_step_forecast(vt_trainer *trainer, const vt_batch *batch, int64_t channel, float *prediction,
                           float *target)
{
    vt_backend *backend = trainer->backend;
    if (batch->first_in_batch > 0 || batch->sample_count == 0) { /* the sample is another rank's */
        vt_model_visit(trainer->model, trainer->saved);
        return VT_OK;
    }
    vt_batch first = *batch;
    first.sample_count = 1;
    const vt_batch here = bring(trainer, &first);
    micro_batch samples = take_samples(trainer, &here, 0, 1, false);
    size_t mark = trainer->arena.used;
    vt_matrix rows[2] = {forward(trainer, &samples), lay_out(trainer, &samples, &samples.tensors[1])};
    float *const fields[2] = {prediction, target};
    for (int i = 0; i < 2; i++) {
        size_t before = trainer->arena.used;
        vt_matrix laid = restore(trainer, &samples, rows[i]);
        backend->copy_to_host(backend, fields[i], laid.data + channel * laid.stride,
                              (size_t)laid.columns * sizeof(float));
        vt_arena_pop(&trainer->arena, before);
    }
    vt_arena_pop(&trainer->arena, mark);
    return backend->check(backend);
}

vt_status vt_step_predict(vt_trainer *trainer, const float *input, int64_t count, float *fields)
{
    vt_backend *backend = trainer->backend;
    const vt_batch batch = {.sample_count = count, .global_count = count, .tensors = {input}};
    const vt_batch here = bring(trainer, &batch);
    micro_batch samples = take_samples(trainer, &here, 0, count, false);
    size_t mark = trainer->arena.used;
    vt_matrix laid = restore(trainer, &samples, forward(trainer, &samples));
    backend->copy_to_host(backend, fields, laid.data, (size_t)(laid.rows * laid.columns) * sizeof(float));
    vt_arena_pop(&trainer->arena, mark);
    return backend->check(backend);
}

void vt_evaluation_open(const vt_config *config, vt_evaluation *evaluation)
{
    const int64_t channels = config->n_out_channels;
    *evaluation = (vt_evaluation){.channels = channels,
                                  .rmse = vt_allocate(4 * (size_t)channels + 2, sizeof(double), "an evaluation")};
    evaluation->persistence_rmse = evaluation->rmse + channels;
    for (int i = 0; i < 2; i++) evaluation->counts[i] = evaluation->rmse + 2 * channels + i * (1 + channels);
}

void vt_evaluation_finish(const vt_trainer *trainer, vt_evaluation *evaluation)
{
    enum { SUMS = 3 };
    const int64_t channels = evaluation->channels,
                  count = SUMS + 4 * channels + 2; /* one behind the other, from rmse */
    double part = share(trainer), *sums = vt_allocate((size_t)count, sizeof *sums, "an evaluation");
    bool has_persistence = !isnan(evaluation->persistence_loss);
    sums[0] = part * evaluation->samples;
    sums[1] = part * evaluation->loss;
    sums[2] = has_persistence ? part * evaluation->persistence_loss : 0;
    for (int64_t c = SUMS; c < count; c++) sums[c] = part * evaluation->rmse[c - SUMS];
    vt_world_sum(trainer->world, sums, count);
    evaluation->samples = sums[0];
    for (int64_t i = 0; i < count - SUMS; i++) evaluation->rmse[i] = sums[SUMS + i];
    evaluation->loss = vt_text_plain_nan(sums[1] / evaluation->counts[0][0]);
    evaluation->persistence_loss = has_persistence ? sums[2] / evaluation->counts[1][0] : NAN;
    for (int64_t c = 0; c < channels; c++) {
        evaluation->rmse[c] = vt_text_plain_nan(evaluation->rmse[c] / evaluation->counts[0][1 + c]);
        double *unchanged = &evaluation->persistence_rmse[c];
        *unchanged = has_persistence ? vt_text_plain_nan(*unchanged / evaluation->counts[1][1 + c]) : 0;
    }
    free(sums);
}

void vt_evaluation_close(vt_evaluation *evaluation)
{
    free(evaluation->rmse);
    *evaluation = (vt_evaluation){0};
}
