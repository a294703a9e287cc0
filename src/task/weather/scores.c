#include "task/weather/scores.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "storage/output_file.h"
#include "task/weather/channels.h"

/* Of one channel at one lead time: sums, and how many initial times are in each. */
enum { RMSE_SUMS = 0, ACC_SUMS = VT_SCORE_FORECASTS, COUNTS = 2 * VT_SCORE_FORECASTS, CELL = 2 * COUNTS };

struct vt_scores {
    vt_scores_options options;
    double *weights; /* [height] */
    double *sums;    /* initial times, then [leads, channels, CELL] */
};

void vt_scores_open(const vt_scores_options *options, vt_scores **result)
{
    vt_scores *scores = vt_allocate(1, sizeof *scores, "the scores");
    scores->options = *options;
    scores->weights = vt_allocate((size_t)options->height, sizeof *scores->weights, "the scores");
    scores->sums =
        vt_allocate((size_t)(1 + options->leads * options->channels * CELL), sizeof *scores->sums, "the scores");
    double sum = 0;
    for (int64_t y = 0; y < options->height; y++) sum += scores->weights[y] = cos(options->latitudes[y] * M_PI / 180);
    for (int64_t y = 0; y < options->height; y++) scores->weights[y] *= (double)options->height / sum;
    *result = scores;
}

void vt_scores_close(vt_scores **scores)
{
    if (*scores == NULL) return;
    free((*scores)->weights);
    free((*scores)->sums);
    free(*scores);
    *scores = NULL;
}

/* Fields [height, width] of one channel; mean may be NULL. */
typedef struct {
    const float *forecast, *target, *mean;
    bool is_model; /* a NaN in its forecast is not a missing point: it must show in the score */
} score_fields;

static bool is_there(const score_fields *f, int64_t i)
{
    return (f->is_model || !isnan(f->forecast[i])) && !isnan(f->target[i]) && (f->mean == NULL || !isnan(f->mean[i]));
}

/* Weighted mean over the grid's points that are in all of `f` of (a - b)(d - e), each one of its fields; NaN: none. */
static double mean_product(const vt_scores *scores, const score_fields *f, const float *a, const float *b,
                           const float *d, const float *e)
{
    const int64_t width = scores->options.width, height = scores->options.height;
    double total = 0, weights = 0;
    int64_t points = 0;
    for (int64_t y = 0; y < height; y++) {
        double row = 0;
        int64_t there = 0;
        for (int64_t i = y * width; i < (y + 1) * width; i++) {
            if (!is_there(f, i)) continue;
            row += ((double)a[i] - (double)b[i]) * ((double)d[i] - (double)e[i]);
            there++;
        }
        total += scores->weights[y] * row;
        weights += scores->weights[y] * (double)there;
        points += there;
    }
    return total / (points == width * height ? (double)points : weights);
}

/* NaN if all points are missing. */
static double root_mean_square(const vt_scores *scores, const score_fields *f)
{
    return sqrt(mean_product(scores, f, f->forecast, f->target, f->forecast, f->target));
}

static double correlation(const vt_scores *scores, const score_fields *f)
{
    double ff = mean_product(scores, f, f->forecast, f->mean, f->forecast, f->mean);
    double oo = mean_product(scores, f, f->target, f->mean, f->target, f->mean);
    return mean_product(scores, f, f->forecast, f->mean, f->target, f->mean) / sqrt(ff * oo);
}

static bool has_points(const vt_scores *scores, const score_fields *f)
{
    const int64_t points = scores->options.width * scores->options.height;
    for (int64_t i = 0; i < points; i++)
        if (is_there(f, i)) return true;
    return false;
}

static void add_score(double *cell, int place, double value)
{
    cell[place] += value;
    cell[COUNTS + place] += 1;
}

