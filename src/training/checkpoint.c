#include "training/checkpoint.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/output_file.h"
#include "data/safetensors.h"
#include "data/tensor_file.h"
#include "report/crc32c.h"
#include "training/checkpoint_parts.h"

/* 1: one shard, whole tensors. 2: several shards, tensors made of boxes, and a checksum beside checkpoint.h5. */
enum { FORMAT_VERSION = 2 };

static const char *const optimizer_names[] = {"Adam", "AdamW", "SGD"};

static char *shard_name(int64_t rank, int64_t ranks)
{
    return vt_text_format("shard-%05lld-of-%05lld.h5", (long long)rank, (long long)ranks);
}

/* The names of the channels that the model sees, a line each; "" when there are none. */
static char *join_channel_names(const vt_checkpoint_subject *subject)
{
    vt_text text = {0};
    const vt_config *config = subject->trainer->config;
    int64_t in = config->n_in_channels / (config->n_history + 1);
    int64_t count = in > config->n_out_channels ? in : config->n_out_channels;
    vt_text_append(&text, "%s", "");
    for (int64_t c = 0; subject->channel_names != NULL && c < count; c++)
        vt_text_append(&text, "%s%s", c > 0 ? "\n" : "", subject->channel_names[c]);
    return text.characters;
}

/* ---- writing ---- */

static vt_status choose_id(char id[33])
{
    vt_status status = VT_OK;
    unsigned char random[16];
    VT_CHECK(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random, "no random bits for a checkpoint's id: %s",
             strerror(errno));
    for (int i = 0; i < 16; i++) snprintf(id + 2 * i, 3, "%02x", random[i]);
done:
    return status;
}

/* This rank's boxes. */
static vt_status write_shard(const char *path, const char *id, const vt_trainer *trainer, const vt_written_box *boxes,
                             int64_t count)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    vt_backend *backend = trainer->backend;
    float *room = vt_stored_room(trainer);
    char name[VT_STORED_NAME + 8];
    VT_TRY(vt_tensor_file_create(path, &file));
    VT_TRY(vt_tensor_file_set_text(file, "id", id));
    int64_t done = 0; /* elements of the piece */
    for (int64_t i = 0; i < count; i++) {
        vt_stored_tensor tensor = vt_stored_at(trainer, boxes[i].tensor);
        int64_t elements = vt_tensor_count(&boxes[i].box.shape);
        if (boxes[i].number == 0) {
            done = 0;
            backend->copy_to_host(backend, room, tensor.memory, (size_t)tensor.piece.count * sizeof *room);
        }
        vt_written_name(&boxes[i], tensor.name, name);
        VT_TRY(vt_tensor_file_write(file, name, &boxes[i].box.shape, room + done));
        done += elements;
    }
    VT_TRY(vt_tensor_file_finish(&file));
done:
    vt_tensor_file_close(&file);
    free(room);
    return status;
}

static vt_status write_progress(vt_tensor_file *file, const vt_progress *progress)
{
    vt_status status = VT_OK;
    VT_TRY(vt_tensor_file_set_integers(file, "step", 1, &progress->step));
    VT_TRY(vt_tensor_file_set_integers(file, "epoch", 1, &progress->epoch));
    VT_TRY(vt_tensor_file_set_integers(file, "epoch_steps", 1, &progress->epoch_steps));
    VT_TRY(vt_tensor_file_set_integers(file, "epoch_samples", 1, &progress->epoch_samples));
    VT_TRY(vt_tensor_file_set_integers(file, "epoch_skipped", 1, &progress->epoch_skipped));
    VT_TRY(vt_tensor_file_set_integers(file, "skipped", 1, &progress->skipped));
    VT_TRY(vt_tensor_file_set_integers(file, "skipped_in_row", 1, &progress->skipped_in_row));
    VT_TRY(vt_tensor_file_set_real(file, "epoch_loss", progress->epoch_loss));
    VT_TRY(vt_tensor_file_set_real(file, "epoch_seconds", progress->epoch_seconds));
    VT_TRY(vt_tensor_file_set_real(file, "validation_loss", progress->validation_loss));
    VT_TRY(vt_tensor_file_set_real(file, "best_loss", progress->best_loss));
    VT_TRY(vt_tensor_file_set_real(file, "persistence_loss", progress->persistence_loss));
done:
    return status;
}

