#include "forecast/evaluation_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "forecast/forecaster.h"
#include "loss/loss.h"
#include "report/image.h"
#include "report/run_report.h"
#include "task/loss_weights.h"

/* See vt_evaluation_report. */
static bool is_shown(int64_t lead, int64_t leads, int64_t step)
{
    static const double days[] = {24, 72, 120, 240}, parts[] = {1, 3, 6, 12};
    const double hours = vt_length_hours((lead + 1) * step), each = vt_length_hours(step);
    bool shown = lead == 0 || lead == leads - 1 || each > 240;
    for (int i = 0; i < 4; i++) shown = shown || hours == days[i] || (each < 1 && hours == parts[i]);
    return shown;
}

enum { RMSE, PERSISTENCE, CLIMATOLOGY, SKILL, ACC, SPREAD, RATIO, CRPS, DRESSED, DRESSED_CLIMATOLOGY, VALUES };

static const struct {
    const char *name;
    int width;
    const char *format;
} values_of[VALUES] = {{"RMSE", 9, "%.4g"},          {"persistence", 11, "%.4g"}, {"climatology", 11, "%.4g"},
                       {"skill", 7, "%.3f"},         {"ACC", 6, "%.3f"},          {"spread", 9, "%.4g"},
                       {"spread/error", 12, "%.3f"}, {"CRPS", 8, "%.4g"},         {"dressed", 7, "%.4g"},
                       {"climatology", 11, "%.4g"}};

/* Columns of the table: of an ensemble its members' scores, instead of those of other forecasts; or the CRPS of dressed
 * forecasts, beside that of the ensemble (of a single forecast the MAE). */
enum { COLUMNS = 5 };
static const int tables[3][COLUMNS] = {{RMSE, PERSISTENCE, CLIMATOLOGY, SKILL, ACC},
                                       {RMSE, SKILL, SPREAD, RATIO, CRPS},
                                       {RMSE, RATIO, CRPS, DRESSED, DRESSED_CLIMATOLOGY}};

static void print_scores(const vt_evaluated *e, const int columns[COLUMNS], int64_t lead, int64_t channel)
{
    const vt_scores *scores = e->scores;
    const bool seasonal = e->climatology != NULL;
    const int climatology = seasonal ? VT_SCORE_SEASONAL : VT_SCORE_CLIMATOLOGY;
    const int acc = seasonal ? VT_SCORE_SEASONAL_ACC : VT_SCORE_ACC;
    double values[VALUES] = {[RMSE] = vt_scores_mean(scores, lead, channel, VT_SCORE_RMSE),
                             [PERSISTENCE] =
                                 vt_scores_mean(scores, lead, channel, VT_SCORE_RMSE + VT_SCORE_PERSISTENCE),
                             [CLIMATOLOGY] = vt_scores_mean(scores, lead, channel, VT_SCORE_RMSE + climatology),
                             [SKILL] = vt_scores_skill(scores, lead, channel, climatology),
                             [ACC] = vt_scores_mean(scores, lead, channel, acc),
                             [RATIO] = NAN,
                             [CRPS] = vt_scores_mean(scores, lead, channel, VT_SCORE_MAE),
                             [DRESSED] = vt_scores_mean(scores, lead, channel, VT_SCORE_DRESSED),
                             [DRESSED_CLIMATOLOGY] = vt_scores_mean(scores, lead, channel, VT_SCORE_DRESSED + 1)};
    if (e->ensemble != NULL) {
        values[SPREAD] = vt_ensemble_spread(e->ensemble, lead, channel);
        values[RATIO] = vt_ensemble_ratio(e->ensemble, lead, channel, 0);
        values[CRPS] = vt_ensemble_crps(e->ensemble, lead, channel, 0);
    }
    for (int i = 0; i < COLUMNS; i++) {
        char text[VT_NUMBER_SIZE] = "-";
        const double value = values[columns[i]];
        if (!isnan(value)) snprintf(text, sizeof text, values_of[columns[i]].format, value);
        vt_print(" %*s", values_of[columns[i]].width, text);
    }
    vt_print("\n");
}

/* "31 h" or, of steps of a day and more, "1.3 months"; horizon: in steps. */
static const char *horizon_text(const vt_evaluated *e, double horizon, char text[VT_DATE_SIZE])
{
    const double parts = vt_lead_unit_of(e->step).a_step * (vt_length_hours(e->step) < 24 ? 1 : 10);
    char last[VT_DATE_SIZE];
    if (!isinf(horizon)) return vt_lead_format(e->step, round(horizon * parts) / parts, text);
    snprintf(text, VT_DATE_SIZE, "over %.60s", vt_lead_format(e->step, (double)e->options->rollout, last));
    return text;
}

