#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "command/inspect.h"
#include "config/option.h"
#include "forecast/trained.h"
#include "model/model.h"
#include "optimizer/kinds.h"
#include "source/sources.h"
#include "source/text/text.h"
#include "storage/tensor_file.h"

enum { MOST_SHARDS = 8000 };

typedef struct {
    const char *directory;
    bool brief, verify;
    int faults;
    vt_tensor_file *index;
} inspection;

/* Of a language model. */
static void print_words(inspection *i)
{
    vt_vocabulary *words = NULL;
    char *path = vt_checkpoint_vocabulary(i->directory);
    const bool is_there = access(path, F_OK) == 0;
    vt_inspect_check(&i->faults, vt_checkpoint_check_beside(i->index, i->directory));
    if (is_there) vt_inspect_check(&i->faults, vt_vocabulary_read(path, &words));
    if (words != NULL) vt_print("  vocabulary: %ld words\n", words->count);
    vt_vocabulary_close(&words);
    free(path);
}

static const char *loss_text(double loss, char number[VT_NUMBER_SIZE])
{
    return isfinite(loss) ? vt_text_float((float)loss, number) : "none yet";
}

static void print_progress(const vt_run_progress *run)
{
    char numbers[3][VT_NUMBER_SIZE];
    vt_print("  progress: step %ld, %ld epoch%s done", run->step, run->epoch, run->epoch == 1 ? "" : "s");
    if (run->epoch_steps > 0) vt_print(" and %ld steps of the next", run->epoch_steps);
    vt_print("\n  validation loss: %s (best so far %s, persistence %s)\n", loss_text(run->validation_loss, numbers[0]),
             loss_text(run->best_loss, numbers[1]), loss_text(run->persistence_loss, numbers[2]));
}

/* ", pad wrap, missing mask, forcings [sin_lat], n_static_fields 2": those that differ from the defaults. */
static void print_input(const vt_config *config)
{
    static const char *const names[] = {"lat_range",     "lon_range", "pad",      "missing",
                                        "mask_channels", "normalise", "forcings", "n_static_fields"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *value = vt_config_value_text(config, names[i]);
        if (!vt_row_is_default(vt_row_find(vt_options, names[i]), config)) vt_print(", %s %s", names[i], value);
        free(value);
    }
}

static vt_status print_configuration(vt_tensor_file *index, const char *directory)
{
    vt_status status = VT_OK;
    char *model = NULL, number[VT_NUMBER_SIZE];
    vt_config *config = NULL;
    vt_fields_about *about = NULL;
    VT_TRY(vt_checkpoint_configuration(index, directory, &config));
    vt_print("  configuration %s", config->config);
    if (strcmp(vt_source_kind_of(config)->name, "fields") == 0) { /* of others the model says all */
        vt_print(": grid [%ld, %ld], %ld → %ld channels (n_history %ld, dt %ld)", config->img_size[0],
                 config->img_size[1], config->n_in_channels, config->n_out_channels, config->n_history, config->dt);
        print_input(config);
    }
    model = vt_model_kind_of(config)->describe(config);
    vt_print("\n  model: %s\n  training: global batch %ld, lr %s, seed %ld\n", model, config->global_batch_size,
             vt_text_double(vt_config_learning_rate(config), number), config->seed);
    VT_TRY(vt_checkpoint_about(index, directory, &about));
    if (about != NULL) vt_fields_about_print(about, "  ");
done:
    vt_fields_about_close(&about);
    vt_config_close(&config);
    free(model);
    return status;
}

/* Every shard is examined, so that all missing ones are reported. */
static vt_status print_shards(inspection *i)
{
    vt_status status = VT_OK;
    int64_t count = MOST_SHARDS, *bytes = vt_allocate(MOST_SHARDS, sizeof *bytes, "a checkpoint's tensor");
    double total = 0;
    char size[VT_NUMBER_SIZE];
    VT_TRY(vt_tensor_file_get_integers(i->index, "shard_bytes", &count, bytes));
    for (int64_t k = 0; k < count; k++) total += (double)bytes[k];
    vt_print("%s%ld shard%s, %s\n", i->brief ? ", " : "  files: checkpoint.h5 and ", count, count == 1 ? "" : "s",
             vt_text_bytes(total, size));
    for (int k = 0; k < count; k++)
        vt_inspect_check(&i->faults, vt_checkpoint_check_shard(i->index, i->directory, k, i->verify));
done:
    free(bytes);
    return status;
}

/* Adds the number of a tensor's elements; of all tensors together there are at most `most`. verify: also reads them,
 * and looks for NaN and infinity. */
