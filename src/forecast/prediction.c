#include "forecast/prediction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "forecast/forecast_file.h"
#include "forecast/training_errors.h"
#include "source/fields/dataset.h"
#include "task/weather/calendar.h"

typedef struct {
    const vt_prediction_options *options;
    vt_world *world;
    vt_dataset *dataset;
    bool several;    /* initial times were asked for */
    int64_t *starts; /* the initial times: samples, [start_count] */
    int64_t start_count;
    vt_fields_about *about; /* of the data at these times alone */
    vt_forecaster *forecaster;
    vt_states states;
    vt_forecast_file *result;
} prediction;

/* ---- the initial time ---- */

/* Adds the sample that begins at the initial time, with steps of months in that month. Where none does, the error says
 * which are nearest. */
static vt_status add_start(prediction *p, vt_date wanted)
{
    vt_status status = VT_OK;
    const vt_dataset_options *set = vt_dataset_options_of(p->dataset);
    const int64_t samples = vt_dataset_source(p->dataset)->sample_count;
    const long long earlier = (long long)(set->history * set->dt);
    const int64_t after_last = p->start_count > 0 ? p->starts[p->start_count - 1] + 1 : 0;
    char before[VT_DATE_SIZE], after[VT_DATE_SIZE], buffer[VT_DATE_SIZE];
    const char *text = p->several ? vt_date_format(wanted, buffer) : p->options->time;
    vt_date date, nearest[2] = {{.minutes = INT64_MIN}, {.minutes = INT64_MAX}};
    const int64_t found = vt_dataset_find(p->dataset, wanted, after_last);
    if (found >= 0) {
        p->starts = vt_grow(p->starts, (size_t)p->start_count, sizeof *p->starts, "the forecast");
        p->starts[p->start_count++] = found;
        return VT_OK;
    }
    for (int64_t i = 0; i < samples; i++) {
        vt_dataset_date(p->dataset, i, 0, &date);
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

/* "A" or "A/B/STEP" */
static vt_status find_starts(prediction *p)
{
    vt_status status = VT_OK;
    const vt_calendar calendar = vt_dataset_about(p->dataset)->calendar;
    vt_date ends[2];
    int64_t step = 1;
    int count = 1;
    char *text = vt_text_copy(p->options->time), *parts[3] = {text};
    for (char *slash = strchr(text, '/'); slash != NULL && count < 3; slash = strchr(slash, '/')) {
        *slash++ = '\0';
        parts[count++] = slash;
    }
    p->several = count > 1;
    VT_CHECK(count == 1 || (count == 3 && vt_length_parse(parts[2], &step)),
             "--time=%s: expected the first initial time, the last one and what lies between two, such as "
             "2003-01-01/2003-12-31/12h",
             p->options->time);
    for (int k = 0; k < 2; k++)
        VT_CHECK(vt_date_parse(parts[p->several ? k : 0], calendar, &ends[k]),
                 "--time=%s: expected a date like 2003-01-05T06:00 (UTC)%s%s, or several, 2003-01-01/2003-12-31/12h",
                 p->options->time, calendar > VT_CALENDAR_PROLEPTIC ? ", in the calendar " : "",
                 calendar > VT_CALENDAR_PROLEPTIC ? vt_calendar_name(calendar) : "");
    VT_CHECK(ends[0].minutes <= ends[1].minutes, "--time=%s: the last initial time is before the first",
             p->options->time);
    for (vt_date date = ends[0]; date.minutes <= ends[1].minutes; date = vt_date_after(ends[0], p->start_count * step))
        VT_TRY(add_start(p, date));
done:
    free(text);
    return status;
}

/* The inputs alone matter: a forecast may begin at the last time of the files. */
static vt_status open_data(prediction *p)
{
    vt_status status = VT_OK;
    vt_dataset_options data = vt_fields_options(p->options->members.config, p->options->set);
    data.reach = VT_REACH_INPUT;
    data.quiet = true;
    VT_TRY(vt_forecaster_open_data(p->options->members.models, data, &p->dataset));
    VT_TRY(vt_dataset_check_dates(p->dataset, "--time"));
    vt_dataset_log_coordinates(p->dataset);
    VT_TRY(find_starts(p));
    p->about = vt_fields_about_copy(vt_dataset_about(p->dataset));
    p->about->dt = p->about->span_count = 0;
    p->about->times = p->start_count;
    vt_fields_about_add_span(p->about, vt_states_date(p->dataset, p->starts[0], 0),
                             vt_states_date(p->dataset, p->starts[p->start_count - 1], 0));
done:
    return status;
}

/* ---- the forecast ---- */

static vt_status open_result(prediction *p)
{
    vt_status status = VT_OK;
    const vt_prediction_options *options = p->options;
    const vt_forecast_file_options result = {.option = "--time",
                                             .path = options->output,
                                             .command = options->command,
                                             .states = &p->states,
                                             .about = p->about,
                                             .starts = p->starts,
                                             .start_count = p->start_count,
                                             .steps = options->steps,
                                             .archive = p->several,
                                             .has_stds = options->error_stds != NULL};
    if (options->error_stds != NULL) /* does it reach the last lead time? */
        VT_TRY(vt_error_stds_read(options->error_stds, &p->states, options->steps - 1));
    VT_TRY(vt_forecast_file_open(&result, &p->result));
done:
    return status;
}

static vt_status open_states(prediction *p)
{
    char *directory = vt_file_directory(p->options->output);
    const vt_status status = vt_states_open(&p->options->members, p->world, p->forecaster, p->dataset, p->start_count,
                                            directory, &p->states);
    free(directory);
    return status;
}

/* All forecasts of the states for one lead time; they begin with initial time `first`. */
static vt_status write_lead(prediction *p, int64_t first)
{
    vt_status status = VT_OK;
    const int64_t lead = p->states.lead - 1;
    VT_TRY(vt_forecast_file_write_lead(p->result, NULL, &p->states, first));
    if (p->options->members.count > 0 && !p->several)
        VT_TRY(vt_forecast_file_write(p->result, 0, VT_FORECAST_MEAN, lead, vt_states_forecast(&p->states, 0)));
    if (p->options->error_stds == NULL || first > 0) return VT_OK;
    VT_TRY(vt_error_stds_read(p->options->error_stds, &p->states, lead));
    VT_TRY(vt_forecast_file_write(p->result, 0, VT_FORECAST_STD, lead, p->states.mean));
done:
    return status;
}

/* Collective. */
static vt_status take_lead(void *context, int64_t first)
{
    prediction *p = context;
    return vt_world_agree(p->world, p->result != NULL ? write_lead(p, first) : VT_OK);
}

static void say(const prediction *p)
{
    const vt_prediction_options *options = p->options;
    const int64_t channels = options->members.config->n_out_channels, last_start = p->starts[p->start_count - 1];
    char first[VT_DATE_SIZE], last[VT_DATE_SIZE], starts[64] = "";
    char *members = options->members.count > 0 ? vt_members_describe(&options->members) : NULL;
    vt_date_format(vt_states_date(p->dataset, p->starts[0], p->several ? 0 : 1), first);
    vt_date_format(vt_states_date(p->dataset, last_start, p->several ? 0 : options->steps), last);
    if (p->several) snprintf(starts, sizeof starts, " from each of %lld initial times", (long long)p->start_count);
    vt_print("%s: %lld forecast%s of %s%s, %s to %s UTC, %lld channel%s%s%s\n", options->output,
             (long long)options->steps, options->steps == 1 ? "" : "s", options->members.models[0].checkpoint, starts,
             first, last, (long long)channels, channels == 1 ? "" : "s", members != NULL ? "; " : "",
             members != NULL ? members : "");
    free(members);
}

static vt_status run(prediction *p)
{
    vt_status status = VT_OK;
    const vt_prediction_options *options = p->options;
    const bool writes = p->world->rank == 0;
    VT_TRY(vt_world_agree(p->world, open_data(p)));
    VT_TRY(vt_forecaster_open(&options->members, p->world, p->dataset, p->about, &p->forecaster));
    VT_TRY(vt_world_agree(p->world, vt_forecaster_find_forcings(p->forecaster, options->forcing_path, p->starts,
                                                                p->start_count, options->steps)));
    VT_TRY(vt_world_agree(p->world, open_states(p)));
    VT_TRY(vt_world_agree(p->world, writes ? open_result(p) : VT_OK));
    VT_TRY(vt_states_forecast_all(&p->states, p->starts, p->start_count, options->steps, take_lead, p));
    VT_TRY(vt_world_agree(p->world, writes ? vt_forecast_file_finish(&p->result) : VT_OK));
    if (writes) say(p);
done:
    return status;
}

vt_status vt_predict(const vt_prediction_options *options, const vt_launch *launch)
{
    vt_status status = VT_OK;
    prediction p = {.options = options};
    VT_TRY(vt_world_open(options->members.config, launch, &p.world));
    vt_log_filter.muted = p.world->rank != 0;
    status = run(&p);
done:
    vt_forecast_file_close(&p.result);
    vt_states_close(&p.states);
    vt_forecaster_close(&p.forecaster);
    vt_fields_about_close(&p.about);
    vt_dataset_close(&p.dataset);
    free(p.starts);
    vt_world_close(&p.world, status == VT_ERROR);
    return status;
}