static vt_status write_description(vt_tensor_file *file, const vt_checkpoint_subject *subject)
{
    vt_status status = VT_OK;
    const vt_trainer *trainer = subject->trainer;
    const vt_config *config = trainer->config;
    const int64_t parameters = vt_parameters_count(trainer->parameters);
    const vt_optimizer_progress optimizer = vt_optimizer_progress_of(trainer->optimizer);
    char *names = join_channel_names(subject), *yaml = vt_config_text(config);
    vt_backend *backend = trainer->backend;
    char *choices = backend->choices_text != NULL ? backend->choices_text(backend) : NULL;
    VT_TRY(vt_tensor_file_set_integers(file, "seed", 1, &config->seed));
    VT_TRY(vt_tensor_file_set_integers(file, "global_batch_size", 1, &config->global_batch_size));
    VT_TRY(vt_tensor_file_set_integers(file, "parameter_count", 1, &parameters));
    VT_TRY(vt_tensor_file_set_integers(file, "optimizer_steps", 1, &optimizer.updates));
    VT_TRY(vt_tensor_file_set_real(file, "loss_scale", optimizer.loss_scale));
    VT_TRY(vt_tensor_file_set_integers(file, "loss_scale_clean_steps", 1, &optimizer.clean_steps));
    VT_TRY(vt_tensor_file_set_text(file, "optimizer", optimizer_names[config->optimizer]));
    VT_TRY(vt_tensor_file_set_text(file, "channels", names));
    VT_TRY(vt_tensor_file_set_text(file, "configuration", yaml));
    /* an attribute holds 64 KiB at most; choices are made again where they are missing */
    if (choices != NULL && strlen(choices) < 60000) VT_TRY(vt_tensor_file_set_text(file, "choices", choices));
done:
    free(names);
    free(yaml);
    free(choices);
    return status;
}

/* Every tensor, whole, made of the boxes of all ranks. */
static vt_status link_tensors(vt_tensor_file *file, const vt_trainer *trainer, const vt_written_box *boxes,
                              int64_t count)
{
    vt_status status = VT_OK;
    int64_t ranks = trainer->world->ranks, begin = 0;
    char **shards = vt_allocate((size_t)ranks, sizeof *shards, "a checkpoint");
    vt_tensor_part *parts = vt_allocate((size_t)(count + 1), sizeof *parts, "a checkpoint");
    char(*names)[VT_STORED_NAME + 8] = vt_allocate((size_t)(count + 1), sizeof *names, "a checkpoint");
    for (int64_t rank = 0; rank < ranks; rank++) shards[rank] = shard_name(rank, ranks);
    for (int64_t i = 0; i < vt_stored_count(trainer); i++) {
        vt_stored_tensor tensor = vt_stored_at(trainer, i);
        vt_tensor_shape shape = vt_stored_shape(tensor.parameter);
        int64_t end = begin;
        for (; end < count && boxes[end].tensor == i; end++) {
            vt_written_name(&boxes[end], tensor.name, names[end]);
            parts[end] = (vt_tensor_part){shards[boxes[end].rank], names[end], boxes[end].box};
        }
        VT_TRY(vt_tensor_file_link(file, tensor.name, &shape, end - begin, parts + begin));
        begin = end;
    }
done:
    for (int64_t rank = 0; rank < ranks; rank++) free(shards[rank]);
    free(shards);
    free(parts);
    free(names);
    return status;
}

/* HDF5 1.10 trusts what a damaged file says of its own structures, so the index has a checksum that is looked at before
 * HDF5 is. */
static vt_status checksum_file(const char *path, uint32_t *checksum)
{
    vt_status status = VT_OK;
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    VT_CHECK(file != NULL, "can't read %s: %s", path, strerror(errno));
    VT_CHECK(fseek(file, 0, SEEK_END) == 0, "can't read %s: %s", path, strerror(errno));
    long size = ftell(file);
    rewind(file);
    bytes = malloc((size_t)(size > 0 ? size : 0) + 1);
    VT_CHECK(size >= 0 && bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size, "can't read %s: %s",
             path, strerror(errno));
    *checksum = vt_crc32c(bytes, (size_t)size);
done:
    free(bytes);
    if (file != NULL) fclose(file);
    return status;
}

