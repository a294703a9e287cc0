#include "journal/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "journal/epochs.h"
#include "report/image.h"
#include "report/progress.h"
#include "report/run_report.h"
#include "report/tensorboard.h"
#include "storage/output_file.h"

struct vt_record {
    const vt_config *config;
    const vt_score_names *scores;
    int64_t epoch_count; /* of the whole run */
    vt_tensorboard *tensorboard;
    char *images;            /* directory */
    vt_progress *progress;   /* NULL: no terminal */
    vt_step_sums epoch_sums; /* since the epoch began, or this process */
    int64_t first_step;      /* that this process made */
    double begin;            /* of that step */
    vt_sparkline history;    /* of the loss, for the bar */
    double validation_loss;  /* the last, or NAN */
    vt_rows *metrics, *epochs;
    vt_record_epoch_figures epoch; /* that was trained last */
    char *run_directory;
};

/* In GB as the tutorials count them. */
static double used_gb(vt_backend *backend)
{
    double bytes = backend->used_memory != NULL ? backend->used_memory(backend) : vt_memory_resident();
    return bytes / (1024.0 * 1024 * 1024);
}

void vt_record_memory_at_start(vt_backend *backend)
{
    vt_log_info("Scaffolding memory high watermark: %.4f GB.", used_gb(backend));
}

void vt_record_memory(vt_backend *backend)
{
    vt_log_info(" Memory usage after forward pass: %.4f GB.", used_gb(backend));
}

vt_status vt_record_open(const vt_record_options *options, vt_record **result)
{
    vt_status status = VT_OK;
    const char *run_directory = options->run_directory;
    char *logs = vt_text_format("%s/logs", run_directory), *metrics = vt_text_format("%s/metrics.csv", run_directory);
    const char *exponential = options->scores->exponential;
    char *names = vt_text_format("step,epoch,loss,learning_rate,grad_norm,samples_per_sec,data_wait_fraction%s%s\n",
                                 exponential != NULL ? "," : "", exponential != NULL ? exponential : "");
    vt_record *record = vt_allocate(1, sizeof *record, "the run's record");
    record->config = options->config;
    record->scores = options->scores;
    record->epoch_count = options->epochs;
    record->run_directory = vt_text_copy(run_directory);
    record->history.run = 1;
    record->validation_loss = NAN;
    record->images = vt_text_format("%s/images", run_directory);
    VT_TRY(vt_rows_open(metrics, names, VT_ROWS_STEPS, options->steps, &record->metrics));
    VT_TRY(vt_output_make_directory(record->images));
    VT_TRY(vt_tensorboard_open(logs, options->steps, &record->tensorboard));
    VT_TRY(vt_epochs_open(options, &record->epochs));
    record->progress = vt_progress_open();
done:
    free(logs);
    free(metrics);
    free(names);
    if (status != VT_OK) vt_record_close(&record);
    *result = record;
    return status;
}

void vt_record_close(vt_record **record)
{
    if (*record == NULL) return;
    vt_progress_close(&(*record)->progress);
    vt_tensorboard_close(&(*record)->tensorboard);
    free((*record)->images);
    free((*record)->run_directory);
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
    VT_TRY(vt_output_synchronise(record->run_directory)); /* their names */
done:
    return status;
}

