/* The epoch loop. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/profile.h"
#include "config/stages.h"
#include "training/run_inside.h"
#include "training/stop.h"

const vt_run_progress vt_run_progress_start = {.validation_loss = NAN, .best_loss = INFINITY, .persistence_loss = NAN};

vt_loop_length vt_loop_length_of(const vt_config *config, int64_t batches, const vt_run_progress *progress)
{
    const int64_t before = progress->step - progress->epoch_steps, left = config->num_iters - before;
    vt_loop_length length = {.epochs = config->num_epochs, .steps_per_epoch = batches};
    if (config->num_iters != VT_UNSET_INTEGER) {
        length.epochs = progress->epoch;
        if (left >= length.steps_per_epoch && length.steps_per_epoch > 0) {
            length.epochs += left / length.steps_per_epoch;
        } else if (progress->epoch == 0) {
            length.epochs = 1;
            length.steps_per_epoch = config->num_iters;
        }
    }
    length.steps = before + (length.epochs - progress->epoch) * length.steps_per_epoch;
    length.of_rate = (vt_run_length){.run = config->num_iters != VT_UNSET_INTEGER ? config->num_iters : length.steps,
                                     .epoch = length.steps_per_epoch,
                                     .epochs_done = progress->epoch,
                                     .steps_done = before,
                                     .begun = progress->restart_step};
    return length;
}

/* One batch of each set before the first step: where the curves begin. */
static vt_status evaluate_start(vt_loop *loop)
{
    vt_status status = VT_OK;
    vt_loader *const loaders[2] = {loop->training_loader, loop->validation_loader};
    vt_evaluation sums[2];
    for (int i = 0; i < 2; i++) vt_step_evaluation_open(loop->trainer, false, &sums[i]);
    for (int i = 0; i < 2; i++) {
        const vt_batch *batch = NULL;
        vt_loader_begin(loaders[i], 0, 0);
        VT_TRY(vt_reader_next(loop->trainer, loaders[i], &batch, &loop->replaced));
        VT_ASSERT(batch != NULL); /* the set was counted */
        VT_TRY(vt_world_agree(loop->trainer->world, vt_step_evaluate(loop->trainer, batch, &sums[i])));
        vt_step_evaluation_finish(loop->trainer, &sums[i]);
    }
    VT_TRY(vt_world_agree(loop->trainer->world, vt_record_start(loop->record, sums[0].loss, &sums[1])));
done:
    for (int i = 0; i < 2; i++) vt_evaluation_close(&sums[i]);
    loop->replaced = 0; /* the epochs count theirs */
    return status;
}

/* ---- steps ---- */

/* The file and time of the sample whose loss is not finite, for messages about the step. */
static const char *describe_sample(const vt_loop *loop, const vt_step_figures *figures, char *buffer, int64_t size)
{
    if (figures->bad_sample < 0) return "none: every sample's loss is finite";
    const vt_source *source = vt_loader_options_of(loop->training_loader)->source;
    source->kind->describe(source, figures->bad_sample, buffer, size);
    return buffer;
}

/* A step without an update; after too many of them in a row the run ends, on all ranks alike. With fp16's dynamic loss
 * scale more are allowed: behind loss_scale_hysteresis of them each one halves the scale, until it is too small to
 * help. */
static vt_status note_skipped(vt_loop *loop, const vt_step_figures *figures)
{
    vt_status status = VT_OK;
    enum { MOST_IN_ROW = 10, MOST_HALVINGS_IN_ROW = 40 };
    vt_run_progress *progress = &loop->progress;
    const vt_config *config = loop->trainer->config;
    const bool scales = config->amp_mode == VT_AMP_FP16, follows = scales && config->loss_scale == 0;
    const int most = follows ? MOST_HALVINGS_IN_ROW - 1 + (int)config->loss_scale_hysteresis : MOST_IN_ROW;
    char buffer[4096];
    const char *sample = describe_sample(loop, figures, buffer, sizeof buffer), *fault = figures->target_fault;
    progress->epoch_skipped++;
    progress->skipped++;
    progress->skipped_in_row++;
    loop->diverged = progress->skipped_in_row >= most && fault == NULL;
    if (fault != NULL) vt_log_warning("sample %s: %s", sample, fault);
    if (scales)
        vt_log_info("step %ld: the gradients are not finite in fp16 (loss %g, first in %s), so its update was left "
                    "out, and the loss scale is %g from here on",
                    progress->step, figures->loss, figures->bad_parameter, figures->loss_scale);
    else
        vt_log_warning(
            "step %ld: the gradients are not finite (loss %g, first in %s; sample: %s), so its update was left "
            "out: skipped update %ld of this run, %ld in a row",
            progress->step, figures->loss, figures->bad_parameter, sample, progress->skipped, progress->skipped_in_row);
    VT_CHECK(progress->skipped_in_row < most,
             "step %ld: the gradients were not finite in %d steps in a row (loss %g, first in %s): %s%s%s; --resume "
             "goes on from the last checkpoint",
             progress->step, most, figures->loss, figures->bad_parameter, fault != NULL ? sample : "the run has ",
             fault != NULL ? ": " : "diverged. A lower --lr, --warmup or --grad_clip=1 often helps",
             fault != NULL ? fault : "");
done:
    return status;
}