static vt_status write_checksum(const char *directory, const char *index)
{
    vt_status status = VT_OK;
    uint32_t checksum = 0;
    char *path = vt_text_format("%s/checkpoint.crc32c", directory);
    FILE *file = NULL;
    VT_TRY(checksum_file(index, &checksum));
    file = fopen(path, "w");
    bool written = file != NULL && vt_file_close(file, fprintf(file, "%08x  checkpoint.h5\n", (unsigned)checksum) > 0);
    VT_CHECK(written, "can't write %s: %s", path, strerror(errno));
    VT_TRY(vt_output_synchronise(path));
done:
    free(path);
    return status;
}

static vt_status write_index(const char *directory, const char *id, const int64_t *shard_bytes,
                             const vt_checkpoint_subject *subject, const vt_progress *progress,
                             const vt_written_box *boxes, int64_t count)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    const int64_t version = FORMAT_VERSION;
    char *path = vt_text_format("%s/checkpoint.h5", directory);
    VT_TRY(vt_tensor_file_create(path, &file));
    VT_TRY(vt_tensor_file_set_integers(file, "format_version", 1, &version));
    VT_TRY(vt_tensor_file_set_text(file, "id", id));
    VT_TRY(vt_tensor_file_set_integers(file, "shard_bytes", subject->trainer->world->ranks, shard_bytes));
    VT_TRY(write_progress(file, progress));
    VT_TRY(write_description(file, subject));
    VT_TRY(link_tensors(file, subject->trainer, boxes, count));
    VT_TRY(vt_tensor_file_finish(&file));
    VT_TRY(write_checksum(directory, path));
    VT_TRY(vt_output_synchronise(directory));
done:
    vt_tensor_file_close(&file);
    free(path);
    return status;
}

/* Its size, once it is written. */
static vt_status write_own_shard(const char *directory, const char *id, const vt_trainer *trainer,
                                 const vt_written_box *boxes, int64_t count, int64_t *bytes)
{
    vt_status status = VT_OK;
    struct stat info;
    char *shard = shard_name(trainer->world->rank, trainer->world->ranks);
    char *path = vt_text_format("%s/%s", directory, shard);
    VT_TRY(write_shard(path, id, trainer, boxes, count));
    VT_CHECK(stat(path, &info) == 0, "can't look at %s: %s", path, strerror(errno));
    *bytes = (int64_t)info.st_size;
done:
    free(shard);
    free(path);
    return status;
}

vt_status vt_checkpoint_write(const char *directory, const vt_checkpoint_subject *subject, const vt_progress *progress)
{
    vt_status status = VT_OK;
    vt_world *world = subject->trainer->world;
    char *id = world->rank == 0 ? vt_allocate(1, 33, "a checkpoint") : NULL;
    vt_written_box *own = NULL, *all = NULL;
    int64_t own_count = 0, all_count = 0;
    /* whole numbers, summed over the ranks */
    double *bytes = vt_allocate((size_t)world->ranks, sizeof *bytes, "a checkpoint");
    int64_t *shard_bytes = vt_allocate((size_t)world->ranks, sizeof *shard_bytes, "a checkpoint");
    VT_TRY(vt_world_agree(world, world->rank == 0 ? choose_id(id) : VT_OK));
    vt_world_broadcast_text(world, &id);
    vt_stored_own_boxes(subject->trainer, &own, &own_count);
    status = write_own_shard(directory, id, subject->trainer, own, own_count, &shard_bytes[world->rank]);
    VT_TRY(vt_world_agree(world, status));
    bytes[world->rank] = (double)shard_bytes[world->rank];
    vt_world_sum(world, bytes, world->ranks);
    for (int rank = 0; rank < world->ranks; rank++) shard_bytes[rank] = (int64_t)bytes[rank];
    vt_stored_all_boxes(world, own, own_count, &all, &all_count);
    if (world->rank == 0) status = write_index(directory, id, shard_bytes, subject, progress, all, all_count);
    VT_TRY(vt_world_agree(world, status));
done:
    free(id);
    free(bytes);
    free(shard_bytes);
    free(own);
    free(all);
    return status;
}

