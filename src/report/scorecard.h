/* What an evaluation found, drawn from its files scores.csv, spectra.csv and rank_histogram.csv: scorecards of skill by
 * channel and lead time, and curves of RMSE, ACC and power spectra. */
#ifndef VT_REPORT_SCORECARD_H
#define VT_REPORT_SCORECARD_H

#include "base/status.h"
#include "base/text.h"

/* Writes <directory>/scores.html from the evaluation's files there; the title says what was scored. *verdict: a line
 * that says whether the ensemble is better than dressed forecasts, malloc'd; "": that isn't known. */
vt_status vt_scorecard_write(const char *directory, const char *title, char **verdict);

/* Appends the sections of an evaluation's directory to a page; verdict as above. Error: no scores.csv. */
vt_status vt_scorecard_append(vt_text *html, const char *directory, char **verdict);

/* The directory of the newest evaluation of a run, malloc'd; NULL: it has none. */
char *vt_scorecard_find(const char *run_directory);

#endif
