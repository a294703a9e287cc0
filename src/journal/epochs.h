/* epochs.csv: a row for every epoch with its losses, scores and where its time went; and plan.csv, one row: the memory
 * that the run needs. report.html and the live view are made of these and of metrics.csv. */
#ifndef VT_JOURNAL_EPOCHS_H
#define VT_JOURNAL_EPOCHS_H

#include "journal/record.h"

typedef struct {
    int64_t step, epoch; /* done; 1 for the first */
    double train_loss;   /* mean of the steps' */
    double seconds;      /* of training */
    int64_t samples;
    double waited; /* for data */
    vt_step_times times;
} vt_epochs_row;

typedef struct vt_epochs vt_epochs;

/* Writes plan.csv, and cuts epochs.csv back to the epochs that are done. */
vt_status vt_epochs_open(const vt_record_options *options, vt_epochs **epochs);
void vt_epochs_close(vt_epochs **epochs);

/* Written through to the file at once. */
vt_status vt_epochs_add(vt_epochs *epochs, const vt_epochs_row *row, const vt_evaluation *validation);

#endif
