#include "task/weather/scores.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fourier.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/output_file.h"
#include "task/weather/calendar.h"
#include "task/weather/channels.h"
#include "task/weather/ensemble.h"

double *vt_row_weights(const double *latitudes, int64_t rows)
{
    double sum = 0, *weights = vt_allocate((size_t)rows, sizeof *weights, "the scores");
    for (int64_t y = 0; y < rows; y++) sum += weights[y] = cos((latitudes != NULL ? latitudes[y] : 0) * M_PI / 180);
    for (int64_t y = 0; y < rows; y++) weights[y] = weights[y] * (double)rows / sum;
    return weights;
}

vt_scores *vt_scores_make(const vt_scores_options *options, int64_t cell)
{
    vt_scores *scores = vt_allocate(1, sizeof *scores, "the scores");
    scores->options = *options;
    scores->weights = vt_row_weights(options->latitudes, options->height);
    scores->cell = cell;
    scores->count = options->leads * options->channels * cell;
    scores->sums = vt_allocate((size_t)scores->count, sizeof *scores->sums, "the scores");
    return scores;
}

void vt_scores_open(const vt_scores_options *options, vt_scores **scores)
{
    *scores = vt_scores_make(options, VT_SCORE_CELL);
}

void vt_scores_close(vt_scores **scores)
{
    if (*scores == NULL) return;
    free((*scores)->weights);
    free((*scores)->sums);
    vt_fourier_close(&(*scores)->fourier);
    free(*scores);
    *scores = NULL;
}

double *vt_scores_cell(const vt_scores *scores, int64_t lead, int64_t channel)
{
    VT_ASSERT(lead >= 0 && lead < scores->options.leads);
    return scores->sums + (lead * scores->options.channels + channel) * scores->cell;
}

/* Fields [height, width] of one channel; mean, or what else must be there, may be NULL. */
typedef struct {
    const float *forecast, *target, *mean;
    bool is_model; /* a NaN in its forecast is not a missing point: it must show in the score */
} score_fields;

static bool is_there(const score_fields *f, int64_t i)
{
    return (f->is_model || !isnan(f->forecast[i])) && !isnan(f->target[i]) && (f->mean == NULL || !isnan(f->mean[i]));
}

double vt_normal_crps(double error, double std)
{
    if (std == 0) return fabs(error);
    const double z = error / std;
    return std * (z * erf(z * M_SQRT1_2) + M_2_SQRTPI * (M_SQRT1_2 * exp(-0.5 * z * z) - 0.5));
}

/* *mean: the weighted mean of (a - b)(d - e), where each is one of the fields of `f`. Without e: of the CRPS of normal
 * distributions as wide as d; without d: of a - b, or if `absolute` of |a - b|. Points that one of the fields lacks are
 * left out; false: none is left. */
static bool mean_product(const vt_scores *scores, const score_fields *f, const float *a, const float *b, const float *d,
                         const float *e, bool absolute, double *mean)
{
    const int64_t width = scores->options.width, height = scores->options.height;
    double total = 0, weights = 0;
    int64_t points = 0;
    for (int64_t y = 0; y < height; y++) {
        double row = 0;
        int64_t there = 0;
        for (int64_t i = y * width; i < (y + 1) * width; i++) {
            if (!is_there(f, i)) continue;
            const double error = (double)a[i] - (double)b[i];
            row += e != NULL   ? error * ((double)d[i] - (double)e[i])
                   : d != NULL ? vt_normal_crps(error, (double)d[i])
                   : absolute  ? fabs(error)
                               : error;
            there++;
        }
        total += scores->weights[y] * row;
        weights += scores->weights[y] * (double)there;
        points += there;
    }
    *mean = total / (points == width * height ? (double)points : weights);
    return points > 0;
}

static void add_score(double *cell, int place, double value)
{
    cell[place] += value;
    cell[VT_SCORE_MEANS + place] += 1;
}

static void add_errors(const vt_scores *scores, double *cell, const score_fields *f, int which)
{
    const float *forecast = f->forecast, *target = f->target;
    double square = NAN, bias, size;
    if (forecast != NULL && !mean_product(scores, f, forecast, target, forecast, target, false, &square)) return;
    add_score(cell, VT_SCORE_RMSE + which, sqrt(square));
    add_score(cell, VT_SCORE_SQUARE + which, square);
    if (which != VT_SCORE_MODEL) return;
    mean_product(scores, f, forecast, target, NULL, NULL, false, &bias);
    mean_product(scores, f, forecast, target, NULL, NULL, true, &size);
    add_score(cell, VT_SCORE_BIAS, bias);
    add_score(cell, VT_SCORE_MAE, size);
}

