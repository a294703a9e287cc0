#include "source/volumes/volumes.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "storage/unpack.h"

enum { INPUTS = 4, BOXES = 2 };

static const vt_source_kind volume_noise;
static const char *const dataset_names[BOXES] = {"Nbody", "Hydro"};

typedef struct {
    vt_source source;
    const vt_config *config; /* which outlives the source */
    vt_box *boxes[BOXES];    /* of input and target; NULL: noise */
} volumes_source;

/* ---- draws ---- */

vt_cube vt_volume_draw(uint64_t seed, vt_set set, int64_t epoch, int64_t index, int64_t box, int64_t side)
{
    static const char *const streams[] = {"volumes, training", "volumes, validation", "volumes, test"};
    const uint64_t key = seed ^ vt_random_name_key(streams[set]);
    const uint32_t words[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)((uint64_t)index >> 32), (uint32_t)epoch,
                                 (uint32_t)((uint64_t)epoch >> 32)};
    const vt_random_block block = vt_random_philox(words, counter);
    vt_cube cube = {.side = side, .turn = &vt_turns[((uint64_t)block.word[3] * VT_TURNS) >> 32]};
    for (int a = 0; a < 3; a++)
        cube.corner[a] = (int64_t)(((unsigned __int128)block.word[a] * (uint64_t)(box - side + 1)) >> 32);
    return cube;
}

/* The points along each axis that are used of its boxes; 0: noise. */
static int64_t points_of(const volumes_source *volumes)
{
    return volumes->boxes[0] != NULL ? volumes->boxes[0]->side : 0;
}

/* Of a tensor of sample epoch · sample_count + index. */
static vt_cube cube_of(const volumes_source *volumes, int64_t sample, int tensor)
{
    const vt_source *source = &volumes->source;
    const vt_config *config = volumes->config;
    vt_cube cube = vt_volume_draw((uint64_t)config->seed, source->set, sample / source->sample_count,
                                  sample % source->sample_count, points_of(volumes), config->data_size);
    cube.fields = source->specs[tensor].shape[1];
    cube.rotate_vectors = config->rotate_vectors;
    return cube;
}

/* ---- of a configuration ---- */

static int specs(const vt_config *config, vt_span part, vt_tensor_spec *list)
{
    const int64_t points = config->data_size * config->data_size * config->data_size;
    (void)part;
    list[VT_TENSOR_INPUT] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 2, {points, INPUTS}};
    list[VT_TENSOR_TARGET] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 2, {points, config->N_out_channels}};
    return BOXES;
}

static bool is_noise(const vt_config *config)
{
    return config->data_loader_config == VT_LOADER_SYNTHETIC;
}

/* The file of a set's input (0) or target (1); malloc'd. */
static char *path_of(const vt_config *config, vt_set set, int target)
{
    const char *const volumes[] = {config->train_path, config->val_path};
    const char *const arrays[][2] = {{config->train_path_npy_data, config->train_path_npy_label},
                                     {config->val_path_npy_data, config->val_path_npy_label}};
    if (config->data_loader_config == VT_LOADER_DALI_LOWMEM) return vt_text_copy(arrays[set][target]);
    const char *path = volumes[set];
    if (config->use_cache == NULL) return vt_text_copy(path);
    return vt_text_format("%s/%s", config->use_cache, vt_file_name(path));
}

/* The boxes that inmem keeps, of which a machine has one copy: the files' bytes, or the numbers of boxes of box_size
 * where these are more, as of a compressed file. */
static size_t held_bytes(const vt_config *config, vt_span part)
{
    double bytes = 0;
    (void)part;
    for (vt_set set = VT_SET_TRAINING; config->data_loader_config == VT_LOADER_INMEM && set <= VT_SET_VALIDATION;
         set++) {
        const double side = config->box_size[0] != VT_UNSET_INTEGER ? (double)config->box_size[set] : 0;
        struct stat info;
        char *path = path_of(config, set, 0);
        const double stored = stat(path, &info) == 0 ? (double)info.st_size : 0;
        bytes += fmax(stored, pow(side, 3) * (double)(INPUTS + config->N_out_channels) * sizeof(float));
        free(path);
    }
    return (size_t)bytes;
}

/* ---- a set ---- */

static void close_volumes(vt_source *source)
{
    volumes_source *volumes = (volumes_source *)source;
    for (int t = 0; t < BOXES; t++) vt_box_close(&volumes->boxes[t]);
    free((char *)(uintptr_t)source->path);
    free(volumes);
}

