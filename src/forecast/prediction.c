#include "forecast/prediction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "forecast/forecast_file.h"
#include "forecast/states.h"
#include "source/fields/dataset.h"
#include "task/weather/calendar.h"

typedef struct {
    const vt_prediction_options *options;
    vt_world *world;
    vt_dataset_options data;
    vt_dataset *dataset;
    int64_t start;          /* the initial time: a sample */
    vt_fields_about *about; /* of the data at that time alone */
    vt_date *dates;         /* [1 + steps]: that time and those of the forecasts */
    double *longitudes;     /* of the window, increasing; NULL: the files have none */
    vt_forecaster *forecaster;
    vt_states states;
    vt_forecast_file *result;
} prediction;

/* ---- the initial time ---- */

/* The inputs alone matter: a forecast may begin at the last time of the files. */
static vt_status open_dataset(prediction *p)
{
    vt_status status = VT_OK;
    p->data = vt_fields_options(p->options->config, p->options->set);
    p->data.reach = VT_REACH_INPUT;
    p->data.quiet = true;
    VT_TRY(vt_forecaster_open_data(p->options->config, p->options->checkpoint, &p->data, &p->dataset));
    VT_TRY(vt_dataset_check_dates(p->dataset, "--time"));
    vt_dataset_log_coordinates(p->dataset);
done:
    return status;
}

/* Takes the sample that begins at the initial time, with steps of months in that month. Where none does, the error says
 * which are nearest. */
static vt_status find_start(prediction *p)
{
    vt_status status = VT_OK;
    const vt_dataset_options *set = vt_dataset_options_of(p->dataset);
    const vt_calendar calendar = vt_dataset_about(p->dataset)->calendar;
    const int64_t samples = vt_dataset_source(p->dataset)->sample_count, step = vt_dataset_minutes_a_time(p->dataset);
    const char *text = p->options->time;
    const long long earlier = (long long)(set->history * set->dt);
    char before[VT_DATE_SIZE], after[VT_DATE_SIZE];
    vt_date wanted, date, nearest[2] = {{.minutes = INT64_MIN}, {.minutes = INT64_MAX}};
    VT_CHECK(vt_date_parse(text, calendar, &wanted), "--time=%s: expected a date like 2003-01-05T06:00 (UTC)%s%s", text,
             calendar > VT_CALENDAR_PROLEPTIC ? ", in the calendar " : "",
             calendar > VT_CALENDAR_PROLEPTIC ? vt_calendar_name(calendar) : "");
    for (p->start = 0; p->start < samples; p->start++) {
        vt_dataset_date(p->dataset, p->start, 0, &date);
        if (vt_date_steps(date, wanted, step) == 0) return VT_OK;
        if (date.minutes < wanted.minutes && date.minutes > nearest[0].minutes) nearest[0] = date;
        if (date.minutes > wanted.minutes && date.minutes < nearest[1].minutes) nearest[1] = date;
    }
    const bool first = nearest[0].minutes == INT64_MIN, last = nearest[1].minutes == INT64_MAX;
    if (!first) vt_date_format(nearest[0], before);
    if (!last) vt_date_format(nearest[1], after);
    VT_CHECK(first || last,
             "--time=%s: forecasts from %s '%s' can begin at %s and at %s, but not between (the model needs %lld "
             "earlier times; --split chooses another set)",
             text, set->option_name, set->directory, before, after, earlier);
    VT_FAIL("--time=%s: forecasts from %s '%s' can begin no %s than %s (the model needs %lld earlier times; --split "
            "chooses another set)",
            text, set->option_name, set->directory, first ? "earlier" : "later", first ? after : before, earlier);
done:
    return status;
}

/* Longitudes increase from the window's first column on, across 360, too. */
static void take_longitudes(prediction *p)
{
    const int64_t width = p->options->config->img_size[1];
    const double *longitudes = vt_dataset_known_coordinate(p->dataset, true);
    if (longitudes == NULL) return;
    p->longitudes = vt_allocate((size_t)width, sizeof *p->longitudes, "the forecast");
    memcpy(p->longitudes, longitudes, (size_t)width * sizeof *longitudes);
    if (vt_dataset_known_grid(p->dataset).window.first_column == 0) return;
    for (int64_t x = 1; x < width; x++)
        while (p->longitudes[x] < p->longitudes[x - 1]) p->longitudes[x] += 360;
    while (p->longitudes[width - 1] > 360 && p->longitudes[0] >= 0)
        for (int64_t x = 0; x < width; x++) p->longitudes[x] -= 360;
}

