#include "forecast/prediction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "forecast/forecast_file.h"
#include "forecast/states.h"
#include "source/fields/dataset.h"
#include "source/fields/file_list.h"
#include "task/weather/calendar.h"

typedef struct {
    const vt_prediction_options *options;
    vt_world *world;
    vt_fields_form form;     /* of its files */
    vt_fields_about *about;  /* of the file that holds the initial time */
    vt_date date;            /* the initial time */
    vt_date *dates;          /* [1 + steps]: it and those of the forecasts */
    vt_fields_file *file;    /* that holds it */
    vt_stretch stretch;      /* of that file's times, which holds it */
    int64_t minutes_a_time;  /* between two times of that file */
    int64_t step_of_files;   /* of files of one time each; 0: not looked for, or not known */
    int64_t time;            /* the index of the initial time in that file */
    vt_frame_window window;  /* of the file's grid */
    const double *latitudes; /* of the window; NULL: the file has none */
    double *longitudes;      /* likewise */
    double *no_latitudes;    /* zeros, for a model whose data have no latitudes */
    float *input;            /* the initial state, [n_in_channels, height, width] */
    vt_states states;
    vt_forecaster *forecaster;
    vt_forecast_file *result;
} prediction;

/* ---- the initial time ---- */

/* The dates of a group of files. */
typedef struct {
    vt_fields_file *file;
    const vt_stretch *stretches;
    int64_t count, minutes; /* minutes between two times */
    vt_stretch by_name;     /* the only one where the files give no dates: it begins at the date in their name */
} dated_file;

/* How far apart times are where files have one each: as the first two are. 0: not known. */
static vt_status find_step(prediction *p, const vt_file_list *list, int64_t *step)
{
    vt_status status = VT_OK;
    vt_date dates[2] = {0};
    vt_fields_file *file = NULL;
    for (int64_t i = 0; i < 2 && i < list->groups && p->step_of_files == 0; i++) {
        const int64_t first = list->first[i], end = list->first[i + 1];
        VT_TRY(vt_fields_file_open((const char *const *)(list->paths + first), end - first, &p->form, &file));
        if (file->times.count > 0) dates[i] = file->times.stretches[0].date;
        vt_fields_file_close(&file);
    }
    if (dates[0].minutes > 0 && dates[1].minutes > 0) p->step_of_files = vt_date_apart(dates[0], dates[1]);
    *step = p->step_of_files;
done:
    vt_fields_file_close(&file);
    return status;
}

static vt_status open_dated(prediction *p, const vt_file_list *list, int64_t group, dated_file *result)
{
    vt_status status = VT_OK;
    const int64_t first = list->first[group], end = list->first[group + 1];
    const char *path = list->paths[first];
    VT_TRY(vt_fields_file_open((const char *const *)(list->paths + first), end - first, &p->form, &result->file));
    const vt_time_axis *axis = &result->file->times;
    result->stretches = axis->stretches;
    result->count = axis->count;
    if (result->file->shape.times == 0) goto done;
    result->minutes = axis->minutes;
    if (axis->count > 0 && axis->minutes == 0) VT_TRY(find_step(p, list, &result->minutes));
    if (result->minutes == 0) result->minutes = 60 * VT_HOURS_A_TIME;
    if (axis->count > 0) goto done;
    char step[VT_DATE_SIZE];
    if (axis->doubt != NULL) vt_log_warning("%s; its dates are taken from its name", axis->doubt);
    if (axis->minutes == 0)
        vt_log_info("%s: the file doesn't say how far apart its times are, so %s is assumed; --time_step=24h sets "
                    "another length",
                    path, vt_length_format(result->minutes, step));
    result->by_name.count = result->file->shape.times;
    result->stretches = &result->by_name;
    result->count = 1;
    VT_CHECK(vt_date_of_file_name(path, &result->by_name.date),
             "%s: the name ends in no date, and it has no time coordinate, so the dates of its times are unknown; "
             "expected a name like era5_2013.nc or era5_2013-01.nc",
             path);
done:
    return status;
}

/* The last stretch that begins at that date or before, with steps of months in that month; NULL: none does. */
static const vt_stretch *stretch_before(const dated_file *file, vt_date date)
{
    const vt_stretch *found = NULL;
    int64_t day;
    const bool by_months = file->minutes >= VT_A_MONTH;
    for (int64_t i = 0; i < file->count; i++) {
        const vt_date begin = file->stretches[i].date;
        const bool same = by_months && vt_date_month(begin, &day) == vt_date_month(date, &day);
        if (begin.minutes <= date.minutes || same) found = &file->stretches[i];
    }
    return found;
}

