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

/* Every N-th sample of the dataset that reaches to the last lead time. */
static vt_status find_starts(vt_initial_times *from, int64_t rollout, int64_t every)
{
    vt_status status = VT_OK;
    const int64_t samples = from->dataset->source.sample_count;
    const vt_dataset_options *options = &from->dataset->options;
    from->samples = vt_allocate((size_t)samples, sizeof *from->samples, "the evaluation");
    for (int64_t i = 0; i < samples; i += every)
        if (vt_dataset_reaches(from->dataset, i, rollout)) from->samples[from->count++] = i;
    VT_CHECK(from->count > 0,
             "%s '%s': no file is long enough for a forecast of %ld steps, which spans %ld times; use a smaller "
             "--rollout",
             options->option_name, options->directory, rollout, options->dt * (options->history + rollout) + 1);
done:
    return status;
}

/* Their names, which are numbers where the data have none, what they mean, and which one the maps show. */
static vt_status take_channels(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const vt_config *config = e->options->members.config;
    const vt_dataset *dataset = e->forecaster.from.dataset;
    const char *wanted = e->options->channel;
    vt_text all = {0};
    char buffer[32];
    e->names = vt_allocate((size_t)config->n_out_channels, sizeof *e->names, "the evaluation");
    e->variables = vt_allocate((size_t)config->n_out_channels, sizeof *e->variables, "the evaluation");
    e->map_channel = wanted == NULL ? vt_task_weather.pictured(config).field : -1;
    for (int64_t c = 0; c < config->n_out_channels; c++) {
        e->names[c] = vt_text_copy(vt_scores_channel_name(vt_dataset_channel_names(dataset), c, buffer));
        e->variables[c] = vt_variable_described(e->names[c], vt_fields_about_meaning(dataset->about, c));
        if (wanted != NULL && e->map_channel < 0 && strcmp(e->names[c], wanted) == 0) e->map_channel = c;
        vt_text_append(&all, " %s", e->names[c]);
    }
    VT_CHECK(e->map_channel >= 0, "--map_channel=%s: the model forecasts no such channel; it forecasts%s", wanted,
             all.characters);
done:
    vt_text_close(&all);
    return status;
}

static vt_status open_data(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const vt_config *config = e->options->members.config;
    vt_initial_times *from = &e->forecaster.from;
    vt_dataset_options data = vt_fields_options(config, e->options->test ? VT_SET_TEST : VT_SET_VALIDATION);
    data.sample_limit = config->limit_nsamples_val;
    VT_TRY(vt_forecaster_open_data(e->options->members.models, data, &from->dataset));
    e->step = vt_forecast_step(from->dataset);
    vt_dataset_log_coordinates(from->dataset);
    VT_TRY(find_starts(from, e->options->rollout, e->options->every));
    VT_TRY(vt_climatologies_read(e));
    VT_TRY(take_channels(e));
done:
    return status;
}

static void take_memory(vt_evaluated *e)
{
    const vt_config *config = e->options->members.config;
    const vt_task *task = e->forecaster.inference.task;
    const vt_dataset *dataset = e->forecaster.from.dataset;
    const size_t out = (size_t)e->forecaster.out, batch = (size_t)e->forecaster.batch;
    e->persistence = vt_allocate(batch + 2, out * sizeof(float), "the evaluation");
    e->target = e->persistence + batch * out;
    e->seasonal = e->target + out;
    e->stds = vt_allocate((size_t)task->field_count, sizeof *e->stds, "the evaluation");
    vt_weather_stds(task, e->stds);
    const double *longitudes = vt_dataset_known_coordinate(dataset, true);
    const vt_scores_options options = {.leads = e->options->rollout,
                                       .channels = config->n_out_channels,
                                       .height = config->img_size[0],
                                       .width = config->img_size[1],
                                       .latitudes = dataset->latitudes,
                                       .climatology = e->mean,
                                       .stds = e->stds,
                                       .members = e->forecaster.number,
                                       .goes_round =
                                           longitudes != NULL && vt_window_period(longitudes, config->img_size[1]) > 0,
                                       .names = (const char *const *)e->names,
                                       .variables = e->variables,
                                       .step = e->step};
    vt_scores_open(&options, &e->scores);
    if (e->options->members.count > 0) vt_ensemble_open(&options, &e->ensemble);
    vt_spectra_open(&options, &e->spectra);
}