static vt_status write_validation_points(vt_record *record, int64_t step, const vt_evaluation *validation)
{
    vt_status status = VT_OK;
    VT_TRY(vt_tensorboard_scalar(record->tensorboard, "Loss/valid", step, validation->loss));
    if (validation->count > 0)
        VT_TRY(vt_tensorboard_scalar(record->tensorboard, record->scores->curve, step, validation->model.values[1]));
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
    if (record->scores->tokens > 0)
        VT_TRY(vt_tensorboard_scalar(board, "Tokens per sec", step, rate * (double)record->scores->tokens));
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

static void add_step(vt_step_sums *sums, const vt_record_step_figures *figures)
{
    sums->steps++;
    sums->samples += figures->samples;
    sums->seconds += figures->seconds;
    if (isfinite(figures->gradient_norm)) {
        sums->updates++;
        sums->loss += figures->loss;
    }
    sums->waited += figures->waited;
}

/* The time left is estimated from all time since the first step, validation included. */
static void show_progress(vt_record *record, const vt_record_step_figures *figures)
{
    double now = vt_clock_seconds();
    const vt_step_sums *sums = &record->epoch_sums;
    if (record->first_step == 0) {
        record->first_step = figures->step;
        record->begin = now - figures->seconds;
    }
    int64_t left = (figures->epochs - figures->epoch + 1) * figures->steps_per_epoch - figures->step_of_epoch;
    double seconds_a_step = (now - record->begin) / (double)(figures->step - record->first_step + 1);
    vt_progress_figures shown = {.epoch = figures->epoch,
                                 .epochs = figures->epochs,
                                 .step = figures->step_of_epoch,
                                 .steps = figures->steps_per_epoch,
                                 .loss = figures->loss,
                                 .samples_per_sec = (double)sums->samples / sums->seconds,
                                 .data_wait = sums->waited / sums->seconds,
                                 .validation_loss = record->validation_loss,
                                 .history = record->history,
                                 .seconds_left = (double)left * seconds_a_step};
    vt_progress_show(record->progress, &shown);
}

vt_status vt_record_step(vt_record *record, const vt_record_step_figures *figures, vt_step_sums *unlogged)
{
    vt_status status = VT_OK;
    if (record == NULL) return VT_OK;
    char exponential[VT_NUMBER_SIZE] = "";
    if (record->scores->exponential != NULL)
        snprintf(exponential, sizeof exponential, ",%.9g", vt_text_plain_nan(exp(figures->loss)));
    VT_TRY(vt_rows_add(record->metrics, "%lld,%lld,%.9g,%.9g,%.9g,%.9g,%.9g%s\n", (long long)figures->step,
                       (long long)figures->epoch, figures->loss, figures->learning_rate, figures->gradient_norm,
                       (double)figures->samples / figures->seconds, figures->waited / figures->seconds, exponential));
    add_step(&record->epoch_sums, figures);
    vt_sparkline_add(&record->history, figures->loss);
    show_progress(record, figures);
    if (record->config->log_every == 0) return VT_OK;
    add_step(unlogged, figures);
    if (figures->step % record->config->log_every != 0) return VT_OK;
    vt_log_info("step %lld: loss %f, gradient norm %.4g, learning rate %.4g, %.2f samples/sec",
                (long long)figures->step, mean_loss(unlogged), figures->gradient_norm, figures->shown_learning_rate,
                (double)unlogged->samples / unlogged->seconds);
    VT_TRY(write_training_points(record, figures->step, unlogged, figures->shown_learning_rate));
    *unlogged = (vt_step_sums){0};
done:
    return status;
}

vt_status vt_record_epoch(vt_record *record, const vt_record_epoch_figures *figures, vt_step_sums *unlogged)
{
    vt_status status = VT_OK;
    vt_step_sums sums = {.steps = figures->steps,
                         .samples = figures->samples,
                         .seconds = figures->seconds,
                         .updates = 1,
                         .loss = figures->mean_loss};
    if (record == NULL) return VT_OK;
    record->epoch_sums = (vt_step_sums){0};
    record->epoch = *figures;
    if (figures->told) return VT_OK;
    vt_log_info("Time taken for epoch %lld is %f sec, avg %f samples/sec", (long long)figures->epoch, figures->seconds,
                (double)figures->samples / figures->seconds);
    vt_log_info("  Avg train loss=%f", vt_text_plain_nan(figures->mean_loss));
    if (record->config->log_every > 0) {
        sums = *unlogged;
        *unlogged = (vt_step_sums){0};
    }
    if (sums.steps > 0) VT_TRY(write_training_points(record, figures->step, &sums, figures->shown_learning_rate));
done:
    return status;
}

/* Draws into an image and a PNG of it, which may hold an earlier drawing. */
static vt_status draw(const vt_comparison *comparison, vt_image *image, void **png, size_t *size)
{
    vt_image_close(image);
    free(*png);
    *png = NULL;
    vt_image_compare(comparison, image);
    return vt_image_encode(image, png, size);
}

vt_status vt_record_picture(vt_record *record, const vt_picture *picture, int64_t epoch, int64_t step,
                            const float *target, const float *prediction)
{
    vt_status status = VT_OK;
    void *png = NULL;
    size_t size = 0;
    vt_image image = {0};
    if (record == NULL) return VT_OK;
    char *path = vt_text_format("%s/epoch-%04lld.png", record->images, (long long)epoch);
    char *title = vt_text_format("%s, epoch %lld (step %lld)", picture->title, (long long)epoch, (long long)step);
    vt_comparison comparison = {.title = title,
                                .left_title = "target",
                                .right_title = "prediction",
                                .before_title = picture->input != NULL ? "input" : NULL,
                                .before = picture->input,
                                .left = target,
                                .right = prediction,
                                .height = picture->height,
                                .width = picture->width,
                                .latitudes = picture->latitudes,
                                .longitudes = picture->longitudes,
                                .on_earth = picture->on_earth};
    VT_TRY(draw(&comparison, &image, &png, &size));
    VT_TRY(vt_tensorboard_image(record->tensorboard, picture->tag, step, image.width, image.height, png, size));
    comparison.is_signed = picture->is_signed; /* TensorBoard's images always use turbo */
    if (comparison.is_signed) VT_TRY(draw(&comparison, &image, &png, &size));
    VT_TRY(vt_file_write(path, png, size));
done:
    vt_image_close(&image);
    free(png);
    free(path);
    free(title);
    return status;
}

/* "  Valid RMSE by channel: u10=0.0712 v10=0.0698" */
static void log_scores(const vt_record *record, const vt_evaluation *validation)
{
    vt_text line = {0};
    if (validation->count == 0 || record->scores->title == NULL) return;
    for (int64_t i = 0; i < validation->count; i++)
        vt_text_append(&line, " %s=%.4f", record->scores->names[i], validation->model.values[1 + i]);
    vt_log_info("  Valid %s:%s", record->scores->title, line.characters);
    vt_text_close(&line);
}

vt_status vt_record_validation(vt_record *record, int64_t step, const vt_evaluation *validation)
{
    char number[VT_NUMBER_SIZE];
    vt_status status = VT_OK;
    if (record == NULL) return VT_OK;
    record->validation_loss = validation->loss;
    vt_log_info("  Avg val loss=%s", vt_text_float((float)validation->loss, number));
    vt_log_info("  Total validation time: %s sec", vt_text_double(validation->seconds, number));
    log_scores(record, validation);
    if (record->scores->tell_epoch != NULL)
        record->scores->tell_epoch(record->epoch.epoch, record->epoch_count, record->epoch.mean_loss, validation);
    VT_TRY(write_validation_points(record, step, validation));
    VT_TRY(vt_epochs_add(record->epochs, &record->epoch, validation));
    if (vt_run_report_write(record->run_directory, NULL) != VT_OK) { /* no reason to end a run */
        vt_log_warning("%s", vt_error_text());
        vt_error_clear();
    }
done:
    return status;
}
