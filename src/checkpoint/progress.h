/* How far a run has come: what a checkpoint keeps of it besides tensors. */
#ifndef VT_CHECKPOINT_PROGRESS_H
#define VT_CHECKPOINT_PROGRESS_H

#include <stdint.h>

/* Seconds of this rank's host: where the time of steps went. Waiting for other ranks is communication, wherever it
 * happens. */
typedef struct {
    double forward, backward, communication, optimizer;
} vt_step_times;

/* Sums over some steps. As in the epoch's mean, the loss of a step without an update is left out. */
typedef struct {
    int64_t steps, samples, updates;
    double seconds, loss, waited;
} vt_step_sums;

/* Sums are over the steps of the current epoch. Where num_iters ended that epoch early and a longer run continued it,
 * the steps before are not in the sums. */
typedef struct {
    int64_t step;          /* optimizer steps done */
    int64_t epoch;         /* epochs done and validated, so the index of the current one, from 0 */
    int64_t epoch_steps;   /* steps of the current epoch that are done: all of them if only its validation is missing */
    int64_t epoch_samples; /* sum of their samples */
    int64_t epoch_skipped; /* those of them that are not in epoch_loss: without an update (on_nonfinite), or before */
    int64_t skipped;       /* of all steps, those without an update */
    int64_t skipped_in_row;
    int64_t restart_step;            /* with which the learning rate's schedule last began anew; -1: not known */
    int64_t batch, training_samples; /* of the run that made the checkpoint that was read; 0: not known */
    int64_t validation_samples;      /* likewise, but -1: not known */
    double epoch_loss;               /* sum of the losses of the steps that made an update */
    double epoch_seconds;
    double epoch_waited; /* the part of them that was spent waiting for data */
    vt_step_times epoch_times;
    vt_step_sums unlogged;   /* since the last line of the log about steps; only with log_every, on rank 0 */
    double validation_loss;  /* of the validation just made; NAN in the middle of an epoch */
    double best_loss;        /* the smallest so far; INFINITY before the first */
    double persistence_loss; /* of the first validation; NAN before it. Both since the loss has measured the same */
} vt_run_progress;

#endif