/* After one step: adds to the sums of the epoch, and writes metrics.csv and the curves. */
static vt_status note_step(vt_loop *loop, const vt_step_figures *figures)
{
    vt_status status = VT_OK;
    vt_run_progress *progress = &loop->progress;
    progress->step = figures->step;
    progress->epoch_steps++;
    progress->epoch_times = loop->trainer->times;
    progress->validation_loss = NAN;
    vt_step_sums_add(&progress->epoch_sums, figures);
    VT_TRY(vt_record_step(loop->record, progress, figures));
    if (isfinite(figures->gradient_norm)) {
        loop->finite_steps++;
        progress->skipped_in_row = 0;
    } else {
        VT_TRY(note_skipped(loop, figures));
    }
done:
    return status;
}

/* A step whose data are bad. If a later step has been started, the bad one counts as skipped; otherwise the run ends as
 * if it had never begun. The error stays noted. */
static void note_bad_data(vt_loop *loop, const vt_step_figures *figures)
{
    vt_error cause;
    loop->bad_data = true;
    if (loop->trainer->pending == 0) return;
    vt_error_move_out(&cause);
    if (note_step(loop, figures) != VT_OK) vt_error_clear();
    vt_error_move_in(&cause);
}

/* Collective. Takes and notes the figures of all pending steps but the last `leave`. */
static vt_status take_steps(vt_loop *loop, int64_t leave)
{
    vt_status status = VT_OK;
    vt_trainer *trainer = loop->trainer;
    while (trainer->pending > leave) {
        vt_step_figures figures;
        status = vt_step_take(trainer, &figures);
        loop->diverged =
            status != VT_OK && !figures.bad_data && figures.target_fault == NULL && !isfinite(figures.gradient_norm);
        if (status != VT_OK && figures.bad_sample >= 0 && !figures.bad_data) {
            char sample[1024];
            vt_error_context("sample %s", describe_sample(loop, &figures, sample, sizeof sample));
        }
        const double now = vt_clock_seconds();
        figures.seconds = now - loop->step_begin;
        loop->step_begin = now;
        if (status == VT_OK) status = note_step(loop, &figures);
        if (figures.bad_data) note_bad_data(loop, &figures);
        if (status != VT_OK) goto done;
    }
done:
    return status;
}

/* ---- checkpoints ---- */

static bool is_finished(const vt_loop *loop)
{
    return loop->progress.epoch >= loop->length.epochs;
}

/* Ask after each step but an epoch's last, and after its validation, with epoch_started = 0. A checkpoint that is due
 * at an epoch's last step is made after the validation, so that it has its loss. */
static bool is_checkpoint_due(const vt_loop *loop)
{
    int64_t every = loop->trainer->config->checkpoint_every;
    bool epoch_ended = loop->epoch_started == 0;
    if (every == 0) return false;
    if (every == VT_UNSET_INTEGER) return epoch_ended;
    return loop->trainer->steps_started % every == 0 || (epoch_ended && is_finished(loop));
}

/* Collective. An update may overflow although its gradients are finite; it must not replace a good checkpoint. */
static vt_status check_finite(vt_loop *loop)
{
    vt_status status = VT_OK;
    vt_optimizer *optimizer = loop->trainer->optimizer;
    const vt_kept *kept = optimizer->kept;
    for (int i = -1; i < VT_KEPT_PLACES; i++) {
        if (i >= 0 && kept->places[i].state == NULL) continue;
        const char *name = vt_optimizer_nonfinite_name(optimizer, vt_kept_first_nonfinite(kept, i));
        loop->diverged = name != NULL;
        VT_CHECK(name == NULL,
                 "step %ld: the %s %s is not finite, so no checkpoint was made; the one before is the last. A lower "
                 "--lr or --grad_clip=1 often helps",
                 loop->progress.step, i < 0 ? "parameter" : kept->places[i].state->meaning, name);
    }
done:
    return status;
}

