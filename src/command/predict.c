/* vitrain predict: forecasts from one initial time, or from several, into a NetCDF file. */
#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "forecast/forecast_file.h"
#include "source/fields/dataset.h"
#include "storage/store.h"
#include "storage/tensor_file.h"
#include "task/weather/calendar.h"

typedef struct {
    const char *command; /* for the file's history */
    const vt_predict_flags *flags;
    vt_members members;
    bool several;           /* initial times were asked for */
    vt_fields_about *about; /* of the data at these times alone */
    vt_forecaster forecaster;
    vt_forecast_file *result; /* of rank 0 */
} prediction;

/* ---- the initial time ---- */

/* Adds the sample that begins at the initial time, with steps of months in that month. Where none does, the error says
 * which are nearest. */
static vt_status add_start(prediction *p, vt_date wanted)
{
    vt_status status = VT_OK;
    vt_initial_times *from = &p->forecaster.from;
    const vt_dataset_options *set = &from->dataset->options;
    const int64_t samples = from->dataset->source.sample_count;
    const int64_t after_last = from->count > 0 ? from->samples[from->count - 1] + 1 : 0;
    const int64_t found = vt_dataset_find(from->dataset, wanted, after_last);
    char before[VT_DATE_SIZE], after[VT_DATE_SIZE], where[3 * VT_DATE_SIZE], buffer[VT_DATE_SIZE];
    const char *text = p->several ? vt_date_format(wanted, buffer) : p->flags->time;
    vt_date date, nearest[2] = {{.minutes = INT64_MIN}, {.minutes = INT64_MAX}};
    if (found >= 0) {
        from->samples = vt_grow(from->samples, (size_t)from->count, sizeof *from->samples, "the forecast");
        from->samples[from->count++] = found;
        return VT_OK;
    }
    for (int64_t i = 0; i < samples; i++) {
        vt_dataset_date(from->dataset, i, 0, &date);
        if (date.minutes < wanted.minutes && date.minutes > nearest[0].minutes) nearest[0] = date;
        if (date.minutes > wanted.minutes && date.minutes < nearest[1].minutes) nearest[1] = date;
    }
    if (nearest[0].minutes == INT64_MIN)
        snprintf(where, sizeof where, "no earlier than %s", vt_date_format(nearest[1], after));
    else if (nearest[1].minutes == INT64_MAX)
        snprintf(where, sizeof where, "no later than %s", vt_date_format(nearest[0], before));
    else
        snprintf(where, sizeof where, "at %s and at %s, but not between", vt_date_format(nearest[0], before),
                 vt_date_format(nearest[1], after));
    VT_FAIL("--time=%s: forecasts from %s '%s' can begin %s (the model needs %ld earlier times; --split chooses "
            "another set)",
            text, set->option_name, set->directory, where, set->history * set->dt);
done:
    return status;
}

/* "A" or "A/B/STEP" */
static vt_status find_starts(prediction *p)
{
    vt_status status = VT_OK;
    const vt_calendar calendar = p->forecaster.from.dataset->about->calendar;
    vt_date ends[2];
    int64_t step = 1;
    int count = 1;
    char *text = vt_text_copy(p->flags->time), *parts[3] = {text};
    for (char *slash = strchr(text, '/'); slash != NULL && count < 3; slash = strchr(slash, '/')) {
        *slash++ = '\0';
        parts[count++] = slash;
    }
    p->several = count > 1;
    VT_CHECK(count == 1 || (count == 3 && vt_length_parse(parts[2], &step)),
             "--time=%s: expected the first initial time, the last one and what lies between two, such as "
             "2003-01-01/2003-12-31/12h",
             p->flags->time);
    for (int k = 0; k < 2; k++)
        VT_CHECK(vt_date_parse(parts[p->several ? k : 0], calendar, &ends[k]),
                 "--time=%s: expected a date like 2003-01-05T06:00 (UTC)%s%s, or several, 2003-01-01/2003-12-31/12h",
                 p->flags->time, calendar > VT_CALENDAR_PROLEPTIC ? ", in the calendar " : "",
                 calendar > VT_CALENDAR_PROLEPTIC ? vt_calendar_name(calendar) : "");
    VT_CHECK(ends[0].minutes <= ends[1].minutes, "--time=%s: the last initial time is before the first",
             p->flags->time);
    for (vt_date date = ends[0]; date.minutes <= ends[1].minutes;
         date = vt_date_after(ends[0], p->forecaster.from.count * step))
        VT_TRY(add_start(p, date));
done:
    free(text);
    return status;
}

