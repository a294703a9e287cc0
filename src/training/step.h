/* One optimizer step, and one evaluation, of one batch. */
#ifndef VT_TRAINING_STEP_H
#define VT_TRAINING_STEP_H

#include "training/trainer.h"

typedef struct {
    double loss; /* mean over the samples */
    double learning_rate;
    double gradient_norm; /* before clipping */
} vt_step_figures;

/* forward → loss → backward, for each micro-batch, then finite check → clip → optimizer. Fails, without an update, when
 * a gradient is not finite. */
vt_status vt_step_train(vt_trainer *trainer, const vt_batch *batch, vt_step_figures *figures);

/* Sums over the samples of a batch. */
typedef struct {
    int64_t samples;
    double loss;
    double persistence_loss; /* of the forecast that nothing changes; NAN where the input lacks a forecast channel */
    double *rmse;            /* [n_out_channels] */
} vt_evaluation;

/* Adds a batch's sums to *evaluation; dropout is off. The persistence forecast is scored when with_persistence. */
vt_status vt_step_evaluate(vt_trainer *trainer, const vt_batch *batch, bool with_persistence,
                           vt_evaluation *evaluation);

/* Forecasts sample `sample` of a batch, dropout off: channel `channel` into the host's field [height, width], in the
 * units of the data. Needs no more of the arena than vt_step_evaluate. */
vt_status vt_step_forecast(vt_trainer *trainer, const vt_batch *batch, int64_t sample, int64_t channel, float *field);

/* Room for the sums, zeroed. */
void vt_evaluation_open(const vt_config *config, vt_evaluation *evaluation);
void vt_evaluation_close(vt_evaluation *evaluation);

#endif