/* Collective. The only place where the loop saves. */
static vt_status save(vt_loop *loop)
{
    vt_status status = VT_OK;
    const double begin = vt_clock_seconds();
    VT_TRY(check_finite(loop));
    status = vt_rows_synchronise(loop->sample_trace); /* the rows of its steps, before the checkpoint gets its name */
    if (status == VT_OK) status = vt_record_synchronise(loop->record);
    VT_TRY(vt_world_agree(loop->trainer->world, status));
    VT_TRY(vt_checkpoint_saver_save(loop->saver, &loop->progress, begin));
    loop->saved_step = loop->progress.step;
done:
    return status;
}

/* Collective, after anything that may have failed or been stopped on any rank: saves when a checkpoint is due, or when
 * the run is to stop; then returns VT_STOPPED. */
static vt_status checkpoint(vt_loop *loop, vt_status earlier)
{
    vt_status status = VT_OK;
    if (earlier == VT_OK && vt_stop_requested()) earlier = VT_STOPPED;
    earlier = vt_world_agree(loop->trainer->world, earlier);
    if (earlier == VT_ERROR) return earlier;
    VT_TRY(vt_checkpoint_saver_look(loop->saver));
    bool stop = earlier == VT_STOPPED && !is_finished(loop);
    if (!stop && !is_checkpoint_due(loop)) return VT_OK;
    VT_TRY(vt_world_agree(loop->trainer->world, take_steps(loop, 0)));
    VT_TRY(save(loop));
    if (!stop) return VT_OK;
    VT_TRY(vt_checkpoint_saver_wait(loop->saver));
    vt_log_info("Stopped by %s after step %ld, with a checkpoint; the same command with --resume goes on from there",
                vt_stop_reason(), loop->progress.step);
    status = VT_STOPPED;
done:
    return status;
}

/* Collective, after all ranks have agreed that the data are bad or can't be read: saves what was learnt. The error
 * stays noted. */
static void save_after_fault(vt_loop *loop)
{
    vt_world *world = loop->trainer->world;
    const vt_agreed_failure failure = vt_world_lift_failure(world); /* so that the ranks can agree on the checkpoint */
    loop->bad_data = false;
    vt_status status = vt_world_agree(world, take_steps(loop, 0));
    if (loop->bad_data) { /* the step after a bad one is bad, too, and no other was begun */
        (void)vt_world_lift_failure(world);
        status = VT_OK;
    }
    const bool is_new = loop->progress.step != loop->saved_step;
    if (status == VT_OK && is_new) status = save(loop);
    if (status == VT_OK) status = vt_checkpoint_saver_wait(loop->saver);
    if (status == VT_OK && is_new)
        vt_log_info("The data can't be read any further: ending after step %ld, with a checkpoint; with the data "
                    "mended, the same command with --resume goes on from there",
                    loop->progress.step);
    else if (status != VT_OK)
        vt_log_warning("the data can't be read any further, and no checkpoint could be saved: %s", vt_error_text());
    vt_world_restore_failure(world, &failure);
}

/* Collective, after all ranks have agreed on a failure: the checkpoint that is still being written. The error stays
 * noted. */
static void finish_saving(vt_loop *loop)
{
    vt_world *world = loop->trainer->world;
    if (vt_checkpoint_saver_busy(loop->saver) < 0) return;
    const vt_agreed_failure failure = vt_world_lift_failure(world);
    if (vt_checkpoint_saver_wait(loop->saver) != VT_OK) vt_log_warning("%s", vt_error_text());
    vt_world_restore_failure(world, &failure);
}

/* ---- an epoch ---- */

/* On a device that works on its own only one step was timed: the time of all steps is divided like that one's. */
static vt_step_times times_of_epoch(const vt_loop *loop)
{
    const vt_step_times own = loop->progress.epoch_times;
    const double measured = own.forward + own.backward + own.communication + own.optimizer;
    const double factor = (loop->progress.epoch_sums.seconds - loop->progress.epoch_sums.waited) / measured;
    if (loop->trainer->backend->shares_host_memory || measured <= 0) return own;
    return (vt_step_times){factor * own.forward, factor * own.backward, factor * own.communication,
                           factor * own.optimizer};
}