/* ---- how large errors are ---- */

/* Adds the errors of a forecast at lead 0, 1, …, or at `leads` of the climatology; those that are NaN are left out. In
 * the memory are first, of each number, the sum of its squared errors and how many there are. In the end its beginning
 * holds the roots of their means, as float32. */
static void add_errors(vt_training_errors *errors, int64_t lead, const float *forecast, const float *target)
{
    double *sums = (double *)errors->memory + lead * errors->size * 2;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < errors->size; i++) {
        const double error = (double)forecast[i] - (double)target[i];
        if (isnan(error)) continue;
        sums[2 * i] += error * error;
        sums[2 * i + 1] += 1;
    }
}

/* Collective: what they are over all ranks. */
static void finish_errors(vt_training_errors *errors, vt_world *world)
{
    double *sums = errors->memory;
    for (int64_t lead = 0; lead <= errors->leads; lead++)
        vt_world_sum(world, sums + lead * errors->size * 2, errors->size * 2);
    for (int64_t i = 0; i < (errors->leads + 1) * errors->size; i++) {
        const float std = (float)sqrt(sums[2 * i] / sums[2 * i + 1]); /* NaN if there are none */
        memcpy((char *)errors->memory + (size_t)i * sizeof std, &std, sizeof std);
    }
}

/* How large they are then, [size]; NaN: none was added. NULL: nothing is known. */
static const float *errors_at(const vt_training_errors *errors, int64_t lead)
{
    return errors->memory != NULL ? (const float *)errors->memory + lead * errors->size : NULL;
}

/* ---- forecasts ---- */

/* Scores forecast i of those made at once, of an ensemble the mean. From the training set its errors alone are wanted,
 * and those of the climatology. */
static vt_status take_forecast(vt_evaluated *e, int64_t i)
{
    vt_status status = VT_OK;
    const int64_t index = e->forecaster.first + i, lead = e->forecaster.lead - 1, leads = e->options->rollout;
    const int64_t start = e->forecaster.from.samples[index];
    vt_dataset *dataset = e->forecaster.from.dataset;
    const vt_seasonal *seasonal = e->climatology;
    const float *forecast = vt_forecast_mean(&e->forecaster, i);
    float *persistence = e->persistence + i * e->forecaster.out;
    vt_score_fields fields = {.forecast = forecast, .target = e->target, .persistence = persistence};
    vt_date date = {0};
    VT_TRY(vt_dataset_read_later(dataset, start, lead + 1, e->target));
    if (seasonal != NULL && vt_dataset_date(dataset, start, lead + 1, &date) && vt_seasonal_has(seasonal, date)) {
        VT_TRY(vt_seasonal_at(seasonal, date, e->seasonal));
        fields.seasonal = e->seasonal;
    }
    if (e->of_training) {
        const float *climatology = seasonal != NULL ? fields.seasonal : e->mean;
        add_errors(&e->errors, lead, forecast, e->target);
        if (climatology != NULL) add_errors(&e->errors, leads, climatology, e->target);
        return VT_OK;
    }
    if (lead == 0) VT_TRY(vt_dataset_read_later(dataset, start, 0, persistence)); /* forecasts what they are */
    for (int k = 0; k < 2; k++) fields.stds[k] = errors_at(&e->errors, k == 0 ? lead : leads);
    vt_scores_add(e->scores, lead, &fields);
    if (e->ensemble != NULL) vt_ensemble_add(e->ensemble, lead, e->forecaster.fields, e->target);
    vt_spectra_add(e->spectra, lead, forecast, e->target);
    if (index == 0) VT_TRY(vt_maps_draw(e, lead, e->target, forecast));
done:
    return status;
}

/* ---- files of forecasts ---- */