/* "u10 31 h (persistence 9 h)" for each channel. */
static void print_horizons(const vt_evaluated *e)
{
    char text[VT_DATE_SIZE];
    vt_text line = {0};
    for (int64_t c = 0; c < e->options->members.config->n_out_channels; c++) {
        const double horizon = vt_scores_horizon(e->scores, c, VT_SCORE_MODEL, 1);
        const double persistence = vt_scores_horizon(e->scores, c, VT_SCORE_PERSISTENCE, 1);
        vt_text_append(&line, "%s %s %s", c > 0 ? "," : "", e->names[c],
                       isnan(horizon) ? "-" : horizon_text(e, horizon, text));
        if (!isnan(persistence)) vt_text_append(&line, " (persistence %s)", horizon_text(e, persistence, text));
    }
    vt_print_wrapped("skill horizon, where ACC falls below %g:%s\n", VT_USEFUL_ACC, line.characters);
    vt_text_close(&line);
}

static void print_table(const vt_evaluated *e)
{
    enum { LONGEST_NAME = 10 };
    static const char place[] = "%-10s %-10s %*s";
    char text[VT_DATE_SIZE];
    const int64_t leads = e->options->rollout;
    const bool seasonal = e->climatology != NULL;
    const int width = (int)fmax(6, (double)strlen(vt_lead_format(e->step, (double)leads, text)));
    vt_print(place, "channel", "units", width, "lead");
    const int *columns = tables[e->errors.memory != NULL ? 2 : e->ensemble != NULL];
    for (int i = 0; i < COLUMNS; i++)
        vt_print(" %*s", values_of[columns[i]].width,
                 !seasonal && strcmp(values_of[columns[i]].name, "climatology") == 0 ? "mean field"
                                                                                     : values_of[columns[i]].name);
    vt_print("\n");
    for (int64_t c = 0; c < e->options->members.config->n_out_channels; c++) {
        const char *name = e->names[c];
        const bool is_long = strlen(name) > LONGEST_NAME;
        if (is_long) vt_print("%s\n", name);
        for (int64_t lead = 0; lead < leads; lead++) {
            if (!is_shown(lead, leads, e->step)) continue;
            vt_print(place, lead == 0 && !is_long ? name : "", lead == 0 ? e->variables[c].units : "", width,
                     vt_lead_format(e->step, (double)lead + 1, text));
            print_scores(e, columns, lead, c);
        }
    }
    if (seasonal) print_horizons(e);
}

/* ---- files ---- */

static vt_status write_files(const vt_evaluated *e)
{
    static const char *const files[] = {"loss.csv", "scores.csv", "horizons.csv", "spectra.csv", "rank_histogram.csv"};
    enum { FILES = sizeof files / sizeof files[0] };
    vt_status status = VT_OK;
    char *paths[FILES], *loss = vt_text_format("split,samples,loss\n%s,%ld,%.9g\n", e->options->test ? "test" : "valid",
                                               e->loss_count, e->loss);
    for (int i = 0; i < FILES; i++) paths[i] = vt_text_format("%s/%s", e->options->place.directory, files[i]);
    VT_TRY(vt_file_write(paths[0], loss, strlen(loss)));
    VT_TRY(vt_scores_write(e->scores, e->ensemble, paths[1], e->errors.memory != NULL));
    VT_TRY(vt_scores_write_horizons(e->scores, paths[2]));
    VT_TRY(vt_spectra_write(e->spectra, paths[3]));
    if (e->ensemble != NULL) VT_TRY(vt_ensemble_write_ranks(e->ensemble, paths[4]));
done:
    for (int i = 0; i < FILES; i++) free(paths[i]);
    free(loss);
    return status;
}

/* ---- all ---- */

