#include "forecast/forecaster.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "config/roles.h"
#include "forecast/states.h"
#include "source/sources.h"
#include "task/weather.h"
#include "training/plan.h"
#include "training/reader.h"

struct vt_forecaster {
    vt_backend *backend;
    vt_task *task;
    vt_trainer *trainer;
    vt_dataset *dataset;
    vt_dataset *given; /* files that were named for forcings; NULL: none were */
    char *given_variables;
    vt_group *stages; /* of the model */
    float *forcings;  /* of a batch, or NULL */
    float **weights;  /* [weight_count]: the parameters of each checkpoint, on the host; none if there is only one */
    int64_t weight_count, chosen;
};

static int64_t plane_of(const vt_config *config)
{
    return config->img_size[0] * config->img_size[1];
}

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
    const vt_fields_side data = {vt_dataset_about(dataset), vt_dataset_source(dataset)->path};
    return about != NULL ? vt_fields_agree(&rules, &data, &(vt_fields_side){about, name}) : VT_OK;
}

/* The checkpoint's normalisation takes the place of the files' when its parameters are read. */
static vt_status open_task(vt_forecaster *forecaster, const vt_trained *model, const vt_dataset *dataset,
                           const vt_fields_about *about)
{
    const vt_weather_data data = {.about = about,
                                  .name = vt_dataset_source(dataset)->path,
                                  .latitudes = vt_dataset_latitudes(dataset),
                                  .seasonal = vt_dataset_climatology(dataset),
                                  .transforms = vt_dataset_transforms(dataset),
                                  .may_be_unread = model->about != NULL && model->about->normalisation.stds != NULL};
    return vt_weather_open(model->config, &data, &forecaster->task);
}

/* A trainer that only predicts, once the device is open and the plan fits into its memory. */
static vt_status open_trainer(const vt_config *config, vt_world *world, vt_backend *backend, vt_task *task,
                              vt_trainer **trainer)
{
    vt_status status = VT_OK;
    vt_plan plan;
    const vt_plan_options planned = vt_plan_options_of(world, backend);
    const vt_trainer_options options = {.world = world, .task = task, .steps = 1};
    VT_TRY(vt_world_open_device(config, world, backend));
    VT_TRY(vt_plan_make(config, &planned, &plan));
    plan.message_bytes = 0; /* no gradients are summed */
    const double available = backend->available_memory(backend) / vt_world_ranks_of_memory(world, backend);
    VT_TRY(vt_budget_check(config, &planned, &plan, available, false));
    VT_TRY(vt_trainer_open(config, &options, backend, trainer));
done:
    return status;
}

static vt_status read_parameters(const vt_trained *model, const vt_trainer *trainer)
{
    vt_checkpoint_subject subject = vt_trainer_subject(trainer);
    subject.forecasts = true;
    return vt_world_agree(subject.world, vt_checkpoint_read_parameters(model->checkpoint, &subject, NULL));
}

vt_status vt_forecaster_open_model(const vt_trained *model, vt_world *world, vt_task *task, vt_backend **backend,
                                   vt_trainer **trainer)
{
    vt_status status = VT_OK;
    VT_TRY(vt_world_agree(world, vt_world_open_backend(model->config, world, backend)));
    VT_TRY(vt_world_agree(world, open_trainer(model->config, world, *backend, task, trainer)));
    VT_TRY(read_parameters(model, *trainer));
done:
    return status;
}

/* ---- the members of an ensemble ---- */

static size_t weight_bytes(const vt_forecaster *forecaster)
{
    const vt_parameters *parameters = vt_trainer_parameters(forecaster->trainer);
    return (size_t)vt_parameters_block_elements(parameters, VT_BLOCK_VALUES) * sizeof(float);
}

/* Keeps the parameters that the model has. */
static vt_status keep_weights(vt_forecaster *forecaster, const vt_trained *model)
{
    vt_status status = VT_OK;
    vt_backend *backend = forecaster->backend;
    float *values = vt_allocate_large(weight_bytes(forecaster));
    VT_CHECK(values != NULL, "out of memory: could not get %zu bytes for the parameters of %s",
             weight_bytes(forecaster), model->checkpoint);
    backend->copy_to_host(backend, values, vt_trainer_parameters(forecaster->trainer)->values,
                          weight_bytes(forecaster));
    forecaster->weights =
        vt_grow(forecaster->weights, (size_t)forecaster->weight_count, sizeof *forecaster->weights, "the forecaster");
    forecaster->chosen = forecaster->weight_count;
    forecaster->weights[forecaster->weight_count++] = values;
done:
    return status;
}