/* On rank 0: opens a file of all forecasts, or of how large errors in the training set are. */
static vt_status open_file(vt_evaluated *e, const char *path, vt_forecast_file **file)
{
    const vt_forecast_file_options result = {.option = "--forecasts",
                                             .path = path,
                                             .command = e->options->command,
                                             .forecaster = &e->forecaster,
                                             .about = e->forecaster.from.dataset->about,
                                             .steps = e->options->rollout,
                                             .archive = true,
                                             .has_stds = e->of_training,
                                             .stds_alone = e->of_training};
    return e->forecaster.inference.world->rank == 0 ? vt_forecast_file_open(&result, file) : VT_OK;
}

/* Collective. The first stage of a model takes its forecasts. */
static vt_status take_lead(void *context)
{
    vt_status status = VT_OK;
    vt_evaluated *e = context;
    vt_forecaster *f = &e->forecaster;
    vt_world *world = f->inference.world;
    const bool has_forecasts = world->coordinate[VT_AXIS_PIPELINE] == 0;
    for (int64_t i = 0; i < f->count && has_forecasts && status == VT_OK; i++) status = take_forecast(e, i);
    VT_TRY(vt_world_agree(world, status));
    if (e->options->forecasts == NULL || e->of_training) goto done;
    if (has_forecasts) status = vt_forecast_file_write_lead(e->archive, f);
    VT_TRY(vt_world_agree(world, status));
done:
    return status;
}

/* ---- errors in the training set ---- */

/* As many initial times of the training set as there are of the other one, or as error_times says: one of each of as
 * many equal parts, at a place that differs from part to part, so that all times of day occur. */
static vt_status open_training_set(vt_evaluated *e, vt_initial_times *from)
{
    vt_status status = VT_OK;
    const vt_config *config = e->options->members.config;
    const vt_initial_times *scored = &e->forecaster.from;
    const int64_t asked = e->options->error_times, most = asked > 0 ? asked : scored->count;
    vt_training_errors *errors = &e->errors;
    vt_dataset_options data = vt_fields_options(config, VT_SET_TRAINING);
    data.sample_limit = config->limit_nsamples;
    VT_TRY(vt_forecaster_open_data(e->options->members.models, data, &from->dataset));
    VT_TRY(vt_forecaster_compare(VT_SETS_OF_A_RUN, config, scored->dataset, from->dataset->about, data.directory));
    VT_TRY(find_starts(from, e->options->rollout, 1));
    const double part = (double)from->count / (double)most;
    for (int64_t i = 0; i < most && part > 1; i++)
        from->samples[i] =
            from->samples[(int64_t)(((double)i + fmod((double)i * 0.618034, 1)) * part)]; /* the golden ratio */
    from->count = vt_smaller(most, from->count);
    *errors = (vt_training_errors){e->options->rollout, e->forecaster.out, from->count, 0, NULL};
    errors->bytes = (size_t)((errors->leads + 1) * errors->size * 2) * sizeof(double);
    VT_TRY(vt_scratch_open(e->options->place.directory, errors->bytes, &errors->memory));
done:
    return status;
}

/* Collective. Finds errors by forecasts from the training set, which for that takes the place of the other one. */
static vt_status find_errors_in(vt_evaluated *e, vt_initial_times training)
{
    vt_status status = VT_OK;
    vt_world *world = e->forecaster.inference.world;
    vt_forecast_file *file = NULL;
    const vt_initial_times scored = e->forecaster.from;
    char *path = vt_text_format("%s/error_stds.nc", e->options->place.directory);
    e->forecaster.from = training;
    e->of_training = true;
    VT_TRY(vt_source_check_same(world, (const vt_source *const[]){&training.dataset->source}, 1, NULL));
    status = vt_forecast_all(&e->forecaster, e->options->rollout, take_lead, e);
    if (status == VT_ERROR) vt_error_context("forecasts from the training set, which --error_times=0 leaves out");
    if (status != VT_OK) goto done;
    finish_errors(&e->errors, world);
    VT_TRY(vt_world_agree(world, open_file(e, path, &file)));
    for (int64_t lead = 0; lead < e->options->rollout && file != NULL && status == VT_OK; lead++)
        status = vt_forecast_file_write(file, 0, VT_FORECAST_STD, lead, errors_at(&e->errors, lead));
    if (file != NULL && status == VT_OK) status = vt_forecast_file_finish(&file);
    VT_TRY(vt_world_agree(world, status));
done:
    vt_forecast_file_close(&file);
    free(path);
    e->forecaster.from = scored;
    e->of_training = false;
    return status;
}

