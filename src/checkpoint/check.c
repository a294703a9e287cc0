/* Whether a checkpoint fits the run, and what it says of the run that it was made by. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/find.h"
#include "checkpoint/inside.h"
#include "model/model.h"
#include "source/sources.h"

vt_status vt_checkpoint_compare_vocabulary(const char *directory, const vt_task *task, vt_text *difference)
{
    vt_status status = VT_OK;
    enum { MOST_BYTES = 1 << 30 };
    char *path = vt_checkpoint_vocabulary(directory), *text = NULL;
    const char *differing = "";
    int64_t count = 0, differs = -1, known = task->vocabulary_size;
    if (task->vocabulary == NULL) goto done;
    VT_TRY(vt_file_read(path, MOST_BYTES, &text, NULL));
    for (char *rest = text, *word; (word = strsep(&rest, "\n")) != NULL && (rest != NULL || *word != '\0'); count++) {
        if (differs >= 0 || (count < known && strcmp(word, task->vocabulary[count]) == 0)) continue;
        differs = count;
        differing = word;
    }
    if (differs < 0 && count < known) differs = count;
    if (differs >= 0)
        vt_text_append(
            difference,
            "%s: word %ld is '%.60s' in the checkpoint's vocabulary of %ld words, '%.60s' in the one of %ld words "
            "that is used here; continue with the text that it was made with, or with --vocabulary=%s",
            directory, differs, differing, count, differs < known ? task->vocabulary[differs] : "", known, path);
done:
    free(path);
    free(text);
    return status;
}

bool vt_checkpoint_lacks(vt_tensor_file *file, const vt_parameter *parameter)
{
    vt_tensor_shape shape;
    char name[VT_STORED_NAME];
    snprintf(name, sizeof name, "parameters/%s", vt_stored_name(parameter));
    const bool lacks = parameter->comes_later && vt_tensor_file_shape(file, name, &shape) != VT_OK;
    if (lacks) vt_error_clear();
    return lacks;
}

/* ---- the configuration that it was made with ---- */

vt_status vt_checkpoint_configuration(vt_tensor_file *index, const char *directory, vt_config **config)
{
    vt_status status = VT_OK;
    char *yaml = NULL;
    static char tensor[] = "--tensor_parallel=1", context[] = "--context_parallel=1", zero[] = "--zero_stage=0";
    static char sequence[] = "--sequence_parallel=false", pipeline[] = "--pipeline_parallel=1";
    char *const flags[] = {tensor, context, pipeline, zero, sequence};
    VT_TRY(vt_tensor_file_get_text(index, "configuration", &yaml));
    VT_TRY(vt_config_open_text(yaml, directory, sizeof flags / sizeof flags[0], flags, 1, config));
done:
    free(yaml);
    return status;
}

void vt_checkpoint_compare_options(const vt_config *stored, const vt_config *config, const char *const *options,
                                   vt_text *differences)
{
    for (; *options != NULL; options++) {
        char *was = vt_config_value_text(stored, *options), *is = vt_config_value_text(config, *options);
        if (strcmp(was, is) != 0)
            vt_text_append(differences, "%s%s %s, not %s", differences->length > 0 ? ", and " : "", *options, was, is);
        free(was);
        free(is);
    }
}

vt_status vt_checkpoint_check_options(vt_tensor_file *index, const char *directory, const vt_config *config,
                                      const char *const *options, const char *otherwise)
{
    vt_status status = VT_OK;
    vt_config *stored = NULL;
    vt_text differences = {0};
    VT_TRY(vt_checkpoint_configuration(index, directory, &stored));
    vt_checkpoint_compare_options(stored, config, options, &differences);
    VT_CHECK(differences.length == 0, "%s was made with %s: %s", directory, differences.characters, otherwise);
done:
    vt_config_close(&stored);
    vt_text_close(&differences);
    return status;
}