/* ---- checking: what the files are ---- */

static vt_status check_shard(const char *path, int64_t bytes, const char *id)
{
    vt_status status = VT_OK;
    struct stat info;
    vt_tensor_file *file = NULL;
    char *found = NULL;
    VT_CHECK(stat(path, &info) == 0, "%s: %s; the checkpoint is not whole without it", path, strerror(errno));
    VT_CHECK(info.st_size == bytes, "%s has %lld bytes, expected %lld: it is cut off or of another checkpoint", path,
             (long long)info.st_size, (long long)bytes);
    VT_TRY(vt_tensor_file_open(path, &file));
    VT_TRY(vt_tensor_file_get_text(file, "id", &found));
    VT_CHECK(strcmp(found, id) == 0, "%s is of another checkpoint: its id is %s, expected %s", path, found, id);
done:
    vt_tensor_file_close(&file);
    free(found);
    return status;
}

/* Every `step`-th shard from the `first` on: there, whole, and of this checkpoint. */
static vt_status check_shards(vt_tensor_file *index, const char *directory, int first, int step)
{
    vt_status status = VT_OK;
    enum { MOST = 8000 }; /* what fits into an attribute */
    int64_t count = MOST, *bytes = vt_allocate(MOST, sizeof *bytes, "a checkpoint");
    char *id = NULL, *name = NULL, *path = NULL;
    VT_TRY(vt_tensor_file_get_integers(index, "shard_bytes", &count, bytes));
    VT_TRY(vt_tensor_file_get_text(index, "id", &id));
    VT_CHECK(count > 0, "%s: no shards are named", directory);
    for (int64_t i = first; i < count; i += step) {
        free(name);
        free(path);
        name = shard_name(i, count);
        path = vt_text_format("%s/%s", directory, name);
        VT_TRY(check_shard(path, bytes[i], id));
    }
done:
    free(bytes);
    free(id);
    free(name);
    free(path);
    return status;
}

/* The index is what was written. Those of version 1 have no checksum. */
static vt_status check_index(const char *directory, const char *index, bool *has_checksum)
{
    vt_status status = VT_OK;
    unsigned expected = 0;
    uint32_t found = 0;
    char *path = vt_text_format("%s/checkpoint.crc32c", directory);
    FILE *file = fopen(path, "r");
    *has_checksum = file != NULL;
    VT_CHECK(file != NULL || errno == ENOENT, "can't read %s: %s", path, strerror(errno));
    if (file == NULL) goto done;
    VT_CHECK(fscanf(file, "%8x", &expected) == 1, "%s is damaged: it holds no checksum", path);
    VT_TRY(checksum_file(index, &found));
    VT_CHECK(found == expected, "%s is damaged: its checksum is %08x, expected %08x", index, (unsigned)found, expected);
done:
    if (file != NULL) fclose(file);
    free(path);
    return status;
}

/* Opens a whole checkpoint of a version that we know; ranks divide the looking at the shards among them. */
static vt_status open_checkpoint(const char *directory, const vt_world *world, vt_tensor_file **index, bool *damaged)
{
    vt_status status = VT_OK;
    int64_t version = 0;
    bool has_checksum = false;
    char *path = vt_text_format("%s/checkpoint.h5", directory);
    *damaged = true;
    VT_TRY(check_index(directory, path, &has_checksum));
    VT_TRY(vt_tensor_file_open(path, index));
    VT_TRY(vt_tensor_file_get_integer(*index, "format_version", &version));
    *damaged = version < 1;
    VT_CHECK(version >= 1 && version <= FORMAT_VERSION,
             "%s has format version %lld, this program reads versions 1 to %d: it was written by a newer vitrain", path,
             (long long)version, FORMAT_VERSION);
    *damaged = true;
    VT_CHECK(version == 1 || has_checksum, "%s/checkpoint.crc32c is missing; the checkpoint is not whole without it",
             directory);
    VT_TRY(check_shards(*index, directory, world != NULL ? world->rank : 0, world != NULL ? world->ranks : 1));
    *damaged = false;
done:
    free(path);
    return status;
}

