/* Reading a checkpoint: what goes back into the run. */
#include <stdlib.h>
#include <string.h>

#include "backend/choices.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/whole.h"
#include "checkpoint/inside.h"

/* An attribute of the index that keeps a double, or an int64_t. */
typedef struct {
    const char *name;       /* NULL behind the last */
    size_t offset;          /* in vt_run_progress, or vt_optimizer_progress */
    bool is_real, is_later; /* later: the first checkpoints lack it */
} attribute;

static const attribute rows_of_run[] = {
    {"global_batch_size", offsetof(vt_run_progress, batch), false, true},
    {"training_samples", offsetof(vt_run_progress, training_samples), false, true},
    {"validation_samples", offsetof(vt_run_progress, validation_samples), false, true},
    {"step", offsetof(vt_run_progress, step), false, false},
    {"epoch", offsetof(vt_run_progress, epoch), false, false},
    {"epoch_steps", offsetof(vt_run_progress, epoch_steps), false, false},
    {"epoch_samples", offsetof(vt_run_progress, epoch_sums.samples), false, false},
    {"epoch_skipped", offsetof(vt_run_progress, epoch_skipped), false, true},
    {"skipped", offsetof(vt_run_progress, skipped), false, true},
    {"skipped_in_row", offsetof(vt_run_progress, skipped_in_row), false, true},
    {"restart_step", offsetof(vt_run_progress, restart_step), false, true},
    {"epoch_loss", offsetof(vt_run_progress, epoch_sums.loss), true, false},
    {"epoch_seconds", offsetof(vt_run_progress, epoch_sums.seconds), true, false},
    {"epoch_data_seconds", offsetof(vt_run_progress, epoch_sums.waited), true, true},
    {"epoch_forward_seconds", offsetof(vt_run_progress, epoch_times.forward), true, true},
    {"epoch_backward_seconds", offsetof(vt_run_progress, epoch_times.backward), true, true},
    {"epoch_communication_seconds", offsetof(vt_run_progress, epoch_times.communication), true, true},
    {"epoch_optimizer_seconds", offsetof(vt_run_progress, epoch_times.optimizer), true, true},
    {"unlogged_steps", offsetof(vt_run_progress, unlogged.steps), false, true},
    {"unlogged_samples", offsetof(vt_run_progress, unlogged.samples), false, true},
    {"unlogged_updates", offsetof(vt_run_progress, unlogged.updates), false, true},
    {"unlogged_seconds", offsetof(vt_run_progress, unlogged.seconds), true, true},
    {"unlogged_data_seconds", offsetof(vt_run_progress, unlogged.waited), true, true},
    {"unlogged_loss", offsetof(vt_run_progress, unlogged.loss), true, true},
    {"validation_loss", offsetof(vt_run_progress, validation_loss), true, false},
    {"best_loss", offsetof(vt_run_progress, best_loss), true, false},
    {"persistence_loss", offsetof(vt_run_progress, persistence_loss), true, false},
    {NULL, 0, false, false},
};

static const attribute rows_of_optimizer[] = {
    {"optimizer_steps", offsetof(vt_optimizer_progress, updates), false, false},
    {"loss_scale", offsetof(vt_optimizer_progress, loss_scale), true, true},
    {"loss_scale_clean_steps", offsetof(vt_optimizer_progress, clean_steps), false, true},
    {"loss_scale_tolerated", offsetof(vt_optimizer_progress, tolerated), false, true},
    {NULL, 0, false, false},
};

static vt_status read_rows(vt_tensor_file *index, const attribute *row, void *progress)
{
    vt_status status = VT_OK;
    for (; row->name != NULL; row++) {
        void *at = (char *)progress + row->offset;
        if (row->is_later && !vt_tensor_file_has(index, row->name)) continue;
        VT_TRY((row->is_real ? vt_tensor_file_get_real(index, row->name, at)
                             : vt_tensor_file_get_integer(index, row->name, at)));
    }
done:
    return status;
}

