/* What `vitrain evaluate` shows: a table on the terminal, files of scores and spectra, and maps. */
#ifndef VT_FORECAST_EVALUATION_REPORT_H
#define VT_FORECAST_EVALUATION_REPORT_H

#include <stdbool.h>

#include "forecast/evaluation.h"
#include "source/fields/dataset.h"
#include "task/weather/calendar.h"
#include "task/weather/scores.h"
#include "task/weather/seasonal.h"
#include "task/weather/spectra.h"

typedef struct {
    const vt_evaluation_options *options;
    const vt_dataset *dataset;
    const vt_scores *scores;
    const vt_ensemble *ensemble; /* NULL: each forecast is one of its own */
    const vt_spectra *spectra;
    const vt_seasonal *seasonal;  /* NULL: not known */
    const vt_variable *variables; /* [n_out_channels] */
    int64_t initial_times, step;  /* a length (calendar.h) */
    double loss;                  /* the training's, over loss_samples samples */
    int64_t loss_samples;
    const char *map_channel;
} vt_evaluation_found;

/* loss.csv, scores.csv and horizons.csv; spectra.csv. */
vt_status vt_evaluation_write_scores(const vt_evaluation_found *found);
vt_status vt_evaluation_write_spectra(const vt_evaluation_found *found);

/* scores.html from these files, and the table on standard output: a line a channel and lead time, the first, 1, 3, 5
 * and 10 days and the last one, as far as the forecasts reach (of steps longer than that all, of steps below an hour
 * also 1, 3, 6 and 12 hours), and the skill horizons. Climatology and ACC are those of the seasonal climatology where
 * it is known, else of the mean over time. */
vt_status vt_evaluation_report(const vt_evaluation_found *found);

typedef struct {
    const char *directory, *channel, *units;
    const vt_dataset *dataset;
    int64_t start;       /* the initial time: a sample */
    int64_t step, steps; /* a length, and how many are forecast */
    int64_t height, width;
    const double *latitudes, *longitudes; /* [height], [width]; NULL: not known */
} vt_maps;

/* Removes the maps of an earlier evaluation. */
void vt_maps_clear(const char *directory);

/* Draws target, forecast and their difference, [height, width], into <directory>/map-<channel>-<lead>.png, if the lead
 * time (0 for the first) is one that the table shows: 024h, 030min or 001month. */
vt_status vt_maps_draw(const vt_maps *maps, int64_t lead, const float *target, const float *forecast);

#endif
