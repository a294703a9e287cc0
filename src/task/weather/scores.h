/* How good forecasts are, by channel and lead time, as WeatherBench scores them. Weights w(lat) ∝ cos(lat), mean 1 over
 * the grid; f the forecast, o what came, c the climatology (mean over time at each point), < > the weighted mean over
 * the grid, and in the end the mean over all initial times of
 *   RMSE = sqrt(<(f - o)^2>)                             Rasp et al. 2020, "WeatherBench", doi:10.1029/2020MS002203
 *   ACC  = <(f - c)(o - c)> / sqrt(<(f - c)^2> <(o - c)^2>)   Rasp et al. 2024, "WeatherBench 2",
 *                                                             doi:10.1029/2023MS004019
 * The first is also the validation's RMSE. Points that are missing (NaN) in one of a score's fields are left out of it,
 * with their weights; an initial time without any point is left out of the mean. */
#ifndef VT_TASK_WEATHER_SCORES_H
#define VT_TASK_WEATHER_SCORES_H

#include <stdint.h>

#include "base/status.h"
#include "task/weather/channels.h"

enum { VT_SCORE_MODEL, VT_SCORE_PERSISTENCE, VT_SCORE_CLIMATOLOGY, VT_SCORE_FORECASTS };

typedef struct {
    int64_t leads, channels, height, width;
    const double *latitudes;  /* degrees, [height] */
    const float *climatology; /* [channels, height, width], or NULL: its scores, and all ACC, are NAN */
    const float *stds;        /* [channels] */
} vt_scores_options;

typedef struct vt_scores vt_scores;

void vt_scores_open(const vt_scores_options *options, vt_scores **scores);
void vt_scores_close(vt_scores **scores);

/* Adds one initial time at lead 0, 1, …: fields [channels, height, width]. persistence is the newest time of the input,
 * or NULL where the input lacks a channel. */
void vt_scores_add(vt_scores *scores, int64_t lead, const float *forecast, const float *target,
                   const float *persistence);

/* The sums, [*count], for ranks that share the initial times: summed over them before anything is asked below. */
double *vt_scores_sums(vt_scores *scores, int64_t *count);

/* Means over the initial times; which: VT_SCORE_… . ACC of the climatology is NAN. */
int64_t vt_scores_samples(const vt_scores *scores);
double vt_scores_rmse(const vt_scores *scores, int64_t lead, int64_t channel, int which);
double vt_scores_acc(const vt_scores *scores, int64_t lead, int64_t channel, int which);

/* Writes a row for each channel and lead time. channel_names [channels] may be NULL; variables [channels]: what they
 * stand for; lead l is (l + 1) * hours_a_step hours. */
vt_status vt_scores_write(const vt_scores *scores, const char *path, const char *const *channel_names,
                          const vt_variable *variables, int64_t hours_a_step);

/* "u10", or "channel 0" if there is no name. */
const char *vt_scores_channel_name(const char *const *channel_names, int64_t channel, char buffer[32]);

#endif