static vt_status check_directory(const vt_config *config)
{
    const bool npy = config->data_loader_config == VT_LOADER_DALI_LOWMEM;
    char *advice = vt_text_format("`vitrain synth %s --model=unet3d%s` makes synthetic data", config->data_dir,
                                  npy ? " --npy" : "");
    const vt_status status =
        vt_source_check_directory(config, npy ? VT_OPTION_train_path_npy_data : VT_OPTION_train_path, advice);
    free(advice);
    return status;
}

static vt_status open_boxes(const vt_config *config, volumes_source *volumes)
{
    vt_status status = VT_OK;
    const int loader = config->data_loader_config;
    const vt_set set = volumes->source.set;
    const bool is_set = config->box_size[0] != VT_UNSET_INTEGER;
    const int64_t used = is_set ? config->box_size[set] : VT_UNSET_INTEGER;
    const bool direct = loader != VT_LOADER_LOWMEM && loader != VT_LOADER_NATIVE;
    for (int t = 0; t < BOXES; t++) {
        char *path = path_of(config, set, t);
        const char *name = loader == VT_LOADER_DALI_LOWMEM ? NULL : dataset_names[t];
        const vt_status opened =
            vt_box_open(path, name, volumes->source.specs[t].shape[1], used, direct, &volumes->boxes[t]);
        free(path);
        VT_TRY(opened);
        if (loader == VT_LOADER_INMEM) VT_TRY(vt_box_keep(volumes->boxes[t]));
        const vt_array *array = volumes->boxes[t]->array;
        if (volumes->source.obstacle == NULL && array != NULL) volumes->source.obstacle = array->obstacle;
    }
    const vt_box *input = volumes->boxes[0], *target = volumes->boxes[1];
    const bool of_one_file = input->name != NULL;
    VT_CHECK(input->side == target->side, "%s%s%s has %ld points along each axis, but %s has %ld", input->path,
             of_one_file ? ": " : "", of_one_file ? input->name : "", input->side,
             of_one_file ? target->name : target->path, target->side);
    VT_CHECK(input->side >= config->data_size,
             "%s: the box has %ld points along each axis, fewer than data_size %ld; use a larger box, or a smaller "
             "data_size",
             input->path, input->side, config->data_size);
done:
    return status;
}

static vt_status open_set(const vt_config *config, vt_set set, vt_span part, vt_source **result)
{
    vt_status status = VT_OK;
    const bool training = set == VT_SET_TRAINING;
    const int64_t limit = training ? config->limit_nsamples : config->limit_nsamples_val;
    volumes_source *volumes = vt_allocate(1, sizeof *volumes, "a source");
    vt_source *source = &volumes->source;
    VT_ASSERT(set != VT_SET_TEST);
    *source = (vt_source){.kind = is_noise(config) ? &volume_noise : &vt_source_volumes,
                          .set = set,
                          .option_name = training ? "train_path" : "val_path",
                          .path = path_of(config, set, 0),
                          .whole_count = training ? config->Nsamples : config->Nsamples_val,
                          .is_constant = is_noise(config),
                          .is_drawn = true};
    source->sample_count = source->whole_count;
    if (limit != VT_UNSET_INTEGER && limit < source->sample_count) source->sample_count = limit;
    source->tensor_count = specs(config, part, source->specs);
    volumes->config = config;
    if (is_noise(config)) goto done;
    VT_TRY(check_directory(config));
    VT_TRY(open_boxes(config, volumes));
done:
    if (status != VT_OK) vt_source_close(&source);
    *result = source;
    return status;
}

static const char *reading_name(const volumes_source *volumes)
{
    static const char *const names[] = {[VT_BOX_RUNS] = "past HDF5",
                                        [VT_BOX_CHUNKS] = "chunks past HDF5",
                                        [VT_BOX_LIBRARY] = "through HDF5",
                                        [VT_BOX_MEMORY] = "from memory, once on each machine"};
    if (volumes->boxes[0] == NULL) return "noise, the same in every batch";
    return volumes->boxes[0]->name == NULL ? "from .npy files" : names[volumes->boxes[0]->reach];
}

static void log_sets(const vt_source *training, const vt_source *validation, const vt_source *test, const char *threads)
{
    (void)test;
    const volumes_source *sets[] = {(const volumes_source *)training, (const volumes_source *)validation};
    vt_log_info("reading: %s%s%s", reading_name(sets[0]), training->is_constant ? "" : ", ",
                training->is_constant ? "" : threads);
    if (training->is_constant) return;
    vt_log_info("boxes: %s, %ld³ points, and %s, %ld³; samples are cubes of %ld³ at random places, turned in %d ways%s",
                training->path, points_of(sets[0]), validation->path, points_of(sets[1]), sets[0]->config->data_size,
                VT_TURNS, sets[0]->config->rotate_vectors ? ", velocities too" : "");
    if (training->obstacle == NULL) return;
    if (sets[0]->config->data_loader_config == VT_LOADER_DIRECT)
        vt_log_warning("data_loader_config asks to read past HDF5, but HDF5 has to read the box: %s",
                       training->obstacle);
    else if (sets[0]->config->data_loader_config == VT_LOADER_AUTO)
        vt_log_info("HDF5 reads what can't be read past it: %s", training->obstacle);
}