vt_status vt_checkpoint_check_index(const char *directory)
{
    bool has_checksum = false;
    vt_status status = VT_OK;
    char *path = vt_text_format("%s/checkpoint.h5", directory);
    VT_TRY(check_index(directory, path, &has_checksum));
    VT_TRY(vt_tensor_files_try(directory));
done:
    free(path);
    return status;
}

vt_status vt_checkpoint_check_shard(vt_tensor_file *index, const char *directory, int shard)
{
    return check_shards(index, directory, shard, INT_MAX / 2);
}

/* ---- checking: what fits the run ---- */

static vt_status check_channels(const char *directory, const char *stored, const char *present)
{
    vt_status status = VT_OK;
    if (stored[0] == '\0' || present[0] == '\0') return VT_OK; /* one of the two has no names */
    for (int channel = 0; *stored != '\0' || *present != '\0'; channel++) {
        int a = (int)strcspn(stored, "\n"), b = (int)strcspn(present, "\n");
        VT_CHECK(a == b && strncmp(stored, present, (size_t)a) == 0,
                 "%s: channel %d is '%.*s' in the checkpoint, '%.*s' in the data", directory, channel, a, stored, b,
                 present);
        stored += a + (stored[a] == '\n');
        present += b + (present[b] == '\n');
    }
done:
    return status;
}

static vt_status check_model(vt_tensor_file *file, const char *directory, const vt_checkpoint_subject *subject)
{
    vt_status status = VT_OK;
    const vt_parameters *parameters = subject->trainer->parameters;
    int64_t stored = 0, count = vt_parameters_count(parameters);
    char found_text[128], wanted_text[128];
    char *stored_names = NULL, *names = join_channel_names(subject);
    VT_TRY(vt_tensor_file_get_text(file, "channels", &stored_names));
    VT_TRY(check_channels(directory, stored_names, names));
    VT_TRY(vt_tensor_file_get_integer(file, "parameter_count", &stored));
    VT_CHECK(stored == count, "%s holds %lld parameters, the model has %lld: their depth differs", directory,
             (long long)stored, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        vt_stored_tensor tensor = vt_stored_at(subject->trainer, i);
        vt_tensor_shape wanted = vt_stored_shape(tensor.parameter), found = {0};
        VT_TRY(vt_tensor_file_shape(file, tensor.name, &found));
        vt_tensor_shape_text(&found, found_text);
        vt_tensor_shape_text(&wanted, wanted_text);
        VT_CHECK(strcmp(found_text, wanted_text) == 0,
                 "%s: %s is %s in the checkpoint, %s in the model that the configuration asks for", directory,
                 tensor.parameter->name, found_text, wanted_text);
    }
done:
    free(stored_names);
    free(names);
    return status;
}

/* Adam and AdamW keep the same moments. */
static vt_status check_optimizer(vt_tensor_file *file, const char *directory, const vt_config *config)
{
    vt_status status = VT_OK;
    char *name = NULL;
    VT_TRY(vt_tensor_file_get_text(file, "optimizer", &name));
    bool was_sgd = strcmp(name, optimizer_names[VT_OPTIMIZER_SGD]) == 0;
    VT_CHECK(
        was_sgd == (config->optimizer == VT_OPTIMIZER_SGD),
        "%s was made with the optimizer %s, whose moments %s can't go on with; --init_from=%s takes the parameters "
        "alone",
        directory, name, optimizer_names[config->optimizer], directory);
done:
    free(name);
    return status;
}

/* ---- reading ---- */

static vt_status read_progress(vt_tensor_file *file, vt_progress *progress)
{
    vt_status status = VT_OK;
    VT_TRY(vt_tensor_file_get_integer(file, "step", &progress->step));
    VT_TRY(vt_tensor_file_get_integer(file, "epoch", &progress->epoch));
    VT_TRY(vt_tensor_file_get_integer(file, "epoch_steps", &progress->epoch_steps));
    VT_TRY(vt_tensor_file_get_integer(file, "epoch_samples", &progress->epoch_samples));
    progress->epoch_skipped = progress->skipped = progress->skipped_in_row = 0;
    if (vt_tensor_file_has(file, "skipped")) { /* the first checkpoints had none of the three */
        VT_TRY(vt_tensor_file_get_integer(file, "epoch_skipped", &progress->epoch_skipped));
        VT_TRY(vt_tensor_file_get_integer(file, "skipped", &progress->skipped));
        VT_TRY(vt_tensor_file_get_integer(file, "skipped_in_row", &progress->skipped_in_row));
    }
    VT_TRY(vt_tensor_file_get_real(file, "epoch_loss", &progress->epoch_loss));
    VT_TRY(vt_tensor_file_get_real(file, "epoch_seconds", &progress->epoch_seconds));
    VT_TRY(vt_tensor_file_get_real(file, "validation_loss", &progress->validation_loss));
    VT_TRY(vt_tensor_file_get_real(file, "best_loss", &progress->best_loss));
    VT_TRY(vt_tensor_file_get_real(file, "persistence_loss", &progress->persistence_loss));
done:
    return status;
}