/* Takes over `file` if its times may hold the initial time: if a stretch of it begins at that time or before, and no
 * earlier than `newest`, where the file that was chosen so far begins. *first becomes the earliest beginning of all. */
static vt_status consider(prediction *p, dated_file *file, vt_date *first, vt_date *newest)
{
    vt_status status = VT_OK;
    const char *text = p->options->time;
    if (file->count == 0) goto done; /* no times at all */
    const vt_date begin = file->stretches[0].date;
    VT_CHECK(vt_date_parse(text, begin.calendar, &p->date),
             "--time=%s: expected a date like 2003-01-05T06:00 (UTC)%s%s", text,
             begin.calendar > VT_CALENDAR_PROLEPTIC ? ", in the calendar " : "",
             begin.calendar > VT_CALENDAR_PROLEPTIC ? vt_calendar_name(begin.calendar) : "");
    if (first->minutes == 0 || begin.minutes < first->minutes) *first = begin;
    const vt_stretch *stretch = stretch_before(file, p->date);
    if (stretch == NULL || (p->file != NULL && stretch->date.minutes < newest->minutes)) goto done;
    vt_fields_file_close(&p->file);
    p->file = file->file;
    file->file = NULL;
    p->stretch = *stretch;
    p->minutes_a_time = file->minutes;
    *newest = stretch->date;
done:
    return status;
}

static bool holds_time(const prediction *p)
{
    if (p->file == NULL) return false;
    const int64_t index = vt_date_steps(p->stretch.date, p->date, p->minutes_a_time);
    return index >= 0 && index < p->stretch.count;
}

/* The group with the latest date in its name that is not after the initial time; -1: none. */
static int64_t guess_group(const prediction *p, const vt_file_list *list)
{
    vt_date wanted, begin, newest = {0};
    int64_t found = -1;
    if (!vt_date_parse(p->options->time, VT_CALENDAR_STANDARD, &wanted)) return -1;
    for (int64_t i = 0; i < list->groups; i++) {
        if (!vt_date_of_file_name(list->paths[list->first[i]], &begin) || begin.minutes > wanted.minutes) continue;
        if (found >= 0 && begin.minutes < newest.minutes) continue;
        found = i;
        newest = begin;
    }
    return found;
}

/* Looks into that group first, then into the others, as the dates in a file may differ from that of its name. */
static vt_status find_file(prediction *p)
{
    vt_status status = VT_OK;
    vt_file_list list = {0};
    const vt_prediction_options *options = p->options;
    const vt_dataset_options set = vt_fields_options(options->config, options->set);
    dated_file file = {0};
    vt_date first = {0}, newest = {0};
    char text[VT_DATE_SIZE];
    VT_TRY(vt_file_list_open(set.directory, set.option_name, &set.form, &list));
    const int64_t guess = guess_group(p, &list);
    for (int64_t i = guess < 0 ? 0 : -1; i < list.groups && !holds_time(p); i++) {
        if (i == guess) continue;
        VT_TRY(open_dated(p, &list, i < 0 ? guess : i, &file));
        VT_TRY(consider(p, &file, &first, &newest));
        vt_fields_file_close(&file.file);
        file = (dated_file){0};
    }
    VT_CHECK(p->file != NULL, "--time=%s: the files of %s '%s' begin at %s (--split chooses another set)",
             options->time, set.option_name, set.directory, vt_date_format(first, text));
    VT_TRY(vt_fields_file_check_written(p->file));
done:
    vt_fields_file_close(&file.file);
    vt_file_list_close(&list);
    return status;
}

/* May earlier times of the input come from another file? Only if the files give their dates. */
static bool may_cross(const prediction *p)
{
    return p->options->config->cross_files && p->file->times.count > 0;
}

/* The date becomes the file's own one, if this stretch of its times has it. */
static void take_stamp(const vt_fields_file *file, const vt_stretch *stretch, int64_t step, vt_date *date)
{
    const int64_t index = vt_date_steps(stretch->date, *date, step);
    if (index < 0 || index >= stretch->count || stretch->date.calendar != date->calendar) return;
    *date = vt_date_after(stretch->date, index * step);
    if (file->times.own != NULL) date->minutes = file->times.own[stretch->first + index];
}

