#include "task/weather/ensemble.h"

#include <math.h>
#include <stdlib.h>

#include "backend/dropout.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "storage/output_file.h"
#include "task/weather/calendar.h"

/* Sums of one channel at one lead time, of blocks of one size; the last ones are the ranks, [members + 1]. */
enum { TIMES, CRPS, VARIANCE, SQUARES, RANKS };
enum { SCALES = 3 };
static const int64_t sides[SCALES] = {1, 8, 24}; /* of the blocks, in points */

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

void vt_ensemble_open(const vt_scores_options *options, vt_scores **ensemble)
{
    *ensemble = vt_scores_make(options, SCALES * (RANKS + options->members + 1));
}

/* The sums of blocks of one size, [RANKS + members + 1]. */
static double *sums_of(const vt_scores *ensemble, int64_t lead, int64_t channel, int scale)
{
    return vt_scores_cell(ensemble, lead, channel) + scale * (ensemble->cell / SCALES);
}

/* Adds the scores of the members' forecasts at one point. The mean distance of all pairs follows when they are sorted:
 * |x_i - x_j| summed over i < j is the sum of (2 k - n + 1) x_k. members: [n], sorted here. */
static void add_point(double *members, int64_t n, double target, double weight, double *sums)
{
    double distance = 0, pairs = 0, mean = 0, squares = 0;
    int64_t below = 0, equal = 0;
    for (int64_t i = 0; i < n; i++) mean += members[i] / (double)n;
    qsort(members, (size_t)n, sizeof *members, vt_by_value);
    for (int64_t k = 0; k < n; k++) {
        const double departure = members[k] - mean;
        distance += fabs(members[k] - target);
        pairs += (double)(2 * k - n + 1) * departure;
        squares += departure * departure;
        below += members[k] < target;
        equal += members[k] == target;
    }
    sums[TIMES] += weight;
    sums[CRPS] += weight * (distance / (double)n - (n > 1 ? pairs / (double)(n * (n - 1)) : 0));
    sums[VARIANCE] += weight * (n > 1 ? squares / (double)(n - 1) : (double)NAN);
    sums[SQUARES] += weight * (mean - target) * (mean - target);
    for (int64_t k = below; k <= below + equal; k++) sums[RANKS + k] += weight / (double)(equal + 1);
}

static double block_mean(const float *values, int64_t width, int64_t side)
{
    double sum = 0;
    for (int64_t y = 0; y < side; y++)
        for (int64_t x = 0; x < side; x++) sum += (double)values[y * width + x];
    return sum / (double)(side * side);
}

/* first: the channel's first point. */
static void add_blocks(const vt_scores *ensemble, const float *const *forecasts, const float *target, int64_t first,
                       int64_t side, double *means)
{
    const int64_t width = ensemble->options.width, n = ensemble->options.members, count = ensemble->cell / SCALES;
    double *sums = vt_allocate((size_t)(count + n), sizeof *sums, "the scores");
    for (int64_t y = 0; y + side <= ensemble->options.height; y += side) {
        double weight = 0, *members = sums + count;
        for (int64_t row = y; row < y + side; row++) weight += ensemble->weights[row] / (double)side;
        for (int64_t x = 0; x + side <= width; x += side) {
            const int64_t i = first + y * width + x;
            const double seen = block_mean(target + i, width, side);
            if (isnan(seen)) continue;
            for (int64_t m = 0; m < n; m++) members[m] = block_mean(forecasts[m] + i, width, side);
            add_point(members, n, seen, weight, sums);
        }
    }
    for (int64_t i = 0; i < count && sums[TIMES] > 0; i++) means[i] += sums[i] / sums[TIMES];
    free(sums);
}

void vt_ensemble_add(vt_scores *ensemble, int64_t lead, const float *const *forecasts, const float *target)
{
    const vt_scores_options *options = &ensemble->options;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < options->channels; c++)
        for (int scale = 0; scale < SCALES; scale++)
            add_blocks(ensemble, forecasts, target, c * options->height * options->width, sides[scale],
                       sums_of(ensemble, lead, c, scale));
}

static double mean_of(const vt_scores *ensemble, int64_t lead, int64_t channel, int scale, int64_t which)
{
    const double *sums = sums_of(ensemble, lead, channel, scale);
    return sums[which] / sums[TIMES]; /* NaN if there is none */
}

double vt_ensemble_crps(const vt_scores *ensemble, int64_t lead, int64_t channel, int scale)
{
    return mean_of(ensemble, lead, channel, scale, CRPS);
}

double vt_ensemble_spread(const vt_scores *ensemble, int64_t lead, int64_t channel)
{
    return sqrt(mean_of(ensemble, lead, channel, 0, VARIANCE));
}

double vt_ensemble_ratio(const vt_scores *ensemble, int64_t lead, int64_t channel, int scale)
{
    const double n = (double)ensemble->options.members;
    const double ratio = sqrt((n + 1) / n * mean_of(ensemble, lead, channel, scale, VARIANCE) /
                              mean_of(ensemble, lead, channel, scale, SQUARES));
    return isfinite(ratio) ? ratio : (double)NAN; /* the forecast is perfect */
}

double vt_ensemble_rank(const vt_scores *ensemble, int64_t lead, int64_t channel, int64_t rank)
{
    return mean_of(ensemble, lead, channel, 0, RANKS + rank);
}

/* ---- the files ---- */

const char vt_ensemble_columns[] =
    ",members,spread,spread_error_ratio,crps,spread_error_ratio_8,crps_8,spread_error_ratio_24,crps_24";

void vt_ensemble_print(FILE *file, const vt_scores *ensemble, int64_t lead, int64_t channel)
{
    fprintf(file, ",%ld", ensemble->options.members);
    vt_csv_number(file, vt_ensemble_spread(ensemble, lead, channel));
    for (int scale = 0; scale < SCALES; scale++) {
        vt_csv_number(file, vt_ensemble_ratio(ensemble, lead, channel, scale));
        vt_csv_number(file, vt_ensemble_crps(ensemble, lead, channel, scale));
    }
}

vt_status vt_ensemble_write_ranks(const vt_scores *ensemble, const char *path)
{
    vt_status status = VT_OK;
    const vt_lead_unit unit = vt_lead_unit_of(ensemble->options.step);
    const int64_t leads = ensemble->options.leads, ranks = ensemble->options.members + 1;
    FILE *file = NULL;
    VT_TRY(vt_output_open(path, &file));
    fprintf(file, "channel,lead_hours,rank,frequency,ratio%s%s\n", unit.column != NULL ? ",lead_" : "",
            unit.column != NULL ? unit.column : "");
    for (int64_t i = 0; i < ensemble->options.channels * leads * ranks; i++) {
        const int64_t channel = i / ranks / leads, lead = i / ranks % leads, rank = i % ranks;
        const double frequency = vt_ensemble_rank(ensemble, lead, channel, rank);
        vt_csv_text(file, ensemble->options.names[channel]);
        vt_csv_number(file, vt_length_hours((lead + 1) * ensemble->options.step));
        fprintf(file, ",%ld", rank);
        vt_csv_number(file, frequency);
        vt_csv_number(file, frequency * (double)ranks); /* 1: as often as in a flat histogram */
        if (unit.column != NULL) vt_csv_number(file, (double)(lead + 1) * unit.a_step);
        fputc('\n', file);
    }
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}