/* The inputs alone matter: a forecast may begin at the last time of the files. */
static vt_status open_data(prediction *p)
{
    vt_status status = VT_OK;
    vt_initial_times *from = &p->forecaster.from;
    vt_dataset_options data = vt_fields_options(p->members.config, (vt_set)p->flags->split);
    data.reach = VT_REACH_INPUT;
    data.quiet = true;
    VT_TRY(vt_forecaster_open_data(p->members.models, data, &from->dataset));
    VT_TRY(vt_dataset_check_dates(from->dataset, "--time"));
    vt_dataset_log_coordinates(from->dataset);
    VT_TRY(find_starts(p));
    p->about = vt_fields_about_copy(from->dataset->about);
    p->about->dt = p->about->span_count = 0;
    p->about->times = from->count;
    vt_fields_about_add_span(p->about, vt_forecast_date(from->dataset, from->samples[0], 0),
                             vt_forecast_date(from->dataset, from->samples[from->count - 1], 0));
done:
    return status;
}

/* ---- the forecast ---- */

/* How large errors of forecasts in the training set are, at lead 0, 1, …: into f->mean, from a file that `vitrain
 * evaluate` has written. Errors: it is of another checkpoint or other data, or has fewer lead times. */
static vt_status read_stds(const char *path, const vt_forecaster *f, int64_t lead)
{
    vt_status status = VT_OK;
    const vt_trained *model = f->members->models;
    const vt_config *config = model->config;
    const int64_t height = config->img_size[0], width = config->img_size[1];
    const int64_t first[] = {lead, 0, 0}, count[] = {1, height, width};
    const char *const *names = vt_dataset_channel_names(f->from.dataset);
    char own[32], *made = NULL, *text = NULL, *name = NULL;
    vt_tensor_file *file = NULL;
    vt_fields_about *about = NULL;
    vt_store *store = NULL;
    vt_array *array = NULL;
    VT_TRY(vt_tensor_files_try(path));
    VT_TRY(vt_tensor_file_open(path, &file));
    VT_TRY(vt_tensor_file_get_text(file, "checkpoint", &made));
    snprintf(own, sizeof own, "crc32c %08x", (unsigned)model->checksum);
    VT_CHECK(strstr(made, own) != NULL, "it is of the checkpoint '%s', but %s is '%s'", made, model->checkpoint, own);
    VT_TRY(vt_tensor_file_get_text(file, "about", &text));
    VT_TRY(vt_fields_about_parse(text, path, &about));
    VT_TRY(vt_forecaster_compare(VT_SETS_OF_A_RUN, config, f->from.dataset, about, path));
    VT_TRY(vt_store_open(path, &store));
    for (int64_t c = 0; c < config->n_out_channels; c++) {
        free(name);
        vt_array_close(&array);
        name = vt_forecast_file_variable(names != NULL ? names[c] : NULL, c, "_error_std");
        VT_TRY(vt_array_find(store, name, &array));
        const int64_t *extent = array->extent;
        VT_CHECK(array->rank == 3 && array->element_size == sizeof(float) && lead < extent[0] && extent[1] == height &&
                     extent[2] == width,
                 "'%s' has %ld lead times of [%ld, %ld], but the forecast %ld of [%ld, %ld]", name, extent[0],
                 extent[1], extent[2], lead + 1, height, width);
        VT_TRY(store->kind->read(array, first, count, false, f->mean + c * height * width));
    }
done:
    vt_array_close(&array);
    vt_store_close(&store);
    vt_fields_about_close(&about);
    vt_tensor_file_close(&file);
    free(made);
    free(text);
    free(name);
    if (status != VT_OK)
        vt_error_context("--error_stds=%s (`vitrain evaluate %s --rollout=N --error_times=N` makes such a file)", path,
                         model->checkpoint);
    return status;
}

static vt_status open_result(prediction *p)
{
    vt_status status = VT_OK;
    const vt_predict_flags *flags = p->flags;
    const vt_forecast_file_options result = {.option = "--time",
                                             .path = flags->output,
                                             .command = p->command,
                                             .forecaster = &p->forecaster,
                                             .about = p->about,
                                             .steps = flags->rollout,
                                             .archive = p->several,
                                             .has_stds = flags->error_stds != NULL};
    if (flags->error_stds != NULL) /* does it reach the last lead time? */
        VT_TRY(read_stds(flags->error_stds, &p->forecaster, flags->rollout - 1));
    VT_TRY(vt_forecast_file_open(&result, &p->result));
done:
    return status;
}