static vt_status find_initial_time(prediction *p)
{
    vt_status status = VT_OK;
    VT_TRY(open_dataset(p));
    VT_TRY(find_start(p));
    p->dates = vt_allocate((size_t)p->options->steps + 1, sizeof *p->dates, "the forecast");
    for (int64_t i = 0; i <= p->options->steps; i++) p->dates[i] = vt_states_date(p->dataset, p->start, i);
    take_longitudes(p);
    p->about = vt_fields_about_copy(vt_dataset_about(p->dataset));
    p->about->dt = p->about->span_count = 0;
    p->about->times = 1;
    vt_fields_about_add_span(p->about, p->dates[0], p->dates[0]);
done:
    return status;
}

/* ---- the forecast ---- */

static void log_missing_coordinates(const prediction *p, const char *path)
{
    static const char *const names[] = {"latitudes", "longitudes"};
    for (int k = 0; k < 2; k++)
        if (vt_dataset_known_coordinate(p->dataset, k == 1) == NULL)
            vt_log_info(
                "%s: no %s are known, so the forecast only numbers its %s; --coordinates=[%s=NAME] would name them",
                path, names[k], k == 0 ? "rows" : "columns", k == 0 ? "lat" : "lon");
}

static vt_status open_result(prediction *p)
{
    vt_status status = VT_OK;
    const vt_prediction_options *options = p->options;
    const vt_config *config = options->config;
    vt_fields_file *start = NULL;
    int64_t trained_steps = 0;
    uint32_t checksum = 0;
    char *index = vt_text_format("%s/checkpoint.h5", options->checkpoint);
    char *trained = NULL, *source = NULL, *identity = NULL, *history = NULL, now[VT_NOW_SIZE];
    char *about = vt_fields_about_short_text(p->about);
    VT_TRY(vt_dataset_open_file(p->dataset, p->start, &start));
    VT_TRY(vt_forecaster_describe(options->checkpoint, (vt_weights)config->weights, &trained, &trained_steps));
    VT_TRY(vt_file_checksum(index, &checksum));
    identity = vt_text_format("step %lld, crc32c %08x", (long long)trained_steps, (unsigned)checksum);
    source = vt_text_format("vitrain, vision transformer %s (%s)", config->config, trained);
    history = vt_text_format("%s: %s", vt_fields_about_now(now), options->command);
    vt_forecast_file_options file = {.times = options->steps,
                                     .members = options->members.count,
                                     .height = config->img_size[0],
                                     .width = config->img_size[1],
                                     .channels = config->n_out_channels,
                                     .latitudes = vt_dataset_known_coordinate(p->dataset, false),
                                     .longitudes = p->longitudes,
                                     .rotated = p->about->rotated,
                                     .channel_names = vt_dataset_channel_names(p->dataset),
                                     .meanings = vt_dataset_about(p->dataset)->meanings,
                                     .dates = p->dates,
                                     .time_axis =
                                         start->times.count > 0 && !start->times.by_name ? &start->times : NULL,
                                     .title = "Weather forecast by a vision transformer",
                                     .source = source,
                                     .history = history,
                                     .checkpoint = identity,
                                     .about = about,
                                     .masked = config->missing == VT_GAPS_MASK};
    log_missing_coordinates(p, start->path);
    VT_TRY(vt_forecast_file_open(options->output, &file, &p->result));
done:
    free(trained);
    free(source);
    free(identity);
    free(history);
    free(index);
    free(about);
    return status;
}

static vt_status open_states(prediction *p)
{
    vt_status status = VT_OK;
    char *directory = vt_file_directory(p->options->output);
    VT_TRY(
        vt_states_open(&p->options->members, p->forecaster, p->options->config, p->dataset, 1, directory, &p->states));
    p->states.planned = p->options->steps * p->states.number;
    VT_TRY(vt_states_begin(&p->states, &p->start, 1));
done:
    free(directory);
    return status;
}