static void add_correlation(const vt_scores *scores, double *cell, const score_fields *f, int place)
{
    const float *forecast = f->forecast, *target = f->target, *mean = f->mean;
    double ff = 1, oo = 1, fo = NAN; /* of no climatology */
    if (forecast != NULL && mean != NULL) {
        if (!mean_product(scores, f, forecast, mean, forecast, mean, false, &ff)) return;
        mean_product(scores, f, target, mean, target, mean, false, &oo);
        mean_product(scores, f, forecast, mean, target, mean, false, &fo);
    }
    add_score(cell, place, fo / sqrt(ff * oo));
}

static const float *plane_of(const float *fields, int64_t first)
{
    return fields != NULL ? fields + first : NULL;
}

void vt_scores_add(vt_scores *scores, int64_t lead, const vt_score_fields *fields)
{
    const vt_scores_options *options = &scores->options;
    const int64_t plane = options->height * options->width;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < options->channels; c++) {
        double *cell = vt_scores_cell(scores, lead, c);
        const float *mean = plane_of(options->climatology, c * plane),
                    *seasonal = plane_of(fields->seasonal, c * plane);
        cell[VT_SCORE_TIMES] += 1;
        const float *const forecasts[VT_SCORE_FORECASTS] = {fields->forecast + c * plane,
                                                            plane_of(fields->persistence, c * plane), mean, seasonal};
        for (int which = 0; which < VT_SCORE_FORECASTS; which++) {
            score_fields f = {forecasts[which], fields->target + c * plane, NULL, which == VT_SCORE_MODEL};
            add_errors(scores, cell, &f, which);
            if (which >= VT_SCORE_CLIMATOLOGY) continue;
            f.mean = mean;
            add_correlation(scores, cell, &f, VT_SCORE_ACC + which);
            f.mean = seasonal;
            add_correlation(scores, cell, &f, VT_SCORE_SEASONAL_ACC + which);
        }
        const float *const centres[2] = {forecasts[VT_SCORE_MODEL], seasonal != NULL ? seasonal : mean};
        for (int k = 0; k < 2; k++) {
            const float *stds = plane_of(fields->stds[k], c * plane);
            const score_fields f = {centres[k], fields->target + c * plane, stds, k == 0};
            double crps;
            if (centres[k] != NULL && stds != NULL &&
                mean_product(scores, &f, centres[k], f.target, stds, NULL, false, &crps))
                add_score(cell, VT_SCORE_DRESSED + k, crps);
        }
    }
}

double vt_scores_mean(const vt_scores *scores, int64_t lead, int64_t channel, int which)
{
    const double *cell = vt_scores_cell(scores, lead, channel);
    return cell[which] / cell[VT_SCORE_MEANS + which]; /* NaN if there is none */
}

double vt_scores_pooled_rmse(const vt_scores *scores, int64_t lead, int64_t channel, int forecast)
{
    return sqrt(vt_scores_mean(scores, lead, channel, VT_SCORE_SQUARE + forecast));
}

double vt_scores_skill(const vt_scores *scores, int64_t lead, int64_t channel, int other)
{
    const double skill = 1 - vt_scores_mean(scores, lead, channel, VT_SCORE_SQUARE + VT_SCORE_MODEL) /
                                 vt_scores_mean(scores, lead, channel, VT_SCORE_SQUARE + other);
    return isfinite(skill) ? skill : (double)NAN; /* the other forecast is perfect */
}

double vt_scores_horizon(const vt_scores *scores, int64_t channel, int which, double a_step)
{
    double before = 1;
    for (int64_t lead = 0; lead < scores->options.leads; lead++) {
        const double acc = vt_scores_mean(scores, lead, channel, VT_SCORE_SEASONAL_ACC + which);
        if (isnan(acc)) return NAN;
        if (acc < VT_USEFUL_ACC) return a_step * ((double)lead + (before - VT_USEFUL_ACC) / (before - acc));
        before = acc;
    }
    return INFINITY;
}

const char *vt_scores_channel_name(const char *const *channel_names, int64_t channel, char buffer[32])
{
    if (channel_names != NULL && channel_names[channel][0] != '\0') return channel_names[channel];
    snprintf(buffer, 32, "channel %ld", channel);
    return buffer;
}

