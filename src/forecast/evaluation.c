#include "forecast/evaluation_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/whole.h"
#include "storage/output_file.h"
#include "task/weather.h"

/* ---- what it needs ---- */

static vt_status find_starts(vt_evaluated *e, int64_t every)
{
    vt_status status = VT_OK;
    int64_t samples = vt_dataset_source(e->dataset)->sample_count, rollout = e->options->rollout;
    const vt_dataset_options *options = vt_dataset_options_of(e->dataset);
    e->starts = vt_allocate((size_t)samples, sizeof *e->starts, "the evaluation");
    for (int64_t i = 0; i < samples; i += every)
        if (vt_dataset_reaches(e->dataset, i, rollout)) e->starts[e->start_count++] = i;
    VT_CHECK(e->start_count > 0,
             "%s '%s': no file is long enough for a forecast of %lld steps, which spans %lld times; use a smaller "
             "--rollout",
             options->option_name, options->directory, (long long)rollout,
             (long long)(options->dt * (options->history + rollout) + 1));
done:
    return status;
}

static vt_status find_map_channel(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const char *wanted = e->options->channel;
    const int64_t channels = e->members->config->n_out_channels;
    vt_text there = {0};
    e->map_channel = vt_task_weather.pictured(e->members->config).field;
    if (wanted == NULL) return VT_OK;
    e->map_channel = 0;
    while (e->map_channel < channels && strcmp(e->names[e->map_channel], wanted) != 0) e->map_channel++;
    for (int64_t c = 0; c < channels; c++) vt_text_append(&there, " %s", e->names[c]);
    VT_CHECK(e->map_channel < channels, "--map_channel=%s: the model forecasts no such channel; it forecasts%s", wanted,
             there.characters);
done:
    vt_text_close(&there);
    return status;
}

/* Their names, which are numbers where the data have none, and what they mean. */
static void take_channels(vt_evaluated *e)
{
    const int64_t channels = e->members->config->n_out_channels;
    char buffer[32];
    e->names = vt_allocate((size_t)channels, sizeof *e->names, "the evaluation");
    e->variables = vt_allocate((size_t)channels, sizeof *e->variables, "the evaluation");
    for (int64_t c = 0; c < channels; c++) {
        e->names[c] = vt_text_copy(vt_scores_channel_name(vt_dataset_channel_names(e->dataset), c, buffer));
        e->variables[c] = vt_variable_described(e->names[c], vt_fields_about_meaning(vt_dataset_about(e->dataset), c));
    }
}

static vt_status open_data(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const vt_config *config = e->members->config;
    e->plane = config->img_size[0] * config->img_size[1];
    vt_dataset_options data = vt_fields_options(config, e->options->test ? VT_SET_TEST : VT_SET_VALIDATION);
    data.sample_limit = config->limit_nsamples_val;
    VT_TRY(vt_forecaster_open_data(e->members->models, data, &e->dataset));
    e->step = vt_dataset_minutes_a_time(e->dataset) * config->dt;
    vt_dataset_log_coordinates(e->dataset);
    VT_TRY(find_starts(e, e->options->every));
    VT_TRY(vt_climatologies_read(e));
    take_channels(e);
    VT_TRY(find_map_channel(e));
done:
    return status;
}

static vt_status take_memory(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const vt_config *config = e->members->config;
    const size_t out = (size_t)(config->n_out_channels * e->plane);
    VT_TRY(vt_states_open(e->members, e->world, e->forecaster, e->dataset, e->start_count, e->options->place.directory,
                          &e->states));
    e->persistence = vt_allocate((size_t)(e->states.batch + 2), out * sizeof(float), "the evaluation");
    e->target = e->persistence + (size_t)e->states.batch * out;
    e->seasonal = e->target + out;
    const vt_task *task = vt_forecaster_task(e->forecaster);
    e->stds = vt_allocate((size_t)task->field_count, sizeof *e->stds, "the evaluation");
    vt_weather_stds(task, e->stds);
    const double *longitudes = vt_dataset_known_coordinate(e->dataset, true);
    const vt_scores_options options = {.leads = e->options->rollout,
                                       .channels = config->n_out_channels,
                                       .height = config->img_size[0],
                                       .width = config->img_size[1],
                                       .latitudes = vt_dataset_latitudes(e->dataset),
                                       .climatology = e->mean,
                                       .stds = e->stds,
                                       .members = vt_members_number(e->members),
                                       .goes_round =
                                           longitudes != NULL && vt_window_goes_round(longitudes, config->img_size[1]),
                                       .names = (const char *const *)e->names,
                                       .variables = e->variables,
                                       .step = e->step};
    vt_scores_open(&options, &e->scores);
    if (e->members->count > 0) vt_ensemble_open(&options, &e->ensemble);
    vt_spectra_open(&options, &e->spectra);
done:
    return status;
}

/* ---- forecasts ---- */

/* Scores forecast i of those made at once, lead + 1 steps behind initial time `index`: of an ensemble the mean. From
 * the training set its errors alone are wanted, and those of the climatology. */
