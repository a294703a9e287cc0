#include "training/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/text.h"
#include "data/output_file.h"
#include "data/safetensors.h"
#include "data/tensor_file.h"

enum { FORMAT_VERSION = 1 };

static const char *const moment_names[2] = {"moment1", "moment2"};
static const char *const optimizer_names[] = {"Adam", "AdamW", "SGD"};

static char *shard_name(int64_t rank, int64_t ranks)
{
    return vt_text_format("shard-%05lld-of-%05lld.h5", (long long)rank, (long long)ranks);
}

static vt_tensor_shape shape_of(const vt_parameter *parameter)
{
    vt_tensor_shape shape = {.dimensions = parameter->dimensions};
    memcpy(shape.shape, parameter->shape, (size_t)parameter->dimensions * sizeof *shape.shape);
    return shape;
}

/* The tensors of a trainer, one after another: parameters, then each moment. */
typedef struct {
    char name[VT_PARAMETER_NAME + 32];
    const vt_parameter *parameter;
    float *memory; /* in the back end's memory */
} stored_tensor;

static int64_t tensor_count(const vt_trainer *trainer)
{
    int moments = vt_optimizer_moment(trainer->optimizer, 1) != NULL ? 2 : 1;
    return (1 + moments) * vt_parameters_count(trainer->parameters);
}

static stored_tensor tensor_at(const vt_trainer *trainer, int64_t index)
{
    stored_tensor tensor;
    int64_t count = vt_parameters_count(trainer->parameters);
    int moment = (int)(index / count) - 1;
    tensor.parameter = vt_parameters_at(trainer->parameters, index % count);
    if (moment < 0) {
        snprintf(tensor.name, sizeof tensor.name, "parameters/%s", tensor.parameter->name);
        tensor.memory = tensor.parameter->value;
    } else {
        snprintf(tensor.name, sizeof tensor.name, "optimizer/%s/%s", moment_names[moment], tensor.parameter->name);
        tensor.memory = vt_optimizer_moment(trainer->optimizer, moment) + tensor.parameter->offset;
    }
    return tensor;
}

/* Host memory for the largest tensor. */
static float *tensor_room(const vt_trainer *trainer)
{
    int64_t largest = 1;
    for (int64_t i = 0; i < vt_parameters_count(trainer->parameters); i++) {
        const vt_parameter *parameter = vt_parameters_at(trainer->parameters, i);
        if (parameter->count > largest) largest = parameter->count;
    }
    float *room = malloc((size_t)largest * sizeof *room);
    VT_ASSERT(room != NULL);
    return room;
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

static vt_status write_shard(const char *path, const char *id, const vt_trainer *trainer)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    vt_backend *backend = trainer->backend;
    float *room = tensor_room(trainer);
    VT_TRY(vt_tensor_file_create(path, &file));
    VT_TRY(vt_tensor_file_set_text(file, "id", id));
    for (int64_t i = 0; i < tensor_count(trainer); i++) {
        stored_tensor tensor = tensor_at(trainer, i);
        vt_tensor_shape shape = shape_of(tensor.parameter);
        backend->copy_to_host(backend, room, tensor.memory, (size_t)tensor.parameter->count * sizeof *room);
        VT_TRY(vt_tensor_file_write(file, tensor.name, &shape, room));
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
    const int64_t steps = vt_optimizer_steps(trainer->optimizer);
    char *names = join_channel_names(subject), *yaml = vt_config_text(config);
    VT_TRY(vt_tensor_file_set_integers(file, "seed", 1, &config->seed));
    VT_TRY(vt_tensor_file_set_integers(file, "global_batch_size", 1, &config->global_batch_size));
    VT_TRY(vt_tensor_file_set_integers(file, "parameter_count", 1, &parameters));
    VT_TRY(vt_tensor_file_set_integers(file, "optimizer_steps", 1, &steps));
    VT_TRY(vt_tensor_file_set_text(file, "optimizer", optimizer_names[config->optimizer]));
    VT_TRY(vt_tensor_file_set_text(file, "channels", names));
    VT_TRY(vt_tensor_file_set_text(file, "configuration", yaml));
done:
    free(names);
    free(yaml);
    return status;
}

static vt_status write_index(const char *path, const char *id, const char *shard, int64_t shard_bytes,
                             const vt_checkpoint_subject *subject, const vt_progress *progress)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    const int64_t version = FORMAT_VERSION;
    VT_TRY(vt_tensor_file_create(path, &file));
    VT_TRY(vt_tensor_file_set_integers(file, "format_version", 1, &version));
    VT_TRY(vt_tensor_file_set_text(file, "id", id));
    VT_TRY(vt_tensor_file_set_integers(file, "shard_bytes", 1, &shard_bytes));
    VT_TRY(write_progress(file, progress));
    VT_TRY(write_description(file, subject));
    for (int64_t i = 0; i < tensor_count(subject->trainer); i++) {
        stored_tensor tensor = tensor_at(subject->trainer, i);
        vt_tensor_shape shape = shape_of(tensor.parameter);
        const vt_tensor_part part = {.source = shard, .name_in_source = tensor.name, .box = vt_tensor_whole(&shape)};
        VT_TRY(vt_tensor_file_link(file, tensor.name, &shape, 1, &part));
    }
    VT_TRY(vt_tensor_file_finish(&file));
done:
    vt_tensor_file_close(&file);
    return status;
}

