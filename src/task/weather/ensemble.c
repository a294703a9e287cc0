#include "task/weather/ensemble.h"

#include <math.h>
#include <stdlib.h>

#include "backend/dropout.h"
#include "base/csv.h"
#include "base/memory.h"
#include "base/status.h"
#include "storage/output_file.h"
#include "task/weather/calendar.h"

/* Sums of one channel at one lead time: for blocks of each size these, with the initial times in them; behind them the
 * ranks, [members + 1]. */
enum { CRPS, VARIANCE, SQUARES, TIMES, SUMS, SCALES = 3, RANKS = SCALES * SUMS };

static const int64_t sides[] = {1, 8, 24}; /* of the blocks of each scale */

struct vt_ensemble {
    vt_scores_options options;
    double *weights; /* [height] */
    int64_t cell;    /* RANKS + members + 1 */
    double *sums;    /* [leads, channels, cell] */
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
    ensemble->options = *options;
    ensemble->cell = RANKS + options->members + 1;
    ensemble->weights = vt_row_weights(options->latitudes, options->height);
    ensemble->sums = vt_allocate((size_t)(options->leads * options->channels * ensemble->cell), sizeof *ensemble->sums,
                                 "the scores");
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
 * are sorted: |x_i - x_j| summed over i < j is the sum of (2 k - n + 1) x_k. And the squared error of their mean.
 * members: [n], sorted here. */
static void score_point(double *members, int64_t n, double target, double point[TIMES])
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
    point[CRPS] = distance / (double)n - (n > 1 ? pairs / (double)(n * (n - 1)) : 0);
    point[VARIANCE] = n > 1 ? squares / (double)(n - 1) : (double)NAN;
    point[SQUARES] = (mean - target) * (mean - target);
}

/* Adds the weight to the target's rank among the members, which are sorted. */
static void add_rank(const double *members, int64_t n, double target, double weight, double *ranks)
{
    int64_t first = 0, last;
    while (first < n && members[first] < target) first++;
    for (last = first; last < n && members[last] <= target;) last++;
    for (int64_t rank = first; rank <= last; rank++) ranks[rank] += weight / (double)(last - first + 1);
}

static double block_mean(const float *values, int64_t width, int64_t side)
{
    double sum = 0;
    for (int64_t y = 0; y < side; y++)
        for (int64_t x = 0; x < side; x++) sum += (double)values[y * width + x];
    return sum / (double)(side * side);
}

/* The blocks of one scale; `first`: the channel's first point. */
static void add_blocks(const vt_ensemble *ensemble, const float *const *forecasts, const float *target, int64_t first,
                       int scale, double *cell)
{
    const vt_scores_options *options = &ensemble->options;
    const int64_t width = options->width, n = options->members, side = sides[scale];
    double *members = vt_allocate((size_t)(2 * n + 1), sizeof *members, "the scores"), *ranks = members + n;
    double weights = 0, sums[TIMES] = {0}, point[TIMES];
    for (int64_t y = 0; y + side <= options->height; y += side) {
        double weight = 0;
        for (int64_t row = y; row < y + side; row++) weight += ensemble->weights[row] / (double)side;
        for (int64_t x = 0; x + side <= width; x += side) {
            const int64_t i = first + y * width + x;
            const double seen = block_mean(target + i, width, side);
            if (isnan(seen)) continue;
            for (int64_t m = 0; m < n; m++) members[m] = block_mean(forecasts[m] + i, width, side);
            score_point(members, n, seen, point);
            for (int s = 0; s < TIMES; s++) sums[s] += weight * point[s];
            if (scale == 0) add_rank(members, n, seen, weight, ranks);
            weights += weight;
        }
    }
    for (int s = 0; s < TIMES && weights > 0; s++) cell[scale * SUMS + s] += sums[s] / weights;
    for (int64_t rank = 0; rank <= n && weights > 0; rank++) cell[RANKS + rank] += ranks[rank] / weights;
    cell[scale * SUMS + TIMES] += weights > 0;
    free(members);
}

void vt_ensemble_add(vt_ensemble *ensemble, int64_t lead, const float *const *forecasts, const float *target)
{
    const vt_scores_options *options = &ensemble->options;
    VT_ASSERT(lead >= 0 && lead < options->leads);
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < options->channels; c++)
        for (int scale = 0; scale < SCALES; scale++)
            add_blocks(ensemble, forecasts, target, c * options->height * options->width, scale,
                       ensemble->sums + (lead * options->channels + c) * ensemble->cell);
}