vt_status vt_checkpoint_check_model(vt_tensor_file *index, const char *directory, const vt_checkpoint_subject *subject)
{
    vt_status status = VT_OK;
    const vt_parameters *parameters = subject->parameters;
    int64_t stored = 0, count = parameters->count;
    char found_text[128], wanted_text[128];
    vt_text words = {0};
    VT_TRY(vt_checkpoint_compare_vocabulary(directory, subject->task, &words));
    VT_CHECK(words.length == 0, "%s", words.characters);
    VT_TRY(vt_tensor_file_get_integer(index, "parameter_count", &stored));
    for (int64_t i = 0; i < count && !subject->forecasts; i++)
        stored += vt_checkpoint_lacks(index, parameters->list[i]);
    VT_CHECK(stored == count, "%s holds %ld parameters, the model has %ld: their depth differs", directory, stored,
             count);
    for (int64_t i = 0; i < count; i++) {
        vt_stored_tensor tensor = vt_stored_at(subject, i);
        vt_tensor_shape wanted = tensor.shape, found = {0};
        if (!subject->forecasts && vt_checkpoint_lacks(index, tensor.parameter)) continue;
        VT_TRY(vt_tensor_file_shape(index, tensor.name, &found));
        vt_tensor_shape_text(&found, found_text);
        vt_tensor_shape_text(&wanted, wanted_text);
        VT_CHECK(strcmp(found_text, wanted_text) == 0,
                 "%s: %s is %s in the checkpoint, %s in the model that the configuration asks for", directory,
                 tensor.parameter->name, found_text, wanted_text);
    }
    VT_TRY(vt_checkpoint_check_options(index, directory, subject->config, vt_model_kind_of(subject->config)->identity,
                                       "its parameters are those of another model"));
done:
    vt_text_close(&words);
    return status;
}

/* ---- the data that it was made with ---- */

/* Of a checkpoint that has no description of its data. */
static vt_status about_of_attributes(vt_tensor_file *index, vt_fields_about **about)
{
    vt_status status = VT_OK;
    char *names = NULL, *stds = NULL;
    const char **list = NULL;
    int64_t count = 0;
    if (!vt_tensor_file_has(index, "channels")) return VT_OK;
    VT_TRY(vt_tensor_file_get_text(index, "channels", &names));
    for (char *rest = names, *name; *names != '\0' && (name = strsep(&rest, "\n")) != NULL;) {
        list = vt_grow(list, (size_t)count, sizeof *list, "a checkpoint");
        list[count++] = name;
    }
    if (count == 0) goto done;
    *about = vt_fields_about_of_names(list, count);
    if (!vt_tensor_file_has(index, "departure_stds")) goto done;
    VT_TRY(vt_tensor_file_get_text(index, "departure_stds", &stds));
    vt_fields_normalisation *numbers = &(*about)->normalisation;
    numbers->of_departures = true;
    numbers->means = vt_allocate((size_t)count, sizeof(double), "a checkpoint");
    numbers->stds = vt_allocate((size_t)count, sizeof(double), "a checkpoint");
    char *at = stds;
    for (int64_t c = 0; c < count; c++) numbers->stds[c] = strtod(at, &at);
done:
    free(list);
    free(names);
    free(stds);
    return status;
}

vt_status vt_checkpoint_about(vt_tensor_file *index, const char *directory, vt_fields_about **about)
{
    vt_status status = VT_OK;
    *about = NULL;
    if (!vt_tensor_file_has(index, "about_crc32c")) return about_of_attributes(index, about);
    VT_TRY(vt_checkpoint_check_beside(index, directory));
    VT_TRY(vt_fields_about_read(directory, about));
done:
    return status;
}

