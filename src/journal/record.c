#include "journal/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "journal/rows.h"
#include "report/image.h"
#include "report/progress.h"
#include "report/run_report.h"
#include "report/tensorboard.h"
#include "storage/output_file.h"

struct vt_record {
    vt_record_options run;
    vt_tensorboard *tensorboard;
    vt_rows *metrics, *epochs;
    vt_progress *progress;     /* NULL: no terminal */
    vt_progress_figures shown; /* there */
    int64_t first_step;        /* that this process made */
    double begin;              /* of that step */
};

void vt_record_memory(vt_backend *backend, const char *what)
{
    const double bytes = backend->used_memory != NULL ? backend->used_memory(backend) : vt_memory_of_process("VmRSS");
    vt_log_info("%s: %.4f GB.", what, bytes / (1024.0 * 1024 * 1024));
}

/* ---- opening ---- */

static vt_status write_plan(const vt_record_options *options)
{
    vt_text plan = {0};
    char *path = vt_text_format("%s/plan.csv", options->run_directory);
    vt_text_append(&plan,
                   "ranks,epochs,steps_per_epoch,global_batch_size,model_parameters,step_flops,"
                   "parameters,gradients,optimizer,activations,data,workspace\n%ld,%ld,%ld,%ld,%ld,%.9g",
                   options->config->ranks, options->epochs, options->steps_per_epoch,
                   options->config->global_batch_size, options->parameters, options->step_flops);
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) vt_text_append(&plan, ",%.0f", options->bytes[i]);
    vt_text_append(&plan, "\n");
    const vt_status status = vt_file_write(path, plan.characters, plan.length);
    vt_text_close(&plan);
    free(path);
    return status;
}

static vt_status open_metrics(const vt_record_options *options, vt_rows **metrics)
{
    const char *exponential = options->scores->exponential;
    char *names = vt_text_format("step,epoch,loss,learning_rate,grad_norm,samples_per_sec,data_wait_fraction%s%s\n",
                                 exponential != NULL ? "," : "", exponential != NULL ? exponential : "");
    const vt_status status =
        vt_rows_open(options->run_directory, "metrics.csv", names, VT_ROWS_STEPS, options->steps, metrics);
    free(names);
    return status;
}

/* The scores are "rmse_u10" … "persistence_rmse_u10" … */
static vt_status open_epochs(const vt_record_options *options, vt_rows **epochs)
{
    const vt_score_names *scores = options->scores;
    vt_text names = {0};
    vt_text_append(&names,
                   "step,epoch,train_loss,valid_loss,%s_loss,seconds,samples,valid_seconds,data_seconds,"
                   "forward_seconds,backward_seconds,optimizer_seconds,communication_seconds,resident_bytes,peak_bytes",
                   scores->baseline);
    for (int64_t i = 0; i < 2 * scores->count; i++) {
        const bool of_baseline = i >= scores->count;
        char *name = vt_text_format("%s%s%s_%s", of_baseline ? scores->baseline : "", of_baseline ? "_" : "",
                                    scores->column, scores->names[i % scores->count]);
        vt_text_append(&names, ",");
        vt_csv_append(&names, name);
        free(name);
    }
    vt_text_append(&names, "\n");
    const vt_status status = vt_rows_open(options->run_directory, "epochs.csv", names.characters, VT_ROWS_EPOCHS,
                                          options->epochs_done, epochs);
    vt_text_close(&names);
    return status;
}

vt_status vt_record_open(const vt_record_options *options, vt_record **result)
{
    vt_status status = VT_OK;
    char *logs = vt_text_format("%s/logs", options->run_directory);
    char *images = vt_text_format("%s/images", options->run_directory);
    vt_record *record = vt_allocate(1, sizeof *record, "the run's record");
    record->run = *options;
    record->shown =
        (vt_progress_figures){.epochs = options->epochs, .steps = options->steps_per_epoch, .validation_loss = NAN};
    VT_TRY(open_metrics(options, &record->metrics));
    VT_TRY(vt_output_make_directory(images));
    VT_TRY(vt_tensorboard_open(logs, options->steps, &record->tensorboard));
    VT_TRY(write_plan(options));
    VT_TRY(open_epochs(options, &record->epochs));
    record->progress = vt_progress_open();
done:
    free(logs);
    free(images);
    if (status != VT_OK) vt_record_close(&record);
    *result = record;
    return status;
}

void vt_record_close(vt_record **record)
{
    if (*record == NULL) return;
    vt_progress_close(&(*record)->progress);
    vt_tensorboard_close(&(*record)->tensorboard);
    vt_rows_close(&(*record)->metrics);
    vt_rows_close(&(*record)->epochs);
    free(*record);
    *record = NULL;
}

vt_status vt_record_synchronise(vt_record *record)
{
    vt_status status = VT_OK;
    if (record == NULL) return VT_OK;
    VT_TRY(vt_rows_synchronise(record->metrics));
    VT_TRY(vt_rows_synchronise(record->epochs));
    VT_TRY(vt_output_synchronise(record->run.run_directory)); /* their names */
done:
    return status;
}

