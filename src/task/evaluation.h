/* The losses and scores of predictions: sums over samples, then means. */
#ifndef VT_TASK_EVALUATION_H
#define VT_TASK_EVALUATION_H

#include "parallel/world.h"

/* Of one forecast: the loss, then each of the task's scores. A sample may be missing from any of them. */
typedef struct {
    double *values; /* sums; vt_evaluation_finish makes them means */
    double *counts; /* samples in each of them */
} vt_scores_of;

typedef struct {
    double samples;
    double seconds;   /* that a validation took */
    int64_t count;    /* of scores, without the loss */
    int64_t infinite; /* the first sample of this rank whose loss is infinite; -1: none */
    bool has_baseline;
    vt_scores_of model, baseline; /* [1 + count] */
    double loss, baseline_loss;   /* the means once more; of no baseline NAN, as all its means are */
} vt_evaluation;

/* Zeroed sums. */
void vt_evaluation_open(int64_t count, bool with_baseline, vt_evaluation *evaluation);
void vt_evaluation_close(vt_evaluation *evaluation);

/* Collective. Means over the samples of all ranks. Of ranks that hold parts of the same samples one has
 * `counts_in_sums` set. */
void vt_evaluation_finish(vt_world *world, bool counts_in_sums, vt_evaluation *evaluation);

#endif
