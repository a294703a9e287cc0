#include "training/loop.h"

#include <stdlib.h>

#include "base/clock.h"
#include "report/log.h"

vt_loop_length vt_loop_length_of(const vt_config *config, int64_t samples)
{
    vt_loop_length length = {.steps_per_epoch = samples / config->global_batch_size};
    if (config->num_iters == VT_UNSET_INTEGER) {
        length.epochs = config->num_epochs;
    } else if (config->num_iters < length.steps_per_epoch) {
        length.epochs = 1;
        length.steps_per_epoch = config->num_iters;
    } else if (length.steps_per_epoch > 0) {
        length.epochs = config->num_iters / length.steps_per_epoch;
    }
    return length;
}

/* A loader that delivered less than was counted would be a bug of ours, not of the data. */
static vt_status next_batch(vt_loader *loader, const vt_batch **batch, double *waited)
{
    vt_status status = vt_loader_next(loader, batch, waited);
    VT_ASSERT(status != VT_OK || *batch != NULL);
    return status;
}

/* One batch of each set before the first step: where the curves begin. */
static vt_status evaluate_start(vt_loop *loop)
{
    vt_status status = VT_OK;
    const vt_config *config = loop->trainer->config;
    double waited = 0;
    vt_loader *const loaders[2] = {loop->training_loader, loop->validation_loader};
    vt_evaluation sums[2];
    for (int i = 0; i < 2; i++) vt_evaluation_open(config, &sums[i]);
    for (int i = 0; i < 2; i++) {
        const vt_batch *batch = NULL;
        VT_TRY(vt_loader_begin(loaders[i], 0, 0));
        VT_TRY(next_batch(loaders[i], &batch, &waited));
        VT_TRY(vt_step_evaluate(loop->trainer, batch, false, &sums[i]));
    }
    vt_validation first = {.loss = sums[1].loss / (double)sums[1].samples, .rmse = sums[1].rmse};
    for (int64_t c = 0; c < config->n_out_channels; c++) first.rmse[c] /= (double)sums[1].samples;
    VT_TRY(vt_record_start(loop->record, sums[0].loss / (double)sums[0].samples, &first));
done:
    for (int i = 0; i < 2; i++) vt_evaluation_close(&sums[i]);
    return status;
}

/* The first sample of the epoch's last batch, as the model now sees it. */
static vt_status draw_picture(vt_loop *loop, int64_t epoch, const vt_batch *batch)
{
    vt_status status = VT_OK;
    const vt_config *config = loop->trainer->config;
    int64_t channel = vt_record_picture_channel(config), plane = config->img_size[0] * config->img_size[1];
    float *prediction = malloc((size_t)plane * sizeof *prediction);
    VT_ASSERT(prediction != NULL);
    VT_TRY(vt_step_forecast(loop->trainer, batch, 0, channel, prediction));
    VT_TRY(vt_record_picture(loop->record, epoch + 1, loop->trainer->steps_done, batch->target + channel * plane,
                             prediction));
done:
    free(prediction);
    return status;
}

static vt_status train_epoch(vt_loop *loop, int64_t epoch)
{
    vt_status status = VT_OK;
    vt_trainer *trainer = loop->trainer;
    double loss_sum = 0, waited_sum = 0, begin = vt_clock_seconds(), step_begin = begin;
    int64_t samples = 0;
    const vt_batch *batch = NULL;
    VT_TRY(vt_loader_begin(loop->training_loader, epoch, 0));
    for (int64_t i = 0; i < loop->length.steps_per_epoch; i++) {
        vt_step_figures figures;
        double waited = 0;
        VT_TRY(next_batch(loop->training_loader, &batch, &waited));
        VT_TRY(vt_step_train(trainer, batch, &figures));
        if (i == 1) vt_record_memory();
        double now = vt_clock_seconds(), seconds = now - step_begin;
        vt_metrics_row row = {trainer->steps_done,   epoch + 1,
                              figures.loss,          figures.learning_rate,
                              figures.gradient_norm, (double)batch->sample_count / seconds,
                              waited / seconds};
        VT_TRY(vt_metrics_add(loop->metrics, &row));
        double next_rate = vt_schedule_rate(&trainer->schedule, trainer->steps_done);
        vt_record_step_figures step = {.step = trainer->steps_done,
                                       .epoch = epoch + 1,
                                       .epochs = loop->length.epochs,
                                       .step_of_epoch = i + 1,
                                       .steps_per_epoch = loop->length.steps_per_epoch,
                                       .samples = batch->sample_count,
                                       .waited = waited,
                                       .seconds = seconds,
                                       .loss = figures.loss,
                                       .gradient_norm = figures.gradient_norm,
                                       .next_learning_rate = next_rate};
        VT_TRY(vt_record_step(loop->record, &step));
        step_begin = now;
        loss_sum += figures.loss;
        waited_sum += waited;
        samples += batch->sample_count;
    }
    double total = vt_clock_seconds() - begin;
    vt_record_epoch_figures whole = {.epoch = epoch + 1,
                                     .step = trainer->steps_done,
                                     .steps = loop->length.steps_per_epoch,
                                     .samples = samples,
                                     .seconds = total,
                                     .mean_loss = loss_sum / (double)loop->length.steps_per_epoch,
                                     .next_learning_rate = vt_schedule_rate(&trainer->schedule, trainer->steps_done)};
    VT_TRY(vt_record_epoch(loop->record, &whole));
    if (waited_sum > 0.1 * total)
        vt_log_warning("the steps waited for data %.0f %% of the time; see --num_data_workers and --data_loader_config",
                       100 * waited_sum / total);
    if (batch != NULL) VT_TRY(draw_picture(loop, epoch, batch));
done:
    return status;
}

vt_status vt_loop_run(vt_loop *loop, vt_validation *last)
{
    vt_status status = VT_OK;
    double persistence = NAN;
    vt_log_info("Starting Training Loop...");
    VT_TRY(evaluate_start(loop));
    for (int64_t epoch = 0; epoch < loop->length.epochs; epoch++) {
        VT_TRY(train_epoch(loop, epoch));
        VT_TRY(vt_validate(loop->trainer, loop->validation_loader, epoch == 0, last));
        VT_TRY(vt_record_validation(loop->record, loop->trainer->steps_done, last));
        if (epoch == 0) persistence = last->persistence_loss;
    }
    last->persistence_loss = persistence;
    vt_log_info("DONE ---- rank 0");
done:
    return status;
}