/* The model's window of the file's grid. */
static vt_status find_window(prediction *p)
{
    vt_status status = VT_OK;
    const vt_config *config = p->options->config;
    const vt_window_range range = vt_window_range_of(config->lat_range, config->lon_range);
    const vt_window_grid grid = vt_fields_file_grid(p->file);
    VT_TRY(vt_window_find(&range, &grid, &p->window));
    VT_CHECK(
        (!range.by_rows || p->window.rows == config->img_size[0]) &&
            (!range.by_columns || p->window.width == config->img_size[1]),
        "%s: the model's window, lat_range [%g, %g] and lon_range [%g, %g], has [%lld, %lld] grid points there, but "
        "the model was trained on [%lld, %lld]",
        grid.path, config->lat_range[0], config->lat_range[1], config->lon_range[0], config->lon_range[1],
        (long long)p->window.rows, (long long)p->window.width, (long long)config->img_size[0],
        (long long)config->img_size[1]);
    p->window.rows = config->img_size[0];
    p->window.width = config->img_size[1];
done:
    return status;
}

static vt_status check_file(prediction *p)
{
    vt_status status = VT_OK;
    const vt_config *config = p->options->config;
    const vt_fields_shape shape = p->file->shape;
    const char *path = p->file->path;
    const int64_t step = p->minutes_a_time, index = vt_date_steps(p->stretch.date, p->date, step);
    const int64_t needed = config->n_history * config->dt;
    const int64_t channels = vt_config_channels_a_time(config);
    char first[VT_DATE_SIZE], last[VT_DATE_SIZE], interval[VT_DATE_SIZE], reach[VT_DATE_SIZE];
    vt_length_format(step, interval);
    vt_date_format(p->stretch.date, first);
    vt_date end = vt_date_after(p->stretch.date, (p->stretch.count - 1) * step);
    take_stamp(p->file, &p->stretch, step, &end);
    vt_date_format(end, last);
    VT_CHECK(p->date.minutes <= end.minutes || (index >= 0 && index < p->stretch.count),
             "--time=%s: %s has %s to %s (--split chooses another set)", p->options->time, path, first, last);
    VT_CHECK(index >= 0, "--time=%s: %s has a time every %s, from %s on", p->options->time, path, interval, first);
    take_stamp(p->file, &p->stretch, step, &p->date); /* in a month, the day that the file has */
    VT_CHECK(index >= needed || may_cross(p), "--time=%s: the model needs %lld earlier times, and %s begins at %s",
             p->options->time, (long long)needed, path, first);
    VT_CHECK(shape.channels >= channels && shape.channels >= config->n_out_channels &&
                 shape.height >= config->img_size[0] && shape.width >= config->img_size[1],
             "%s holds %lld channels of [%lld, %lld], the model needs %lld of [%lld, %lld]", path,
             (long long)shape.channels, (long long)shape.height, (long long)shape.width, (long long)channels,
             (long long)config->img_size[0], (long long)config->img_size[1]);
    VT_TRY(find_window(p));
    p->time = p->stretch.first + index;
    if (config->time_step == NULL && step != 60 * VT_HOURS_A_TIME && step * config->dt != 60 * VT_HOURS_A_TIME)
        vt_log_warning("%s has a time every %s, not every %d h: with dt %lld a forecast is one of %s ahead", path,
                       interval, VT_HOURS_A_TIME, (long long)config->dt, vt_length_format(step * config->dt, reach));
done:
    return status;
}

/* The coordinates of the window, if the file has them. Longitudes increase from its first column on, across 360, too.
 */
static void take_coordinates(prediction *p)
{
    const int64_t height = p->options->config->img_size[0], width = p->options->config->img_size[1];
    const double *latitudes = p->file->latitudes, *longitudes = p->file->longitudes;
    p->no_latitudes = vt_allocate((size_t)height, sizeof *p->no_latitudes, "the forecast");
    if (latitudes != NULL) p->latitudes = latitudes + p->window.first_row;
    if (longitudes == NULL) return;
    p->longitudes = vt_allocate((size_t)width, sizeof *p->longitudes, "the forecast");
    for (int64_t x = 0; x < width; x++) p->longitudes[x] = longitudes[vt_window_column(&p->window, x)];
    for (int64_t x = 1; x < width && p->window.first_column > 0; x++)
        while (p->longitudes[x] < p->longitudes[x - 1]) p->longitudes[x] += 360;
    while (p->window.first_column > 0 && p->longitudes[width - 1] > 360 && p->longitudes[0] >= 0)
        for (int64_t x = 0; x < width; x++) p->longitudes[x] -= 360;
}