static vt_status take_forecast(vt_evaluated *e, int64_t index, int64_t i, int64_t lead)
{
    vt_status status = VT_OK;
    const int64_t start = e->starts[index], leads = e->options->rollout;
    const vt_seasonal *seasonal = e->climatology;
    const float *forecast = vt_states_forecast(&e->states, i);
    float *persistence = e->persistence + i * e->members->config->n_out_channels * e->plane;
    vt_score_fields fields = {.forecast = forecast, .target = e->target, .persistence = persistence};
    vt_date date = {0};
    VT_TRY(vt_dataset_read_later(e->dataset, start, lead + 1, e->target));
    if (seasonal != NULL && vt_dataset_date(e->dataset, start, lead + 1, &date) && vt_seasonal_has(seasonal, date)) {
        VT_TRY(vt_seasonal_at(seasonal, date, e->seasonal));
        fields.seasonal = e->seasonal;
    }
    if (e->of_training) {
        const float *climatology = seasonal != NULL ? fields.seasonal : e->mean;
        vt_training_errors_add(&e->errors, lead, forecast, e->target);
        if (climatology != NULL) vt_training_errors_add(&e->errors, leads, climatology, e->target);
        return VT_OK;
    }
    if (lead == 0) VT_TRY(vt_dataset_read_later(e->dataset, start, 0, persistence)); /* forecasts what they are */
    for (int k = 0; k < 2; k++) fields.stds[k] = vt_training_errors_stds(&e->errors, k == 0 ? lead : leads);
    vt_scores_add(e->scores, lead, &fields);
    if (e->ensemble != NULL) vt_ensemble_add(e->ensemble, lead, e->states.fields, e->target);
    vt_spectra_add(e->spectra, lead, forecast, e->target);
    if (index == 0) VT_TRY(vt_maps_draw(e, lead, e->target, forecast));
done:
    return status;
}

/* ---- files of forecasts ---- */

/* On rank 0: opens the file of all forecasts; of the training set, writes how large errors are. */
static vt_status open_archive(vt_evaluated *e, const char *path)
{
    vt_status status = VT_OK;
    const vt_evaluation_options *options = e->options;
    const vt_forecast_file_options result = {.option = "--forecasts",
                                             .path = path,
                                             .command = options->command,
                                             .states = &e->states,
                                             .about = vt_dataset_about(e->dataset),
                                             .starts = e->starts,
                                             .start_count = e->of_training ? 0 : e->start_count,
                                             .steps = options->rollout,
                                             .archive = true,
                                             .has_stds = e->of_training};
    if (e->world->rank > 0) return VT_OK;
    VT_TRY(vt_forecast_file_open(&result, &e->archive));
    for (int64_t lead = 0; lead < options->rollout && e->of_training; lead++)
        VT_TRY(vt_forecast_file_write(e->archive, 0, VT_FORECAST_STD, lead, vt_training_errors_stds(&e->errors, lead)));
done:
    return status;
}

/* Collective. The first stage of a model takes its forecasts. */
static vt_status take_lead(void *context, int64_t first)
{
    vt_status status = VT_OK;
    vt_evaluated *e = context;
    const bool has_forecasts = e->world->coordinate[VT_AXIS_PIPELINE] == 0;
    for (int64_t i = 0; i < e->states.count && has_forecasts && status == VT_OK; i++)
        status = take_forecast(e, first + i, i, e->states.lead - 1);
    VT_TRY(vt_world_agree(e->world, status));
    if (e->models == NULL) goto done;
    if (has_forecasts) status = vt_forecast_file_write_lead(e->archive, e->models, &e->states, first);
    VT_TRY(vt_world_agree(e->world, status));
done:
    return status;
}

static vt_status forecast_all(vt_evaluated *e)
{
    return vt_states_forecast_all(&e->states, e->starts, e->start_count, e->options->rollout, take_lead, e);
}

/* ---- errors in the training set ---- */

/* The training set in the place of the other one, and as many of its initial times as of that, or as error_times says:
 * one of each of as many equal parts, at a place that differs from part to part, so that all times of day occur. */
static vt_status open_training_set(vt_evaluated *t)
{
    vt_status status = VT_OK;
    const vt_config *config = t->members->config;
    const vt_dataset *scored = t->dataset;
    const int64_t asked = t->options->error_times, most = asked > 0 ? asked : t->start_count;
    t->dataset = NULL;
    t->starts = NULL;
    t->start_count = 0;
    vt_dataset_options data = vt_fields_options(config, VT_SET_TRAINING);
    data.sample_limit = config->limit_nsamples;
    VT_TRY(vt_forecaster_open_data(t->members->models, data, &t->dataset));
    VT_TRY(vt_forecaster_compare(VT_SETS_OF_A_RUN, config, scored, vt_dataset_about(t->dataset), data.directory));
    VT_TRY(find_starts(t, 1));
    const double part = (double)t->start_count / (double)most;
    for (int64_t i = 0; i < most && part > 1; i++)
        t->starts[i] = t->starts[(int64_t)(((double)i + fmod((double)i * 0.618034, 1)) * part)]; /* the golden ratio */
    if (most < t->start_count) t->start_count = most;
    t->errors = (vt_training_errors){t->options->rollout, config->n_out_channels * t->plane, t->start_count, 0, NULL};
    t->errors.bytes = (size_t)((t->errors.leads + 1) * t->errors.size * 2) * sizeof(double);
    VT_TRY(vt_scratch_open(t->options->place.directory, t->errors.bytes, &t->errors.memory));
done:
    return status;
}

