/* Hands the figures of a run to the report: the log's lines, whose wording log parsers of the tutorials rely on, and
 * TensorBoard's curves and pictures, whose names their dashboards rely on. */
#ifndef VT_JOURNAL_RECORD_H
#define VT_JOURNAL_RECORD_H

#include "source/fields/dataset.h"
#include "training/validate.h"

/* NULL is a record that takes everything and writes nothing: the ranks that are not the first have it. */
typedef struct vt_record vt_record;

typedef struct {
    const vt_config *config;
    const char *run_directory;
    const char *const *channel_names; /* may be NULL; must outlive the record */
    int64_t steps;                    /* that are done: where the run goes on from */
    int64_t epoch_begin;              /* those of them that lie in epochs which are done */
    const vt_plan *plan;
    int64_t parameters;              /* numbers that the model learns */
    int64_t epochs, steps_per_epoch; /* of the whole run */
} vt_record_options;

/* Writes below the run directory. */
vt_status vt_record_open(const vt_record_options *options, vt_record **record);
void vt_record_close(vt_record **record);

/* Losses and RMSE of one batch of each set before the first step: where the curves begin. */
vt_status vt_record_start(vt_record *record, double train_loss, const vt_validation *validation);

/* Logs the memory in use, of this process or of the GPU: before the first step, and after the forward pass of step
 * index 1 of each epoch. */
void vt_record_memory_at_start(vt_backend *backend);
void vt_record_memory(vt_backend *backend);

typedef struct {
    int64_t step;                           /* iterations done, this one included */
    int64_t epoch, epochs;                  /* 1 for the first */
    int64_t step_of_epoch, steps_per_epoch; /* 1 for the first */
    int64_t samples;
    double waited;  /* seconds, of those below */
    double seconds; /* that the step took, waiting for data included */
    double loss;
    double gradient_norm;
    double next_learning_rate; /* after the scheduler's step */
} vt_record_step_figures;

/* After every step: the progress bar; with log_every, each so many of them make a line of the log and points of the
 * curves: means since the points before. */
vt_status vt_record_step(vt_record *record, const vt_record_step_figures *figures);

typedef struct {
    int64_t epoch;          /* 1 for the first */
    int64_t step;           /* iterations done */
    int64_t steps, samples; /* trained on in `seconds` */
    double seconds;
    double waited;       /* of them, for data */
    vt_step_times times; /* of the other seconds */
    double mean_loss;    /* of the steps' losses */
    double next_learning_rate;
    bool told; /* before the run was stopped in its validation: they are only wanted for epochs.csv */
} vt_record_epoch_figures;

vt_status vt_record_epoch(vt_record *record, const vt_record_epoch_figures *figures);

/* The channel that pictures show: the third (t2m in the tutorials' data set), or the last one if there are fewer. */
int64_t vt_record_picture_channel(const vt_config *config);

typedef struct {
    int64_t epoch, step;              /* epoch: 1 for the first */
    const float *target, *prediction; /* [height, width] on the host, in the units of the data */
    const vt_dataset *dataset;        /* whose sample it is: NULL, or a synthetic one, has no place and date */
    int64_t sample;
} vt_record_map;

/* Target beside prediction, after an epoch. */
vt_status vt_record_picture(vt_record *record, const vt_record_map *map);

/* Ends the epoch: also its row in epochs.csv, and report.html. */
vt_status vt_record_validation(vt_record *record, int64_t step, const vt_validation *validation);

#endif