static vt_status write_validation_points(vt_record *record, int64_t step, const vt_evaluation *validation)
{
    vt_status status = VT_OK;
    VT_TRY(vt_tensorboard_scalar(record->tensorboard, "Loss/valid", step, validation->loss));
    if (validation->count > 0)
        VT_TRY(
            vt_tensorboard_scalar(record->tensorboard, record->run.scores->curve, step, validation->model.values[1]));
done:
    return status;
}

static double mean_loss(const vt_step_sums *sums)
{
    return vt_text_plain_nan(sums->loss / (double)sums->updates);
}

/* Of the steps of `sums`, at x = step. */
static vt_status write_training_points(vt_record *record, int64_t step, const vt_step_sums *sums, double learning_rate)
{
    vt_status status = VT_OK;
    vt_tensorboard *board = record->tensorboard;
    VT_TRY(vt_tensorboard_scalar(board, "Loss/train", step, mean_loss(sums)));
    VT_TRY(vt_tensorboard_scalar(board, "Learning Rate", step, learning_rate));
    VT_TRY(vt_tensorboard_scalar(board, "Avg iters per sec", step, (double)sums->steps / sums->seconds));
    const double rate = (double)sums->samples / sums->seconds;
    VT_TRY(vt_tensorboard_scalar(board, "Avg samples per sec", step, rate));
    if (record->run.scores->tokens > 0)
        VT_TRY(vt_tensorboard_scalar(board, "Tokens per sec", step, rate * (double)record->run.scores->tokens));
done:
    return status;
}

vt_status vt_record_start(vt_record *record, double train_loss, const vt_evaluation *validation)
{
    vt_status status = VT_OK;
    if (record == NULL) return VT_OK;
    vt_log_info("Before the first step: train loss=%f, val loss=%f (one batch each)", train_loss, validation->loss);
    VT_TRY(vt_tensorboard_scalar(record->tensorboard, "Loss/train", 0, train_loss));
    VT_TRY(write_validation_points(record, 0, validation));
done:
    return status;
}

/* The time left is estimated from all time since the first step, validation included. */
static void show_progress(vt_record *record, const vt_run_progress *progress, const vt_step_figures *figures)
{
    vt_progress_figures *shown = &record->shown;
    const vt_step_sums *sums = &progress->epoch_sums;
    const double now = vt_clock_seconds();
    if (record->first_step == 0) {
        record->first_step = progress->step;
        record->begin = now - figures->seconds;
    }
    shown->epoch = progress->epoch + 1;
    shown->step = progress->epoch_steps;
    shown->loss = figures->loss;
    shown->samples_per_sec = (double)sums->samples / sums->seconds;
    shown->data_wait = sums->waited / sums->seconds;
    const int64_t left = (shown->epochs - shown->epoch + 1) * shown->steps - shown->step;
    shown->seconds_left = (double)left * (now - record->begin) / (double)(progress->step - record->first_step + 1);
    vt_sparkline_add(&shown->history, figures->loss);
    vt_progress_show(record->progress, shown);
}

vt_status vt_record_step(vt_record *record, vt_run_progress *progress, const vt_step_figures *figures)
{
    vt_status status = VT_OK;
    vt_step_sums *unlogged = &progress->unlogged;
    if (record == NULL) return VT_OK;
    char exponential[VT_NUMBER_SIZE] = "";
    if (record->run.scores->exponential != NULL)
        snprintf(exponential, sizeof exponential, ",%.9g", vt_text_plain_nan(exp(figures->loss)));
    VT_TRY(vt_rows_add(record->metrics, "%ld,%ld,%.9g,%.9g,%.9g,%.9g,%.9g%s\n", progress->step, progress->epoch + 1,
                       figures->loss, figures->learning_rate, figures->gradient_norm,
                       (double)figures->samples / figures->seconds, figures->waited / figures->seconds, exponential));
    show_progress(record, progress, figures);
    if (record->run.config->log_every == 0) return VT_OK;
    vt_step_sums_add(unlogged, figures);
    if (progress->step % record->run.config->log_every != 0) return VT_OK;
    vt_log_info("step %ld: loss %f, gradient norm %.4g, learning rate %.4g, %.2f samples/sec", progress->step,
                mean_loss(unlogged), figures->gradient_norm, figures->shown_learning_rate,
                (double)unlogged->samples / unlogged->seconds);
    VT_TRY(write_training_points(record, progress->step, unlogged, figures->shown_learning_rate));
    *unlogged = (vt_step_sums){0};
done:
    return status;
}

