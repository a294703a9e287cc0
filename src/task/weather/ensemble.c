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

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* CRPS and variance of the members' forecasts at one point, of which the mean distance of all pairs follows when they
 * are sorted: |x_i - x_j| summed over i < j is the sum of (2 k - n + 1) x_k. members: [n], sorted here. */
static void score_point(double *members, int64_t n, double target, double *crps, double *variance)
{
    double distance = 0, pairs = 0, mean = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) mean += members[i] / (double)n;
    qsort(members, (size_t)n, sizeof *members, ascending);
    for (int64_t k = 0; k < n; k++) {
        const double departure = members[k] - mean;
        distance += fabs(members[k] - target);
        pairs += (double)(2 * k - n + 1) * departure;
        squares += departure * departure;
    }
    *crps = distance / (double)n - (n > 1 ? pairs / (double)(n * (n - 1)) : 0);
    *variance = n > 1 ? squares / (double)(n - 1) : (double)NAN;
}

static void add_channel(const vt_ensemble *ensemble, const float *const *forecasts, const float *target,
                        int64_t channel, double *cell)
{
    const vt_scores_options *options = &ensemble->options;
    const int64_t width = options->width, plane = options->height * width, n = options->members;
    double *members = vt_allocate((size_t)n, sizeof *members, "the scores"), weights = 0, sums[2] = {0, 0};
    for (int64_t i = 0; i < plane; i++) {
        const double weight = ensemble->weights[i / width], seen = (double)target[channel * plane + i];
        double crps, variance;
        if (isnan(seen)) continue;
        for (int64_t m = 0; m < n; m++) members[m] = (double)forecasts[m][channel * plane + i];
        score_point(members, n, seen, &crps, &variance);
        sums[CRPS] += weight * crps;
        sums[VARIANCE] += weight * variance;
        weights += weight;
    }
    free(members);
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
