/* What step.h has besides training steps: losses and scores, forecasts, predictions. */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "data/loader.h"
#include "storage/unpack.h"
#include "training/stop.h"
#include "training/trainer_inside.h"

/* The losses of a prediction for these samples, and the scores of it, or of its members' mean. */
static void add_scores(vt_trainer *trainer, vt_micro_batch *samples, vt_matrix prediction, vt_scores_of *sums)
{
    vt_backend *backend = trainer->backend;
    const vt_pass of_samples = vt_pass_of_samples(&samples->pass);
    vt_micro_batch_losses(trainer, samples, prediction, trainer->losses, NULL);
    backend->copy_to_host(backend, trainer->host_losses, trainer->losses, (size_t)of_samples.batch * sizeof(float));
    const vt_matrix mean = vt_rollout_mean(samples->rollout, &samples->pass, prediction);
    trainer->task->kind->score(trainer->task, &of_samples, mean, samples->target, trainer->host_losses, sums);
}

/* The samples' predictions, on the last stage. */
static vt_micro_batch *predict(vt_trainer *trainer, const vt_batch *batch, int64_t first, int64_t count)
{
    vt_micro_batch *samples = vt_micro_batch_take(trainer, batch, 0, first, count, false);
    const vt_step_counts once = {.micro_batches = 1, .forwards = 1};
    vt_micro_batch_step(trainer, samples, 0);
    vt_stage_begin(&trainer->stage, trainer->steps_started, &once, vt_pass_rows(&samples->pass), NULL);
    vt_micro_batch_predict(trainer, samples);
    return samples;
}

static void evaluate_micro_batch(vt_trainer *trainer, const vt_batch *batch, int64_t first, int64_t count,
                                 vt_evaluation *evaluation)
{
    vt_task *task = trainer->task;
    vt_micro_batch *samples = predict(trainer, batch, first, count);
    if (trainer->stage.place.is_last) add_scores(trainer, samples, samples->prediction, &evaluation->model);
    for (int64_t i = 0; i < count && trainer->stage.place.is_last && batch->samples != NULL; i++)
        if (isinf(trainer->host_losses[i]) && evaluation->infinite < 0)
            evaluation->infinite = batch->samples[first + i];
    if (trainer->stage.place.is_last && evaluation->has_baseline && task->kind->baseline != NULL) {
        samples->pass = vt_pass_of_samples(&samples->pass);
        add_scores(trainer, samples, task->kind->baseline(task, &samples->pass, samples->rollout->given),
                   &evaluation->baseline);
    }
    vt_micro_batch_release(samples);
    evaluation->samples += (double)count;
}

/* After a loss that is not finite: samples with bad values are read once more, so that the error names the place. */
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

/* Asks for all parameters: other ranks need this one's part of them. */
static void visit(const vt_trainer *trainer)
{
    vt_model_visit(trainer->model, trainer->rooms[0].saved);
}

vt_status vt_step_evaluate(vt_trainer *trainer, const vt_batch *batch, vt_evaluation *evaluation)
{
    vt_status status = VT_OK;
    const int64_t micro = vt_trainer_micro_batch(trainer->config), parts = trainer->config->data_parallel;
    const int64_t most = (batch->global_count + parts - 1) / parts; /* samples of a rank */
    const vt_batch here = vt_batch_upload(trainer, batch);
    double *loss = &evaluation->model.values[0], *count = &evaluation->model.counts[0];
    const double loss_before = *loss, count_before = *count;
    if (trainer->world->ranks > 1) trainer->record_anew = true;
    for (int64_t first = 0; first < most; first += micro) {
        const int64_t left = batch->sample_count - first, samples = left < micro ? left : micro;
        if (samples > 0)
            evaluate_micro_batch(trainer, &here, first, samples, evaluation);
        else
            visit(trainer);
    }
    vt_stage_finish(&trainer->stage);
    VT_TRY(trainer->backend->check(trainer->backend));
    if (trainer->task->by_batch) { /* the batch's part of the loss becomes its mean, and counts as one */
        *loss = loss_before + (*loss - loss_before) / (double)batch->global_count;
        *count = count_before + (*count - count_before) / (double)batch->global_count;
    }
    if (!isfinite(*loss)) VT_TRY(check_batch(trainer, batch));
done:
    return status;
}