/* Checkpoints of one ensemble see their fields normalised alike. */
static vt_status check_normalisation(const vt_forecaster *forecaster, const vt_trained *model)
{
    vt_status status = VT_OK;
    const vt_fields_about *about = model->about;
    const vt_task *task = forecaster->task;
    const vt_fields_normalisation *own = &task->about->normalisation;
    if (about == NULL || about->normalisation.stds == NULL || own->stds == NULL) return VT_OK;
    for (int64_t c = 0; c < task->field_count && c < about->channels; c++)
        VT_CHECK(own->means[c] == about->normalisation.means[c] && own->stds[c] == about->normalisation.stds[c],
                 "--checkpoints: %s was trained on channel %lld with mean %g and standard deviation %g, the first one "
                 "with %g and %g; the models of an ensemble may differ in their weights alone",
                 model->checkpoint, (long long)c, about->normalisation.means[c], about->normalisation.stds[c],
                 own->means[c], own->stds[c]);
done:
    return status;
}

/* Collective. The parameters of the first checkpoint are there already. */
static vt_status keep_all_weights(vt_forecaster *forecaster, const vt_members *members, vt_world *world)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; i < members->model_count; i++) {
        const vt_trained *model = &members->models[i];
        if (i > 0) VT_TRY(vt_world_agree(world, check_normalisation(forecaster, model)));
        if (i > 0) VT_TRY(read_parameters(model, forecaster->trainer));
        VT_TRY(vt_world_agree(world, keep_weights(forecaster, model)));
    }
done:
    return status;
}

void vt_forecaster_choose(vt_forecaster *forecaster, int64_t index)
{
    vt_backend *backend = forecaster->backend;
    if (forecaster->weight_count == 0 || index == forecaster->chosen) return;
    backend->copy_from_host(backend, vt_trainer_parameters(forecaster->trainer)->values, forecaster->weights[index],
                            weight_bytes(forecaster));
    vt_gradient_sync_values_changed(vt_trainer_subject(forecaster->trainer).sync);
    forecaster->chosen = index;
}

int64_t vt_forecaster_batch(const vt_forecaster *forecaster)
{
    return vt_trainer_micro_batch(forecaster->task->config);
}

vt_task *vt_forecaster_task(const vt_forecaster *forecaster)
{
    return forecaster->task;
}

/* ---- all of it ---- */

vt_status vt_forecaster_open(const vt_members *members, vt_world *world, vt_dataset *dataset,
                             const vt_fields_about *about, vt_forecaster **result)
{
    vt_status status = VT_OK;
    const vt_trained *first = members->models;
    vt_forecaster *forecaster = vt_allocate(1, sizeof *forecaster, "the forecaster");
    const int64_t forcings = vt_config_forcing_channels(first->config) * plane_of(first->config);
    forecaster->dataset = dataset;
    VT_TRY(vt_world_agree(world, open_task(forecaster, first, dataset, about)));
    VT_TRY(vt_forecaster_open_model(first, world, forecaster->task, &forecaster->backend, &forecaster->trainer));
    vt_trainer_set_epoch(forecaster->trainer, first->epoch);
    VT_TRY(vt_world_group(world, VT_AXES(VT_AXIS_PIPELINE), VT_SCOPE_ALL, "forecasts", NULL, &forecaster->stages));
    if (forcings > 0)
        forecaster->forcings =
            vt_allocate((size_t)(vt_forecaster_batch(forecaster) * forcings), sizeof(float), "the forecaster");
    if (members->model_count > 1) VT_TRY(keep_all_weights(forecaster, members, world));
done:
    if (status != VT_OK) vt_forecaster_close(&forecaster);
    *result = forecaster;
    return status;
}

void vt_forecaster_close(vt_forecaster **forecaster)
{
    if (*forecaster == NULL) return;
    for (int64_t i = 0; i < (*forecaster)->weight_count; i++) free((*forecaster)->weights[i]);
    free((*forecaster)->weights);
    vt_trainer_close(&(*forecaster)->trainer);
    vt_task_close(&(*forecaster)->task);
    vt_backend_close(&(*forecaster)->backend);
    free((*forecaster)->forcings);
    vt_dataset_close(&(*forecaster)->given);
    free((*forecaster)->given_variables);
    free(*forecaster);
    *forecaster = NULL;
}

/* ---- forcings ---- */

/* Files that hold the forcings alone, on the dataset's grid. */
static vt_status open_given(vt_forecaster *forecaster, const char *directory)
{
    vt_status status = VT_OK;
    const vt_config *config = forecaster->task->config;
    const vt_dataset_options *own = vt_dataset_options_of(forecaster->dataset);
    vt_dataset_options options = *own;
    options.form.variables = forecaster->given_variables = vt_config_forcing_variables(config);
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
    VT_TRY(vt_dataset_open(&options, &forecaster->given));
    VT_TRY(vt_dataset_check_dates(forecaster->given, "--forcing_path"));
    VT_TRY(vt_dataset_join_forcings(forecaster->dataset, forecaster->given));
done:
    return status;
}

