#include "forecast/prediction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "data/calendar.h"
#include "data/fields_file.h"
#include "data/file_list.h"
#include "data/forecast_file.h"
#include "forecast/forecaster.h"

typedef struct {
    const vt_prediction_options *options;
    vt_world *world;
    int64_t year, hours;            /* of the initial time */
    int64_t time;                   /* it in its file */
    vt_fields_file *file;           /* that holds it */
    double *latitudes, *longitudes; /* of the window */
    float *input, *fields;          /* [n_in_channels, height, width], [n_out_channels, …] */
    vt_forecaster *forecaster;
    vt_forecast_file *result;
} prediction;

/* ---- the initial time ---- */

static vt_status find_file(prediction *p)
{
    vt_status status = VT_OK;
    vt_file_list list = {0};
    const vt_prediction_options *options = p->options;
    const char *variables = options->config->variables;
    int64_t found = -1;
    char first[VT_DATE_SIZE] = "";
    VT_CHECK(vt_calendar_parse(options->time, &p->year, &p->hours),
             "--time=%s: expected a date like 2003-01-05T06:00 (UTC)", options->time);
    VT_CHECK(p->hours % VT_HOURS_A_TIME == 0, "--time=%s: the data have a time every %d hours: 00, 06, 12 and 18 UTC",
             options->time, VT_HOURS_A_TIME);
    VT_TRY(vt_file_list_open(options->directory, options->option_name, variables != NULL, &list));
    for (int64_t i = 0; i < list.groups; i++) {
        int64_t year = 0, hours = 0;
        const char *path = list.paths[list.first[i]];
        VT_CHECK(vt_calendar_start_of(path, &year, &hours),
                 "%s: the name ends in no date, so predict can't know when its times are; expected one like "
                 "era5_2013.nc or era5_2013-01.nc",
                 path);
        int64_t after = vt_calendar_hours_between(year, hours, p->year, p->hours);
        if (i == 0) vt_calendar_format(year, hours, first);
        if (after < 0 || (found >= 0 && after / VT_HOURS_A_TIME > p->time)) continue;
        found = i;
        p->time = after / VT_HOURS_A_TIME;
    }
    VT_CHECK(found >= 0, "--time=%s: the files of %s '%s' begin at %s (--split chooses another set)", options->time,
             options->option_name, options->directory, first);
    VT_TRY(vt_fields_file_open((const char *const *)(list.paths + list.first[found]),
                               list.first[found + 1] - list.first[found], variables, &p->file));
done:
    vt_file_list_close(&list);
    return status;
}

static vt_status check_file(const prediction *p)
{
    vt_status status = VT_OK;
    const vt_config *config = p->options->config;
    const vt_fields_shape shape = vt_fields_file_shape(p->file);
    const char *path = vt_fields_file_path(p->file);
    const int64_t time = p->time, needed = config->n_history * config->dt;
    const int64_t channels = config->n_in_channels / (config->n_history + 1);
    char first[VT_DATE_SIZE], last[VT_DATE_SIZE];
    vt_calendar_format(p->year, p->hours - VT_HOURS_A_TIME * time, first);
    vt_calendar_format(p->year, p->hours + VT_HOURS_A_TIME * (shape.times - 1 - time), last);
    VT_CHECK(time < shape.times, "--time=%s: %s has %s to %s", p->options->time, path, first, last);
    VT_CHECK(time >= needed, "--time=%s: the model needs %lld earlier times, and %s begins at %s", p->options->time,
             (long long)needed, path, first);
    VT_CHECK(shape.channels >= channels && shape.channels >= config->n_out_channels &&
                 shape.height >= config->img_size[0] && shape.width >= config->img_size[1],
             "%s holds %lld channels of [%lld, %lld], the model needs %lld of [%lld, %lld]", path,
             (long long)shape.channels, (long long)shape.height, (long long)shape.width, (long long)channels,
             (long long)config->img_size[0], (long long)config->img_size[1]);
done:
    return status;
}

/* Of the window at the top left; what the file doesn't say runs evenly from pole to pole, and round the globe. */
static void take_coordinates(prediction *p)
{
    const int64_t height = p->options->config->img_size[0], width = p->options->config->img_size[1];
    const vt_fields_shape shape = vt_fields_file_shape(p->file);
    const double *latitudes = vt_fields_file_latitudes(p->file), *longitudes = vt_fields_file_longitudes(p->file);
    p->latitudes = vt_allocate((size_t)height, sizeof *p->latitudes, "the forecast");
    p->longitudes = vt_allocate((size_t)width, sizeof *p->longitudes, "the forecast");
    for (int64_t y = 0; y < height; y++)
        p->latitudes[y] = latitudes != NULL  ? latitudes[y]
                          : shape.height > 1 ? 90.0 - 180.0 * (double)y / (double)(shape.height - 1)
                                             : 0.0;
    for (int64_t x = 0; x < width; x++)
        p->longitudes[x] = longitudes != NULL ? longitudes[x] : 360.0 * (double)x / (double)shape.width;
}