static void log_missing_coordinates(const prediction *p)
{
    static const char *const names[] = {"latitudes", "longitudes"};
    const double *const values[] = {p->file->latitudes, p->file->longitudes};
    for (int k = 0; k < 2; k++) {
        const char *doubt = p->file->doubts[k];
        if (values[k] != NULL) continue;
        vt_log_info(
            "%s%s%s: no %s are known, so the forecast only numbers its %s; --coordinates=[%s=NAME] would name them",
            p->file->path, doubt != NULL ? ": " : "", doubt != NULL ? doubt : "", names[k], k == 0 ? "rows" : "columns",
            k == 0 ? "lat" : "lon");
    }
}

/* Reads an earlier time of the input from the file that holds it. */
static vt_status read_earlier(const prediction *p, int64_t minutes_before, int64_t channels, float *values)
{
    vt_status status = VT_OK;
    char text[VT_DATE_SIZE];
    vt_prediction_options options = *p->options;
    const vt_dataset_options set = vt_fields_options(options.config, options.set);
    prediction earlier = {.options = &options, .form = p->form};
    options.time = vt_date_format(vt_date_after(p->date, -minutes_before), text);
    VT_TRY(find_file(&earlier));
    VT_CHECK(holds_time(&earlier), "--time=%s: the model also needs %s, and no file of %s '%s' has it",
             p->options->time, text, set.option_name, set.directory);
    VT_TRY(check_file(&earlier));
    VT_TRY(vt_fields_file_read(earlier.file, earlier.time, channels, &earlier.window, true, values));
done:
    vt_fields_file_close(&earlier.file);
    return status;
}

/* When the forecasts are for. Stamps of months lie on different days: where a file has the month, its stamp is taken.
 */
static vt_status find_dates(prediction *p)
{
    vt_status status = VT_OK;
    vt_file_list list = {0};
    dated_file file = {0};
    const vt_dataset_options set = vt_fields_options(p->options->config, p->options->set);
    const int64_t step = p->minutes_a_time * p->options->config->dt, steps = p->options->steps;
    p->dates = vt_allocate((size_t)steps + 1, sizeof *p->dates, "the forecast");
    for (int64_t i = 0; i <= steps; i++) p->dates[i] = vt_date_after(p->date, i * step);
    if (p->minutes_a_time < VT_A_MONTH) return VT_OK;
    VT_TRY(vt_file_list_open(set.directory, set.option_name, &set.form, &list));
    for (int64_t group = 0; group < list.groups; group++) {
        VT_TRY(open_dated(p, &list, group, &file));
        for (int64_t s = 0; s < file.count; s++)
            for (int64_t i = 1; i <= steps; i++) take_stamp(file.file, &file.stretches[s], file.minutes, &p->dates[i]);
        vt_fields_file_close(&file.file);
        file = (dated_file){0};
    }
done:
    vt_fields_file_close(&file.file);
    vt_file_list_close(&list);
    return status;
}

static vt_status read_input(prediction *p)
{
    vt_status status = VT_OK;
    const vt_config *config = p->options->config;
    const int64_t height = config->img_size[0], width = config->img_size[1], plane = height * width;
    const int64_t channels = vt_config_channels_a_time(config);
    p->input = vt_allocate((size_t)(config->n_in_channels * plane), sizeof *p->input, "the forecast");
    for (int64_t back = 0; back <= config->n_history; back++) {
        const int64_t times = back * config->dt;
        float *values = p->input + back * channels * plane;
        if (p->time - times >= p->stretch.first)
            VT_TRY(vt_fields_file_read(p->file, p->time - times, channels, &p->window, true, values));
        else
            VT_TRY(read_earlier(p, times * p->minutes_a_time, channels, values));
    }
done:
    return status;
}

/* The initial state alone matters: its channels and its time. */
static void describe(prediction *p)
{
    const vt_config *config = p->options->config;
    const int64_t in = vt_config_channels_a_time(config), out = config->n_out_channels;
    p->about = vt_fields_about_of_file(p->file, &p->form, &p->window);
    vt_fields_about_limit(p->about, in > out ? in : out);
    p->about->step = p->file->times.minutes;
    p->about->span_count = 0;
    p->about->times = 1;
    vt_fields_about_add_span(p->about, p->date, p->date);
}

static vt_status take_input(prediction *p)
{
    vt_status status = VT_OK;
    p->form = vt_fields_options(p->options->config, p->options->set).form;
    VT_TRY(vt_forecaster_channels(p->options->checkpoint, &p->form));
    VT_TRY(find_file(p));
    VT_TRY(check_file(p));
    take_coordinates(p);
    VT_TRY(find_dates(p));
    describe(p);
    VT_TRY(read_input(p));
done:
    return status;
}

/* ---- the forecast ---- */

