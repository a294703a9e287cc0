#include "forecast/forecaster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/find.h"
#include "config/roles.h"
#include "forecast/states.h"
#include "loss/loss.h"
#include "source/sources.h"
#include "storage/tensor_file.h"
#include "task/weather.h"
#include "training/plan.h"

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

/* ---- the checkpoint ---- */

static vt_status open_index(const char *checkpoint, vt_tensor_file **index)
{
    static char *checked; /* the last one: a command opens it several times, and very many tensors take seconds */
    vt_status status = VT_OK;
    struct stat info;
    char *path = vt_text_format("%s/checkpoint.h5", checkpoint);
    VT_CHECK(stat(path, &info) == 0,
             "--checkpoint=%s: %s: %s; expected the directory of a checkpoint, like "
             "runs/demo/1CPU/00/checkpoints/best",
             checkpoint, path, strerror(errno));
    if (checked == NULL || strcmp(checked, checkpoint) != 0) {
        VT_TRY(vt_checkpoint_check_index(checkpoint));
        VT_TRY(vt_tensor_files_try(checkpoint));
        free(checked);
        checked = vt_text_copy(checkpoint);
    }
    VT_TRY(vt_tensor_file_open(path, index));
done:
    free(path);
    return status;
}

/* Flags that come before the user's, which may say something else. A model is on one rank, or in stages on several. */
enum { FOR_ALL = 6, OWN = 4 };
static const char *const for_all[FOR_ALL] = {
    "--tensor_parallel=1", "--context_parallel=1",  "--pipeline_parallel=1",
    "--zero_stage=0",      "--grad_accumulation=1", "--ema_decay=None" /* of this use's own; the checkpoint's is read */
};
static const char *const for_cubes[OWN] = {"--local_batch_size=1"};
static const char *const for_text[OWN] = {"--sequence_parallel=false", "--offload_activations=none",
                                          "--vocabulary=None"};
static const char *const for_fields[OWN] = {"--sequence_parallel=false", "--offload_activations=none", "--rollout=1",
                                            "--local_batch_size=8"};

bool vt_forecaster_is_of_cubes(const vt_config *config)
{
    return strcmp(vt_task_kind_of(config)->name, "cosmology") == 0;
}

bool vt_forecaster_is_of_text(const vt_config *config)
{
    return strcmp(vt_task_kind_of(config)->name, "language") == 0;
}

static bool gives_global_batch(int flag_count, char *const *flags)
{
    static const char name[] = "--global_batch_size";
    for (int i = 0; i < flag_count; i++)
        if (strncmp(flags[i], name, strlen(name)) == 0 && strchr("=", flags[i][strlen(name)]) != NULL) return true;
    return false;
}

vt_status vt_forecaster_configure(const char *name, int flag_count, char *const *flags, int64_t ranks,
                                  char **checkpoint, vt_config **config)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    vt_config *trained = NULL;
    char *yaml = NULL, **all = vt_allocate((size_t)flag_count + FOR_ALL + OWN, sizeof *all, "the forecaster");
    int count = FOR_ALL;
    memcpy(all, for_all, sizeof for_all);
    VT_TRY(vt_checkpoint_find(name, VT_CHECKPOINT_TO_SHOW, checkpoint));
    VT_TRY(open_index(*checkpoint, &index));
    VT_TRY(vt_tensor_file_get_text(index, "configuration", &yaml));
    VT_TRY(vt_config_open_text(yaml, *checkpoint, FOR_ALL, all, 1, &trained));
    const char *const *own = vt_forecaster_is_of_cubes(trained)  ? for_cubes
                             : vt_forecaster_is_of_text(trained) ? for_text
                                                                 : for_fields;
    for (int i = 0; i < OWN && own[i] != NULL; i++)
        if (strncmp(own[i], "--local_batch_size", 18) != 0 || !gives_global_batch(flag_count, flags))
            all[count++] = (char *)(uintptr_t)own[i];
    memcpy(all + count, flags, (size_t)flag_count * sizeof *all);
    VT_TRY(vt_config_open_text(yaml, *checkpoint, count + flag_count, all, ranks, config));
