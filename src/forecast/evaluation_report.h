/* What `vitrain evaluate` measures forecasts against, and what it shows: a table on the terminal, files of scores and
 * spectra, and maps. */
#ifndef VT_FORECAST_EVALUATION_REPORT_H
#define VT_FORECAST_EVALUATION_REPORT_H

#include <stdbool.h>

#include "forecast/evaluation.h"
#include "forecast/forecast_file.h"
#include "source/fields/seasonal.h"
#include "task/weather/ensemble.h"
#include "task/weather/spectra.h"

/* How large the errors of forecasts from initial times of the training set are: the root of their mean square, by
 * channel, lead time and point; for each lead time, and behind the last one for the climatology. Forecasts are dressed
 * with it, the cheap rival of an ensemble (scores.h), and `vitrain predict` takes it from a file. */
typedef struct {
    int64_t leads, size; /* numbers of a forecast: [n_out_channels, height, width] */
    int64_t start_count; /* initial times that they are from */
    size_t bytes;
    void *memory; /* of storage/output_file.h: float64, [leads + 1, size, 2]; NULL: nothing is known */
} vt_training_errors;

/* What is evaluated, what does it, and what was found. */
typedef struct {
    vt_evaluation_options *options;
    vt_forecaster forecaster; /* from initial times behind which times go on to the last lead */
    float *mean; /* the fields over time (time_means_path), [n_out_channels, height, width]; NULL: not known */
    vt_seasonal *climatology; /* the seasonal one (climatology_path), for the window of the set; NULL: not known */
    int64_t step;             /* the length of one (calendar.h) */
    char **names;             /* [n_out_channels] */
    vt_variable *variables;   /* the same */
    int64_t map_channel;
    float *persistence, *target; /* of a batch, and behind it one target */
    float *seasonal;             /* at the time of the target, behind that */
    float *stds;                 /* of the channels */
    vt_scores *scores;
    vt_scores *ensemble; /* NULL: each forecast is one of its own */
    vt_scores *spectra;
    vt_training_errors errors; /* that dress forecasts */
    bool of_training;          /* the errors are wanted, no scores: forecasts are from the training set */
    vt_forecast_file *archive; /* of rank 0, of all forecasts; NULL: none is wanted */
    double loss;               /* the training's, over loss_count samples, also those too near the end of their file */
    int64_t loss_count;
} vt_evaluated;

/* Reads e->mean and e->climatology. That a file isn't there, or that the dates of the set aren't known, is a remark
 * only, which rank 0 prints, unless a flag names the file; one that doesn't fit is an error. */
vt_status vt_climatologies_read(vt_evaluated *e);

/* Writes loss.csv, scores.csv, horizons.csv, spectra.csv, and of an ensemble rank_histogram.csv; scores.html from
 * these, and the table on standard output: a line a channel and lead time, the first, 1, 3, 5 and 10 days and the last
 * one, as far as the forecasts reach (of steps longer than that all, of steps below an hour also 1, 3, 6 and 12 hours),
 * and the skill horizons. Climatology and ACC are those of the seasonal climatology where it is known, else of the mean
 * over time. */
vt_status vt_evaluation_report(const vt_evaluated *e);

/* Removes the maps of an earlier evaluation, and those files that only some evaluations write. */
void vt_maps_clear(const char *directory);

/* Draws the map channel of target, forecast and their difference, fields [n_out_channels, height, width] of the first
 * initial time, into <output>/map-<channel>-<lead>.png, if the lead time (0 for the first) is one that the table shows:
 * 024h, 030min or 001month. */
vt_status vt_maps_draw(const vt_evaluated *e, int64_t lead, const float *target, const float *forecast);

#endif