vt_status vt_checkpoint_join_data(vt_tensor_file *index, const char *directory, const vt_checkpoint_subject *subject,
                                  vt_fields_use use)
{
    vt_status status = VT_OK;
    vt_task *task = subject->task;
    vt_fields_about *about = NULL;
    char *name = vt_text_format("the checkpoint %s", directory);
    const vt_fields_rules rules = {.use = use, .accepted = subject->config->accept};
    const vt_fields_side data = {task->about, task->data_name};
    VT_TRY(vt_checkpoint_about(index, directory, &about));
    if (about == NULL || task->about == NULL) goto done;
    VT_TRY(vt_fields_agree(&rules, &data, &(vt_fields_side){about, name}));
    if (task->kind->take_normalisation == NULL) goto done;
    if (use == VT_INITIAL_AND_DATA && !vt_fields_same_channels(task->about, about)) goto done;
    task->kind->take_normalisation(task, about, name);
done:
    vt_fields_about_close(&about);
    free(name);
    return status;
}

/* ---- can a run continue? ---- */

/* What is frozen has no moments in a checkpoint, and what is trained needs them. */
static vt_status check_frozen(const char *directory, const vt_config *stored, const vt_checkpoint_subject *subject)
{
    vt_status status = VT_OK;
    const char *freeze = stored->freeze != NULL ? stored->freeze : "None";
    for (int64_t i = 0; i < subject->parameters->count; i++) {
        const vt_parameter *parameter = subject->parameters->list[i];
        VT_CHECK(
            parameter->frozen == vt_parameters_freezes(stored->freeze, parameter->name),
            "%s was made with freeze %s, by which %s is %s, and here it is %s: a run can't change that; resume with "
            "--freeze='%s', or begin a new run with the parameters, by --init_from=%s",
            directory, freeze, parameter->name, parameter->frozen ? "trained" : "frozen",
            parameter->frozen ? "frozen" : "trained", freeze, directory);
    }
done:
    return status;
}

static vt_status check_optimizer(vt_tensor_file *file, const char *directory, const vt_checkpoint_subject *subject)
{
    vt_status status = VT_OK;
    const vt_config *config = subject->config;
    vt_config *stored = NULL;
    VT_TRY(vt_checkpoint_configuration(file, directory, &stored));
    const vt_optimizer_kind *then = vt_optimizer_kinds[stored->optimizer], *now = vt_optimizer_kinds[config->optimizer];
    bool same = true;
    for (int64_t i = 0; i < subject->parameters->count; i++)
        same = same && vt_optimizers_keep_the_same(stored, config, subject->parameters->list[i]);
    const bool of_adafactor = config->optimizer == VT_OPTIMIZER_Adafactor; /* which option decides what is kept */
    VT_CHECK(stored->optimizer != config->optimizer || same,
             "%s was made with %s and %s %g, not %g: what it keeps is not what this run needs; --init_from=%s "
             "takes the parameters alone",
             directory, now->name, of_adafactor ? "adafactor_beta1" : "momentum",
             of_adafactor ? stored->adafactor_beta1 : stored->momentum,
             of_adafactor ? config->adafactor_beta1 : config->momentum, directory);
    VT_CHECK(same,
             "%s was made with the optimizer %s, whose moments %s cannot use; --init_from=%s takes the parameters "
             "alone",
             directory, then->name, now->name, directory);
    VT_TRY(check_frozen(directory, stored, subject));
done:
    vt_config_close(&stored);
    return status;
}

/* In the middle of an epoch a checkpoint counts the epoch's batches, in the order of its samples. */
static vt_status check_epoch(vt_tensor_file *file, const char *directory, const vt_checkpoint_subject *subject,
                             const vt_run_progress *progress)
{
    vt_status status = VT_OK;
    const vt_config *config = subject->config;
    const int64_t samples = subject->training_samples, batch = progress->batch;
    int64_t then = progress->training_samples;
    static const char *const order[] = {"seed", "shuffle", "limit_nsamples", NULL};
    VT_CHECK(batch == config->global_batch_size,
             "%s was saved in the middle of an epoch with global_batch_size %ld, so training cannot continue with %ld",
             directory, batch, config->global_batch_size);
    VT_TRY(vt_checkpoint_check_options(
        file, directory, config, order,
        "it was saved in the middle of an epoch, and the epoch's other samples would come in another order"));
    if (then == 0) /* earlier checkpoints don't say: as many as have been trained on, at least */
        then = progress->epoch_steps * batch > samples ? progress->epoch_steps * batch : samples;
    VT_CHECK(then != samples - subject->crossing_samples || then == samples,
             "%s was saved in the middle of an epoch of %ld training samples, each within one file; now %ld more "
             "reach from one file into the next: continue with --cross_files=false",
             directory, then, subject->crossing_samples);
    VT_CHECK(then == samples,
             "%s was saved in the middle of an epoch of %ld training samples, but the data now have %ld: continue "
             "with the data that it was made with; --init_from=%s takes the parameters alone",
             directory, then, samples, directory);
done:
    return status;
}