done:
    vt_config_close(&trained);
    vt_tensor_file_close(&index);
    free(yaml);
    free(all);
    return status;
}

vt_status vt_forecaster_check(const char *checkpoint, vt_config *config)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    const char *const *const fixed[] = {vt_model_kind_of(config)->identity, vt_task_kind_of(config)->identity};
    VT_CHECK(strcmp(vt_source_kind_of(config)->name, "fields") == 0,
             "%s: its model was trained on source %s, but only fields in files can be forecast", checkpoint,
             vt_source_kind_of(config)->name);
    VT_CHECK(config->tensor_parallel == 1 && config->context_parallel == 1 && config->zero_stage == 0,
             "a forecast needs whole layers on each rank, whatever the model was trained on: leave tensor_parallel and "
             "context_parallel at 1 and zero_stage at 0; --pipeline_parallel divides the model, and more ranks share "
             "out the initial times");
    VT_TRY(open_index(checkpoint, &index));
    VT_TRY(vt_known_fields_complete(config));
    for (int i = 0; i < 2; i++)
        VT_TRY(
            vt_checkpoint_check_options(index, checkpoint, config, fixed[i], "its parameters were trained for that"));
    if (vt_config_awaits_window(config)) /* the flags repeat the ranges */
        VT_TRY(vt_config_set_window(config, config->img_size[0], config->img_size[1]));
done:
    vt_tensor_file_close(&index);
    return status;
}

vt_status vt_forecaster_describe(const char *checkpoint, vt_weights weights, char **text, int64_t *step)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    int64_t steps = 0, epoch = 0;
    VT_TRY(open_index(checkpoint, &index));
    VT_TRY(vt_tensor_file_get_integer(index, "step", &steps));
    VT_TRY(vt_tensor_file_get_integer(index, "epoch", &epoch));
    if (step != NULL) *step = steps;
    const char *what = weights == VT_WEIGHTS_LIVE ? ", live weights" : ", averaged weights";
    *text = vt_text_format("step %lld, epoch %lld%s", (long long)steps, (long long)epoch,
                           vt_checkpoint_has_average(index) ? what : "");
done:
    vt_tensor_file_close(&index);
    return status;
}

/* The last epoch that the checkpoint was trained in; 0 of one that was not. */
static vt_status last_epoch(const char *checkpoint, int64_t *epoch)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    int64_t steps = 0;
    VT_TRY(open_index(checkpoint, &index));
    VT_TRY(vt_tensor_file_get_integer(index, "epoch", epoch));
    VT_TRY(vt_tensor_file_get_integer(index, "epoch_steps", &steps));
    if (steps == 0 && *epoch > 0) --*epoch;
done:
    vt_tensor_file_close(&index);
    return status;
}

vt_status vt_forecaster_has_noise(const char *checkpoint, const vt_config *config, bool *has)
{
    int64_t epoch = 0;
    const vt_status status = last_epoch(checkpoint, &epoch);
    *has = vt_loss_kind_at(config, epoch)->of_members;
    return status;
}

/* ---- the model ---- */

static int64_t plane_of(const vt_config *config)
{
    return config->img_size[0] * config->img_size[1];
}

vt_status vt_forecaster_about(const char *checkpoint, vt_fields_about **about)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    VT_TRY(open_index(checkpoint, &index));
    VT_TRY(vt_checkpoint_about(index, checkpoint, about));
done:
    vt_tensor_file_close(&index);
    return status;
}

vt_status vt_forecaster_open_data(const vt_config *config, const char *checkpoint, vt_dataset_options *options,
                                  vt_dataset **dataset)
{
    vt_status status = VT_OK;
    vt_fields_about *about = NULL;
    options->known = vt_known_options_of(config);
    if (config->normalise == VT_NORMALISE_CLIMATOLOGY) options->climatology = config->climatology_path;
    if (options->form.variables == NULL) VT_TRY(vt_forecaster_about(checkpoint, &about));
    if (about != NULL && about->names != NULL) {
        options->form.names = (const char *const *)about->names; /* the form's from now on */
        options->form.name_count = about->channels;
        about->names = NULL;
    }
    VT_TRY(vt_dataset_open(options, dataset));
done:
    vt_fields_about_close(&about);
    return status;
}

