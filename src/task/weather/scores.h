/* How good forecasts are, by channel and lead time, as WeatherBench scores them. Weights w(lat) ∝ cos(lat), mean 1 over
 * the grid; f the forecast, o what came, c a climatology: the mean over time at each point, or the seasonal one at the
 * time of o (seasonal.h); < > the weighted mean over the grid, and in the end the mean over all initial times of
 *   RMSE = sqrt(<(f - o)^2>)                             Rasp et al. 2020, "WeatherBench", doi:10.1029/2020MS002203
 *   ACC  = <(f - c)(o - c)> / sqrt(<(f - c)^2> <(o - c)^2>)   Rasp et al. 2024, "WeatherBench 2",
 *                                                             doi:10.1029/2023MS004019
 *   bias = <f - o>, MAE = <|f - o|>
 *   CRPS dressed = <sd (z (2 P(z) - 1) + 2 p(z) - 1 / sqrt(pi))>, z = (o - f) / sd: of normal distributions (P, p)
 *          around f or c, where sd is how large their errors are at each point (Gneiting et al. 2005,
 *          doi:10.1175/MWR2904.1)
 * and of the mean over all initial times of <(f - o)^2> the root, the pooled RMSE (WeatherBench 2's RMSE). The first is
 * also the validation's RMSE. Points that are missing (NaN) in one of a score's fields are left out of it, with their
 * weights; an initial time without any point is left out of the mean. */
#ifndef VT_TASK_WEATHER_SCORES_H
#define VT_TASK_WEATHER_SCORES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "task/weather/channels.h"

/* The weights of rows, [rows], malloc'd: w(lat), of latitudes in degrees; NULL: all rows count alike. */
double *vt_row_weights(const double *latitudes, int64_t rows);

/* What is scored: the model, the initial time's fields, the mean over time and the seasonal climatology as forecasts.
 */
enum { VT_SCORE_MODEL, VT_SCORE_PERSISTENCE, VT_SCORE_CLIMATOLOGY, VT_SCORE_SEASONAL, VT_SCORE_FORECASTS };

/* The means over initial times: for each of these, for the first two, or of the model alone; dressed: of the model and
 * of the climatology, the seasonal one where it is known. */
enum {
    VT_SCORE_RMSE,
    VT_SCORE_SQUARE = VT_SCORE_RMSE + VT_SCORE_FORECASTS,        /* of the RMSE */
    VT_SCORE_ACC = VT_SCORE_SQUARE + VT_SCORE_FORECASTS,         /* against the mean over time */
    VT_SCORE_SEASONAL_ACC = VT_SCORE_ACC + VT_SCORE_CLIMATOLOGY, /* against the seasonal climatology */
    VT_SCORE_BIAS = VT_SCORE_SEASONAL_ACC + VT_SCORE_CLIMATOLOGY,
    VT_SCORE_MAE,
    VT_SCORE_DRESSED,
    VT_SCORE_MEANS = VT_SCORE_DRESSED + 2,
    /* behind their sums: how many initial times are in each of these, and how many there are */
    VT_SCORE_TIMES = 2 * VT_SCORE_MEANS,
    VT_SCORE_CELL
};

/* Of the scores, those of an ensemble (ensemble.h), and the spectra (spectra.h). */
typedef struct {
    int64_t leads, channels, height, width;
    const double *latitudes;  /* degrees, [height] */
    const float *climatology; /* [channels, height, width], or NULL: its scores, and all ACC against it, are NAN */
    const float *stds;        /* [channels] */
    int64_t members;          /* of an ensemble */
    bool goes_round;          /* for the spectra: the rows go round the globe */
    /* for the files alone: the channels' names, what they stand for, [channels]; lead l is l + 1 times the length
     * `step` (calendar.h) */
    const char *const *names;
    const vt_variable *variables;
    int64_t step;
} vt_scores_options;

/* What is known of the forecasts: of each channel at each lead time a cell of sums. Where ranks share the initial
 * times, these are summed over them before anything is asked below. */
typedef struct {
    vt_scores_options options;
    double *weights;            /* of rows, [height] */
    struct vt_fourier *fourier; /* of spectra alone */
    int64_t cell, count;        /* numbers in a cell, and in all of them */
    double *sums;               /* [leads, channels, cell] */
} vt_scores;

/* Makes scores whose cells have `cell` numbers, all 0: for vt_scores_open, vt_ensemble_open and vt_spectra_open. */
vt_scores *vt_scores_make(const vt_scores_options *options, int64_t cell);
void vt_scores_open(const vt_scores_options *options, vt_scores **scores);
void vt_scores_close(vt_scores **scores);
/* The sums of a channel at a lead time, [cell]. */
double *vt_scores_cell(const vt_scores *scores, int64_t lead, int64_t channel);

/* Fields [channels, height, width] of an initial time and a lead. */
typedef struct {
    const float *forecast, *target;
    const float *persistence; /* the newest time of the input, or NULL where the input lacks a channel */
    const float *seasonal;    /* the seasonal climatology at the target's time, or NULL where it isn't known */
    const float *stds[2];     /* of the errors of forecast and climatology; NULL, or NaN at points: not known */
} vt_score_fields;

/* Adds one initial time at lead 0, 1, … */
void vt_scores_add(vt_scores *scores, int64_t lead, const vt_score_fields *fields);

/* Over the initial times; which: VT_SCORE_RMSE + VT_SCORE_PERSISTENCE, and so on. What can't be computed is NAN. */
double vt_scores_mean(const vt_scores *scores, int64_t lead, int64_t channel, int which);
double vt_scores_pooled_rmse(const vt_scores *scores, int64_t lead, int64_t channel, int forecast);

/* The CRPS of a normal distribution whose mean has this error. */
double vt_normal_crps(double error, double std);

/* 1 - RMSE^2 / RMSE^2 of the other forecast (VT_SCORE_…), both pooled: 1 is perfect, 0 as good as the other. */
double vt_scores_skill(const vt_scores *scores, int64_t lead, int64_t channel, int other);

/* The skill horizon in units of time of which a step has `a_step`: where ACC against the seasonal climatology falls
 * below VT_USEFUL_ACC for the first time, linearly between two leads, from 1 at 0 on. INFINITY: at none of the leads;
 * NAN: ACC isn't known. */
#define VT_USEFUL_ACC 0.6
double vt_scores_horizon(const vt_scores *scores, int64_t channel, int which, double a_step);

/* Writes a row for each channel and lead time: this in hours, and in the last column in its own unit where that is
 * neither hours nor days. ensemble: what the forecasts were the means of, or NULL; dressed: with the CRPS of dressed
 * forecasts. */
vt_status vt_scores_write(const vt_scores *scores, const vt_scores *ensemble, const char *path, bool dressed);

/* Writes a row for each channel: the skill horizons of the model and of persistence; likewise. */
vt_status vt_scores_write_horizons(const vt_scores *scores, const char *path);

/* "u10", or "channel 0" if there is no name. */
const char *vt_scores_channel_name(const char *const *channel_names, int64_t channel, char buffer[32]);

#endif