/* Collective. Finds errors by forecasts from the training set, in the memory of e->states. A training set that can't be
 * used is only a warning. */
static vt_status find_errors(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const int64_t asked = e->options->error_times;
    vt_evaluated t = *e;
    if (asked == 0 || (asked < 0 && e->ensemble == NULL)) return VT_OK;
    t.of_training = true;
    t.models = NULL;
    t.archive = NULL;
    char *cause = vt_world_cause(e->world, open_training_set(&t));
    char *path = vt_text_format("%s/error_stds.nc", e->options->place.directory);
    vt_error_clear();
    e->errors = t.errors; /* which closes with e */
    if (cause != NULL) {
        vt_scratch_close(&e->errors.memory, e->errors.bytes);
        vt_log_warning("dressed forecasts can't be scored, as the training set can't be used: %s. "
                       "--train_data_path=DIR names it; --error_times=0 leaves that score out",
                       cause);
        goto done;
    }
    VT_TRY(vt_source_check_same(e->world, (const vt_source *const[]){vt_dataset_source(t.dataset)}, 1, NULL));
    t.states.dataset = t.dataset;
    status = forecast_all(&t);
    if (status == VT_ERROR) vt_error_context("forecasts from the training set, which --error_times=0 leaves out");
    if (status != VT_OK) goto done;
    vt_training_errors_finish(&t.errors, e->world);
    VT_TRY(vt_world_agree(e->world, open_archive(&t, path)));
    VT_TRY(vt_world_agree(e->world, t.archive != NULL ? vt_forecast_file_finish(&t.archive) : VT_OK));
done:
    vt_forecast_file_close(&t.archive);
    vt_dataset_close(&t.dataset);
    free(t.starts);
    free(cause);
    free(path);
    return status;
}

static vt_status run_phases(vt_evaluated *e)
{
    vt_status status = VT_OK;
    VT_TRY(vt_world_agree(e->world, open_data(e)));
    VT_TRY(vt_source_check_same(e->world, (const vt_source *const[]){vt_dataset_source(e->dataset)}, 1, NULL));
    vt_source_add_files(vt_dataset_source(e->dataset), &e->options->place.made_from);
    VT_TRY(vt_place_take(&e->options->place, e->world));
    if (e->world->rank == 0) vt_maps_clear(e->options->place.directory);
    VT_TRY(vt_forecaster_open(e->members, e->world, e->dataset, vt_dataset_about(e->dataset), &e->forecaster));
    VT_TRY(vt_world_agree(e->world, take_memory(e)));
    if (e->options->forecasts != NULL) {
        VT_TRY(vt_world_group(e->world, VT_AXES(VT_AXIS_DATA), VT_SCOPE_ALL, "forecasts", NULL, &e->models));
        VT_TRY(vt_world_agree(e->world, open_archive(e, e->options->forecasts)));
    }
    const int64_t every = e->options->every;
    e->loss_count = vt_quotient_up(vt_dataset_source(e->dataset)->sample_count, every);
    VT_TRY(vt_forecaster_validate(e->forecaster, every, &e->loss));
    VT_TRY(find_errors(e));
    VT_TRY(forecast_all(e));
    VT_TRY(vt_world_agree(e->world, e->archive != NULL ? vt_forecast_file_finish(&e->archive) : VT_OK));
    /* their sums become those over the initial times of all ranks */
    const vt_scores *const all[] = {e->scores, e->spectra, e->ensemble};
    for (int i = 0; i < 3; i++)
        if (all[i] != NULL) vt_world_sum(e->world, all[i]->sums, all[i]->count);
    VT_TRY(vt_world_agree(e->world, e->world->rank == 0 ? vt_evaluation_report(e) : VT_OK));
done:
    return status;
}

vt_status vt_evaluate(vt_evaluation_options *options, const vt_launch *launch)
{
    vt_status status = VT_OK;
    vt_evaluated e = {.options = options, .members = &options->members};
    VT_TRY(vt_world_open(e.members->config, launch, &e.world));
    vt_log_filter.muted = e.world->rank != 0;
    status = run_phases(&e);
done:
    vt_scores_close(&e.scores);
    vt_scores_close(&e.ensemble);
    vt_scores_close(&e.spectra);
    vt_scratch_close(&e.errors.memory, e.errors.bytes);
    vt_forecast_file_close(&e.archive);
    free(e.mean);
    vt_seasonal_close(&e.climatology);
    vt_states_close(&e.states);
    vt_forecaster_close(&e.forecaster);
    vt_dataset_close(&e.dataset);
    free(e.starts);
    free(e.variables);
    vt_text_free_list(e.names, e.members->config->n_out_channels);
    free(e.persistence);
    free(e.stds);
    vt_world_close(&e.world, status == VT_ERROR);
    return status;
}