void vt_scores_add(vt_scores *scores, int64_t lead, const float *forecast, const float *target,
                   const float *persistence)
{
    const vt_scores_options *options = &scores->options;
    const int64_t plane = options->height * options->width;
    VT_ASSERT(lead >= 0 && lead < options->leads);
    if (lead == 0) scores->sums[0] += 1;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < options->channels; c++) {
        double *cell = scores->sums + 1 + (lead * options->channels + c) * CELL;
        const float *mean = options->climatology != NULL ? options->climatology + c * plane : NULL;
        const float *const forecasts[VT_SCORE_FORECASTS] = {forecast + c * plane,
                                                            persistence != NULL ? persistence + c * plane : NULL, mean};
        for (int which = 0; which < VT_SCORE_FORECASTS; which++) {
            score_fields f = {forecasts[which], target + c * plane, NULL, which == VT_SCORE_MODEL};
            const bool has_anomalies = f.forecast != NULL && mean != NULL && which != VT_SCORE_CLIMATOLOGY;
            if (f.forecast == NULL)
                add_score(cell, RMSE_SUMS + which, NAN);
            else if (has_points(scores, &f))
                add_score(cell, RMSE_SUMS + which, root_mean_square(scores, &f));
            f.mean = mean;
            if (!has_anomalies)
                add_score(cell, ACC_SUMS + which, NAN);
            else if (has_points(scores, &f))
                add_score(cell, ACC_SUMS + which, correlation(scores, &f));
        }
    }
}

double *vt_scores_sums(vt_scores *scores, int64_t *count)
{
    *count = 1 + scores->options.leads * scores->options.channels * CELL;
    return scores->sums;
}

int64_t vt_scores_samples(const vt_scores *scores)
{
    return (int64_t)scores->sums[0];
}

static double score(const vt_scores *scores, int64_t lead, int64_t channel, int place)
{
    const double *cell = scores->sums + 1 + (lead * scores->options.channels + channel) * CELL;
    return cell[place] / cell[COUNTS + place]; /* NaN if there is none */
}

double vt_scores_rmse(const vt_scores *scores, int64_t lead, int64_t channel, int which)
{
    return score(scores, lead, channel, RMSE_SUMS + which);
}

double vt_scores_acc(const vt_scores *scores, int64_t lead, int64_t channel, int which)
{
    return score(scores, lead, channel, ACC_SUMS + which);
}

const char *vt_scores_channel_name(const char *const *channel_names, int64_t channel, char buffer[32])
{
    if (channel_names != NULL && channel_names[channel][0] != '\0') return channel_names[channel];
    snprintf(buffer, 32, "channel %lld", (long long)channel);
    return buffer;
}

/* ",1.25"; only the comma if there is no score. */
static void print_number(FILE *file, double value)
{
    if (isnan(value))
        fprintf(file, ",");
    else
        fprintf(file, ",%.9g", value);
}

/* For CSV: in quotes if it holds a comma, a quote or the end of a line. */
static void print_text(FILE *file, const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted) fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    if (quoted) fputc('"', file);
}

static void print_row(FILE *file, const vt_scores *scores, int64_t lead, int64_t channel, const char *name,
                      const vt_variable *variable, int64_t hours)
{
    print_text(file, name);
    fputc(',', file);
    print_text(file, variable->units);
    fprintf(file, ",%lld,%lld", (long long)hours, (long long)vt_scores_samples(scores));
    for (int which = 0; which < VT_SCORE_FORECASTS; which++)
        print_number(file, vt_scores_rmse(scores, lead, channel, which));
    for (int which = 0; which < VT_SCORE_CLIMATOLOGY; which++)
        print_number(file, vt_scores_acc(scores, lead, channel, which));
    print_number(file, (double)scores->options.stds[channel]);
    fputc(',', file);
    print_text(file, variable->long_name);
    fputc('\n', file);
}

vt_status vt_scores_write(const vt_scores *scores, const char *path, const char *const *channel_names,
                          const vt_variable *variables, int64_t hours_a_step)
{
    vt_status status = VT_OK;
    char buffer[32];
    FILE *file = NULL;
    VT_TRY(vt_output_open(path, &file));
    fprintf(file, "channel,units,lead_hours,initial_times,rmse,rmse_persistence,rmse_climatology,acc,acc_persistence,"
                  "channel_std,long_name\n");
    for (int64_t c = 0; c < scores->options.channels; c++)
        for (int64_t lead = 0; lead < scores->options.leads; lead++)
            print_row(file, scores, lead, c, vt_scores_channel_name(channel_names, c, buffer), &variables[c],
                      (lead + 1) * hours_a_step);
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}