static vt_status write_rows(vt_tensor_file *index, const attribute *row, const void *progress)
{
    vt_status status = VT_OK;
    for (; row->name != NULL; row++) {
        const void *at = (const char *)progress + row->offset;
        VT_TRY((row->is_real ? vt_tensor_file_set_real(index, row->name, *(const double *)at)
                             : vt_tensor_file_set_integers(index, row->name, 1, at)));
    }
done:
    return status;
}

vt_status vt_checkpoint_write_progress(vt_tensor_file *index, const vt_run_progress *progress,
                                       const vt_optimizer_progress *optimizer)
{
    vt_status status = VT_OK;
    VT_TRY(write_rows(index, rows_of_run, progress));
    VT_TRY(write_rows(index, rows_of_optimizer, optimizer));
done:
    return status;
}

vt_status vt_checkpoint_progress(vt_tensor_file *index, vt_run_progress *progress)
{
    *progress = (vt_run_progress){.restart_step = -1, .validation_samples = -1};
    const vt_status status = read_rows(index, rows_of_run, progress);
    vt_step_sums *sums = &progress->epoch_sums; /* all batches have `batch` samples, but perhaps an epoch's last */
    sums->steps = progress->batch > 0 ? vt_quotient_up(sums->samples, progress->batch) : progress->epoch_steps;
    sums->updates = sums->steps - progress->epoch_skipped;
    return status;
}

/* Where num_iters ended the first epoch early, a run with more to do continues that epoch. */
static void reopen_epoch(const vt_config *config, vt_run_progress *progress)
{
    const int64_t most = config->num_iters;
    const bool is_first = progress->epoch == 1 && progress->epoch_steps == 0;
    const bool ended_early = (progress->step + 1) * progress->batch <= progress->training_samples;
    if (is_first && progress->batch > 0 && ended_early && (most == VT_UNSET_INTEGER || most > progress->step)) {
        progress->epoch = 0;
        progress->epoch_steps = progress->step;
    }
}

vt_status vt_checkpoint_read_part(vt_tensor_file *index, const char *name, const float *whole,
                                  const vt_stored_tensor *tensor, const vt_checkpoint_subject *subject, float *room)
{
    vt_status status = VT_OK;
    vt_tensor_box boxes[VT_TENSOR_BOXES];
    const int count = vt_stored_boxes(tensor, boxes);
    float *next = room;
    for (int j = 0; j < count; next += vt_tensor_count(&boxes[j++].shape)) {
        if (whole != NULL)
            vt_tensor_box_copy(&tensor->shape, whole, &boxes[j], next);
        else
            VT_TRY(vt_tensor_file_read_box(index, name, &boxes[j], next));
    }
    if (count > 0) vt_kept_put(subject->optimizer->kept, &tensor->part, room);
done:
    return status;
}

/* What this rank keeps of the first `count` tensors. group: where they stand in the file, if not under their own names.
 */
static vt_status read_tensors(vt_tensor_file *index, const vt_checkpoint_subject *subject, int64_t count,
                              const char *group)
{
    vt_status status = VT_OK;
    float *room = vt_stored_room(subject);
    for (int64_t i = 0; i < count; i++) {
        vt_stored_tensor tensor = vt_stored_at(subject, i);
        if (tensor.parameter == NULL || vt_checkpoint_lacks(index, tensor.parameter)) continue;
        if (group != NULL) snprintf(tensor.name, sizeof tensor.name, "%s/%s", group, vt_stored_name(tensor.parameter));
        VT_TRY(vt_checkpoint_read_part(index, tensor.name, NULL, &tensor, subject, room));
    }
done:
    free(room);
    return status;
}

/* Collective. Either all ranks have read everything, and the same, or all fail; those that could read fail without a
 * note. */
