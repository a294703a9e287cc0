/* epochs.csv: a row for every epoch with its losses, scores and where its time went; and plan.csv, one row: the memory
 * that the run needs. report.html and the live view are made of these and of metrics.csv. */
#ifndef VT_JOURNAL_EPOCHS_H
#define VT_JOURNAL_EPOCHS_H

#include "journal/record.h"
#include "journal/rows.h"

/* Writes plan.csv, and opens epochs.csv, cut back to the epochs that are done. */
vt_status vt_epochs_open(const vt_record_options *options, vt_rows **epochs);

vt_status vt_epochs_add(vt_rows *epochs, const vt_record_epoch_figures *epoch, const vt_evaluation *validation);

#endif
