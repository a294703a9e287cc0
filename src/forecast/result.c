#include "forecast/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/output_file.h"
#include "task/weather/calendar.h"

vt_status vt_result_check_path(const char *option, const char *path, bool force)
{
    vt_status status = VT_OK;
    const size_t length = strlen(path);
    VT_TRY(vt_output_check_file(option, path));
    VT_CHECK(force || !vt_output_exists(path), "%s: %s exists already; give --force to replace it", option, path);
    VT_CHECK(length > 3 && strcmp(path + length - 3, ".nc") == 0,
             "%s=%s: expected a name that ends in .nc, as it is a NetCDF file", option, path);
done:
    return status;
}

/* Longitudes increase from the window's first column on, across 360, too. malloc'd; NULL: the files have none. */
static double *longitudes_of(const vt_dataset *dataset, int64_t width)
{
    double *longitudes =
        vt_copy(vt_dataset_known_coordinate(dataset, true), (size_t)width, sizeof *longitudes, "the forecast");
    if (longitudes == NULL || vt_dataset_known_grid(dataset).window.first_column == 0) return longitudes;
    for (int64_t x = 1; x < width; x++)
        while (longitudes[x] < longitudes[x - 1]) longitudes[x] += 360;
    while (longitudes[width - 1] > 360 && longitudes[0] >= 0)
        for (int64_t x = 0; x < width; x++) longitudes[x] -= 360;
    return longitudes;
}

static void log_missing_coordinates(const vt_dataset *dataset, const char *path)
{
    static const char *const names[] = {"latitudes", "longitudes"};
    for (int k = 0; k < 2; k++)
        if (vt_dataset_known_coordinate(dataset, k == 1) == NULL)
            vt_log_info(
                "%s: no %s are known, so the forecast only numbers its %s; --coordinates=[%s=NAME] would name them",
                path, names[k], k == 0 ? "rows" : "columns", k == 0 ? "lat" : "lon");
}

/* Of an archive the initial times, else the initial time and those of the forecasts. malloc'd. */
static vt_date *dates_of(const vt_result_options *options)
{
    const int64_t count = options->archive ? options->start_count : options->steps + 1;
    vt_date *dates = vt_allocate((size_t)count, sizeof *dates, "the forecast");
    for (int64_t i = 0; i < count; i++)
        dates[i] = options->archive ? vt_states_date(options->dataset, options->starts[i], 0)
                                    : vt_states_date(options->dataset, options->starts[0], i);
    return dates;
}

vt_status vt_result_identity(const char *checkpoint, vt_weights weights, char **identity)
{
    vt_status status = VT_OK;
    int64_t steps = 0;
    uint32_t checksum = 0;
    char *index = vt_text_format("%s/checkpoint.h5", checkpoint), *trained = NULL;
    VT_TRY(vt_forecaster_describe(checkpoint, weights, &trained, &steps));
    VT_TRY(vt_file_checksum(index, &checksum));
    *identity = vt_text_format("step %lld, crc32c %08x", (long long)steps, (unsigned)checksum);
done:
    free(index);
    free(trained);
    return status;
}

vt_status vt_result_open(const vt_result_options *options, vt_forecast_file **result)
{
    vt_status status = VT_OK;
    const vt_config *config = options->config;
    vt_dataset *dataset = options->dataset;
    const int64_t step = vt_dataset_minutes_a_time(dataset) * config->dt;
    vt_fields_file *first = NULL;
    char *trained = NULL, *source = NULL, *identity = NULL, *history = NULL, now[VT_NOW_SIZE];
    char *about = vt_fields_about_short_text(options->about);
    double *longitudes = longitudes_of(dataset, config->img_size[1]);
    vt_date *dates = NULL;
    const bool has_forecasts = !options->archive || options->start_count > 0;
    if (has_forecasts) VT_TRY(vt_dataset_check_dates(dataset, options->option));
    VT_CHECK(!options->archive || !has_forecasts || step < VT_A_MONTH,
             "%s: forecasts from several initial times have leads of equal length, but the steps are months",
             options->option);
    dates = dates_of(options);
    VT_TRY(vt_dataset_open_file(dataset, options->starts[0], &first));
    VT_TRY(vt_forecaster_describe(options->checkpoint, (vt_weights)config->weights, &trained, NULL));
    VT_TRY(vt_result_identity(options->checkpoint, (vt_weights)config->weights, &identity));
    source = vt_text_format("vitrain, vision transformer %s (%s)", config->config, trained);
    history = vt_text_format("%s: %s", vt_fields_about_now(now), options->command);
    const vt_forecast_file_options file = {.times = options->steps,
                                           .archive = options->archive,
                                           .starts = options->start_count,
                                           .has_stds = options->has_stds,
                                           .step = step,
                                           .members = options->members->count,
                                           .height = config->img_size[0],
                                           .width = config->img_size[1],
                                           .channels = config->n_out_channels,
                                           .latitudes = vt_dataset_known_coordinate(dataset, false),
                                           .longitudes = longitudes,
                                           .rotated = options->about->rotated,
                                           .channel_names = vt_dataset_channel_names(dataset),
                                           .meanings = vt_dataset_about(dataset)->meanings,
                                           .dates = dates,
                                           .time_axis =
                                               first->times.count > 0 && !first->times.by_name ? &first->times : NULL,
                                           .title = has_forecasts ? "Weather forecast by a vision transformer"
                                                                  : "Errors of a vision transformer's forecasts",
                                           .source = source,
                                           .history = history,
                                           .checkpoint = identity,
                                           .about = about,
                                           .masked = config->missing == VT_GAPS_MASK};
    log_missing_coordinates(dataset, first->path);
    VT_TRY(vt_forecast_file_open(options->path, &file, result));
done:
    free(trained);
    free(source);
    free(identity);
    free(history);
    free(about);
    free(dates);
    free(longitudes);
    return status;
}

void vt_result_leave_out_missing(const vt_states *states)
{
    const vt_config *config = states->config;
    const int64_t plane = config->img_size[0] * config->img_size[1];
    const int64_t now = vt_config_channels_a_time(config) * plane, out = config->n_out_channels * plane;
    for (int64_t state = 0; state < states->number * states->count; state++) {
        const float *input = states->input + state * config->n_in_channels * plane;
        for (int64_t i = 0; i < now && i < out; i++)
            if (isnan(input[i])) states->forecast[state * out + i] = NAN;
    }
}