double *vt_ensemble_sums(vt_ensemble *ensemble, int64_t *count)
{
    *count = ensemble->options.leads * ensemble->options.channels * ensemble->cell;
    return ensemble->sums;
}

/* The mean of a sum; it is one of those of blocks of this scale, or a rank. */
static double mean_of(const vt_ensemble *ensemble, int64_t lead, int64_t channel, int scale, int64_t sum)
{
    const double *cell = ensemble->sums + (lead * ensemble->options.channels + channel) * ensemble->cell;
    return cell[scale * SUMS + sum] / cell[scale * SUMS + TIMES]; /* NaN if there is none */
}

double vt_ensemble_crps(const vt_ensemble *ensemble, int64_t lead, int64_t channel)
{
    return vt_ensemble_block_crps(ensemble, lead, channel, 0);
}

double vt_ensemble_spread(const vt_ensemble *ensemble, int64_t lead, int64_t channel)
{
    return sqrt(mean_of(ensemble, lead, channel, 0, VARIANCE));
}

static double ratio_of(const vt_ensemble *ensemble, double spread, double rmse)
{
    const double n = (double)ensemble->options.members;
    const double ratio = sqrt((n + 1) / n) * spread / rmse;
    return isfinite(ratio) ? ratio : (double)NAN; /* the forecast is perfect */
}

double vt_ensemble_ratio(const vt_ensemble *ensemble, int64_t lead, int64_t channel, double rmse)
{
    return ratio_of(ensemble, vt_ensemble_spread(ensemble, lead, channel), rmse);
}

double vt_ensemble_block_crps(const vt_ensemble *ensemble, int64_t lead, int64_t channel, int scale)
{
    return mean_of(ensemble, lead, channel, scale, CRPS);
}

double vt_ensemble_block_ratio(const vt_ensemble *ensemble, int64_t lead, int64_t channel, int scale)
{
    return ratio_of(ensemble, sqrt(mean_of(ensemble, lead, channel, scale, VARIANCE)),
                    sqrt(mean_of(ensemble, lead, channel, scale, SQUARES)));
}

double vt_ensemble_rank(const vt_ensemble *ensemble, int64_t lead, int64_t channel, int64_t rank)
{
    return mean_of(ensemble, lead, channel, 0, RANKS + rank);
}

/* ---- the files ---- */

const char vt_ensemble_columns[] =
    ",members,spread,spread_error_ratio,crps,spread_error_ratio_8,crps_8,spread_error_ratio_24,crps_24";

void vt_ensemble_print(FILE *file, const vt_ensemble *ensemble, int64_t lead, int64_t channel, double rmse)
{
    fprintf(file, ",%lld", (long long)ensemble->options.members);
    vt_csv_number(file, vt_ensemble_spread(ensemble, lead, channel));
    vt_csv_number(file, vt_ensemble_ratio(ensemble, lead, channel, rmse));
    vt_csv_number(file, vt_ensemble_crps(ensemble, lead, channel));
    for (int scale = 1; scale < SCALES; scale++) {
        vt_csv_number(file, vt_ensemble_block_ratio(ensemble, lead, channel, scale));
        vt_csv_number(file, vt_ensemble_block_crps(ensemble, lead, channel, scale));
    }
}

vt_status vt_ensemble_write_ranks(const vt_ensemble *ensemble, const char *path, const char *const *channel_names,
                                  int64_t step)
{
    vt_status status = VT_OK;
    const vt_lead_unit unit = vt_lead_unit_of(step);
    const int64_t leads = ensemble->options.leads, ranks = ensemble->options.members + 1;
    char buffer[32];
    FILE *file = NULL;
    VT_TRY(vt_output_open(path, &file));
    fprintf(file, "channel,lead_hours,rank,frequency,ratio%s%s\n", unit.column != NULL ? ",lead_" : "",
            unit.column != NULL ? unit.column : "");
    for (int64_t i = 0; i < ensemble->options.channels * leads * ranks; i++) {
        const int64_t channel = i / ranks / leads, lead = i / ranks % leads, rank = i % ranks;
        const double frequency = vt_ensemble_rank(ensemble, lead, channel, rank);
        vt_csv_text(file, vt_scores_channel_name(channel_names, channel, buffer));
        vt_csv_number(file, vt_length_hours((lead + 1) * step));
        fprintf(file, ",%lld", (long long)rank);
        vt_csv_number(file, frequency);
        vt_csv_number(file, frequency * (double)ranks); /* 1: as often as in a flat histogram */
        if (unit.column != NULL) vt_csv_number(file, (double)(lead + 1) * unit.a_step);
        fputc('\n', file);
    }
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}
