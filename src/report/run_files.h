/* The files of a run directory that describe the run: the source of reports and live views. */
#ifndef VT_REPORT_RUN_FILES_H
#define VT_REPORT_RUN_FILES_H

#include "base/text.h"
#include "report/table.h"

typedef struct {
    char *directory;
    vt_table steps;        /* metrics.csv */
    vt_table epochs;       /* epochs.csv; no rows when there is none yet */
    vt_table plan;         /* plan.csv; the same */
    vt_names keys, values; /* of config.yaml */
    char *configuration;   /* its name */
} vt_run_files;

/* metrics.csv, and epochs.csv, which has no rows where it is missing or empty. Errors: no such file, a column is
 * missing that every run writes, a step or an epoch that is no number. */
vt_status vt_run_steps_open(const char *path, vt_table *steps);
vt_status vt_run_epochs_open(const char *path, vt_table *epochs);

/* Errors: those of its tables; no metrics.csv, so the directory is not a run's. */
vt_status vt_run_files_open(const char *directory, vt_run_files *files);
void vt_run_files_close(vt_run_files *files);

/* The value of a key of the configuration, or "". */
const char *vt_run_files_key(const vt_run_files *files, const char *name);

/* The smallest validation loss since it has measured the same; NAN before the first. */
double vt_run_best_loss(const vt_run_files *files);

/* The mean of a column of metrics.csv over the last `most` steps; NAN before the first. */
double vt_run_recent_mean(const vt_run_files *files, const char *column, int64_t most);
/* The baseline's name in epochs.csv: its loss, "persistence_loss", follows the validation's. */
enum { VT_BASELINE_NAME = 64 };
const char *vt_epochs_baseline(const vt_table *epochs, char name[VT_BASELINE_NAME]);

/* Its value, or that of one of its scores, `column` ("loss", "rmse_u10"), in the first epoch since the
 * validation's loss has measured the same; NAN: there is none. */
double vt_epochs_baseline_value(const vt_table *epochs, const char *column);

enum { VT_RUN_RECENT = 50 }; /* steps over which a loss is smoothed */

/* The categories of memory in plan.csv. */
enum { VT_RUN_MEMORIES = 6 };
extern const char *const vt_run_memories[VT_RUN_MEMORIES];

/* The last line of out.log, malloc'd, without its time stamp; "" if there is none. */
char *vt_run_last_line(const char *directory);

/* Does a line of it say that the run is complete: trained, measured, or nothing left to do? */
bool vt_run_is_finished(const char *line);

/* Is there such a line behind the one with which training last began? */
bool vt_run_is_closed(const char *directory);

#endif
