/* The .csv files that grow with a run, and metrics.csv among them: a row for every optimizer step. */
#ifndef VT_JOURNAL_METRICS_H
#define VT_JOURNAL_METRICS_H

#include <stdint.h>

#include "base/status.h"

/* A .csv file whose first column is the step. The functions take NULL: no file, so nothing is written. */
typedef struct vt_rows vt_rows;

/* Makes the file with this line of names when `steps` is 0; else the rows up to that step stay, and what follows them
 * is cut off. A file with other names is set aside, with a warning. */
vt_status vt_rows_open(const char *path, const char *names, int64_t steps, vt_rows **rows);

/* Adds text, written through to the file at once. When this fails (a full disk, say), the file is closed, and later
 * rows are dropped. */
vt_status vt_rows_add(vt_rows *rows, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits until the rows are on the disk. */
vt_status vt_rows_synchronise(vt_rows *rows);

void vt_rows_close(vt_rows **rows);

typedef struct {
    int64_t step;  /* 1 for the first */
    int64_t epoch; /* 1 for the first */
    double loss;
    double learning_rate; /* that the step was made with */
    double gradient_norm; /* before clipping */
    double samples_per_sec;
    double data_wait_fraction; /* of the step's time */
} vt_metrics_row;

/* vt_rows_open and vt_rows_add of metrics.csv. */
vt_status vt_metrics_open(const char *path, int64_t steps, vt_rows **metrics);
vt_status vt_metrics_add(vt_rows *metrics, const vt_metrics_row *row);

#endif
