#include "forecast/forecaster.h"

#include <stdlib.h>

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "config/roles.h"
#include "task/weather.h"
#include "training/plan.h"
#include "training/reader.h"

vt_status vt_forecaster_open_data(const vt_trained *model, vt_dataset_options options, vt_dataset **dataset)
{
    const vt_config *config = model->config;
    options.known = vt_known_options_of(config);
    if (config->normalise == VT_NORMALISE_CLIMATOLOGY) options.climatology = config->climatology_path;
    if (options.form.variables == NULL) options.form.like = model->about;
    return vt_dataset_open(&options, dataset);
}

vt_status vt_forecaster_compare(vt_fields_use use, const vt_config *config, const vt_dataset *dataset,
                                const vt_fields_about *about, const char *name)
{
    const vt_fields_rules rules = {.use = use, .accepted = config->accept, .any_transform = true};
    const vt_fields_side data = {dataset->about, dataset->source.path};
    return about != NULL ? vt_fields_agree(&rules, &data, &(vt_fields_side){about, name}) : VT_OK;
}

/* The checkpoint's normalisation takes the place of the files' when its parameters are read. */
static vt_status open_task(vt_forecaster *f, const vt_fields_about *about)
{
    const vt_trained *model = f->members->models;
    const vt_dataset *dataset = f->from.dataset;
    const vt_weather_data data = {.about = about,
                                  .name = dataset->source.path,
                                  .latitudes = dataset->latitudes,
                                  .seasonal = dataset->seasonal,
                                  .transforms = dataset->transforms,
                                  .may_be_unread = model->about != NULL && model->about->normalisation.stds != NULL};
    return vt_weather_open(model->config, &data, &f->inference.task);
}

/* ---- a model of any kind ---- */

/* A trainer that only predicts, once the device is open and the plan fits into its memory. */
static vt_status open_trainer(const vt_config *config, vt_inference *inference)
{
    vt_status status = VT_OK;
    vt_plan plan;
    vt_world *world = inference->world;
    vt_backend *backend = inference->backend;
    const vt_plan_options planned = vt_plan_options_of(world, backend);
    const vt_trainer_options options = {.world = world, .task = inference->task, .steps = 1};
    VT_TRY(vt_world_open_device(config, world, backend));
    VT_TRY(vt_plan_make(config, &planned, &plan));
    plan.message_bytes = 0; /* no gradients are summed */
    const double available = backend->available_memory(backend) / vt_world_ranks_of_memory(world, backend);
    VT_TRY(vt_budget_check(config, &planned, &plan, available, false));
    VT_TRY(vt_trainer_open(config, &options, backend, &inference->trainer));
done:
    return status;
}

static vt_status read_parameters(const vt_trained *model, const vt_inference *inference)
{
    vt_checkpoint_subject subject = vt_trainer_subject(inference->trainer);
    subject.forecasts = true;
    return vt_world_agree(inference->world, vt_checkpoint_read_parameters(model->checkpoint, &subject, NULL));
}

vt_status vt_inference_open(const vt_trained *model, vt_inference *inference)
{
    vt_status status = VT_OK;
    vt_world *world = inference->world;
    VT_TRY(vt_world_agree(world, vt_world_open_backend(model->config, world, &inference->backend)));
    VT_TRY(vt_world_agree(world, open_trainer(model->config, inference)));
    VT_TRY(read_parameters(model, inference));
done:
    return status;
}

void vt_inference_close(vt_inference *inference, vt_status status)
{
    vt_trainer_close(&inference->trainer);
    vt_task_close(&inference->task);
    vt_backend_close(&inference->backend);
    vt_world_close(&inference->world, status == VT_ERROR);
}

/* ---- the members of an ensemble ---- */

static size_t weight_bytes(const vt_forecaster *f)
{
    const vt_parameters *parameters = vt_trainer_parameters(f->inference.trainer);
    return (size_t)vt_parameters_block_elements(parameters, VT_BLOCK_VALUES) * sizeof(float);
}

