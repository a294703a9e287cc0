/* Writing a checkpoint: every rank its shard, then rank 0 the index. Both may be done by another thread, when what the
 * shard holds has been copied. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/inside.h"
#include "storage/output_file.h"

/* ---- a copy of what this rank writes ---- */

enum { COPY_ALIGNMENT = 64 };

/* Bytes in the copy of the tensor whose first box this is; 0 for its other boxes. Tensors follow one another there. */
static size_t copied_bytes(const vt_checkpoint_subject *subject, const vt_written_box *box)
{
    const vt_stored_tensor tensor = vt_stored_at(subject, box->tensor);
    const size_t bytes = vt_kept_raw_bytes(subject->optimizer->kept, &tensor.part);
    return box->number == 0 ? (bytes + COPY_ALIGNMENT - 1) / COPY_ALIGNMENT * COPY_ALIGNMENT : 0;
}

size_t vt_checkpoint_copy_bytes(const vt_checkpoint_subject *subject)
{
    vt_written_box *boxes = NULL;
    int64_t count = 0;
    size_t bytes = 0;
    vt_stored_own_boxes(subject, &boxes, &count);
    for (int64_t i = 0; i < count; i++) bytes += copied_bytes(subject, &boxes[i]);
    free(boxes);
    return bytes;
}

void vt_checkpoint_work_copy(const vt_checkpoint_work *work)
{
    const vt_checkpoint_subject *subject = work->subject;
    char *next = work->copy;
    for (int64_t i = 0; i < work->own_count; i++) {
        const vt_stored_tensor tensor = vt_stored_at(subject, work->own[i].tensor);
        if (work->own[i].number == 0) vt_kept_copy_raw(subject->optimizer->kept, &tensor.part, next);
        next += copied_bytes(subject, &work->own[i]);
    }
}

/* ---- the shard ---- */

vt_status vt_checkpoint_work_shard(vt_checkpoint_work *work)
{
    vt_status status = VT_OK;
    const vt_checkpoint_subject *subject = work->subject;
    const vt_kept *kept = subject->optimizer->kept;
    vt_tensor_file *file = NULL;
    float *room = vt_stored_room(subject);
    const float *numbers = room; /* of the piece: those that are not written yet */
    const char *copy = work->copy;
    char name[VT_STORED_NAME + 8];
    struct stat info;
    uint32_t checksum = 0;
    char *own = vt_checkpoint_shard_name(subject->world->rank, subject->world->ranks);
    char *path = vt_text_format("%s/%s", work->directory, own);
    VT_TRY(vt_tensor_file_create(path, &file));
    VT_TRY(vt_tensor_file_set_text(file, "id", work->id));
    for (int64_t i = 0; i < work->own_count; i++) {
        const vt_written_box *box = &work->own[i];
        const vt_stored_tensor tensor = vt_stored_at(subject, box->tensor);
        if (box->number == 0)
            numbers =
                copy != NULL ? vt_kept_decode(kept, &tensor.part, copy, room) : vt_kept_fetch(kept, &tensor.part, room);
        if (copy != NULL) copy += copied_bytes(subject, box);
        vt_written_name(box, tensor.own, name);
        VT_TRY(vt_tensor_file_write(file, name, &box->box.shape, numbers));
        numbers += vt_tensor_count(&box->box.shape);
    }
    VT_TRY(vt_tensor_file_finish(&file));
    VT_CHECK(stat(path, &info) == 0, "can't look at %s: %s", path, strerror(errno));
    work->own_bytes = (int64_t)info.st_size;
    VT_TRY(vt_file_checksum(path, &checksum));
    work->own_checksum = checksum;
done:
    vt_tensor_file_close(&file);
    free(own);
    free(path);
    free(room);
    return status;
}

/* ---- the index ---- */

static vt_status write_description(vt_tensor_file *file, const vt_checkpoint_work *work)
{
    vt_status status = VT_OK;
    const vt_checkpoint_subject *subject = work->subject;
    const vt_config *config = subject->config;
    const int64_t parameters = subject->parameters->count;
    const char *choices = work->choices;
    char *yaml = vt_config_text(config);
    VT_TRY(vt_tensor_file_set_integers(file, "seed", 1, &config->seed));
    VT_TRY(vt_tensor_file_set_integers(file, "parameter_count", 1, &parameters));
    if (vt_kept_averages(subject->optimizer->kept)) {
        VT_TRY(vt_tensor_file_set_real(file, "ema_decay", config->ema_decay));
        VT_TRY(vt_tensor_file_set_integers(file, "averaged_steps", 1, &work->optimizer.averaged));
    }
    VT_TRY(vt_tensor_file_set_text(file, "optimizer", vt_optimizer_kinds[config->optimizer]->name));
    VT_TRY(vt_tensor_file_set_text(file, "configuration", yaml));
    /* an attribute holds 64 KiB at most; choices are made again where they are missing */
    if (choices != NULL && strlen(choices) < 60000) VT_TRY(vt_tensor_file_set_text(file, "choices", choices));
done:
    free(yaml);
    return status;
}