static vt_status finish_reading(const char *path, const vt_checkpoint_subject *subject, vt_status status, bool *damaged)
{
    uint32_t checksum = 0;
    if (status == VT_OK) status = vt_checkpoint_checksum(path, &checksum);
    bool failed = vt_world_any(subject->world, status != VT_OK);
    *damaged = vt_world_any(subject->world, *damaged);
    char *own = vt_text_format("%s%s: crc32c %08x", path, vt_safetensors_is_name(path) ? "" : "/checkpoint.h5",
                               (unsigned)checksum);
    if (!failed)
        status = vt_world_same(subject->world, own,
                               "ranks would begin with parameters of different files; copy one to all nodes");
    free(own);
    if (failed || vt_world_any(subject->world, status != VT_OK)) return VT_ERROR;
    vt_gradient_sync_values_changed(subject->sync);
    return VT_OK;
}

static vt_status read_own_parts(const char *directory, const vt_checkpoint_subject *subject, vt_run_progress *progress,
                                bool *damaged)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    vt_optimizer_progress optimizer = {0};
    char *choices = NULL;
    VT_TRY(vt_checkpoint_open(directory, subject->world, &index, damaged));
    VT_TRY(vt_checkpoint_join_data(index, directory, subject, VT_RESUMED_AND_DATA));
    VT_TRY(vt_checkpoint_check_model(index, directory, subject));
    VT_TRY(vt_checkpoint_progress(index, progress));
    reopen_epoch(subject->config, progress);
    VT_TRY(vt_checkpoint_check_run(index, directory, subject, progress));
    if (subject->backend->choices != NULL && vt_tensor_file_has(index, "choices")) {
        /* what the run's back end had chosen by timing, so that it keeps to it on the same machine */
        VT_TRY(vt_tensor_file_get_text(index, "choices", &choices));
        vt_choices_take(subject->backend->choices, choices);
    }
    VT_TRY(read_rows(index, rows_of_optimizer, &optimizer));
    optimizer.averaged = optimizer.updates; /* an average that begins here has its first value */
    if (vt_checkpoint_has_average(index))
        VT_TRY(vt_tensor_file_get_integer(index, "averaged_steps", &optimizer.averaged));
    *damaged = true;
    const int64_t parameters = subject->parameters->count;
    const bool begins = vt_kept_averages(subject->optimizer->kept) && !vt_checkpoint_has_average(index);
    VT_TRY(read_tensors(index, subject, vt_stored_count(subject) - (begins ? parameters : 0), NULL));
    *damaged = false;
    VT_TRY(vt_checkpoint_compare_measure(index, directory, subject, progress));
    vt_optimizer_set_progress(subject->optimizer, &optimizer);
    for (int64_t i = 0; i < parameters; i++) {
        if (!vt_checkpoint_lacks(index, subject->parameters->list[i])) continue;
        vt_log_info("%s is not in %s, so it begins anew, and so does an average (ema_decay)",
                    subject->parameters->list[i]->name, directory);
        vt_optimizer_average_restart(subject->optimizer);
    }
    if (begins) vt_optimizer_average_begin(subject->optimizer);
    if (begins) vt_log_info("ema_decay: %s holds no average, so it begins with the weights there", directory);
done:
    free(choices);
    vt_tensor_file_close(&index);
    return status;
}

vt_status vt_checkpoint_read(const char *directory, const vt_checkpoint_subject *subject, vt_run_progress *progress,
                             bool *damaged)
{
    vt_status status = read_own_parts(directory, subject, progress, damaged);
    return finish_reading(directory, subject, status, damaged);
}

static vt_status read_own_parameters(const char *path, const vt_checkpoint_subject *subject)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    VT_TRY(vt_checkpoint_open(path, subject->world, &index, NULL));
    VT_TRY(vt_checkpoint_join_data(index, path, subject, VT_FORECAST_AND_DATA));
    VT_TRY(vt_checkpoint_check_model(index, path, subject));
    const bool averaged = subject->config->weights == VT_WEIGHTS_AVERAGE && vt_checkpoint_has_average(index);
    VT_TRY(read_tensors(index, subject, subject->parameters->count, averaged ? "average" : NULL));
done:
    vt_tensor_file_close(&index);
    return status;
}