/* Collective. The first sample of the epoch's last batch, as the model now predicts it. */
static vt_status draw_picture(vt_loop *loop, int64_t epoch, const vt_batch *batch)
{
    vt_status status = VT_OK;
    vt_trainer *trainer = loop->trainer;
    const vt_config *config = trainer->config;
    const vt_task *task = trainer->task;
    vt_picture picture = {0};
    if (task->kind->pictured == NULL) return VT_OK;
    const vt_picture_part pictured = task->kind->pictured(config);
    const int64_t plane = pictured.height * pictured.width;
    float *prediction = vt_allocate(2 * (size_t)plane, sizeof *prediction, "a picture"), *target = prediction + plane;
    VT_TRY(vt_step_forecast(trainer, batch, pictured, prediction, target));
    task->kind->describe_picture(task, batch, prediction, target, &picture);
    VT_TRY(vt_record_picture(loop->record, &picture, epoch + 1, trainer->steps_started, target, prediction));
done:
    vt_picture_close(&picture);
    free(prediction);
    return status;
}

/* The steps that a profiler records (of rank 0, or of all with profile_ranks): all of the fourth epoch, or of the last
 * one when there are fewer; with enable_manual_profiling the first 30 of the second. */
enum { PROFILED_EPOCH = 3, MANUAL_EPOCH = 1, MANUAL_STEPS = 30 };

static int64_t profiled_steps(const vt_loop *loop)
{
    const vt_config *config = loop->trainer->config;
    const bool manual = config->enable_manual_profiling, all = config->profile_ranks == VT_PROFILE_ALL;
    int64_t last = loop->length.epochs - 1, epoch = manual ? MANUAL_EPOCH : PROFILED_EPOCH;
    int64_t steps = loop->length.steps_per_epoch;
    if (!all && loop->trainer->world->rank != 0) return 0;
    if (loop->progress.epoch != (epoch < last ? epoch : last)) return 0;
    return manual && steps > MANUAL_STEPS ? MANUAL_STEPS : steps;
}

/* Before a step is started: whether it is profiled, and timed part by part. */
static void prepare_step(vt_loop *loop)
{
    const int64_t profiled = profiled_steps(loop), index = loop->epoch_started;
    if (index == 0 && profiled > 0) vt_profile_start();
    loop->trainer->step_of_epoch = index;
    loop->trainer->measured = index == (loop->length.steps_per_epoch > 1 ? 1 : 0);
}

/* After a step was started: takes figures that are due, and waits for the last profiled step. */
static vt_status finish_step(vt_loop *loop)
{
    const int64_t profiled = profiled_steps(loop), started = loop->epoch_started;
    bool ends = started == loop->length.steps_per_epoch || started == profiled;
    vt_status status = take_steps(loop, ends ? 0 : vt_step_latency(loop->trainer));
    if (started == profiled) vt_profile_stop();
    return status;
}

static void log_waiting(vt_loop *loop)
{
    const double percent = 100 * loop->progress.epoch_sums.waited / loop->progress.epoch_sums.seconds;
    vt_log_info("  Waited for data %.2f %% of the time", percent);
    if (loop->replaced > 0)
        vt_log_warning("%ld samples of this epoch could not be read, and others took their place (skip_bad_samples)",
                       loop->replaced);
    loop->replaced = 0;
    if (percent > 10 && !loop->told_of_waiting)
        vt_log_warning("the steps waited for data %.0f %% of the time; see --num_data_workers and --data_loader_config "
                       "(said once a run)",
                       percent);
    loop->told_of_waiting = loop->told_of_waiting || percent > 10;
}

/* When loss crps begins, the weights of the noise, which nothing has used before, are drawn anew, and the average of
 * all weights begins anew. */
static void begin_noise(vt_trainer *trainer)
{
    vt_parameters_start(trainer->parameters, (uint64_t)trainer->config->seed, "noise_embed.");
    vt_gradient_sync_values_changed(trainer->sync);
    vt_optimizer_average_restart(trainer->optimizer);
}

/* The epoch's loss. What validations found of another loss doesn't compare with it. */
static void begin_loss(vt_loop *loop)
{
    vt_run_progress *progress = &loop->progress;
    const vt_config *config = loop->trainer->config;
    vt_trainer_set_epoch(loop->trainer, progress->epoch);
    if (progress->epoch == 0 || progress->epoch_steps > 0) return;
    if (loop->trainer->loss == vt_loss_kind_at(config, progress->epoch - 1)) return;
    progress->best_loss = INFINITY;
    progress->persistence_loss = NAN;
    if (loop->trainer->loss->of_members) begin_noise(loop->trainer);
}

/* Trains from the run's place in its epoch to the epoch's last step. A stop during that last step is left to the
 * validation, so that an epoch with no steps left has always been logged. */
