/* A trainer, everything that a training step works on: back end, parameters, model, loss, task, optimizer, and the
 * memory of activations. And its steps: one optimizer step, and one evaluation, of one batch. It knows nothing of
 * files; the loop gives it batches. */
#ifndef VT_TRAINING_STEP_H
#define VT_TRAINING_STEP_H

#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "task/task.h"
#include "training/schedule.h"

typedef struct vt_trainer vt_trainer;

enum { VT_STEPS_AHEAD = 2 }; /* steps that may be started before the first one's figures are taken */

typedef struct {
    vt_world *world; /* all ranks of the run; NULL: this is the only one */
    vt_task *task;   /* outlives the trainer, which places it on its back end; NULL: one that knows nothing of data */
    int64_t steps;   /* of the whole run, for the learning rate; vt_trainer_resume sets it again */
    bool gpipe;      /* this schedule, also on one stage, whatever the configuration says */
} vt_trainer_options;

/* Collective. Plans, then takes all memory on `backend` and starts the parameters from the configuration's seed. */
vt_status vt_trainer_open(const vt_config *config, const vt_trainer_options *options, vt_backend *backend,
                          vt_trainer **trainer);
void vt_trainer_close(vt_trainer **trainer);

/* What it works with, and owns. */
const vt_model *vt_trainer_model(const vt_trainer *trainer);
vt_parameters *vt_trainer_parameters(const vt_trainer *trainer);

/* Collective. The parameters and their average (ema_decay) change places; once more, and they are back, to the bit.
 * Without an average nothing happens. Between steps only. */
void vt_trainer_exchange_average(vt_trainer *trainer);

/* For checkpoints; what they say of the data is left to the caller. */
vt_checkpoint_subject vt_trainer_subject(const vt_trainer *trainer);

/* ---- steps ---- */

/* Of a run that continues: the steps that were made before, and how many there will be. */
void vt_trainer_resume(vt_trainer *trainer, int64_t steps, vt_run_length length);

/* The steps to come are of this epoch, from 0 on, and evaluations of its loss. */
void vt_trainer_set_epoch(vt_trainer *trainer, int64_t epoch);

/* The type of what enters matrix products, and the samples of a micro-batch, as the configuration has them. */
vt_type vt_trainer_type(const vt_config *config);
int64_t vt_trainer_micro_batch(const vt_config *config);

/* ---- a step of a batch ---- */

/* Collective. Starts a step: forward → loss → backward ⇄ gradient sync, for each micro-batch, then finite check → clip
 * → optimizer. When the loss or a gradient is not finite no rank makes an update, and with on_nonfinite stop (but for
 * fp16, which then lowers its loss scale) none ever after. The batch may be gone when it returns. At most
 * VT_STEPS_AHEAD steps may be pending. */
vt_status vt_step_start(vt_trainer *trainer, const vt_batch *batch);

/* Collective. Waits for the oldest pending step's figures. The data of a sample whose loss is not finite are read once
 * more and checked: fails with bad_data, on all ranks, if a value is not finite, or can't be read any more. Otherwise
 * fails if on_nonfinite is stop. After both, pending steps are those that may have made an update. */
vt_status vt_step_take(vt_trainer *trainer, vt_step_figures *figures);

/* After a failure: waits for all pending steps and drops their figures. */
void vt_step_drop(vt_trainer *trainer);

/* Collective. Both. */
vt_status vt_step_train(vt_trainer *trainer, const vt_batch *batch, vt_step_figures *figures);

/* How many steps should be left pending while there are more to start: a device that works on its own is given the next
 * one before the last one's figures are read. */
int64_t vt_step_latency(const vt_trainer *trainer);

/* Zeroed sums, to be closed; of the baseline too if that is wanted and the task has one. */
void vt_step_evaluation_open(const vt_trainer *trainer, bool with_baseline, vt_evaluation *evaluation);

/* Collective. Adds a batch's losses and scores to the sums, dropout off; also those of the task's baseline, where
 * *evaluation has one. Fails on ranks whose data have a value that is not finite. */
vt_status vt_step_evaluate(vt_trainer *trainer, const vt_batch *batch, vt_evaluation *evaluation);

/* Collective. The sums become means over the samples of all ranks. */
void vt_step_evaluation_finish(const vt_trainer *trainer, vt_evaluation *evaluation);

/* Collective. One pass over a data set without training: means over all samples of the set, each counted once, in
 * order (the loss of a task with by_batch: the mean of the batches' means); the parameters are their averages meanwhile
 * (ema_decay, ema_validate). *validation is to be closed, also after a failure. Ends with VT_STOPPED between two
 * batches when the run is to stop, on any rank (stop.h). also, if not NULL, gets this rank's part of each batch. */
vt_status vt_validate(vt_trainer *trainer, vt_loader *loader, bool with_baseline,
                      vt_status (*also)(void *, const vt_batch *), void *context, vt_evaluation *validation);

/* Collective. Predicts sample 0 of a global batch, dropout off: a part of the output, and what it should be,
 * into the host's prediction and target [height, width], in the units of the data. Only the ranks that hold the sample
 * write them, rank 0 among them. Needs no more of the arena than vt_step_evaluate with a baseline. */
vt_status vt_step_forecast(vt_trainer *trainer, const vt_batch *batch, vt_picture_part part, float *prediction,
                           float *target);

/* Predicts a batch of at most a micro-batch of samples, dropout off: inputs and forcings (NULL where a sample has none)
 * on the host, shaped as a sample's; fields [samples, …] as its target; inputs and fields in the units that the task
 * normalises. In epochs of loss crps the samples are members, and the batch says what their noise depends on. For ranks
 * that hold whole samples (tensor_parallel and context_parallel 1, zero_stage 0). Needs no more of the arena than
 * vt_step_evaluate. */
vt_status vt_step_predict(vt_trainer *trainer, const vt_batch *batch, float *fields);

/* A device with memory of its own keeps this batch (whose memory may also be the device's): later batches have no
 * tensors, and the memory of batches on their way is given back. For benchmarks, whose steps are not to copy. */
vt_status vt_step_keep_batch(vt_trainer *trainer, const vt_batch *batch);

#endif