static void print_row(FILE *file, const vt_scores *scores, int64_t lead, int64_t channel)
{
    const vt_variable *variable = &scores->options.variables[channel];
    vt_csv_text(file, scores->options.names[channel]);
    fputc(',', file);
    vt_csv_text(file, variable->units);
    vt_csv_number(file, vt_length_hours((lead + 1) * scores->options.step));
    fprintf(file, ",%.0f", vt_scores_cell(scores, lead, channel)[VT_SCORE_TIMES]);
    for (int which = 0; which <= VT_SCORE_CLIMATOLOGY; which++)
        vt_csv_number(file, vt_scores_mean(scores, lead, channel, VT_SCORE_RMSE + which));
    for (int which = 0; which < VT_SCORE_CLIMATOLOGY; which++)
        vt_csv_number(file, vt_scores_mean(scores, lead, channel, VT_SCORE_ACC + which));
    vt_csv_number(file, (double)scores->options.stds[channel]);
    fputc(',', file);
    vt_csv_text(file, variable->long_name);
    vt_csv_number(file, vt_scores_mean(scores, lead, channel, VT_SCORE_RMSE + VT_SCORE_SEASONAL));
    for (int which = 0; which < VT_SCORE_CLIMATOLOGY; which++)
        vt_csv_number(file, vt_scores_mean(scores, lead, channel, VT_SCORE_SEASONAL_ACC + which));
    for (int which = 0; which < VT_SCORE_FORECASTS; which++)
        vt_csv_number(file, vt_scores_pooled_rmse(scores, lead, channel, which));
    vt_csv_number(file, vt_scores_skill(scores, lead, channel, VT_SCORE_SEASONAL));
    vt_csv_number(file, vt_scores_skill(scores, lead, channel, VT_SCORE_PERSISTENCE));
    for (int which = VT_SCORE_BIAS; which <= VT_SCORE_MAE; which++)
        vt_csv_number(file, vt_scores_mean(scores, lead, channel, which));
}

vt_status vt_scores_write(const vt_scores *scores, const vt_scores *ensemble, const char *path, bool dressed)
{
    vt_status status = VT_OK;
    const vt_lead_unit unit = vt_lead_unit_of(scores->options.step);
    FILE *file = NULL;
    VT_TRY(vt_output_open(path, &file));
    fprintf(file,
            "channel,units,lead_hours,initial_times,rmse,rmse_persistence,rmse_climatology,acc,acc_persistence,"
            "channel_std,long_name,rmse_seasonal,acc_seasonal,acc_seasonal_persistence,rmse_pooled,"
            "rmse_pooled_persistence,rmse_pooled_climatology,rmse_pooled_seasonal,skill,skill_over_persistence,"
            "bias,mae%s%s%s%s\n",
            ensemble != NULL ? vt_ensemble_columns : "", dressed ? ",crps_dressed,crps_climatology" : "",
            unit.column != NULL ? ",lead_" : "", unit.column != NULL ? unit.column : "");
    for (int64_t c = 0; c < scores->options.channels; c++)
        for (int64_t lead = 0; lead < scores->options.leads; lead++) {
            print_row(file, scores, lead, c);
            if (ensemble != NULL) vt_ensemble_print(file, ensemble, lead, c);
            for (int k = 0; k < 2 && dressed; k++)
                vt_csv_number(file, vt_scores_mean(scores, lead, c, VT_SCORE_DRESSED + k));
            if (unit.column != NULL) vt_csv_number(file, (double)(lead + 1) * unit.a_step);
            fputc('\n', file);
        }
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}

vt_status vt_scores_write_horizons(const vt_scores *scores, const char *path)
{
    vt_status status = VT_OK;
    const vt_lead_unit unit = vt_lead_unit_of(scores->options.step);
    const char *const units[] = {"hours", unit.column};
    const double a_step[] = {vt_length_hours(scores->options.step), unit.a_step};
    const int count = unit.column != NULL ? 2 : 1;
    FILE *file = NULL;
    VT_TRY(vt_output_open(path, &file));
    fputs("channel", file);
    for (int i = 0; i < count; i++)
        fprintf(file, ",skill_horizon_%s,skill_horizon_%s_persistence,last_lead_%s", units[i], units[i], units[i]);
    fputc('\n', file);
    for (int64_t c = 0; c < scores->options.channels; c++) {
        vt_csv_text(file, scores->options.names[c]);
        for (int i = 0; i < count; i++) {
            for (int which = 0; which < VT_SCORE_CLIMATOLOGY; which++)
                vt_csv_number(file, vt_scores_horizon(scores, c, which, a_step[i]));
            vt_csv_number(file, (double)scores->options.leads * a_step[i]);
        }
        fputc('\n', file);
    }
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}