/* Keeps the parameters that the model has, those of checkpoint `index`. */
static vt_status keep_weights(vt_forecaster *f, int64_t index)
{
    vt_status status = VT_OK;
    vt_backend *backend = f->inference.backend;
    f->weights[index] = vt_allocate_large(weight_bytes(f));
    VT_CHECK(f->weights[index] != NULL, "out of memory: could not get %zu bytes for the parameters of %s",
             weight_bytes(f), f->members->models[index].checkpoint);
    backend->copy_to_host(backend, f->weights[index], vt_trainer_parameters(f->inference.trainer)->values,
                          weight_bytes(f));
    f->chosen = index;
done:
    return status;
}

/* Checkpoints of one ensemble see their fields normalised alike. */
static vt_status check_normalisation(const vt_task *task, const vt_trained *model)
{
    vt_status status = VT_OK;
    const vt_fields_about *about = model->about;
    const vt_fields_normalisation *own = &task->about->normalisation;
    if (about == NULL || about->normalisation.stds == NULL || own->stds == NULL) return VT_OK;
    for (int64_t c = 0; c < task->field_count && c < about->channels; c++)
        VT_CHECK(own->means[c] == about->normalisation.means[c] && own->stds[c] == about->normalisation.stds[c],
                 "--checkpoints: %s was trained on channel %ld with mean %g and standard deviation %g, the first one "
                 "with %g and %g; the models of an ensemble may differ in their weights alone",
                 model->checkpoint, c, about->normalisation.means[c], about->normalisation.stds[c], own->means[c],
                 own->stds[c]);
done:
    return status;
}

/* Collective. The parameters of the first checkpoint are there already. */
static vt_status keep_all_weights(vt_forecaster *f)
{
    vt_status status = VT_OK;
    const vt_members *members = f->members;
    vt_world *world = f->inference.world;
    if (members->model_count == 1) return VT_OK;
    f->weights = vt_allocate((size_t)members->model_count, sizeof *f->weights, "the forecaster");
    for (int64_t i = 0; i < members->model_count; i++) {
        const vt_trained *model = &members->models[i];
        if (i > 0) VT_TRY(vt_world_agree(world, check_normalisation(f->inference.task, model)));
        if (i > 0) VT_TRY(read_parameters(model, &f->inference));
        VT_TRY(vt_world_agree(world, keep_weights(f, i)));
    }
done:
    return status;
}

void vt_forecaster_choose(vt_forecaster *f, int64_t index)
{
    vt_backend *backend = f->inference.backend;
    vt_trainer *trainer = f->inference.trainer;
    if (index == f->chosen) return;
    backend->copy_from_host(backend, vt_trainer_parameters(trainer)->values, f->weights[index], weight_bytes(f));
    vt_gradient_sync_values_changed(vt_trainer_subject(trainer).sync);
    f->chosen = index;
}

/* ---- all of it ---- */

vt_status vt_forecaster_open(vt_forecaster *f, const vt_fields_about *about, const char *directory)
{
    vt_status status = VT_OK;
    const vt_trained *first = f->members->models;
    const int64_t *size = first->config->img_size, channels = vt_config_forcing_channels(first->config);
    vt_world *world = f->inference.world;
    VT_TRY(vt_world_agree(world, open_task(f, about)));
    VT_TRY(vt_inference_open(first, &f->inference));
    vt_trainer_set_epoch(f->inference.trainer, first->epoch);
    VT_TRY(vt_world_group(world, VT_AXES(VT_AXIS_PIPELINE), VT_SCOPE_ALL, "forecasts", NULL, &f->stages));
    VT_TRY(vt_world_group(world, VT_AXES(VT_AXIS_DATA), VT_SCOPE_ALL, "forecasts", NULL, &f->models));
    if (channels > 0)
        f->forcings = vt_allocate((size_t)(vt_trainer_micro_batch(first->config) * channels * size[0] * size[1]),
                                  sizeof(float), "the forecaster");
    VT_TRY(keep_all_weights(f));
    VT_TRY(vt_world_agree(world, vt_states_open(f, directory)));
done:
    return status;
}