vt_status vt_evaluation_report(const vt_evaluated *e)
{
    vt_status status = VT_OK;
    const vt_evaluation_options *options = e->options;
    const vt_members *members = &options->members;
    const vt_initial_times *from = &e->forecaster.from;
    const vt_config *config = members->config;
    char *title = NULL, *verdict = NULL, *loss = vt_config_value_text(config, "loss");
    char step[VT_DATE_SIZE], number[VT_NUMBER_SIZE];
    const vt_trained *model = members->models;
    char *ensemble = members->count > 0 ? vt_members_describe(members) : NULL;
    const char *set = options->test ? "test" : "validation", *weights = vt_dataset_assumed_weights(from->dataset);
    VT_TRY(write_files(e));
    vt_print_wrapped("%s (%s) on the %s set %s: %ld initial times, %ld step%s of %s%s\n", model->checkpoint,
                     model->how_far, set, from->dataset->options.directory, from->count, options->rollout,
                     options->rollout == 1 ? "" : "s", vt_length_format(e->step, step),
                     from->dataset->about->step == 0 ? " (assumed: the files don't say it, nor does time_step)" : "");
    if (ensemble != NULL) vt_print_wrapped("ensemble: %s; its mean is the forecast that is scored\n", ensemble);
    for (int64_t i = 1; i < members->model_count; i++) vt_print_wrapped("also of %s\n", model[i].checkpoint);
    if (weights != NULL) vt_print_wrapped("RMSE and ACC weigh %s\n", weights);
    if (e->climatology != NULL) vt_print_wrapped("climatology: %s\n", e->climatology->description);
    if (e->errors.memory != NULL)
        vt_print_wrapped("dressed: CRPS of %s with a normal distribution around it, as wide as its errors from %ld "
                         "initial times of the training set %s; in the last column likewise of the climatology\n",
                         ensemble != NULL ? "the mean" : "the forecast", e->errors.start_count,
                         config->train_data_path);
    vt_print_wrapped("loss: %s (%s%s over %ld samples, as training logs it%s)\n", vt_text_float((float)e->loss, number),
                     strcmp(loss, "relative_l2") == 0 ? "relative L2" : loss,
                     vt_loss_weights_are_set(config) ? ", weighted," : "", e->loss_count,
                     members->model_count > 1 ? "; mean of the checkpoints" : "");
    if (isinf(e->loss) && vt_loss_kind_of(config)->infinite != NULL)
        vt_print_wrapped("the loss is infinite because of a sample: %s\n", vt_loss_kind_of(config)->infinite);
    print_table(e);
    title = vt_text_format("%s (%s) on the %s set: %ld initial times%s%s", model->checkpoint, model->how_far, set,
                           from->count, ensemble != NULL ? ", ensemble of " : "", ensemble != NULL ? ensemble : "");
    VT_TRY(vt_scorecard_write(options->place.directory, title, &verdict));
    vt_print_wrapped("%s", verdict);
    vt_print_wrapped("all lead times: scores.csv; drawn: scores.html; maps of %s: map-*.png; in %s\n",
                     e->names[e->map_channel], options->place.directory);
done:
    free(ensemble);
    free(loss);
    free(title);
    free(verdict);
    return status;
}

/* ---- maps ---- */

void vt_maps_clear(const char *directory)
{
    static const char *const patterns[] = {"map-*-[0-9][0-9][0-9]*.png", "rank_histogram.csv", "error_stds.nc"};
    for (int k = 0; k < 3; k++) {
        vt_names old = vt_file_matching(directory, patterns[k]);
        for (int64_t i = 0; i < old.count; i++) unlink(old.names[i]);
        vt_names_close(&old);
    }
}

vt_status vt_maps_draw(const vt_evaluated *e, int64_t lead, const float *target, const float *forecast)
{
    vt_status status = VT_OK;
    const vt_dataset *dataset = e->forecaster.from.dataset;
    const int64_t *size = e->options->members.config->img_size, plane = e->forecaster.plane;
    const int64_t first = e->map_channel * plane;
    const int64_t start = e->forecaster.from.samples[0];
    const char *directory = e->options->place.directory, *channel = e->names[e->map_channel];
    const char *units = e->variables[e->map_channel].units;
    const vt_lead_unit unit = vt_lead_unit_of(e->step);
    vt_png png = {0};
    vt_date begin, end;
    char from[VT_DATE_SIZE], valid[VT_DATE_SIZE], ahead[VT_DATE_SIZE];
    if (!is_shown(lead, e->options->rollout, e->step)) return VT_OK;
    vt_lead_format(e->step, (double)lead + 1, ahead);
    char *path =
        vt_text_format("%s/map-%s-%03.9g%s.png", directory, channel,
                       unit.column != NULL ? (double)(lead + 1) * unit.a_step : vt_length_hours((lead + 1) * e->step),
                       unit.column != NULL ? unit.name : "h");
    for (char *c = path + strlen(directory) + 1; *c != '\0'; c++)
        if (*c == '/') *c = '_'; /* in the channel's name; it would begin a directory */
    vt_text title = {0};
    vt_text_append(&title, units[0] != '\0' ? "%s (%s), " : "%s, ", channel, units);
    if (vt_dataset_date(dataset, start, 0, &begin) && vt_dataset_date(dataset, start, lead + 1, &end))
        vt_text_append(&title, "%s UTC, forecast from %s UTC (%s)", vt_date_format(end, valid),
                       vt_date_format(begin, from), ahead);
    else
        vt_text_append(&title, "%s from the first time", ahead);
    vt_comparison comparison = {.title = title.characters,
                                .left = {"target", target + first},
                                .right = {"forecast", forecast + first},
                                .difference_title = "forecast - target",
                                .height = size[0],
                                .width = size[1],
                                .latitudes = vt_dataset_known_coordinate(dataset, false),
                                .longitudes = vt_dataset_known_coordinate(dataset, true),
                                .on_earth = vt_dataset_is_of_earth(dataset),
                                .is_signed = vt_variable_is_signed(channel, target + first, plane)};
    VT_TRY(vt_image_compare(&comparison, &png));
    VT_TRY(vt_file_write(path, png.bytes, png.size));
done:
    vt_text_close(&title);
    free(png.bytes);
    free(path);
    return status;
}