vt_status vt_forecaster_compare(vt_fields_use use, const vt_config *config, const vt_dataset *dataset,
                                const vt_fields_about *about, const char *name)
{
    const vt_fields_rules rules = {.use = use, .accepted = config->accept, .any_transform = true};
    const vt_fields_side data = {vt_dataset_about(dataset), vt_dataset_source(dataset)->path};
    return about != NULL ? vt_fields_agree(&rules, &data, &(vt_fields_side){about, name}) : VT_OK;
}

void vt_forecaster_close_data(vt_dataset_options *options, vt_dataset **dataset)
{
    vt_dataset_close(dataset);
    vt_text_free_list((char **)(uintptr_t)options->form.names, options->form.name_count);
    options->form.names = NULL;
}

/* The checkpoint's normalisation takes the place of the files' when its parameters are read. */
static vt_status open_task(vt_forecaster *forecaster, const vt_config *config, const char *checkpoint,
                           const vt_dataset *dataset, const vt_fields_about *about)
{
    vt_status status = VT_OK;
    vt_fields_about *own = NULL;
    VT_TRY(vt_forecaster_about(checkpoint, &own));
    const vt_weather_data data = {.about = about,
                                  .name = vt_dataset_source(dataset)->path,
                                  .latitudes = vt_dataset_latitudes(dataset),
                                  .seasonal = vt_dataset_climatology(dataset),
                                  .transforms = vt_dataset_transforms(dataset),
                                  .may_be_unread = own != NULL && own->normalisation.stds != NULL};
    VT_TRY(vt_weather_open(config, &data, &forecaster->task));
done:
    vt_fields_about_close(&own);
    return status;
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

static vt_status read_parameters(const char *checkpoint, const vt_trainer *trainer)
{
    vt_checkpoint_subject subject = vt_trainer_subject(trainer);
    subject.forecasts = true;
    return vt_world_agree(subject.world, vt_checkpoint_read_parameters(checkpoint, &subject, NULL));
}

vt_status vt_forecaster_open_model(const vt_config *config, const char *checkpoint, vt_world *world, vt_task *task,
                                   vt_backend **backend, vt_trainer **trainer)
{
    vt_status status = VT_OK;
    VT_TRY(vt_world_agree(world, vt_world_open_backend(config, world, backend)));
    VT_TRY(vt_world_agree(world, open_trainer(config, world, *backend, task, trainer)));
    VT_TRY(read_parameters(checkpoint, *trainer));
done:
    return status;
}

vt_status vt_forecaster_open(const vt_config *config, const char *checkpoint, vt_world *world, vt_dataset *dataset,
                             const vt_fields_about *about, vt_forecaster **result)
{
    vt_status status = VT_OK;
    vt_forecaster *forecaster = vt_allocate(1, sizeof *forecaster, "the forecaster");
    const int64_t forcings = vt_config_forcing_channels(config) * plane_of(config);
    int64_t epoch = 0;
    forecaster->dataset = dataset;
    VT_TRY(vt_world_agree(world, open_task(forecaster, config, checkpoint, dataset, about)));
    VT_TRY(vt_forecaster_open_model(config, checkpoint, world, forecaster->task, &forecaster->backend,
                                    &forecaster->trainer));
    VT_TRY(vt_world_agree(world, last_epoch(checkpoint, &epoch)));
    vt_trainer_set_epoch(forecaster->trainer, epoch);
    VT_TRY(vt_world_group(world, VT_AXES(VT_AXIS_PIPELINE), VT_SCOPE_ALL, "forecasts", NULL, &forecaster->stages));
    if (forcings > 0)
        forecaster->forcings =
            vt_allocate((size_t)(vt_forecaster_batch(forecaster) * forcings), sizeof(float), "the forecaster");
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

/* ---- the members of an ensemble ---- */

static size_t weight_bytes(const vt_forecaster *forecaster)
{
    const vt_parameters *parameters = vt_trainer_parameters(forecaster->trainer);
    return (size_t)vt_parameters_block_elements(parameters, VT_BLOCK_VALUES) * sizeof(float);
}

/* Keeps the parameters that the model has. */
static vt_status keep_weights(vt_forecaster *forecaster, const char *checkpoint)
{
    vt_status status = VT_OK;
    vt_backend *backend = forecaster->backend;
    float *values = vt_allocate_large(weight_bytes(forecaster));
    VT_CHECK(values != NULL, "out of memory: could not get %zu bytes for the parameters of %s",
             weight_bytes(forecaster), checkpoint);
    backend->copy_to_host(backend, values, vt_parameters_values(vt_trainer_parameters(forecaster->trainer)),
                          weight_bytes(forecaster));
    forecaster->weights =
        vt_grow(forecaster->weights, (size_t)forecaster->weight_count, sizeof *forecaster->weights, "the forecaster");
    forecaster->chosen = forecaster->weight_count;
    forecaster->weights[forecaster->weight_count++] = values;
done:
    return status;
}

/* Checkpoints of one ensemble see their fields normalised alike. */
static vt_status check_normalisation(const vt_forecaster *forecaster, const char *checkpoint)
{
    vt_status status = VT_OK;
    vt_fields_about *about = NULL;
    const vt_task *task = forecaster->task;
    const vt_fields_normalisation *own = &task->about->normalisation;
    VT_TRY(vt_forecaster_about(checkpoint, &about));
    if (about == NULL || about->normalisation.stds == NULL || own->stds == NULL) goto done;
    for (int64_t c = 0; c < task->field_count && c < about->channels; c++)
        VT_CHECK(own->means[c] == about->normalisation.means[c] && own->stds[c] == about->normalisation.stds[c],
                 "--checkpoints: %s was trained on channel %lld with mean %g and standard deviation %g, the first one "
                 "with %g and %g; the models of an ensemble may differ in their weights alone",
                 checkpoint, (long long)c, about->normalisation.means[c], about->normalisation.stds[c], own->means[c],
                 own->stds[c]);
done:
    vt_fields_about_close(&about);
    return status;
}

vt_status vt_forecaster_add(vt_forecaster *forecaster, const char *checkpoint)
{
    vt_status status = VT_OK;
    vt_world *world = vt_trainer_subject(forecaster->trainer).world;
    VT_TRY(vt_world_agree(world, check_normalisation(forecaster, checkpoint)));
    if (forecaster->weight_count == 0) VT_TRY(vt_world_agree(world, keep_weights(forecaster, "the first checkpoint")));
    VT_TRY(read_parameters(checkpoint, forecaster->trainer));
    VT_TRY(vt_world_agree(world, keep_weights(forecaster, checkpoint)));
done:
    return status;
}

void vt_forecaster_choose(vt_forecaster *forecaster, int64_t index)
{
    vt_backend *backend = forecaster->backend;
    if (forecaster->weight_count == 0 || index == forecaster->chosen) return;
    backend->copy_from_host(backend, vt_parameters_values(vt_trainer_parameters(forecaster->trainer)),
                            forecaster->weights[index], weight_bytes(forecaster));
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

vt_status vt_forecaster_score(vt_forecaster *forecaster, const float *input, const int64_t *samples,
                              const float *target, int64_t count, vt_evaluation *sums)
{
    vt_status status = VT_OK;
    const vt_config *config = forecaster->task->config;
    const vt_batch batch = {.sample_count = count,
                            .global_count = count * config->data_parallel,
                            .samples = samples,
                            .tensors = {input, target, forecaster->forcings}};
    VT_TRY(take_forcings(forecaster, forecaster->dataset, samples, 0, count));
    status = vt_step_evaluate(forecaster->trainer, &batch, sums);
done:
    return status;
}

vt_trainer *vt_forecaster_trainer(const vt_forecaster *forecaster)
{
    return forecaster->trainer;
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