void vt_step_evaluation_open(const vt_trainer *trainer, bool with_baseline, vt_evaluation *evaluation)
{
    const vt_task *task = trainer->task;
    const vt_task_kind *kind = task->kind;
    const bool has_baseline = kind->has_baseline != NULL ? kind->has_baseline(task->config) : kind->baseline != NULL;
    vt_evaluation_open(task->scores.count, with_baseline && has_baseline, evaluation);
}

void vt_step_evaluation_finish(const vt_trainer *trainer, vt_evaluation *evaluation)
{
    const vt_task *task = trainer->task;
    vt_evaluation_finish(trainer->world, vt_trainer_counts_in_sums(trainer), evaluation);
    if (task->kind->finish != NULL) task->kind->finish(task, evaluation);
}

/* Collective. */
static void warn_of_target(const vt_trainer *trainer, const vt_source *source, const vt_evaluation *validation)
{
    char place[4096];
    const int64_t sample = vt_trainer_first_sample(trainer, validation->infinite);
    if (trainer->loss->infinite == NULL || sample < 0) return;
    source->kind->describe(source, sample, place, sizeof place);
    vt_log_warning("the loss of this set is infinite: sample %s: %s", place, trainer->loss->infinite);
}

vt_status vt_validate(vt_trainer *trainer, vt_loader *loader, bool with_baseline,
                      vt_status (*also)(void *, const vt_batch *), void *context, vt_evaluation *validation)
{
    vt_status status = VT_OK;
    vt_world *world = trainer->world;
    bool averaged = false;
    int64_t replaced = 0;
    const double begin = vt_clock_seconds();
    vt_step_evaluation_open(trainer, with_baseline, validation);
    vt_loader_begin(loader, 0, 0);
    averaged = trainer->config->ema_validate; /* on all ranks, which leave together, too */
    if (averaged) vt_trainer_exchange_average(trainer);
    for (;;) {
        const vt_batch *batch = NULL;
        VT_TRY(vt_reader_next(trainer, loader, &batch, &replaced));
        VT_TRY(vt_world_agree(world, vt_stop_requested() ? VT_STOPPED : VT_OK));
        if (batch == NULL) break;
        VT_TRY(vt_world_agree(world, vt_step_evaluate(trainer, batch, validation)));
        if (also != NULL) VT_TRY(vt_world_agree(world, also(context, batch)));
    }
    vt_step_evaluation_finish(trainer, validation);
    validation->seconds = vt_clock_seconds() - begin;
    if (isinf(validation->loss)) warn_of_target(trainer, vt_loader_options_of(loader)->source, validation);
    if (replaced > 0)
        vt_log_warning("%ld validation samples could not be read, and others took their place (skip_bad_samples)",
                       replaced);
done:
    if (averaged) vt_trainer_exchange_average(trainer);
    return status;
}

/* Whole fields in the units of the data, of a prediction or of what has its rows and columns. */
static vt_matrix restore(const vt_trainer *trainer, const vt_micro_batch *samples, vt_matrix rows)
{
    const vt_normalisation *as = &trainer->task->normalisation[VT_TENSOR_TARGET];
    const vt_pass of_samples = vt_pass_of_samples(&samples->pass);
    return vt_model_restore(trainer->model, &of_samples, rows, as->mean, as->inverse_std);
}