vt_status vt_checkpoint_check_run(vt_tensor_file *index, const char *directory, const vt_checkpoint_subject *subject,
                                  const vt_run_progress *progress)
{
    vt_status status = VT_OK;
    const vt_config *config = subject->config;
    VT_TRY(check_optimizer(index, directory, subject));
    VT_TRY(vt_checkpoint_check_options(index, directory, config, vt_task_kind_of(config)->identity,
                                       "a run can't change its task; --init_from takes the parameters alone"));
    if (progress->epoch_steps > 0) VT_TRY(check_epoch(index, directory, subject, progress));
done:
    return status;
}

/* ---- do its losses measure the same? ---- */

/* Compares what decides which number a validation's loss is, and of which samples. What normalises the fields is the
 * checkpoint's, so it stays. Earlier checkpoints don't say the number of samples. */
vt_status vt_checkpoint_compare_measure(vt_tensor_file *index, const char *directory,
                                        const vt_checkpoint_subject *subject, vt_run_progress *progress)
{
    static const char *const options[] = {"loss",    "lambda_rho",   "latitude_weights", "channel_weights",
                                          "missing", "valid_period", "time_step",        "stride",
                                          NULL};
    static const char *const sets[] = {"valid_data_path", "val_path", "val_path_npy_data", "val_path_npy_label", NULL};
    static const char *const limits[] = {"limit_nsamples_val", "Nsamples_val", NULL};
    static const char *const loader[] = {"data_loader_config", NULL}, *const seed[] = {"seed", NULL};
    vt_status status = VT_OK;
    const vt_config *now = subject->config;
    vt_config *then = NULL;
    vt_text changes = {0};
    const int64_t known = progress->validation_samples, samples = subject->validation_samples;
    VT_TRY(vt_checkpoint_configuration(index, directory, &then));
    const bool was_noise = then->data_loader_config == VT_LOADER_SYNTHETIC,
               is_noise = now->data_loader_config == VT_LOADER_SYNTHETIC;
    vt_checkpoint_compare_options(then, now, options, &changes);
    for (int i = 0; sets[i] != NULL; i++) {
        char *was = vt_config_value_text(then, sets[i]), *is = vt_config_value_text(now, sets[i]);
        const char *const own[] = {sets[i], NULL};
        if (!vt_checkpoint_is_one_place(was, is)) vt_checkpoint_compare_options(then, now, own, &changes);
        free(was);
        free(is);
    }
    if (was_noise != is_noise) vt_checkpoint_compare_options(then, now, loader, &changes);
    if (is_noise || strcmp(vt_source_kind_of(now)->name, "volumes") == 0)
        vt_checkpoint_compare_options(then, now, seed, &changes); /* draws them */
    if (known < 0)
        vt_checkpoint_compare_options(then, now, limits, &changes);
    else if (known != samples)
        vt_text_append(&changes, "%s%ld validation samples, not %ld", changes.length > 0 ? ", and " : "", known,
                       samples);
    if (changes.length == 0) goto done;
    vt_log_info("the smallest validation loss and the baseline's begin anew, as those of %s measure something else: %s",
                directory, changes.characters);
    progress->validation_loss = progress->persistence_loss = NAN;
    progress->best_loss = INFINITY;
done:
    vt_config_close(&then);
    vt_text_close(&changes);
    return status;
}