static vt_status read_input(prediction *p)
{
    vt_status status = VT_OK;
    const vt_config *config = p->options->config;
    const int64_t height = config->img_size[0], width = config->img_size[1], plane = height * width;
    const int64_t channels = config->n_in_channels / (config->n_history + 1);
    p->input = vt_allocate((size_t)(config->n_in_channels * plane), sizeof *p->input, "the forecast");
    p->fields = vt_allocate((size_t)(config->n_out_channels * plane), sizeof *p->fields, "the forecast");
    for (int64_t back = 0; back <= config->n_history; back++)
        VT_TRY(vt_fields_file_read(p->file, p->time - back * config->dt, channels, 0, height, width,
                                   p->input + back * channels * plane));
done:
    return status;
}

/* ---- the forecast ---- */

static vt_status open_result(prediction *p)
{
    vt_status status = VT_OK;
    const vt_prediction_options *options = p->options;
    const vt_config *config = options->config;
    char *trained = NULL, *source = NULL;
    VT_TRY(vt_forecaster_describe(options->checkpoint, &trained, NULL));
    source = vt_text_format("vitrain, vision transformer %s (%s)", config->config, trained);
    vt_forecast_file_options file = {.times = options->steps,
                                     .height = config->img_size[0],
                                     .width = config->img_size[1],
                                     .channels = config->n_out_channels,
                                     .latitudes = p->latitudes,
                                     .longitudes = p->longitudes,
                                     .channel_names = vt_fields_file_channel_names(p->file),
                                     .year = p->year,
                                     .hours = p->hours,
                                     .first_lead_hours = VT_HOURS_A_TIME * config->dt,
                                     .hours_a_time = VT_HOURS_A_TIME * config->dt,
                                     .title = "Weather forecast by a vision transformer",
                                     .source = source};
    VT_TRY(vt_forecast_file_open(options->output, &file, &p->result));
done:
    free(trained);
    free(source);
    return status;
}

static vt_status run(prediction *p)
{
    vt_status status = VT_OK;
    const vt_prediction_options *options = p->options;
    char first[VT_DATE_SIZE], last[VT_DATE_SIZE];
    VT_TRY(find_file(p));
    VT_TRY(check_file(p));
    take_coordinates(p);
    VT_TRY(read_input(p));
    VT_TRY(vt_forecaster_open(options->config, options->checkpoint, p->world, p->latitudes,
                              vt_fields_file_channel_names(p->file), &p->forecaster));
    VT_TRY(open_result(p));
    for (int64_t step = 0; step < options->steps; step++) {
        VT_TRY(vt_forecaster_step(p->forecaster, p->input, 1, p->fields));
        VT_TRY(vt_forecast_file_append(p->result, p->fields));
        if (step + 1 < options->steps) vt_forecaster_shift(options->config, 1, p->fields, p->input);
    }
    VT_TRY(vt_forecast_file_finish(&p->result));
    vt_calendar_format(p->year, p->hours + VT_HOURS_A_TIME * options->config->dt, first);
    vt_calendar_format(p->year, p->hours + VT_HOURS_A_TIME * options->config->dt * options->steps, last);
    printf("%s: %lld forecasts, %s to %s UTC, %lld channels\n", options->output, (long long)options->steps, first, last,
           (long long)options->config->n_out_channels);
done:
    return status;
}

vt_status vt_predict(const vt_prediction_options *options, const vt_launch *launch)
{
    vt_status status = VT_OK;
    prediction p = {.options = options};
    VT_CHECK(options->steps == 1 || vt_forecaster_can_roll(options->config),
             "--steps=%lld: this model forecasts %lld channels from %lld, so a forecast can't be the next one's input; "
             "only --steps=1 is possible",
             (long long)options->steps, (long long)options->config->n_out_channels,
             (long long)(options->config->n_in_channels / (options->config->n_history + 1)));
    VT_TRY(vt_world_open(options->config, launch, &p.world));
    status = run(&p);
done:
    vt_forecast_file_close(&p.result);
    vt_forecaster_close(&p.forecaster);
    vt_fields_file_close(&p.file);
    free(p.latitudes);
    free(p.longitudes);
    free(p.input);
    free(p.fields);
    vt_world_close(&p.world, status == VT_ERROR);
    return status;
}
