#include "task/weather/ensemble.h"

#include <math.h>
#include <stdlib.h>

#include "backend/dropout.h"
#include "base/csv.h"
#include "base/memory.h"
#include "base/status.h"

/* Sums of one channel at one lead time, and the initial times in them. */
enum { CRPS, VARIANCE, TIMES, CELL };

struct vt_ensemble {
    vt_scores_options options;
    double *weights; /* [height] */
    double *sums;    /* [leads, channels, CELL] */
};

/* ---- the members ---- */

void vt_ensemble_perturb(const vt_perturbation *how, float *state)
{
    const vt_disturbance stream = {.seed = how->seed};
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t c = 0; c < how->channels; c++)
        for (int64_t y = 0; y < how->height; y++) {
            float *row = state + (c * how->height + y) * how->width, normals[4];
            for (int64_t x = 0; x < how->width; x++) {
                if (x % 4 == 0)
                    vt_disturbed_noise(&stream, &how->member, how->start, (uint32_t)c, (uint32_t)y, (uint32_t)(x / 4),
                                       normals);
                row[x] = (float)((double)row[x] + (double)how->stds[c % how->period] * (double)normals[x % 4]);
            }
        }
}

void vt_ensemble_mean(int64_t members, const float *const *fields, int64_t count, float *mean)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t m = 0; m < members; m++) sum += (double)fields[m][i];
        mean[i] = (float)(sum / (double)members);
    }
}

/* ---- the scores ---- */

void vt_ensemble_open(const vt_scores_options *options, vt_ensemble **result)
{
    vt_ensemble *ensemble = vt_allocate(1, sizeof *ensemble, "the scores");
    const size_t cells = (size_t)(options->leads * options->channels);
    ensemble->options = *options;
    ensemble->weights = vt_row_weights(options->latitudes, options->height);
    ensemble->sums = vt_allocate(cells * CELL, sizeof *ensemble->sums, "the scores");
    *result = ensemble;
}

void vt_ensemble_close(vt_ensemble **ensemble)
{
    if (*ensemble == NULL) return;
    free((*ensemble)->weights);
    free((*ensemble)->sums);
    free(*ensemble);
    *ensemble = NULL;
}

/* Adds |a - b| at each point of a row. */
static void add_distances(const float *a, const float *b, int64_t width, double *sums)
{
#pragma omp simd
    for (int64_t x = 0; x < width; x++) sums[x] += fabs((double)a[x] - (double)b[x]);
}

/* CRPS and variance at each point of row y of a channel; errors, pairs: [width], of this thread. */
static void score_row(const vt_scores_options *options, const float *const *forecasts, const float *target,
                      int64_t first, double *crps, double *variance, double *pairs)
{
    const int64_t width = options->width, members = options->members;
    const double n = (double)members, distinct = members > 1 ? n * (n - 1) : 1;
    for (int64_t x = 0; x < width; x++) crps[x] = variance[x] = pairs[x] = 0;
    for (int64_t i = 0; i < members; i++) {
        add_distances(forecasts[i] + first, target, width, crps);
        for (int64_t j = 0; j < i; j++) add_distances(forecasts[i] + first, forecasts[j] + first, width, pairs);
    }
    for (int64_t x = 0; x < width; x++) { /* each pair was counted once, not twice */
        double mean = 0, squares = 0;
        crps[x] = crps[x] / n - pairs[x] / distinct;
        for (int64_t i = 0; i < members; i++) mean += (double)forecasts[i][first + x] / n;
        for (int64_t i = 0; i < members; i++) squares += pow((double)forecasts[i][first + x] - mean, 2);
        variance[x] = members > 1 ? squares / (n - 1) : (double)NAN;
    }
}

static void add_channel(const vt_ensemble *ensemble, const float *const *forecasts, const float *target,
                        int64_t channel, double *cell)
{
    const vt_scores_options *options = &ensemble->options;
    const int64_t width = options->width, first = channel * options->height * width;
    double *room = vt_allocate((size_t)(3 * width), sizeof *room, "the scores"), *crps = room, *variance = crps + width,
           weights = 0, sums[2] = {0, 0};
    for (int64_t y = 0; y < options->height; y++) {
        const float *row = target + first + y * width;
        score_row(options, forecasts, row, first + y * width, crps, variance, variance + width);
        for (int64_t x = 0; x < width; x++) {
            if (isnan(row[x])) continue;
            sums[CRPS] += ensemble->weights[y] * crps[x];
            sums[VARIANCE] += ensemble->weights[y] * variance[x];
            weights += ensemble->weights[y];
        }
    }
    free(room);
    if (weights == 0) return;
    cell[CRPS] += sums[CRPS] / weights;
    cell[VARIANCE] += sums[VARIANCE] / weights;
    cell[TIMES] += 1;
}

void vt_ensemble_add(vt_ensemble *ensemble, int64_t lead, const float *const *forecasts, const float *target)
{
    const vt_scores_options *options = &ensemble->options;
    VT_ASSERT(lead >= 0 && lead < options->leads);
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < options->channels; c++)
        add_channel(ensemble, forecasts, target, c, ensemble->sums + (lead * options->channels + c) * CELL);
}

double *vt_ensemble_sums(vt_ensemble *ensemble, int64_t *count)
{
    *count = ensemble->options.leads * ensemble->options.channels * CELL;
    return ensemble->sums;
}

static double mean_of(const vt_ensemble *ensemble, int64_t lead, int64_t channel, int sum)
{
    const double *cell = ensemble->sums + (lead * ensemble->options.channels + channel) * CELL;
    return cell[sum] / cell[TIMES]; /* NaN if there is none */
}

double vt_ensemble_crps(const vt_ensemble *ensemble, int64_t lead, int64_t channel)
{
    return mean_of(ensemble, lead, channel, CRPS);
}

double vt_ensemble_spread(const vt_ensemble *ensemble, int64_t lead, int64_t channel)
{
    return sqrt(mean_of(ensemble, lead, channel, VARIANCE));
}

double vt_ensemble_ratio(const vt_ensemble *ensemble, int64_t lead, int64_t channel, double rmse)
{
    const double n = (double)ensemble->options.members;
    const double ratio = sqrt((n + 1) / n) * vt_ensemble_spread(ensemble, lead, channel) / rmse;
    return isfinite(ratio) ? ratio : (double)NAN; /* the forecast is perfect */
}

const char vt_ensemble_columns[] = ",members,spread,spread_error_ratio,crps";

void vt_ensemble_print(FILE *file, const vt_ensemble *ensemble, int64_t lead, int64_t channel, double rmse)
{
    fprintf(file, ",%lld", (long long)ensemble->options.members);
    vt_csv_number(file, vt_ensemble_spread(ensemble, lead, channel));
    vt_csv_number(file, vt_ensemble_ratio(ensemble, lead, channel, rmse));
    vt_csv_number(file, vt_ensemble_crps(ensemble, lead, channel));
}
