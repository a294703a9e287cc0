/* Everything that a training step works on: back end, parameters, model, loss, task, optimizer, and the memory of
 * activations. It knows nothing of files; the loop (loop.h) gives it batches. */
#ifndef VT_TRAINING_TRAINER_H
#define VT_TRAINING_TRAINER_H

#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "optimizer/schedule.h"
#include "task/task.h"
#include "training/schedule.h"

typedef struct vt_trainer vt_trainer;

enum { VT_STEPS_AHEAD = 2 }; /* steps that may be started before the first one's figures are taken */

typedef struct {
    vt_world *world; /* all ranks of the run; NULL: this is the only one */
    vt_task *task;   /* outlives the trainer, which places it on its back end; NULL: one that knows nothing of data */
    int64_t steps, steps_per_epoch; /* optimizer steps of the whole run and of an epoch: for the learning rate */
    vt_step_schedule *schedule;     /* NULL: the configuration's */
} vt_trainer_options;

/* Collective. Plans, then takes all memory on `backend` and starts the parameters from the configuration's seed. */
vt_status vt_trainer_open(const vt_config *config, const vt_trainer_options *options, vt_backend *backend,
                          vt_trainer **trainer);
void vt_trainer_close(vt_trainer **trainer);

/* What it works with, and owns but for configuration and back end. */
const vt_config *vt_trainer_config(const vt_trainer *trainer);
const vt_model *vt_trainer_model(const vt_trainer *trainer);
vt_parameters *vt_trainer_parameters(const vt_trainer *trainer);

/* Collective. The parameters and their average (ema_decay) change places; once more, and they are back, to the bit.
 * Without an average nothing happens. Between steps only. */
void vt_trainer_exchange_average(vt_trainer *trainer);

/* For checkpoints; what they say of the data is left to the caller. */
vt_checkpoint_subject vt_trainer_subject(const vt_trainer *trainer);

/* ---- steps ---- */

/* Of a run that continues: the steps that were made before, and how many there will be. */
void vt_trainer_resume(vt_trainer *trainer, int64_t steps, vt_schedule_length length);

/* The steps to come are of this epoch, from 0 on, and evaluations of its loss. */
void vt_trainer_set_epoch(vt_trainer *trainer, int64_t epoch);

/* The type of what enters matrix products, and the samples of a micro-batch, as the configuration has them. */
vt_type vt_trainer_type(const vt_config *config);
int64_t vt_trainer_micro_batch(const vt_config *config);

#endif