vt_status vt_record_epoch(vt_record *record, vt_run_progress *progress, double shown_learning_rate)
{
    vt_step_sums sums = progress->epoch_sums;
    if (record == NULL) return VT_OK;
    vt_log_info("Time taken for epoch %ld is %f sec, avg %f samples/sec", progress->epoch + 1, sums.seconds,
                (double)sums.samples / sums.seconds);
    vt_log_info("  Avg train loss=%f", mean_loss(&sums));
    if (record->run.config->log_every > 0) {
        sums = progress->unlogged;
        progress->unlogged = (vt_step_sums){0};
    }
    return sums.steps > 0 ? write_training_points(record, progress->step, &sums, shown_learning_rate) : VT_OK;
}

vt_status vt_record_picture(vt_record *record, const vt_picture *picture, int64_t epoch, int64_t step,
                            const float *target, const float *prediction)
{
    vt_status status = VT_OK;
    vt_png shown = {0}, with_signs = {0}, *kept = &shown;
    if (record == NULL) return VT_OK;
    char *path = vt_text_format("%s/images/epoch-%04ld.png", record->run.run_directory, epoch);
    char *title = vt_text_format("%s, epoch %ld (step %ld)", picture->title, epoch, step);
    vt_comparison comparison = {.title = title,
                                .before = {"input", picture->input},
                                .left = {"target", target},
                                .right = {"prediction", prediction},
                                .height = picture->height,
                                .width = picture->width,
                                .latitudes = picture->latitudes,
                                .longitudes = picture->longitudes,
                                .on_earth = picture->on_earth};
    VT_TRY(vt_image_compare(&comparison, &shown));
    VT_TRY(vt_tensorboard_image(record->tensorboard, picture->tag, step, &shown));
    comparison.is_signed = picture->is_signed; /* TensorBoard's images always use turbo */
    if (comparison.is_signed) {
        kept = &with_signs;
        VT_TRY(vt_image_compare(&comparison, kept));
    }
    VT_TRY(vt_file_write(path, kept->bytes, kept->size));
done:
    free(shown.bytes);
    free(with_signs.bytes);
    free(path);
    free(title);
    return status;
}

/* ---- validation ---- */

/* A comma, and the number unless it is NaN. */
static void append_number(vt_text *line, double value)
{
    vt_text_append(line, isnan(value) ? "," : ",%.9g", value);
}

static vt_status add_epoch(const vt_record *record, const vt_run_progress *progress, const vt_step_times *times,
                           const vt_evaluation *validation)
{
    vt_text line = {0};
    const vt_step_sums *sums = &progress->epoch_sums;
    const double numbers[] = {mean_loss(sums),  validation->loss,      validation->baseline_loss,
                              sums->seconds,    (double)sums->samples, validation->seconds,
                              sums->waited,     times->forward,        times->backward,
                              times->optimizer, times->communication};
    vt_text_append(&line, "%ld,%ld", progress->step, progress->epoch + 1);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) append_number(&line, numbers[i]);
    append_number(&line, vt_memory_of_process("VmRSS"));
    append_number(&line, vt_memory_of_process("VmHWM"));
    for (int64_t i = 1; i <= validation->count; i++) append_number(&line, validation->model.values[i]);
    for (int64_t i = 1; i <= validation->count; i++) append_number(&line, validation->baseline.values[i]);
    vt_status status = vt_rows_add(record->epochs, "%s\n", line.characters);
    vt_text_close(&line);
    return status;
}

/* "  Valid RMSE by channel: u10=0.0712 v10=0.0698" */
static void log_scores(const vt_record *record, const vt_evaluation *validation)
{
    vt_text line = {0};
    if (validation->count == 0 || record->run.scores->title == NULL) return;
    for (int64_t i = 0; i < validation->count; i++)
        vt_text_append(&line, " %s=%.4f", record->run.scores->names[i], validation->model.values[1 + i]);
    vt_log_info("  Valid %s:%s", record->run.scores->title, line.characters);
    vt_text_close(&line);
}

vt_status vt_record_validation(vt_record *record, const vt_run_progress *progress, vt_step_times times,
                               const vt_evaluation *validation)
{
    char number[VT_NUMBER_SIZE];
    vt_status status = VT_OK;
    if (record == NULL) return VT_OK;
    record->shown.validation_loss = validation->loss;
    vt_log_info("  Avg val loss=%s", vt_text_float((float)validation->loss, number));
    vt_log_info("  Total validation time: %s sec", vt_text_double(validation->seconds, number));
    log_scores(record, validation);
    if (record->run.scores->tell_epoch != NULL)
        record->run.scores->tell_epoch(progress->epoch + 1, record->run.epochs, mean_loss(&progress->epoch_sums),
                                       validation);
    VT_TRY(write_validation_points(record, progress->step, validation));
    VT_TRY(add_epoch(record, progress, &times, validation));
    char *page = vt_text_format("%s/report.html", record->run.run_directory);
    if (vt_run_report_write(&record->run.run_directory, 1, page) != VT_OK) { /* no reason to end a run */
        vt_log_warning("%s", vt_error_text());
        vt_error_clear();
    }
    free(page);
done:
    return status;
}