/* Points that are missing in the newest time of the input, such as land in data of the ocean, get no forecast. */
static void leave_out_missing(prediction *p)
{
    const vt_config *config = p->options->config;
    const int64_t plane = config->img_size[0] * config->img_size[1];
    const int64_t now = vt_config_channels_a_time(config) * plane, out = config->n_out_channels * plane;
    for (int64_t m = 0; m < p->states.number; m++) {
        const float *input = p->states.input + m * config->n_in_channels * plane;
        for (int64_t i = 0; i < now && i < out; i++)
            if (isnan(input[i])) p->states.forecast[m * out + i] = NAN;
    }
}

/* All forecasts for one lead time. */
static vt_status write_step(prediction *p, int64_t step)
{
    vt_status status = VT_OK;
    const vt_config *config = p->options->config;
    const int64_t sample = config->n_out_channels * config->img_size[0] * config->img_size[1];
    for (int64_t m = 0; m < p->states.number; m++)
        VT_TRY(vt_forecast_file_write(p->result, m, step, p->states.forecast + m * sample));
    if (p->options->members.count > 0)
        VT_TRY(vt_forecast_file_write(p->result, VT_FORECAST_MEAN, step, vt_states_forecast(&p->states, 0)));
done:
    return status;
}

static vt_status forecast(prediction *p)
{
    vt_status status = VT_OK;
    for (int64_t step = 0; step < p->options->steps; step++) {
        VT_TRY(vt_states_step(&p->states));
        leave_out_missing(p);
        VT_TRY(vt_world_agree(p->world, p->result != NULL ? write_step(p, step) : VT_OK));
    }
done:
    return status;
}

static vt_status run(prediction *p)
{
    vt_status status = VT_OK;
    const vt_prediction_options *options = p->options;
    const bool writes = vt_world_rank(p->world) == 0;
    char first[VT_DATE_SIZE], last[VT_DATE_SIZE], *members = NULL;
    VT_TRY(vt_world_agree(p->world, find_initial_time(p)));
    VT_TRY(vt_forecaster_open(options->config, options->checkpoint, p->world, p->dataset, p->about, &p->forecaster));
    VT_TRY(vt_members_read(&options->members, p->forecaster));
    VT_TRY(vt_world_agree(p->world, open_states(p)));
    VT_TRY(vt_world_agree(p->world, writes ? open_result(p) : VT_OK));
    VT_TRY(forecast(p));
    VT_TRY(vt_world_agree(p->world, writes ? vt_forecast_file_finish(&p->result) : VT_OK));
    if (!writes) return VT_OK;
    vt_date_format(p->dates[1], first);
    vt_date_format(p->dates[options->steps], last);
    const int64_t channels = options->config->n_out_channels;
    members = options->members.count > 0 ? vt_members_describe(&options->members, options->config) : NULL;
    vt_print("%s: %lld forecast%s of %s, %s to %s UTC, %lld channel%s%s%s\n", options->output,
             (long long)options->steps, options->steps == 1 ? "" : "s", options->checkpoint, first, last,
             (long long)channels, channels == 1 ? "" : "s", members != NULL ? "; " : "",
             members != NULL ? members : "");
done:
    free(members);
    return status;
}

vt_status vt_predict(const vt_prediction_options *options, const vt_launch *launch)
{
    vt_status status = VT_OK;
    prediction p = {.options = options};
    VT_TRY(vt_world_open(options->config, launch, &p.world));
    if (vt_world_rank(p.world) != 0) vt_log_mute();
    status = run(&p);
done:
    if (p.world != NULL && !vt_world_speaks(p.world)) vt_error_clear(); /* another rank reports it */
    vt_forecast_file_close(&p.result);
    vt_states_close(&p.states);
    vt_forecaster_close(&p.forecaster);
    vt_fields_about_close(&p.about);
    vt_forecaster_close_data(&p.data, &p.dataset);
    free(p.dates);
    free(p.longitudes);
    vt_world_close(&p.world, status == VT_ERROR);
    return status;
}