/* Predicts the sample, and takes the part of it from the last stage. */
static vt_status forecast_own(vt_trainer *trainer, const vt_batch *batch, vt_picture_part part, float *prediction,
                              float *target)
{
    vt_backend *backend = trainer->backend;
    if (batch->first_in_batch > 0 || batch->sample_count == 0) { /* the sample is another rank's */
        visit(trainer);
        return VT_OK;
    }
    vt_batch first = *batch;
    first.sample_count = 1;
    const vt_batch here = vt_batch_upload(trainer, &first);
    vt_micro_batch *samples = predict(trainer, &here, 0, 1);
    vt_stage_finish(&trainer->stage);
    vt_matrix rows[2] = {samples->prediction, samples->target};
    if (trainer->stage.place.is_last) rows[0] = vt_rollout_mean(samples->rollout, &samples->pass, rows[0]);
    float *const fields[2] = {prediction, target};
    for (int i = 0; i < 2 && trainer->stage.place.is_last; i++) {
        const size_t mark = samples->pass.arena->used;
        vt_matrix whole = restore(trainer, samples, rows[i]);
        backend->copy_to_host(backend, fields[i], whole.data + part.field * whole.stride + part.first,
                              (size_t)(part.height * part.width) * sizeof(float));
        vt_arena_pop(samples->pass.arena, mark);
    }
    vt_micro_batch_release(samples);
    return backend->check(backend);
}

vt_status vt_step_forecast(vt_trainer *trainer, const vt_batch *batch, vt_picture_part part, float *prediction,
                           float *target)
{
    const vt_status status = forecast_own(trainer, batch, part, prediction, target);
    const vt_layout *layout = &trainer->world->layout;
    const size_t bytes = (size_t)(part.height * part.width) * sizeof(float);
    if (trainer->stage.place.is_last && trainer->stage.place.is_first) return status;
    const int last = vt_layout_first(layout, layout->size[VT_AXIS_PIPELINE] - 1);
    vt_group *everyone = trainer->world->everyone;
    float *const fields[2] = {prediction, target};
    for (int i = 0; i < 2; i++) {
        if (everyone->rank == last) vt_group_send(everyone, fields[i], bytes, 0, NULL);
        if (everyone->rank == 0) vt_group_receive(everyone, fields[i], bytes, last, NULL);
    }
    return status;
}

vt_status vt_step_predict(vt_trainer *trainer, const vt_batch *batch, float *fields)
{
    vt_backend *backend = trainer->backend;
    const int64_t count = batch->sample_count;
    const vt_batch here = vt_batch_upload(trainer, batch);
    VT_ASSERT(!trainer->loss->of_members || batch->noise_keys != NULL);
    int64_t parts = trainer->config->pipeline_parallel; /* of equal size, so that all stages have work */
    while (count % parts != 0) parts--;
    const int64_t each = count / parts;
    const vt_step_counts forwards = {.micro_batches = parts, .forwards = parts};
    for (int64_t part = 0; part < parts; part++) {
        vt_micro_batch *samples = vt_micro_batch_take(trainer, &here, 0, part * each, each, false);
        vt_micro_batch_step(trainer, samples, 0);
        if (part == 0)
            vt_stage_begin(&trainer->stage, trainer->steps_started, &forwards, vt_pass_rows(&samples->pass), NULL);
        const vt_matrix state = vt_micro_batch_state(trainer, samples);
        if (trainer->stage.place.is_last) {
            const vt_matrix whole = restore(trainer, samples, state);
            const int64_t numbers = whole.rows * whole.columns;
            backend->copy_to_host(backend, fields + part * numbers, whole.data, (size_t)numbers * sizeof(float));
        }
        vt_micro_batch_release(samples);
    }
    vt_stage_finish(&trainer->stage);
    return backend->check(backend);
}

vt_status vt_step_keep_batch(vt_trainer *trainer, const vt_batch *batch)
{
    vt_backend *backend = trainer->backend;
    for (int i = 0; i < trainer->tensor_count && !backend->shares_host_memory; i++) {
        const size_t bytes = (size_t)batch->sample_count * vt_tensor_bytes(&trainer->specs[i]);
        backend->copy_from_host(backend, trainer->batch[i], batch->tensors[i], bytes);
        backend->release(backend, trainer->staged[i]);
        trainer->staged[i] = NULL;
    }
    return backend->check(backend);
}