static vt_status open_result(prediction *p)
{
    vt_status status = VT_OK;
    const vt_prediction_options *options = p->options;
    const vt_config *config = options->config;
    const vt_time_axis *axis = &p->file->times;
    char *trained = NULL, *source = NULL, *identity = NULL, *about = vt_fields_about_short_text(p->about);
    VT_TRY(vt_forecaster_describe(options->checkpoint, (vt_weights)config->weights, &trained, NULL));
    VT_TRY(vt_forecaster_identity(options->checkpoint, &identity));
    source = vt_text_format("vitrain, vision transformer %s (%s)", config->config, trained);
    vt_forecast_file_options file = {.times = options->steps,
                                     .members = options->members.count,
                                     .height = config->img_size[0],
                                     .width = config->img_size[1],
                                     .channels = config->n_out_channels,
                                     .latitudes = p->latitudes,
                                     .longitudes = p->longitudes,
                                     .rotated = p->file->rotated,
                                     .channel_names = p->file->channel_names,
                                     .meanings = p->file->meanings,
                                     .dates = p->dates,
                                     .time_axis = axis->count > 0 ? axis : NULL,
                                     .title = "Weather forecast by a vision transformer",
                                     .source = source,
                                     .checkpoint = identity,
                                     .about = about,
                                     .masked = config->missing == VT_GAPS_MASK};
    log_missing_coordinates(p);
    VT_TRY(vt_forecast_file_open(options->output, &file, &p->result));
done:
    free(trained);
    free(source);
    free(identity);
    free(about);
    return status;
}

static vt_known_grid grid_of(const prediction *p)
{
    const vt_fields_shape shape = p->file->shape;
    return (vt_known_grid){.path = p->file->path,
                           .height = shape.height,
                           .width = shape.width,
                           .window = p->window,
                           .latitudes = p->latitudes,
                           .longitudes = p->longitudes,
                           .rotated = p->file->rotated,
                           .turned = p->file->turned,
                           .step = p->minutes_a_time * p->options->config->dt};
}

/* Points that are missing in the newest time of the input, such as land in data of the ocean, get no forecast. */
static void leave_out_missing(const prediction *p, float *fields)
{
    const vt_config *config = p->options->config;
    const int64_t plane = config->img_size[0] * config->img_size[1];
    const int64_t in = vt_config_channels_a_time(config) * plane, out = config->n_out_channels * plane;
    for (int64_t i = 0; i < in && i < out; i++)
        if (isnan(p->input[i])) fields[i] = NAN;
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
    const vt_prediction_options *options = p->options;
    const vt_config *config = options->config;
    const int64_t plane = config->img_size[0] * config->img_size[1];
    const char *name = strrchr(options->output, '/');
    char *directory =
        name == NULL ? vt_text_copy(".") : vt_text_format("%.*s/", (int)(name - options->output), options->output);
    VT_TRY(vt_states_open(&options->members, p->forecaster, config, 1, directory, &p->states));
    memcpy(p->states.input, p->input, (size_t)(config->n_in_channels * plane) * sizeof *p->input);
    vt_states_begin(&p->states, 1, &p->date.minutes);
    for (int64_t step = 0; step < options->steps; step++) {
        if (step > 0) vt_states_shift(&p->states);
        VT_TRY(vt_states_step(&p->states, &p->dates[step]));
        for (int64_t m = 0; m < p->states.number; m++)
            leave_out_missing(p, p->states.forecast + m * config->n_out_channels * plane);
        VT_TRY(vt_world_agree(p->world, p->result != NULL ? write_step(p, step) : VT_OK));
    }
done:
    free(directory);
    return status;
}

static vt_status run(prediction *p)
{
    vt_status status = VT_OK;
    const vt_prediction_options *options = p->options;
    const bool writes = vt_world_rank(p->world) == 0;
    char first[VT_DATE_SIZE], last[VT_DATE_SIZE], *members = NULL;
    VT_TRY(vt_world_agree(p->world, take_input(p)));
    const vt_forecaster_data data = {p->about, p->file->path, p->latitudes != NULL ? p->latitudes : p->no_latitudes,
                                     grid_of(p)};
    VT_TRY(vt_forecaster_open(options->config, options->checkpoint, p->world, &data, &p->forecaster));
    VT_TRY(vt_members_read(&options->members, p->forecaster));
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
    vt_fields_file_close(&p.file);
    vt_fields_about_close(&p.about);
    vt_forecaster_channels_close(&p.form);
    free(p.dates);
    free(p.longitudes);
    free(p.no_latitudes);
    free(p.input);
    vt_world_close(&p.world, status == VT_ERROR);
    return status;
}