vt_status vt_checkpoint_write(const char *directory, const vt_checkpoint_subject *subject, const vt_progress *progress)
{
    vt_status status = VT_OK;
    char id[33];
    struct stat info;
    char *shard = shard_name(0, 1), *path = vt_text_format("%s/%s", directory, shard);
    char *index = vt_text_format("%s/checkpoint.h5", directory);
    VT_TRY(choose_id(id));
    VT_TRY(write_shard(path, id, subject->trainer));
    VT_CHECK(stat(path, &info) == 0, "can't look at %s: %s", path, strerror(errno));
    VT_TRY(write_index(index, id, shard, (int64_t)info.st_size, subject, progress));
    VT_TRY(vt_output_synchronise(directory));
done:
    free(shard);
    free(path);
    free(index);
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

static vt_status open_shard(vt_tensor_file *index, const char *directory, vt_tensor_file **shard)
{
    vt_status status = VT_OK;
    int64_t bytes = 0;
    char *id = NULL, *name = shard_name(0, 1), *path = vt_text_format("%s/%s", directory, name);
    VT_TRY(vt_tensor_file_get_integer(index, "shard_bytes", &bytes));
    VT_TRY(vt_tensor_file_get_text(index, "id", &id));
    VT_TRY(check_shard(path, bytes, id));
    VT_TRY(vt_tensor_file_open(path, shard));
done:
    free(id);
    free(name);
    free(path);
    return status;
}

/* A checkpoint opened for reading. Numbers are read from the shard itself: a virtual dataset would give zeros, in
 * silence, where the shard's own description of a tensor is damaged. */
typedef struct {
    vt_tensor_file *index; /* checkpoint.h5 */
    vt_tensor_file *shard;
} open_files;

static void close_files(open_files *files)
{
    vt_tensor_file_close(&files->shard);
    vt_tensor_file_close(&files->index);
}

/* Opens a whole checkpoint of a version that we know. */
static vt_status open_checkpoint(const char *directory, open_files *files, bool *damaged)
{
    vt_status status = VT_OK;
    int64_t version = 0;
    char *path = vt_text_format("%s/checkpoint.h5", directory);
    *damaged = true;
    VT_TRY(vt_tensor_file_open(path, &files->index));
    VT_TRY(vt_tensor_file_get_integer(files->index, "format_version", &version));
    *damaged = version < 1;
    VT_CHECK(version == FORMAT_VERSION,
             "%s has format version %lld, this program reads version %d: it was written by a newer vitrain", path,
             (long long)version, FORMAT_VERSION);
    *damaged = true;
    VT_TRY(open_shard(files->index, directory, &files->shard));
    *damaged = false;
done:
    free(path);
    return status;
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
        stored_tensor tensor = tensor_at(subject->trainer, i);
        vt_tensor_shape wanted = shape_of(tensor.parameter), found = {0};
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

static vt_status read_tensors(vt_tensor_file *file, const vt_trainer *trainer, int64_t count)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    float *room = tensor_room(trainer);
    for (int64_t i = 0; i < count; i++) {
        stored_tensor tensor = tensor_at(trainer, i);
        vt_tensor_shape shape = shape_of(tensor.parameter);
        VT_TRY(vt_tensor_file_read(file, tensor.name, &shape, room));
        backend->copy_from_host(backend, tensor.memory, room, (size_t)tensor.parameter->count * sizeof *room);
    }
    vt_parameters_refresh(trainer->parameters);
done:
    free(room);
    return status;
}

vt_status vt_checkpoint_read(const char *directory, const vt_checkpoint_subject *subject, vt_progress *progress,
                             bool *damaged)
{
    vt_status status = VT_OK;
    open_files files = {0};
    vt_trainer *trainer = subject->trainer;
    int64_t steps = 0;
    VT_TRY(open_checkpoint(directory, &files, damaged));
    VT_TRY(check_model(files.index, directory, subject));
    VT_TRY(check_optimizer(files.index, directory, trainer->config));
    VT_TRY(read_progress(files.index, progress));
    VT_TRY(check_batch_size(files.index, directory, trainer->config, progress));
    VT_TRY(vt_tensor_file_get_integer(files.index, "optimizer_steps", &steps));
    *damaged = true;
    VT_TRY(read_tensors(files.shard, trainer, tensor_count(trainer)));
    *damaged = false;
    vt_optimizer_set_steps(trainer->optimizer, steps);
    trainer->steps_done = progress->step;
done:
    close_files(&files);
    return status;
}

static vt_status read_safetensors(const char *path, const vt_trainer *trainer)
{
    vt_status status = VT_OK;
    vt_backend *backend = trainer->backend;
    vt_safetensors *file = NULL;
    float *room = tensor_room(trainer);
    VT_TRY(vt_safetensors_open(path, &file));
    for (int64_t i = 0; i < vt_parameters_count(trainer->parameters); i++) {
        const vt_parameter *parameter = vt_parameters_at(trainer->parameters, i);
        vt_tensor_shape shape = shape_of(parameter);
        VT_TRY(vt_safetensors_read(file, parameter->name, &shape, room));
        backend->copy_from_host(backend, parameter->value, room, (size_t)parameter->count * sizeof *room);
    }
    vt_parameters_refresh(trainer->parameters);
done:
    vt_safetensors_close(&file);
    free(room);
    return status;
}

vt_status vt_checkpoint_read_parameters(const char *path, const vt_checkpoint_subject *subject)
{
    vt_status status = VT_OK;
    open_files files = {0};
    bool damaged = false;
    size_t length = strlen(path), suffix = strlen(".safetensors");
    if (length > suffix && strcmp(path + length - suffix, ".safetensors") == 0)
        return read_safetensors(path, subject->trainer);
    VT_TRY(open_checkpoint(path, &files, &damaged));
    VT_TRY(check_model(files.index, path, subject));
    VT_TRY(read_tensors(files.shard, subject->trainer, vt_parameters_count(subject->trainer->parameters)));
done:
    close_files(&files);
    return status;
}

static vt_status read_named(vt_tensor_file *file, const char *name, vt_named_tensor *tensor)
{
    vt_status status = VT_OK;
    char *full = vt_text_format("parameters/%s", name);
    VT_TRY(vt_tensor_file_shape(file, full, &tensor->shape));
    float *values = malloc((size_t)vt_tensor_count(&tensor->shape) * sizeof *values + 1);
    VT_ASSERT(values != NULL);
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
    open_files files = {0};
    bool damaged = false;
    char **names = NULL;
    int64_t count = 0;
    vt_named_tensor *tensors = NULL;
    VT_TRY(open_checkpoint(directory, &files, &damaged));
    VT_TRY(vt_tensor_file_list(files.shard, "parameters", &names, &count));
    tensors = calloc((size_t)count + 1, sizeof *tensors);
    VT_ASSERT(tensors != NULL);
    for (int64_t i = 0; i < count; i++) VT_TRY(read_named(files.shard, names[i], &tensors[i]));
    VT_TRY(vt_safetensors_write(path, tensors, count));
done:
    for (int64_t i = 0; i < count && tensors != NULL; i++) free((float *)(uintptr_t)tensors[i].values);
    for (int64_t i = 0; i < count; i++) free(names[i]);
    free(names);
    free(tensors);
    close_files(&files);
    return status;
}