static void describe(const vt_source *source, int64_t sample, char *buffer, int64_t size)
{
    const volumes_source *volumes = (const volumes_source *)source;
    const vt_cube cube = cube_of(volumes, sample, 0);
    snprintf(buffer, (size_t)size, "%s, cube from point [%ld, %ld, %ld] on, transformation %d", source->path,
             cube.corner[0], cube.corner[1], cube.corner[2], (int)(cube.turn - vt_turns) + 1);
}

/* ---- looking for the number that made a loss infinite ---- */

static vt_status check(vt_source *source, int64_t sample)
{
    vt_status status = VT_OK;
    volumes_source *volumes = (volumes_source *)source;
    vt_decoder decoder = {0};
    float *values = NULL;
    for (int t = 0; t < BOXES; t++) {
        vt_cube cube = cube_of(volumes, sample, t);
        const int64_t channels = cube.fields, count = vt_tensor_values(&source->specs[t]);
        vt_box *box = volumes->boxes[t];
        cube.turn = &vt_turns[VT_TURNS - 1]; /* as it lies */
        values = vt_reallocate(values, (size_t)count, sizeof *values, "a sample");
        VT_TRY(vt_box_read(box, &cube, &decoder, values));
        for (int64_t i = 0; i < count; i++) {
            const int64_t point = i / channels, side = cube.side;
            VT_CHECK(vt_all_finite(&values[i], 1), "%s: %s%sholds %g at channel %ld, point [%ld, %ld, %ld]", box->path,
                     box->name != NULL ? box->name : "", box->name != NULL ? " " : "", (double)values[i], i % channels,
                     cube.corner[0] + point / side / side, cube.corner[1] + point / side % side,
                     cube.corner[2] + point % side);
        }
    }
done:
    vt_decoder_close(&decoder);
    free(values);
    return status;
}

/* ---- reading ---- */

static vt_status read_cubes(vt_source *source, int64_t sample, vt_decoder *decoder, void *const *tensors)
{
    vt_status status = VT_OK;
    const volumes_source *volumes = (const volumes_source *)source;
    for (int t = 0; t < BOXES; t++) {
        const vt_cube cube = cube_of(volumes, sample, t);
        if (tensors[t] != NULL) VT_TRY(vt_box_read(volumes->boxes[t], &cube, decoder, tensors[t]));
    }
done:
    return status;
}

/* Those of the input, then those of the target. */
static vt_file_extent extent_of(vt_source *source, int64_t sample, int64_t index)
{
    const volumes_source *volumes = (const volumes_source *)source;
    for (int t = 0; t < BOXES; t++) {
        const vt_cube cube = cube_of(volumes, sample, t);
        const int64_t runs = vt_box_runs(volumes->boxes[t], &cube);
        if (index < runs) return vt_box_run(volumes->boxes[t], &cube, index);
        index -= runs;
    }
    return (vt_file_extent){.bytes = -1};
}

const vt_source_kind vt_source_volumes = {.name = "volumes",
                                          .specs = specs,
                                          .held_bytes = held_bytes,
                                          .open = open_set,
                                          .close = close_volumes,
                                          .log = log_sets,
                                          .describe = describe,
                                          .check = check,
                                          .read = read_cubes,
                                          .extent = extent_of};

/* ---- data_loader_config: synthetic ---- */

/* Standard normal noise. A constant source: the sample is a place in the batch. */
static vt_status read_noise(vt_source *source, int64_t sample, vt_decoder *decoder, void *const *tensors)
{
    const uint64_t seed = (uint64_t)((const volumes_source *)source)->config->seed;
    (void)decoder;
    for (int t = 0; t < BOXES; t++) {
        float *values = tensors[t];
        const int64_t count = vt_tensor_values(&source->specs[t]);
        for (int64_t i = 0; i < count && values != NULL; i += 4) {
            float normals[4];
            const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)t};
            const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)sample, 0x766f6c75u /* "volu" */};
            vt_random_normals(vt_random_philox(key, counter), normals);
            for (int64_t k = 0; k < 4 && i + k < count; k++) values[i + k] = normals[k];
        }
    }
    return VT_OK;
}

static const vt_source_kind volume_noise = {.name = "volume noise",
                                            .specs = specs,
                                            .open = open_set,
                                            .close = close_volumes,
                                            .log = log_sets,
                                            .describe = vt_source_describe_noise,
                                            .read = read_noise};