void vt_forecaster_close(vt_forecaster *f, vt_status status)
{
    vt_states_close(f);
    for (int64_t i = 0; f->weights != NULL && i < f->members->model_count; i++) free(f->weights[i]);
    free(f->weights);
    free(f->forcings);
    vt_dataset_close(&f->given);
    free(f->given_variables);
    vt_inference_close(&f->inference, status);
    vt_dataset_close(&f->from.dataset);
    free(f->from.samples);
}

/* ---- forcings ---- */

/* Files that hold the forcings alone, on the dataset's grid. */
static vt_status open_given(vt_forecaster *f, const char *directory)
{
    vt_status status = VT_OK;
    const vt_dataset_options *own = &f->from.dataset->options;
    vt_dataset_options options = *own;
    options.form.variables = f->given_variables = vt_config_forcing_variables(f->members->config);
    options.form.period = options.form.transform = options.form.bounds = NULL;
    options.directory = directory;
    options.option_name = "--forcing_path";
    options.in_channels = options.out_channels = own->forcing_channels;
    options.forcing_channels = options.history = 0;
    options.reach = VT_REACH_INPUT;
    options.sample_limit = VT_UNSET_INTEGER;
    options.known = (vt_known_options){0};
    options.quiet = true;
    VT_CHECK(own->forcing_channels > 0,
             "--forcing_path: no variable of this model is a forcing (roles), so it needs no files of them");
    VT_TRY(vt_dataset_open(&options, &f->given));
    VT_TRY(vt_dataset_check_dates(f->given, "--forcing_path"));
    VT_TRY(vt_dataset_join_forcings(f->from.dataset, f->given));
done:
    return status;
}

vt_status vt_forecaster_find_forcings(vt_forecaster *f, const char *directory, int64_t steps)
{
    vt_status status = VT_OK;
    const vt_dataset *dataset = f->from.dataset;
    const vt_dataset_options *own = &dataset->options;
    vt_date first = {0}, last = {0};
    char from[VT_DATE_SIZE], to[VT_DATE_SIZE];
    int64_t missing = 0, found = -1;
    char *names = vt_config_forcing_variables(f->members->config);
    if (directory != NULL) VT_TRY(open_given(f, directory));
    if (own->forcing_channels == 0) goto done;
    for (int64_t i = 0; i < f->from.count * steps; i++) {
        const int64_t sample = f->from.samples[i / steps], lead = i % steps;
        const vt_date date = vt_forecast_date(dataset, sample, lead);
        if (f->given != NULL) found = vt_dataset_find(f->given, date, found + 1);
        if (found >= 0 || vt_dataset_reaches(dataset, sample, lead)) continue;
        if (missing++ == 0 || date.minutes < first.minutes) first = date;
        if (missing == 1 || date.minutes > last.minutes) last = date;
    }
    VT_CHECK(
        missing == 0,
        "the forecast needs the forcings %s at each of its times, but %s '%s' %s not have them from %s to %s; give "
        "files with these times by --forcing_path=DIR, or make fewer steps by --rollout",
        names, own->option_name, own->directory, f->given != NULL ? "and --forcing_path do" : "does",
        vt_date_format(first, from), vt_date_format(last, to));
done:
    free(names);
    return status;
}

/* ---- the loss ---- */

vt_status vt_forecaster_validate(vt_forecaster *f, int64_t every, double *loss)
{
    vt_status status = VT_OK;
    vt_inference *with = &f->inference;
    const int64_t count = f->members->model_count;
    vt_loader *loader = NULL;
    vt_evaluation result = {0};
    *loss = 0;
    VT_TRY(vt_world_agree(with->world,
                          vt_reader_open_loader(f->members->config, with->world, with->backend,
                                                (vt_reader_use){.every = every}, &f->from.dataset->source, &loader)));
    for (int64_t k = 0; k < count; k++) {
        vt_evaluation_close(&result);
        vt_forecaster_choose(f, k);
        VT_TRY(vt_validate(with->trainer, loader, false, NULL, NULL, &result));
        *loss += result.loss / (double)count;
    }
done:
    vt_evaluation_close(&result);
    vt_loader_close(&loader);
    return status;
}
