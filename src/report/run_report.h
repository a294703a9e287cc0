/* report.html of a run, the page that compares several runs, and that of an evaluation: made only from the files of
 * their directories. */
#ifndef VT_REPORT_RUN_REPORT_H
#define VT_REPORT_RUN_REPORT_H

#include "base/text.h"
#include "report/run_files.h"

/* What a run reached, each in a few words. */
typedef struct {
    const char *name;
    char value[VT_NUMBER_SIZE]; /* "": the run's files don't say */
    char detail[96];
} vt_run_figure;

enum { VT_RUN_FIGURES = 8 };
void vt_run_figures_of(const vt_run_files *run, vt_run_figure figures[VT_RUN_FIGURES]);

/* Writes the page of one run, or one that compares several: their curves together, what differs in their
 * configurations, and their figures.
 */
vt_status vt_run_report_write(const char *const *directories, int count, const char *path);

/* A step's pipeline as a picture: a bar for each stage with its forwards, its backwards, and the waiting between them,
 * drawn from the files that comm_trace writes (timeline.c). Appends a section; nothing for a run without stages, or
 * without traces of all its ranks. */
void vt_timeline_append(vt_text *html, const vt_run_files *run);

/* ---- what an evaluation found (scorecard.c), drawn from its files scores.csv, spectra.csv and rank_histogram.csv:
 * scorecards of skill by channel and lead time, and curves of RMSE, ACC and power spectra ---- */

/* Writes <directory>/scores.html from the evaluation's files there; the title says what was scored. *verdict: a line
 * that says whether the ensemble is better than dressed forecasts, malloc'd; "": that isn't known. */
vt_status vt_scorecard_write(const char *directory, const char *title, char **verdict);

/* Appends what the newest evaluation of a run found, if it has one. Error: a damaged file. */
vt_status vt_scorecard_append(vt_text *html, const char *run_directory);

#endif