/* The batches of an epoch are counted in batches of its size, so it can change only between two epochs. */
static vt_status check_batch_size(vt_tensor_file *file, const char *directory, const vt_config *config,
                                  const vt_progress *progress)
{
    vt_status status = VT_OK;
    int64_t batch = 0;
    VT_TRY(vt_tensor_file_get_integer(file, "global_batch_size", &batch));
    VT_CHECK(progress->epoch_steps == 0 || batch == config->global_batch_size,
             "%s lies in the midst of an epoch with global_batch_size %lld, so it can't go on with %lld", directory,
             (long long)batch, (long long)config->global_batch_size);
done:
    return status;
}

/* What this rank keeps of the first `count` tensors, straight from the shards that hold it. */
static vt_status read_tensors(vt_tensor_file *index, const vt_trainer *trainer, int64_t count)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    float *room = vt_stored_room(trainer);
    for (int64_t i = 0; i < count; i++) {
        vt_tensor_box boxes[VT_TENSOR_BOXES];
        vt_stored_tensor tensor = vt_stored_at(trainer, i);
        int number = vt_stored_boxes(&tensor, boxes);
        float *next = room;
        for (int j = 0; j < number; j++) {
            VT_TRY(vt_tensor_file_read_box(index, tensor.name, &boxes[j], next));
            next += vt_tensor_count(&boxes[j].shape);
        }
        if (number > 0)
            backend->copy_from_host(backend, tensor.memory, room, (size_t)tensor.piece.count * sizeof *room);
    }
done:
    free(room);
    return status;
}

/* Collective. All ranks could read, or all fail: those that could by themselves without a note. */
static vt_status finish_reading(vt_trainer *trainer, vt_status status, bool *damaged)
{
    bool failed = vt_world_any(trainer->world, status != VT_OK);
    *damaged = vt_world_any(trainer->world, *damaged);
    if (failed) return VT_ERROR;
    vt_gradient_sync_values_changed(trainer->sync);
    return VT_OK;
}

/* What the run's back end had chosen by timing: it goes on with the same, on the same machine. */
static vt_status read_choices(vt_tensor_file *index, vt_backend *backend)
{
    vt_status status = VT_OK;
    char *text = NULL;
    if (backend->choices_take == NULL || !vt_tensor_file_has(index, "choices")) return VT_OK;
    VT_TRY(vt_tensor_file_get_text(index, "choices", &text));
    backend->choices_take(backend, text);
done:
    free(text);
    return status;
}

static vt_status read_optimizer_progress(vt_tensor_file *file, vt_optimizer_progress *progress)
{
    vt_status status = VT_OK;
    VT_TRY(vt_tensor_file_get_integer(file, "optimizer_steps", &progress->updates));
    if (vt_tensor_file_has(file, "loss_scale")) { /* earlier checkpoints had none */
        VT_TRY(vt_tensor_file_get_real(file, "loss_scale", &progress->loss_scale));
        VT_TRY(vt_tensor_file_get_integer(file, "loss_scale_clean_steps", &progress->clean_steps));
    }
done:
    return status;
}

static vt_status read_own_parts(const char *directory, const vt_checkpoint_subject *subject, vt_progress *progress,
                                bool *damaged)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    vt_trainer *trainer = subject->trainer;
    vt_optimizer_progress optimizer = {0};
    VT_TRY(open_checkpoint(directory, trainer->world, &index, damaged));
    VT_TRY(check_model(index, directory, subject));
    VT_TRY(check_optimizer(index, directory, trainer->config));
    VT_TRY(read_progress(index, progress));
    VT_TRY(check_batch_size(index, directory, trainer->config, progress));
    VT_TRY(read_choices(index, trainer->backend));
    VT_TRY(read_optimizer_progress(index, &optimizer));
    *damaged = true;
    VT_TRY(read_tensors(index, trainer, vt_stored_count(trainer)));
    *damaged = false;
    vt_optimizer_set_progress(trainer->optimizer, &optimizer);
    trainer->steps_started = progress->step;