static vt_status look_at_tensor(vt_tensor_file *index, const char *name, int64_t most, bool verify, int64_t *elements)
{
    vt_status status = VT_OK;
    vt_tensor_shape shape = {0};
    int64_t count = 0, i = 0;
    float *values = NULL;
    VT_TRY(vt_tensor_file_shape(index, name, &shape));
    count = vt_tensor_count(&shape);
    VT_CHECK(count <= most - *elements, "%s and those before it are larger than the checkpoint's files", name);
    *elements += count;
    if (!verify) goto done;
    values = vt_allocate((size_t)count * sizeof *values + 1, 1, "a checkpoint's tensor");
    VT_TRY(vt_tensor_file_read(index, name, &shape, values));
    while (i < count && isfinite(values[i])) i++;
    VT_CHECK(i == count, "%s holds %g at element %ld", name, (double)values[i], i);
done:
    free(values);
    return status;
}

/* All tensors of a group; only the first few faults are named. */
static vt_status look_at_group(inspection *i, const char *group, int64_t *tensors, int64_t *elements)
{
    enum { NAMED = 4 };
    vt_status status = VT_OK;
    const int64_t most = vt_tensor_files_bytes(i->directory) / 4;
    vt_names names = {0};
    int64_t faulty = 0;
    *tensors = *elements = 0;
    VT_TRY(vt_tensor_file_list(i->index, group, &names));
    for (int64_t k = 0; k < names.count; k++) {
        char *name = vt_text_format("%s/%s", group, names.names[k]);
        const vt_status seen = look_at_tensor(i->index, name, most, i->verify, elements);
        if (seen != VT_OK && ++faulty <= NAMED) vt_inspect_check(&i->faults, seen);
        vt_error_clear();
        free(name);
    }
    if (faulty > NAMED) vt_inspect_fault(&i->faults, "and %ld more tensors of %s", faulty - NAMED, group);
    *tensors = names.count;
done:
    vt_names_close(&names);
    return status;
}

static vt_status print_tensors(inspection *i)
{
    vt_status status = VT_OK;
    int64_t tensors = 0, elements = 0, kept = 0, more = 0, steps = 0;
    double decay = 0;
    char number[VT_NUMBER_SIZE], group[64];
    vt_names groups = {0}, states = {0};
    vt_config *config = NULL;
    VT_TRY(look_at_group(i, "parameters", &tensors, &elements));
    if (!i->brief) vt_print("  parameters: %ld in %ld tensors, float32\n", elements, tensors);
    VT_TRY(vt_checkpoint_configuration(i->index, i->directory, &config));
    VT_TRY(vt_tensor_file_get_integer(i->index, "optimizer_steps", &steps));
    VT_TRY(vt_tensor_file_list(i->index, "/", &groups)); /* without `optimizer` if it keeps nothing, as plain SGD */
    for (int64_t k = 0; k < groups.count; k++)
        if (strcmp(groups.names[k], "optimizer") == 0) VT_TRY(vt_tensor_file_list(i->index, "optimizer", &states));
    for (int64_t k = 0; k < states.count; k++) {
        snprintf(group, sizeof group, "optimizer/%s", states.names[k]);
        VT_TRY(look_at_group(i, group, &tensors, &more));
        kept += more;
    }
    if (vt_checkpoint_has_average(i->index)) {
        VT_TRY(vt_tensor_file_get_real(i->index, "ema_decay", &decay));
        VT_TRY(look_at_group(i, "average", &tensors, &elements));
        if (!i->brief)
            vt_print("  average: of %ld parameters (ema_decay %s); evaluate, predict, export and --init_from use it, "
                     "unless --weights=live\n",
                     elements, vt_text_double(decay, number));
    }
    if (!i->brief)
        vt_print("  optimizer: %s after %ld steps, %ld moments\n", vt_optimizer_kinds[config->optimizer]->name, steps,
                 kept);
done:
    vt_names_close(&groups);
    vt_names_close(&states);
    vt_config_close(&config);
    return status;
}

void vt_inspect_checkpoint(const char *directory, bool brief, bool verify, int *faults)
{
    inspection own = {directory, brief, verify, *faults, NULL}, *i = &own;
    vt_status status = VT_OK;
    int64_t version = 0;
    vt_run_progress run;
    char number[VT_NUMBER_SIZE], *checksum = vt_text_format("%s/checkpoint.crc32c", directory);
    if (!brief) vt_print("%s: a checkpoint\n", directory);
    VT_TRY(vt_trained_open_index(directory, &i->index));
    VT_TRY(vt_tensor_file_get_integer(i->index, "format_version", &version));
    if (version > 1 && access(checksum, F_OK) != 0)
        vt_inspect_fault(&i->faults, "%s is missing; the checkpoint is not whole without it", checksum);
    VT_TRY(vt_checkpoint_progress(i->index, &run));
    if (brief) { /* "  step-00000360: validation loss 0.129"; print_shards completes the line */
        vt_print("  %s: validation loss %s", vt_file_name(directory), loss_text(run.validation_loss, number));
    } else {
        print_progress(&run);
        VT_TRY(print_configuration(i->index, directory));
        print_words(i);
    }
    VT_TRY(print_shards(i));
    VT_TRY(print_tensors(i));
done:
    vt_inspect_check(&i->faults, status);
    vt_tensor_file_close(&i->index);
    *faults = i->faults;
    free(checksum);
}