/* All forecasts of a round for one lead time. */
static vt_status write_lead(prediction *p)
{
    vt_status status = VT_OK;
    vt_forecaster *f = &p->forecaster;
    const int64_t lead = f->lead - 1;
    VT_TRY(vt_forecast_file_write_lead(p->result, f));
    if (f->members->count > 0 && !p->several)
        VT_TRY(vt_forecast_file_write(p->result, 0, VT_FORECAST_MEAN, lead, vt_forecast_mean(f, 0)));
    if (p->flags->error_stds == NULL || f->first > 0) return VT_OK;
    VT_TRY(read_stds(p->flags->error_stds, f, lead));
    VT_TRY(vt_forecast_file_write(p->result, 0, VT_FORECAST_STD, lead, f->mean));
done:
    return status;
}

/* Collective. */
static vt_status take_lead(void *context)
{
    prediction *p = context;
    return vt_world_agree(p->forecaster.inference.world, p->result != NULL ? write_lead(p) : VT_OK);
}

static void say(const prediction *p)
{
    const vt_predict_flags *flags = p->flags;
    const vt_initial_times *from = &p->forecaster.from;
    const int64_t channels = p->members.config->n_out_channels, last_start = from->samples[from->count - 1];
    char first[VT_DATE_SIZE], last[VT_DATE_SIZE], starts[64] = "";
    char *members = p->members.count > 0 ? vt_members_describe(&p->members) : NULL;
    vt_date_format(vt_forecast_date(from->dataset, from->samples[0], p->several ? 0 : 1), first);
    vt_date_format(vt_forecast_date(from->dataset, last_start, p->several ? 0 : flags->rollout), last);
    if (p->several) snprintf(starts, sizeof starts, " from each of %ld initial times", from->count);
    vt_print("%s: %ld forecast%s of %s%s, %s to %s UTC, %ld channel%s%s%s\n", flags->output, flags->rollout,
             flags->rollout == 1 ? "" : "s", p->members.models[0].checkpoint, starts, first, last, channels,
             channels == 1 ? "" : "s", members != NULL ? "; " : "", members != NULL ? members : "");
    free(members);
}

static vt_status run(prediction *p)
{
    vt_status status = VT_OK;
    const vt_predict_flags *flags = p->flags;
    vt_forecaster *f = &p->forecaster;
    vt_world *world = f->inference.world;
    char *directory = vt_file_directory(flags->output);
    const bool writes = world->rank == 0;
    VT_TRY(vt_world_agree(world, open_data(p)));
    VT_TRY(vt_forecaster_open(f, p->about, directory));
    VT_TRY(vt_world_agree(world, vt_forecaster_find_forcings(f, flags->forcing_path, flags->rollout)));
    VT_TRY(vt_world_agree(world, writes ? open_result(p) : VT_OK));
    VT_TRY(vt_forecast_all(f, flags->rollout, take_lead, p));
    VT_TRY(vt_world_agree(world, writes ? vt_forecast_file_finish(&p->result) : VT_OK));
    if (writes) say(p);
done:
    free(directory);
    return status;
}

vt_status vt_command_predict(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_predict_flags *flags = call->flags;
    const char *named = call->operand_count > 0 ? call->operands[0] : NULL;
    prediction p = {.command = call->line, .flags = flags, .forecaster.members = &p.members};
    vt_world **world = &p.forecaster.inference.world;
    VT_CHECK((named != NULL || flags->checkpoints != NULL) && flags->time != NULL && flags->output != NULL,
             "predict: a CHECKPOINT, --time=DATE and --output=FILE.nc are needed; see `vitrain predict --help`");
    VT_TRY(vt_forecast_file_check_path("--output", flags->output, flags->force));
    VT_TRY(vt_members_configure(named, flags->checkpoints, flags->members, flags->rollout, call->option_count,
                                call->options, call->launch.world_size, &p.members));
    VT_CHECK(
        p.members.config->data_parallel == 1,
        "predict forecasts from one initial time, which the %ld ranks can only share as stages of the model: start "
        "one rank, or give --pipeline_parallel=%ld",
        p.members.config->ranks, p.members.config->ranks);
    VT_TRY(vt_world_open(p.members.config, &call->launch, world));
    vt_log_filter.muted = (*world)->rank != 0;
    VT_TRY(run(&p));
done:
    vt_forecast_file_close(&p.result);
    vt_forecaster_close(&p.forecaster, status);
    vt_fields_about_close(&p.about);
    vt_members_close(&p.members);
    return status;
}