static vt_status train_epoch(vt_loop *loop)
{
    vt_status status = VT_OK;
    vt_trainer *trainer = loop->trainer;
    vt_run_progress *progress = &loop->progress;
    const vt_batch *batch = NULL;
    const bool told = progress->epoch_steps >= loop->length.steps_per_epoch;
    loop->epoch_started = progress->epoch_steps;
    loop->step_begin = vt_clock_seconds();
    trainer->times = progress->epoch_times;
    if (vt_learning_rate_restarts(trainer->config, trainer->length, progress->step))
        progress->restart_step = progress->step;
    begin_loss(loop);
    vt_loader_begin(loop->training_loader, progress->epoch, progress->epoch_steps);
    while (loop->epoch_started < loop->length.steps_per_epoch) {
        prepare_step(loop);
        vt_range_begin("step %ld", loop->epoch_started);
        status = vt_reader_next(trainer, loop->training_loader, &batch, &loop->replaced);
        VT_ASSERT(status != VT_OK || batch != NULL); /* the steps were counted */
        if (status == VT_ERROR) save_after_fault(loop);
        if (status != VT_OK) goto done;
        vt_sample_trace_add(loop->sample_trace, trainer->steps_started + 1, progress->epoch + 1, batch);
        status = vt_step_start(trainer, batch);
        vt_range_end();
        loop->epoch_started++;
        if (loop->epoch_started == 2) vt_record_memory(trainer->backend, " Memory usage after forward pass");
        if (status == VT_OK) status = finish_step(loop);
        const bool ends = loop->epoch_started == loop->length.steps_per_epoch;
        status = ends ? vt_world_agree(trainer->world, status) : checkpoint(loop, status);
        if (loop->bad_data) save_after_fault(loop);
        if (status != VT_OK) goto done;
    }
    if (told) return VT_OK;
    const double shown_rate = vt_learning_rate_shown(trainer->config, trainer->length, progress->step);
    VT_TRY(vt_world_agree(trainer->world, vt_record_epoch(loop->record, progress, shown_rate)));
    log_waiting(loop);
    VT_TRY(vt_world_agree(trainer->world, draw_picture(loop, progress->epoch, batch)));
done:
    return status;
}

/* Ends the epoch, with a checkpoint if one is due. The next epoch begins with all sums at 0. */
static vt_status validate_epoch(vt_loop *loop, vt_evaluation *validation)
{
    vt_status status = VT_OK;
    vt_run_progress *progress = &loop->progress;
    /* A validation, which is of one step, doesn't tell which checkpoint forecasts best after an epoch that trains over
     * several: `best` then becomes the newest. */
    const vt_stages rollout = vt_config_rollout(loop->trainer->config);
    const bool rolls_out = vt_stages_at(&rollout, progress->epoch) > 1;
    vt_evaluation_close(validation);
    status =
        vt_validate(loop->trainer, loop->validation_loader, isnan(progress->persistence_loss), NULL, NULL, validation);
    if (status == VT_ERROR) save_after_fault(loop);
    if (status == VT_STOPPED) VT_TRY(checkpoint(loop, status));
    if (status != VT_OK) goto done;
    status = vt_record_validation(loop->record, progress, times_of_epoch(loop), validation);
    if (isnan(progress->persistence_loss)) progress->persistence_loss = validation->baseline_loss;
    *progress = (vt_run_progress){.step = progress->step,
                                  .epoch = progress->epoch + 1,
                                  .skipped = progress->skipped,
                                  .skipped_in_row = progress->skipped_in_row,
                                  .restart_step = progress->restart_step,
                                  .validation_loss = validation->loss,
                                  .best_loss = rolls_out ? INFINITY : progress->best_loss,
                                  .persistence_loss = progress->persistence_loss};
    loop->epoch_started = 0;
    VT_TRY(checkpoint(loop, status));
done:
    return status;
}

vt_status vt_loop_run(vt_loop *loop, vt_evaluation *last)
{
    vt_status status = VT_OK;
    loop->saved_step = loop->progress.step;
    last->loss = loop->progress.validation_loss; /* of a run that has no epoch left, only the end of its log */
    vt_log_info("Starting Training Loop...");
    vt_trainer_set_epoch(loop->trainer, loop->progress.epoch);
    if (loop->progress.step == 0) VT_TRY(evaluate_start(loop));
    while (!is_finished(loop)) {
        VT_TRY(train_epoch(loop));
        VT_TRY(validate_epoch(loop, last));
    }
    VT_TRY(vt_checkpoint_saver_wait(loop->saver));
    last->baseline_loss = loop->progress.persistence_loss;
    vt_log_info("DONE ---- rank 0");
done:
    if (status == VT_STOPPED && vt_checkpoint_saver_wait(loop->saver) != VT_OK) status = VT_ERROR;
    if (status == VT_ERROR) finish_saving(loop);
    return status;
}
