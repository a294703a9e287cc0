/* Hands the figures of a run to the report: metrics.csv, a row for every step; epochs.csv, a row for every epoch with
 * its losses, scores and where its time went; plan.csv, one row: the memory that the run needs; the log's lines, whose
 * wording the tutorials' log parsers rely on; TensorBoard's curves and pictures, whose names their dashboards rely on.
 * report.html and the live view are made of the three files. */
#ifndef VT_JOURNAL_RECORD_H
#define VT_JOURNAL_RECORD_H

#include "backend/backend.h"
#include "checkpoint/progress.h"
#include "config/config.h"
#include "task/task.h"

/* A NULL record accepts everything and writes nothing: all ranks but the first have it. */
typedef struct vt_record vt_record;

typedef struct {
    /* these must outlive the record */
    const vt_config *config;
    const char *run_directory;
    const vt_score_names *scores;

    int64_t steps, epochs_done;             /* of which the directory has rows: where the run continues; 0: it is new */
    double bytes[VT_MEMORY_CATEGORY_COUNT]; /* that the run needs, as planned */
    double step_flops;                      /* likewise */
    int64_t parameters;                     /* numbers that the model learns */
    int64_t epochs, steps_per_epoch;        /* of the whole run */
} vt_record_options;

/* Writes below the run directory. */
vt_status vt_record_open(const vt_record_options *options, vt_record **record);
void vt_record_close(vt_record **record);

/* Waits until the rows of metrics.csv and epochs.csv are on the disk. */
vt_status vt_record_synchronise(vt_record *record);

/* Losses and scores of one batch of each set before the first step: where the curves begin. */
vt_status vt_record_start(vt_record *record, double train_loss, const vt_evaluation *validation);

/* Logs the memory in use, of this process or of the GPU, in GB as the tutorials count them; `what` says when. */
void vt_record_memory(vt_backend *backend, const char *what);

/* After every step, which is in `progress` already: adds its row to metrics.csv, and redraws the progress bar.
 * With log_every, every N-th step also adds a line to the log and points to the curves: means over the steps since the
 * last points, whose sums are in progress->unlogged. */
vt_status vt_record_step(vt_record *record, vt_run_progress *progress, const vt_step_figures *figures);

/* After the last step of an epoch. Takes progress->unlogged, as vt_record_step does. */
vt_status vt_record_epoch(vt_record *record, vt_run_progress *progress, double shown_learning_rate);

/* Target beside prediction, after epoch `epoch` (1 for the first); both [height, width] on the host. */
vt_status vt_record_picture(vt_record *record, const vt_picture *picture, int64_t epoch, int64_t step,
                            const float *target, const float *prediction);

/* Ends the epoch: also writes its row of epochs.csv, and report.html. times: where the epoch's seconds went. */
vt_status vt_record_validation(vt_record *record, const vt_run_progress *progress, vt_step_times times,
                               const vt_evaluation *validation);

#endif
