/* Ensembles of forecasts: how their initial states are perturbed, and how good the ensemble is, by channel and lead
 * time. x_1 … x_N are the members' values at a point, m is their mean, o what came, < > the mean over the grid with
 * weights cos(lat), and in the end the mean over all initial times:
 *   CRPS   = <1/N sum_i |x_i - o| - 1/(2 N (N - 1)) sum_i sum_j |x_i - x_j|>, the fair estimate, whose expectation does
 *            not depend on N (Zamo, Naveau 2018, doi:10.1007/s11004-017-9709-7); of one member |x_1 - o|
 *   spread = sqrt(<1/(N - 1) sum_i (x_i - m)^2>), the root after the mean over initial times
 *   ratio  = sqrt((N + 1) / N) spread / RMSE of m: 1 if what comes is like one more member (Fortin et al. 2014,
 *            doi:10.1175/JHM-D-14-0008.1)
 *   ranks  = how often o is above 0, 1, … N of the members, and where it equals some of them, evenly the ranks among
 *            these: 1 / (N + 1) each if what comes is like one more member (Hamill 2001,
 *            doi:10.1175/1520-0493(2001)129<0550:IORHFV>2.0.CO;2)
 * CRPS and ratio are also those of means over blocks of points, counted from the first row and column on; blocks that
 * don't fit whole into the grid, or miss a target, are left out. Points where the target is missing (NaN) are left out,
 * with their weights. */
#ifndef VT_TASK_WEATHER_ENSEMBLE_H
#define VT_TASK_WEATHER_ENSEMBLE_H

#include <stdint.h>
#include <stdio.h>

#include "task/weather/scores.h"

/* How an initial state is perturbed: normal noise that depends on the seed, the member, the initial time, the channel
 * and the place alone. */
typedef struct {
    uint64_t seed;
    uint32_t member, start; /* `start` names the initial time */
    int64_t channels, height, width;
    int64_t period;    /* channel c of the state is channel c % period of the data */
    const float *stds; /* of the noise, [period] */
} vt_perturbation;

/* Adds the noise to state [channels, height, width]; what is missing (NaN) stays missing. */
void vt_ensemble_perturb(const vt_perturbation *how, float *state);

/* mean [count] of the members' numbers, fields [members][count]; summed in float64. */
void vt_ensemble_mean(int64_t members, const float *const *fields, int64_t count, float *mean);

/* Scores of an ensemble; closed by vt_scores_close. */
void vt_ensemble_open(const vt_scores_options *options, vt_scores **ensemble);

/* Adds one initial time at lead 0, 1, …: forecasts [members] and target, each [channels, height, width]. */
void vt_ensemble_add(vt_scores *ensemble, int64_t lead, const float *const *forecasts, const float *target);

/* Over the initial times, at scale 0, 1, 2: of points, of means over 8 x 8 and over 24 x 24 of them. NaN: not known, as
 * spread and ratio of one member. rank: 0, 1, … members. */
double vt_ensemble_crps(const vt_scores *ensemble, int64_t lead, int64_t channel, int scale);
double vt_ensemble_spread(const vt_scores *ensemble, int64_t lead, int64_t channel);
double vt_ensemble_ratio(const vt_scores *ensemble, int64_t lead, int64_t channel, int scale);
double vt_ensemble_rank(const vt_scores *ensemble, int64_t lead, int64_t channel, int64_t rank);

/* Writes a row for each channel, lead and rank; as vt_spectra_write does. */
vt_status vt_ensemble_write_ranks(const vt_scores *ensemble, const char *path);

/* The columns of a row of scores.csv, and their names; each begins with a comma. */
extern const char vt_ensemble_columns[];
void vt_ensemble_print(FILE *file, const vt_scores *ensemble, int64_t lead, int64_t channel);

#endif