/* Every tensor, whole, made of the boxes of all ranks. */
static vt_status link_tensors(vt_tensor_file *file, const vt_checkpoint_subject *subject, const vt_written_box *boxes,
                              int64_t count)
{
    vt_status status = VT_OK;
    int64_t ranks = subject->world->ranks, begin = 0, end = 0;
    const bool averages = vt_kept_averages(subject->optimizer->kept);
    char average[VT_STORED_NAME];
    char **shards = vt_allocate((size_t)ranks, sizeof *shards, "a checkpoint");
    vt_tensor_part *parts = vt_allocate((size_t)(count + 1), sizeof *parts, "a checkpoint");
    char(*names)[VT_STORED_NAME + 8] = vt_allocate((size_t)(count + 1), sizeof *names, "a checkpoint");
    for (int64_t rank = 0; rank < ranks; rank++) shards[rank] = vt_checkpoint_shard_name(rank, ranks);
    for (int64_t i = 0; i < vt_stored_count(subject); i++) {
        vt_stored_tensor tensor = vt_stored_at(subject, i);
        if (tensor.parameter == NULL) continue;
        vt_tensor_shape shape = tensor.shape;
        for (; end < count && boxes[end].tensor == i; end++) {
            vt_written_name(&boxes[end], tensor.own, names[end]);
            parts[end] = (vt_tensor_part){shards[boxes[end].rank], names[end], boxes[end].box};
        }
        if (i + 1 < vt_stored_count(subject) && strcmp(vt_stored_at(subject, i + 1).name, tensor.name) == 0) continue;
        VT_TRY(vt_tensor_file_link(file, tensor.name, &shape, end - begin, parts + begin));
        if (averages && i < subject->parameters->count && tensor.parameter->frozen) {
            snprintf(average, sizeof average, "average/%s", vt_stored_name(tensor.parameter)); /* its own average */
            VT_TRY(vt_tensor_file_link(file, average, &shape, end - begin, parts + begin));
        }
        begin = end;
    }
done:
    for (int64_t rank = 0; rank < ranks; rank++) free(shards[rank]);
    free(shards);
    free(parts);
    free(names);
    return status;
}

static vt_status write_vocabulary(vt_tensor_file *index, const char *directory, const vt_task *task)
{
    vt_status status = VT_OK;
    char *path = vt_checkpoint_vocabulary(directory);
    vt_text words = {0};
    for (int64_t i = 0; i < task->vocabulary_size; i++) vt_text_append(&words, "%s\n", task->vocabulary[i]);
    VT_TRY(vt_file_write(path, words.characters, words.length));
    VT_TRY(vt_checkpoint_note_checksum(index, "vocabulary_crc32c", path));
done:
    vt_text_close(&words);
    free(path);
    return status;
}

vt_status vt_checkpoint_work_index(const vt_checkpoint_work *work)
{
    vt_status status = VT_OK;
    const vt_checkpoint_subject *subject = work->subject;
    vt_tensor_file *file = NULL;
    const int64_t version = VT_CHECKPOINT_VERSION, ranks = subject->world->ranks;
    char *path = vt_text_format("%s/checkpoint.h5", work->directory);
    char *about = vt_text_format("%s/about.json", work->directory);
    VT_TRY(vt_tensor_file_create(path, &file));
    const vt_task *task = subject->task;
    if (task->vocabulary != NULL) VT_TRY(write_vocabulary(file, work->directory, task));
    if (task->about != NULL) VT_TRY(vt_fields_about_write(work->directory, task->about));
    if (task->about != NULL) VT_TRY(vt_checkpoint_note_checksum(file, "about_crc32c", about));
    VT_TRY(vt_tensor_file_set_integers(file, "format_version", 1, &version));
    VT_TRY(vt_tensor_file_set_text(file, "id", work->id));
    VT_TRY(vt_tensor_file_set_integers(file, "shard_bytes", ranks, work->shard_bytes));
    VT_TRY(vt_tensor_file_set_integers(file, "shard_crc32c", ranks, work->shard_checksums));
    VT_TRY(vt_checkpoint_write_progress(file, &work->progress, &work->optimizer));
    VT_TRY(write_description(file, work));
    VT_TRY(link_tensors(file, subject, work->all, work->all_count));
    VT_TRY(vt_tensor_file_finish(&file));
    VT_TRY(vt_checkpoint_write_checksum(work->directory));
    VT_TRY(vt_output_synchronise(work->directory));
done:
    vt_tensor_file_close(&file);
    free(about);
    free(path);
    return status;
}
