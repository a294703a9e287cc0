/* One optimizer step, and one evaluation, of one batch. */
#ifndef VT_TRAINING_STEP_H
#define VT_TRAINING_STEP_H

#include "training/trainer.h"

typedef struct {
    int64_t step; /* its number, 1 for the run's first */
    double loss;  /* mean over the samples */
    double learning_rate;
    double gradient_norm; /* before clipping; NAN or INFINITY: there was no update */
    double loss_scale;    /* of the step to come (fp16), 1 without one */
    /* without an update: where the first NaN or Inf is */
    int64_t bad_sample;        /* in the data set, the first whose loss is not finite; -1: all are */
    const char *bad_parameter; /* whose gradient is not finite */
    bool bad_data;             /* the data are to blame, as the error says */
} vt_step_figures;

/* Collective. Starts a step: forward → loss → backward ⇄ gradient sync, for each micro-batch, then finite check → clip
 * → optimizer. When the loss or a gradient is not finite no rank makes an update, and with on_nonfinite stop (but for
 * fp16, which then lowers its loss scale) none ever after. The batch may be gone when it returns. At most
 * VT_STEPS_AHEAD steps may be pending. */
vt_status vt_step_start(vt_trainer *trainer, const vt_batch *batch);

/* Collective. Waits for the oldest pending step's figures. Where a sample's loss is not finite its data are read once
 * more, and looked at: fails with bad_data, on all ranks, when a value is not finite, or can't be read any more. Fails
 * else where on_nonfinite stop says so. After both, pending steps are those that may have made an update. */
vt_status vt_step_take(vt_trainer *trainer, vt_step_figures *figures);

/* Collective. Both. */
vt_status vt_step_train(vt_trainer *trainer, const vt_batch *batch, vt_step_figures *figures);

/* How many steps should be left pending while there are more to start: a device that works on its own is given the next
 * one before the last one's figures are read. */
int64_t vt_step_latency(const vt_trainer *trainer);

/* Sums over the samples of this rank's parts of batches; vt_evaluation_finish makes them means over all samples. A
 * sample without a single point counts in no mean, and one without a point of a channel not in that channel's. */
typedef struct {
    double samples;
    double loss;
    double persistence_loss; /* of the forecast that nothing changes; NAN where the input lacks a forecast channel */
    int64_t channels;
    double *rmse;             /* [channels] */
    double *persistence_rmse; /* [channels]; 0 where there is no persistence_loss */
    double *counts[2];        /* [1 + channels], of forecast and persistence: samples in the loss, and in each rmse */
} vt_evaluation;

/* Room for the sums, zeroed. */
void vt_evaluation_open(const vt_config *config, vt_evaluation *evaluation);
void vt_evaluation_close(vt_evaluation *evaluation);

/* Collective. Adds a batch's sums to *evaluation; dropout is off. The persistence forecast is scored when
 * with_persistence. Fails on ranks whose data have a value that is not finite. */
vt_status vt_step_evaluate(vt_trainer *trainer, const vt_batch *batch, bool with_persistence,
                           vt_evaluation *evaluation);

/* Collective. The sums become means over the samples of all ranks. */
void vt_evaluation_finish(const vt_trainer *trainer, vt_evaluation *evaluation);

/* Collective. Forecasts sample 0 of a global batch, dropout off: channel `channel`, and what it should be, into the
 * host's fields [height, width], in the units of the data; only the ranks that hold the sample write them, rank 0 among
 * them. Needs no more of the arena than vt_step_evaluate with persistence. */
vt_status vt_step_forecast(vt_trainer *trainer, const vt_batch *batch, int64_t channel, float *prediction,
                           float *target);

/* Forecasts `count` samples, at most a micro-batch, dropout off: input [count, n_in_channels, height, width] on the
 * host, fields [count, n_out_channels, height, width] on the host, both in the units of the data. For ranks that hold
 * whole samples (tensor_parallel and context_parallel 1, zero_stage 0). Needs no more of the arena than
 * vt_step_evaluate. */
vt_status vt_step_predict(vt_trainer *trainer, const float *input, int64_t count, float *fields);

#endif