vt_status vt_forecaster_find_forcings(vt_forecaster *forecaster, const char *directory, const int64_t *samples,
                                      int64_t count, int64_t steps)
{
    vt_status status = VT_OK;
    vt_date first = {0}, last = {0};
    char from[VT_DATE_SIZE], to[VT_DATE_SIZE];
    int64_t missing = 0, found = -1;
    char *names = vt_config_forcing_variables(forecaster->task->config);
    if (directory != NULL) VT_TRY(open_given(forecaster, directory));
    if (vt_dataset_options_of(forecaster->dataset)->forcing_channels == 0) goto done;
    for (int64_t i = 0; i < count * steps; i++) {
        const int64_t sample = samples[i / steps], lead = i % steps;
        const vt_date date = vt_states_date(forecaster->dataset, sample, lead);
        if (forecaster->given != NULL) found = vt_dataset_find(forecaster->given, date, found + 1);
        if (found >= 0 || vt_dataset_reaches(forecaster->dataset, sample, lead)) continue;
        if (missing++ == 0 || date.minutes < first.minutes) first = date;
        if (missing == 1 || date.minutes > last.minutes) last = date;
    }
    VT_CHECK(
        missing == 0,
        "the forecast needs the forcings %s at each of its times, but %s '%s' %s not have them from %s to %s; give "
        "files with these times by --forcing_path=DIR, or make fewer steps by --rollout",
        names, vt_dataset_options_of(forecaster->dataset)->option_name,
        vt_dataset_options_of(forecaster->dataset)->directory,
        forecaster->given != NULL ? "and --forcing_path do" : "does", vt_date_format(first, from),
        vt_date_format(last, to));
done:
    free(names);
    return status;
}

/* ---- a step ---- */

static vt_status take_forcings(vt_forecaster *forecaster, vt_dataset *dataset, const int64_t *samples, int64_t lead,
                               int64_t count)
{
    vt_status status = VT_OK;
    const vt_config *config = forecaster->task->config;
    const vt_known_fields *known = vt_dataset_known(dataset);
    const int64_t each = vt_config_forcing_channels(config) * plane_of(config);
    const int64_t own = vt_dataset_options_of(dataset)->forcing_channels * plane_of(config);
    VT_ASSERT(count > 0 && count <= vt_forecaster_batch(forecaster));
    for (int64_t i = 0; i < count && each > 0; i++) {
        float *fields = forecaster->forcings + i * each, *of_files = fields + each - own;
        const vt_date date = vt_states_date(dataset, samples[i], lead);
        if (known != NULL) vt_known_fields_take(known, date, false, fields);
        const int64_t given = forecaster->given != NULL ? vt_dataset_find(forecaster->given, date, 0) : -1;
        if (given >= 0)
            VT_TRY(vt_dataset_read(forecaster->given, given, of_files, NULL));
        else if (own > 0)
            VT_TRY(vt_dataset_read_forcings(dataset, samples[i], lead, of_files));
    }
done:
    return status;
}

vt_status vt_forecaster_step(vt_forecaster *forecaster, vt_dataset *dataset, const float *input, const int64_t *samples,
                             const uint32_t *noise_keys, int64_t lead, int64_t count, float *fields)
{
    vt_status status = VT_OK;
    const vt_config *config = forecaster->task->config;
    const int64_t numbers = count * config->n_out_channels * plane_of(config);
    VT_TRY(take_forcings(forecaster, dataset, samples, lead, count));
    const vt_batch batch = {.sample_count = count,
                            .global_count = count,
                            .lead = lead,
                            .tensors = {input, NULL, forecaster->forcings},
                            .noise_keys = noise_keys};
    VT_TRY(vt_step_predict(forecaster->trainer, &batch, fields));
    vt_group_broadcast(forecaster->stages, fields, (size_t)numbers * sizeof *fields, forecaster->stages->size - 1);
done:
    return status;
}

vt_status vt_forecaster_validate(vt_forecaster *forecaster, int64_t every, double *loss)
{
    vt_status status = VT_OK;
    const vt_config *config = forecaster->task->config;
    const int64_t count = forecaster->weight_count > 0 ? forecaster->weight_count : 1;
    vt_world *world = vt_trainer_subject(forecaster->trainer).world;
    vt_loader *loader = NULL;
    vt_evaluation result = {0};
    *loss = 0;
    VT_TRY(
        vt_world_agree(world, vt_reader_open_loader(config, world, forecaster->backend, (vt_reader_use){.every = every},
                                                    vt_dataset_source(forecaster->dataset), &loader)));
    for (int64_t k = 0; k < count; k++) {
        vt_evaluation_close(&result);
        vt_forecaster_choose(forecaster, k);
        VT_TRY(vt_validate(forecaster->trainer, loader, false, &result));
        *loss += result.loss / (double)count;
    }
done:
    vt_evaluation_close(&result);
    vt_loader_close(&loader);
    return status;
}

vt_status vt_forecaster_check_rollout(const vt_config *config, int64_t rollout)
{
    vt_status status = VT_OK;
    const int64_t in = vt_config_channels_a_time(config), out = config->n_out_channels;
    VT_CHECK(rollout == 1 || out >= in,
             "--rollout=%lld: this model forecasts %lld channels from %lld, so a forecast can't be the next one's "
             "input; only --rollout=1 is possible",
             (long long)rollout, (long long)out, (long long)in);
done:
    return status;
}
