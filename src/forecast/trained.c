#include "forecast/trained.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/find.h"
#include "source/fields/known_fields.h"
#include "source/sources.h"

vt_status vt_trained_open_index(const char *checkpoint, vt_tensor_file **index)
{
    vt_status status = VT_OK;
    char *path = vt_text_format("%s/checkpoint.h5", checkpoint);
    VT_TRY(vt_checkpoint_check_index(checkpoint));
    VT_TRY(vt_tensor_files_try(checkpoint));
    VT_TRY(vt_tensor_file_open(path, index));
done:
    free(path);
    return status;
}

/* ---- the configuration ---- */

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

bool vt_trained_on_cubes(const vt_config *config)
{
    return strcmp(vt_task_kind_of(config)->name, "cosmology") == 0;
}

bool vt_trained_on_text(const vt_config *config)
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

static vt_status configure(vt_tensor_file *index, int flag_count, char *const *flags, int64_t ranks,
                           vt_trained *trained)
{
    vt_status status = VT_OK;
    vt_config *made_with = NULL;
    char *yaml = NULL, **all = vt_allocate((size_t)flag_count + FOR_ALL + OWN, sizeof *all, "the forecaster");
    int count = FOR_ALL;
    memcpy(all, for_all, sizeof for_all);
    VT_TRY(vt_tensor_file_get_text(index, "configuration", &yaml));
    VT_TRY(vt_config_open_text(yaml, trained->checkpoint, FOR_ALL, all, 1, &made_with));
    const char *const *own = vt_trained_on_cubes(made_with)  ? for_cubes
                             : vt_trained_on_text(made_with) ? for_text
                                                             : for_fields;
    for (int i = 0; i < OWN && own[i] != NULL; i++)
        if (strncmp(own[i], "--local_batch_size", 18) != 0 || !gives_global_batch(flag_count, flags))
            all[count++] = (char *)(uintptr_t)own[i];
    memcpy(all + count, flags, (size_t)flag_count * sizeof *all);
    VT_TRY(vt_config_open_text(yaml, trained->checkpoint, count + flag_count, all, ranks, &trained->config));
done:
    vt_config_close(&made_with);
    free(yaml);
    free(all);
    return status;
}

/* Of text. */
static vt_status take_words(const char *checkpoint, vt_config *config)
{
    if (config->vocabulary != NULL) return VT_OK;
    char *words = vt_checkpoint_vocabulary(checkpoint);
    const vt_status status = vt_config_set(config, "vocabulary", words);
    free(words);
    return status;
}

/* Of fields in files. */
static vt_status complete(vt_tensor_file *index, const char *checkpoint, vt_config *config)
{
    vt_status status = VT_OK;
    const char *const *const fixed[] = {vt_model_kind_of(config)->identity, vt_task_kind_of(config)->identity};
    VT_CHECK(config->tensor_parallel == 1 && config->context_parallel == 1 && config->zero_stage == 0,
             "a forecast needs whole layers on each rank, whatever the model was trained on: leave tensor_parallel and "
             "context_parallel at 1 and zero_stage at 0; --pipeline_parallel divides the model, and more ranks share "
             "out the initial times");
    VT_TRY(vt_known_fields_complete(config));
    for (int i = 0; i < 2; i++)
        VT_TRY(
            vt_checkpoint_check_options(index, checkpoint, config, fixed[i], "its parameters were trained for that"));
    if (vt_config_awaits_window(config)) /* the flags repeat the ranges */
        VT_TRY(vt_config_set_window(config, config->img_size[0], config->img_size[1]));
done:
    return status;
}

/* ---- what it says of itself ---- */

static vt_status read_progress(vt_tensor_file *index, vt_trained *trained)
{
    vt_status status = VT_OK;
    vt_run_progress run;
    VT_TRY(vt_checkpoint_progress(index, &run));
    const char *what = trained->config->weights == VT_WEIGHTS_LIVE ? ", live weights" : ", averaged weights";
    trained->step = run.step;
    trained->epoch = run.epoch_steps == 0 && run.epoch > 0 ? run.epoch - 1 : run.epoch;
    trained->how_far =
        vt_text_format("step %ld, epoch %ld%s", run.step, run.epoch, vt_checkpoint_has_average(index) ? what : "");
done:
    return status;
}

vt_status vt_trained_open(const char *name, int flag_count, char *const *flags, int64_t ranks, vt_trained *trained)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    *trained = (vt_trained){0};
    VT_TRY(vt_checkpoint_find(name, VT_CHECKPOINT_TO_SHOW, &trained->checkpoint));
    VT_TRY(vt_trained_open_index(trained->checkpoint, &index));
    VT_TRY(configure(index, flag_count, flags, ranks, trained));
    if (vt_trained_on_text(trained->config)) VT_TRY(take_words(trained->checkpoint, trained->config));
    if (strcmp(vt_source_kind_of(trained->config)->name, "fields") == 0)
        VT_TRY(complete(index, trained->checkpoint, trained->config));
    VT_TRY(read_progress(index, trained));
    VT_TRY(vt_checkpoint_about(index, trained->checkpoint, &trained->about));
    VT_TRY(vt_checkpoint_checksum(trained->checkpoint, &trained->checksum));
done:
    vt_tensor_file_close(&index);
    return status;
}

void vt_trained_close(vt_trained *trained)
{
    vt_config_close(&trained->config);
    vt_fields_about_close(&trained->about);
    free(trained->checkpoint);
    free(trained->how_far);
    *trained = (vt_trained){0};
}
