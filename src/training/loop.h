/* The epoch loop: train, log, validate, log, checkpoint. */
#ifndef VT_TRAINING_LOOP_H
#define VT_TRAINING_LOOP_H

#include "checkpoint/saver.h"
#include "journal/record.h"
#include "journal/sample_trace.h"
#include "training/step.h"

/* Of the whole run. */
typedef struct {
    int64_t epochs, steps;
    int64_t steps_per_epoch; /* fewer than the data have when num_iters is smaller than an epoch */
} vt_loop_length;

/* From the batches of the training set: as many steps an epoch, and floor(num_iters / that) epochs; if that is 0, one
 * epoch of num_iters steps. A run that continues counts from the beginning of its current epoch, since the epochs
 * before may have had another batch size, or other data. */
vt_loop_length vt_loop_length_of(const vt_config *config, int64_t batches, const vt_run_progress *progress);

typedef struct {
    vt_trainer *trainer;
    vt_loader *training_loader, *validation_loader;
    vt_rows *sample_trace; /* NULL: none */
    vt_record *record;     /* NULL on all ranks but the first, which writes for all */
    vt_loop_length length;
    vt_checkpoint_saver *saver;
    int64_t saved_step;       /* of the newest checkpoint that this run wrote or began from */
    bool bad_data;            /* a step failed because its data are bad */
    bool diverged;            /* it failed because numbers are not finite, though the data are good */
    int64_t finite_steps;     /* of vt_loop_run */
    int64_t replaced;         /* samples of this epoch that could not be read (skip_bad_samples) */
    bool told_of_waiting;     /* the warning that steps wait for data was logged */
    vt_run_progress progress; /* where to continue; vt_run_progress_start for the beginning */
    /* the current epoch; set by vt_loop_run */
    int64_t epoch_started;                         /* its steps that were started; `progress` has those taken */
    double waited[VT_STEPS_AHEAD];                 /* for the batches of steps that are pending, by step */
    double epoch_begin, epoch_earlier, step_begin; /* seconds; earlier: of the epoch, before this process */
} vt_loop;

extern const vt_run_progress vt_run_progress_start;

/* Collective. Runs the training from loop->progress to its end; VT_STOPPED when it was stopped, with a checkpoint.
 * *last is the last validation, to be closed; its baseline_loss is that of the first validation of the same measure. */
vt_status vt_loop_run(vt_loop *loop, vt_evaluation *last);

#endif