done:
    vt_tensor_file_close(&index);
    return status;
}

vt_status vt_checkpoint_read(const char *directory, const vt_checkpoint_subject *subject, vt_progress *progress,
                             bool *damaged)
{
    vt_status status = read_own_parts(directory, subject, progress, damaged);
    return finish_reading(subject->trainer, status, damaged);
}

static vt_status read_safetensors(const char *path, const vt_trainer *trainer)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    vt_safetensors *file = NULL;
    float *whole = NULL, *room = vt_stored_room(trainer);
    VT_TRY(vt_safetensors_open(path, &file));
    for (int64_t i = 0; i < vt_parameters_count(trainer->parameters); i++) {
        vt_tensor_box boxes[VT_TENSOR_BOXES];
        vt_stored_tensor tensor = vt_stored_at(trainer, i);
        vt_tensor_shape shape = vt_stored_shape(tensor.parameter);
        free(whole);
        whole = vt_allocate((size_t)vt_tensor_count(&shape), sizeof *whole, "a checkpoint");
        VT_TRY(vt_safetensors_read(file, tensor.parameter->name, &shape, whole));
        float *next = room;
        int number = vt_stored_boxes(&tensor, boxes);
        for (int j = 0; j < number; j++) {
            vt_tensor_box_copy(&shape, whole, &boxes[j], next);
            next += vt_tensor_count(&boxes[j].shape);
        }
        if (number > 0)
            backend->copy_from_host(backend, tensor.memory, room, (size_t)tensor.piece.count * sizeof *room);
    }
done:
    vt_safetensors_close(&file);
    free(whole);
    free(room);
    return status;
}

static vt_status read_own_parameters(const char *path, const vt_checkpoint_subject *subject)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    vt_trainer *trainer = subject->trainer;
    bool damaged = false;
    size_t length = strlen(path), suffix = strlen(".safetensors");
    if (length > suffix && strcmp(path + length - suffix, ".safetensors") == 0) return read_safetensors(path, trainer);
    VT_TRY(open_checkpoint(path, trainer->world, &index, &damaged));
    VT_TRY(check_model(index, path, subject));
    VT_TRY(read_tensors(index, trainer, vt_parameters_count(trainer->parameters)));
done:
    vt_tensor_file_close(&index);
    return status;
}

vt_status vt_checkpoint_read_parameters(const char *path, const vt_checkpoint_subject *subject)
{
    bool damaged = false;
    return finish_reading(subject->trainer, read_own_parameters(path, subject), &damaged);
}

static vt_status read_named(vt_tensor_file *file, const char *name, vt_named_tensor *tensor)
{
    vt_status status = VT_OK;
    char *full = vt_text_format("parameters/%s", name);
    VT_TRY(vt_tensor_file_shape(file, full, &tensor->shape));
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

vt_status vt_checkpoint_export(const char *directory, const char *path)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    bool damaged = false;
    char **names = NULL;
    int64_t count = 0;
    vt_named_tensor *tensors = NULL;
    VT_TRY(vt_checkpoint_check_index(directory));
    VT_TRY(open_checkpoint(directory, NULL, &index, &damaged));
    VT_TRY(vt_tensor_file_list(index, "parameters", &names, &count));
    tensors = vt_allocate((size_t)count + 1, sizeof *tensors, "a checkpoint");
    for (int64_t i = 0; i < count; i++) VT_TRY(read_named(index, names[i], &tensors[i]));
    VT_TRY(vt_safetensors_write(path, tensors, count));
done:
    for (int64_t i = 0; i < count && tensors != NULL; i++) free((float *)(uintptr_t)tensors[i].values);
    for (int64_t i = 0; i < count; i++) free(names[i]);
    free(names);
    free(tensors);
    vt_tensor_file_close(&index);
    return status;
}
