/* metrics.csv: a row for every optimizer step. */
#ifndef VT_JOURNAL_METRICS_H
#define VT_JOURNAL_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

typedef struct {
    int64_t step;  /* 1 for the first */
    int64_t epoch; /* 1 for the first */
    double loss;
    double learning_rate; /* that the step was made with */
    double gradient_norm; /* before clipping */
    double samples_per_sec;
    double data_wait_fraction; /* of the step's time */
} vt_metrics_row;

/* A .csv file whose first column is the step: made anew with this line of names when `steps` is 0; else the rows up to
 * that step stay, and what follows them is cut off. A file with other names is set aside, with a warning. */
vt_status vt_rows_open(const char *path, const char *names, int64_t steps, FILE **file);

/* NULL takes all rows and writes nothing. */
typedef struct vt_metrics vt_metrics;

/* Made anew when `steps` is 0; else the rows up to that step stay, and what follows them is cut off. */
vt_status vt_metrics_open(const char *path, int64_t steps, vt_metrics **metrics);

/* Written through to the file at once. Fails when it can't be (a full disk, say). */
vt_status vt_metrics_add(vt_metrics *metrics, const vt_metrics_row *row);

/* Waits until the rows are on the disk. */
vt_status vt_metrics_synchronise(vt_metrics *metrics);

void vt_metrics_close(vt_metrics **metrics);

#endif