vt_status vt_checkpoint_read_parameters(const char *path, const vt_checkpoint_subject *subject, vt_text *changes)
{
    bool damaged = false;
    vt_text own = {0};
    char *same = vt_text_copy(path); /* on all ranks: each may have looked for the best one at another moment */
    vt_world_broadcast_text(subject->world, &same);
    vt_status status = subject->forecasts ? read_own_parameters(same, subject)
                                          : vt_checkpoint_read_initial(same, subject, changes != NULL ? changes : &own);
    status = finish_reading(same, subject, status, &damaged);
    if (status == VT_OK) vt_optimizer_average_begin(subject->optimizer);
    vt_text_close(&own);
    free(same);
    return status;
}

bool vt_checkpoint_has_average(vt_tensor_file *index)
{
    return vt_tensor_file_has(index, "ema_decay");
}

/* Takes its elements from *most. */
static vt_status read_named(vt_tensor_file *file, const char *group, const char *name, int64_t *most,
                            vt_named_tensor *tensor)
{
    vt_status status = VT_OK;
    char *full = vt_text_format("%s/%s", group, name);
    VT_TRY(vt_tensor_file_shape(file, full, &tensor->shape));
    VT_CHECK(vt_tensor_count(&tensor->shape) <= *most, "%s and those before it are larger than the checkpoint's files",
             full);
    *most -= vt_tensor_count(&tensor->shape);
    size_t bytes = (size_t)vt_tensor_count(&tensor->shape) * sizeof(float);
    float *values = malloc(bytes + 1);
    VT_CHECK(values != NULL, "out of memory: could not get %zu bytes for tensor '%s'", bytes, name);
    tensor->name = name;
    tensor->values = values;
    VT_TRY(vt_tensor_file_read(file, full, &tensor->shape, values));
done:
    free(full);
    return status;
}

/* What PyTorch's side keeps of a language model beside its parameters: the sines of 5000 places. */
static vt_status make_places(const vt_tensor_shape *table, vt_named_tensor *tensor)
{
    vt_status status = VT_OK;
    enum { PLACES = 5000, MOST = 1 << 16 };
    vt_backend *plain = NULL;
    const int64_t dim = table->shape[1];
    float *values = NULL;
    VT_CHECK(table->dimensions == 2 && dim <= MOST, "embed.weight is no table of words of at most %d numbers", MOST);
    values = vt_allocate((size_t)(PLACES * dim), sizeof *values, "a checkpoint");
    const vt_word_rows words = {.window = PLACES, .tokens = PLACES, .rows = PLACES};
    *tensor = (vt_named_tensor){"pos_encoder.pe", {.dimensions = 3, .shape = {PLACES, 1, dim}}, values};
    VT_TRY(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &plain));
    plain->sinusoid_add(plain, &words, vt_matrix_make(values, PLACES, dim));
done:
    vt_backend_close(&plain);
    return status;
}

vt_status vt_checkpoint_export(const char *directory, const char *path, vt_weights weights, bool *averaged)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    vt_names names = {0};
    int64_t more = 0, most = vt_tensor_files_bytes(directory) / 4;
    vt_named_tensor *tensors = NULL;
    VT_TRY(vt_checkpoint_check_index(directory));
    VT_TRY(vt_tensor_files_try(directory));
    VT_TRY(vt_checkpoint_open(directory, NULL, &index, NULL));
    *averaged = weights == VT_WEIGHTS_AVERAGE && vt_checkpoint_has_average(index);
    const char *group = *averaged ? "average" : "parameters";
    VT_TRY(vt_tensor_file_list(index, group, &names));
    tensors = vt_allocate((size_t)names.count + 1, sizeof *tensors, "a checkpoint");
    for (int64_t i = 0; i < names.count; i++) {
        VT_TRY(read_named(index, group, names.names[i], &most, &tensors[i]));
        if (strcmp(names.names[i], "embed.weight") == 0)
            VT_TRY(make_places(&tensors[i].shape, &tensors[names.count + more++]));
    }
    VT_TRY(vt_safetensors_write(path, tensors, names.count + more));
done:
    for (int64_t i = 0; i < names.count + more && tensors != NULL; i++) free((float *)(uintptr_t)tensors[i].values);
    vt_names_close(&names);
    free(tensors);
    vt_tensor_file_close(&index);
    return status;
}
