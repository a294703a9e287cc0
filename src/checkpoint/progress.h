/* How far a run has come: the figures of its steps, and what a checkpoint keeps of it besides tensors. */
#ifndef VT_CHECKPOINT_PROGRESS_H
#define VT_CHECKPOINT_PROGRESS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Seconds of this rank's host: where the time of steps went. Waiting for other ranks is communication, wherever it
 * happens. */
typedef struct {
    double forward, backward, communication, optimizer;
} vt_step_times;

typedef struct {
    int64_t step;                              /* its number, 1 for the run's first */
    double loss;                               /* mean over the samples */
    int64_t samples;                           /* of all ranks */
    double seconds;                            /* since the step before it, as the loop measures them */
    double waited;                             /* of these, spent waiting for its batch */
    double learning_rate, shown_learning_rate; /* of the step; the one that curves show */
    double gradient_norm;                      /* before clipping; NAN or INFINITY: there was no update */
    double loss_scale;                         /* of the step to come (fp16), 1 without one */
    /* without an update: where the first NaN or Inf is */
    int64_t bad_sample;        /* in the data set, the first whose loss is not finite; -1: none */
    const char *bad_parameter; /* whose gradient is not finite */
    const char *target_fault;  /* what is wrong with that sample's target; NULL: nothing is known */
    bool bad_data;             /* the data are to blame, as the error says */
} vt_step_figures;

/* Sums over some steps. The loss of a step without an update is left out. */
typedef struct {
    int64_t steps, samples, updates;
    double seconds, loss, waited;
} vt_step_sums;

static inline void vt_step_sums_add(vt_step_sums *sums, const vt_step_figures *figures)
{
    const bool has_update = isfinite(figures->gradient_norm);
    sums->steps++;
    sums->samples += figures->samples;
    sums->updates += has_update;
    sums->seconds += figures->seconds;
    if (has_update) sums->loss += figures->loss;
    sums->waited += figures->waited;
}

typedef struct {
    int64_t step;          /* optimizer steps done */
    int64_t epoch;         /* epochs done and validated, so the index of the current one, from 0 */
    int64_t epoch_steps;   /* steps of the current epoch that are done: all of them if only its validation is missing */
    int64_t epoch_skipped; /* those of epoch_sums without an update (on_nonfinite) */
    int64_t skipped;       /* the same, of all steps of the run */
    int64_t skipped_in_row;
    int64_t restart_step;            /* with which the learning rate's schedule last began anew; -1: not known */
    int64_t batch, training_samples; /* of the run that made the checkpoint that was read; 0: not known */
    int64_t validation_samples;      /* likewise, but -1: not known */
    /* Of the current epoch; if num_iters ended it early and a longer run continues it, of that run's steps alone. */
    vt_step_sums epoch_sums;
    vt_step_times epoch_times; /* likewise */
    vt_step_sums unlogged;     /* since the last line of the log about steps; only with log_every, on rank 0 */
    double validation_loss;    /* of the validation just made; NAN in the middle of an epoch */
    double best_loss;          /* the smallest so far; INFINITY before the first */
    double persistence_loss;   /* of the first validation; NAN before it. Both since the loss has measured the same */
} vt_run_progress;

#endif
