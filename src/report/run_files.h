/* The files of a run directory that describe the run: the source of reports and live views. */
#ifndef VT_REPORT_RUN_FILES_H
#define VT_REPORT_RUN_FILES_H

#include "base/text.h"
#include "report/table.h"

typedef struct {
    char *directory;
    vt_table steps;       /* metrics.csv */
    vt_table epochs;      /* epochs.csv; no rows when there is none yet */
    vt_table plan;        /* plan.csv; the same */
    char *baseline;       /* its name there: its loss, "persistence_loss", follows the validation's */
    int64_t baseline_row; /* of epochs: the first, from 0 on, since which the validation's loss has measured the same */
    vt_names keys, values; /* of config.yaml */
    char *configuration;   /* its name */
} vt_run_files;

/* Errors: no metrics.csv, so the directory is not a run's; in metrics.csv or epochs.csv a column is missing that every
 * run writes, or a step or an epoch is no number. Also then *files holds what could be read, and is to be closed. */
vt_status vt_run_files_open(const char *directory, vt_run_files *files);
void vt_run_files_close(vt_run_files *files);

/* The value of a key of the configuration, or "". */
const char *vt_run_files_key(const vt_run_files *files, const char *name);

/* The mean of a column of metrics.csv over the last `most` steps; NAN before the first. */
double vt_run_recent_mean(const vt_run_files *files, const char *column, int64_t most);

/* The baseline's loss, or one of its scores ("loss", "rmse_u10"), in the first epoch since the validation's loss has
 * measured the same; NAN: there is none. */
double vt_run_baseline(const vt_run_files *files, const char *column);

/* The last line of out.log, malloc'd, without its time stamp; "" if there is none. *is_closed (may be NULL): does one
 * behind that with which training last began say that the run is complete? */
char *vt_run_last_line(const char *directory, bool *is_closed);

/* Does a line of it say that the run is complete: trained, measured, or nothing left to do? */
bool vt_run_is_finished(const char *line);

#endif