/* Collective. A training set that can't be used is only a warning. */
static vt_status find_errors(vt_evaluated *e)
{
    vt_status status = VT_OK;
    const int64_t asked = e->options->error_times;
    vt_initial_times training = {0};
    if (asked == 0 || (asked < 0 && e->ensemble == NULL)) return VT_OK;
    char *cause = vt_world_cause(e->forecaster.inference.world, open_training_set(e, &training));
    vt_error_clear();
    if (cause == NULL) {
        status = find_errors_in(e, training);
    } else {
        vt_scratch_close(&e->errors.memory, e->errors.bytes);
        vt_log_warning("dressed forecasts can't be scored, as the training set can't be used: %s. "
                       "--train_data_path=DIR names it; --error_times=0 leaves that score out",
                       cause);
    }
    vt_dataset_close(&training.dataset);
    free(training.samples);
    free(cause);
    return status;
}

static vt_status run_phases(vt_evaluated *e)
{
    vt_status status = VT_OK;
    vt_evaluation_options *options = e->options;
    vt_forecaster *f = &e->forecaster;
    vt_world *world = f->inference.world;
    VT_TRY(vt_world_agree(world, open_data(e)));
    const vt_source *set = &f->from.dataset->source;
    VT_TRY(vt_source_check_same(world, &set, 1, NULL));
    vt_source_add_files(set, &options->place.made_from);
    VT_TRY(vt_place_take(&options->place, world));
    if (world->rank == 0) vt_maps_clear(options->place.directory);
    VT_TRY(vt_forecaster_open(f, f->from.dataset->about, options->place.directory));
    take_memory(e);
    if (options->forecasts != NULL) VT_TRY(vt_world_agree(world, open_file(e, options->forecasts, &e->archive)));
    e->loss_count = vt_quotient_up(set->sample_count, options->every);
    VT_TRY(vt_forecaster_validate(f, options->every, &e->loss));
    VT_TRY(find_errors(e));
    VT_TRY(vt_forecast_all(f, options->rollout, take_lead, e));
    VT_TRY(vt_world_agree(world, e->archive != NULL ? vt_forecast_file_finish(&e->archive) : VT_OK));
    /* their sums become those over the initial times of all ranks */
    const vt_scores *const all[] = {e->scores, e->spectra, e->ensemble};
    for (int i = 0; i < 3; i++)
        if (all[i] != NULL) vt_world_sum(world, all[i]->sums, all[i]->count);
    VT_TRY(vt_world_agree(world, world->rank == 0 ? vt_evaluation_report(e) : VT_OK));
done:
    return status;
}

vt_status vt_evaluate(vt_evaluation_options *options, const vt_launch *launch)
{
    vt_status status = VT_OK;
    vt_evaluated e = {.options = options, .forecaster.members = &options->members};
    vt_world **world = &e.forecaster.inference.world;
    VT_TRY(vt_world_open(options->members.config, launch, world));
    vt_log_filter.muted = (*world)->rank != 0;
    status = run_phases(&e);
done:
    vt_scores_close(&e.scores);
    vt_scores_close(&e.ensemble);
    vt_scores_close(&e.spectra);
    vt_scratch_close(&e.errors.memory, e.errors.bytes);
    vt_forecast_file_close(&e.archive);
    free(e.mean);
    vt_seasonal_close(&e.climatology);
    free(e.variables);
    vt_text_free_list(e.names, options->members.config->n_out_channels);
    free(e.persistence);
    free(e.stds);
    vt_forecaster_close(&e.forecaster, status);
    return status;
}
