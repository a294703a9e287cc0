#include "training/reader.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/process_memory.h"
#include "base/text.h"
#include "parallel/region.h"
#include "source/fields/file_list.h"
#include "training/trainer.h"

enum { MOST_WORKERS = 16 }; /* of those that are chosen here: no memory keeps up with more */

static bool is_direct(const vt_config *config)
{
    int kind = config->data_loader_config;
    return kind == VT_LOADER_AUTO || kind == VT_LOADER_DALI || kind == VT_LOADER_DIRECT;
}

vt_dataset_options vt_reader_samples(const vt_config *config)
{
    return (vt_dataset_options){
        .height = config->img_size[0],
        .width = config->img_size[1],
        .range = vt_window_range_of(config->lat_range, config->lon_range),
        .in_channels = config->n_in_channels,
        .out_channels = config->n_out_channels,
        .history = config->n_history,
        .dt = config->dt,
        .sample_limit = VT_UNSET_INTEGER,
        .round = config->pad == VT_PAD_WRAP,
        .files_apart = !config->cross_files,
        .form = {config->variables, config->coordinates, config->time_step, config->missing == VT_GAPS_MASK}};
}

vt_status vt_reader_find_window(vt_config *config)
{
    vt_status status = VT_OK;
    vt_file_list list = {0};
    vt_fields_file *file = NULL;
    vt_frame_window window;
    char *advice = NULL;
    const vt_window_range range = vt_window_range_of(config->lat_range, config->lon_range);
    const vt_fields_form form = vt_reader_samples(config).form;
    if (!vt_config_awaits_window(config)) goto done;
    VT_CHECK(
        config->data_loader_config != VT_LOADER_SYNTHETIC,
        "lat_range and lon_range are found by the coordinates of files, but data_loader_config synthetic reads none; "
        "give img_size");
    VT_TRY(vt_file_list_open(config->train_data_path, "train_data_path", config->variables != NULL, &list));
    VT_TRY(vt_fields_file_open((const char *const *)list.paths, list.first[1], &form, &file));
    const vt_fields_shape shape = vt_fields_file_shape(file);
    const vt_window_grid grid = {vt_fields_file_path(file), shape.height, shape.width, vt_fields_file_latitudes(file),
                                 vt_fields_file_longitudes(file)};
    VT_TRY(vt_window_find(&range, &grid, &window));
    status = vt_config_set_window(config, window.rows, window.width);
    if (status == VT_OK) goto done;
    advice = vt_window_advice(&range, &grid, &window, config->patch_size);
    vt_error_context("%s: the window of lat_range and lon_range has [%lld, %lld] grid points%s%s%s", grid.path,
                     (long long)window.rows, (long long)window.width, advice != NULL ? " (" : "",
                     advice != NULL ? advice : "", advice != NULL ? ")" : "");
done:
    free(advice);
    vt_fields_file_close(&file);
    vt_file_list_close(&list);
    return status;
}

/* This rank reads only the rows of the fields that its tokens touch. */
static vt_status open_set(const vt_config *config, const vt_world *world, const char *directory,
                          const char *option_name, int64_t limit, vt_dataset **dataset)
{
    vt_span rows = vt_model_part(config, vt_world_layout(world), vt_world_rank(world));
    vt_dataset_options options = vt_reader_samples(config);
    options.directory = directory;
    options.option_name = option_name;
    options.first_row = rows.first;
    options.rows = rows.count;
    options.sample_limit = limit;
    options.direct = is_direct(config);
    options.tolerant = config->skip_bad_samples;
    options.unchecked = !config->skip_bad_samples; /* the loss tells */
    options.synthetic = config->data_loader_config == VT_LOADER_SYNTHETIC;
    options.seed = (uint64_t)config->seed;
    return vt_dataset_open(&options, dataset);
}

vt_status vt_reader_open_dataset(const vt_config *config, const vt_world *world, bool training, vt_dataset **dataset)
{
    return training
               ? open_set(config, world, config->train_data_path, "train_data_path", config->limit_nsamples, dataset)
               : open_set(config, world, config->valid_data_path, "valid_data_path", config->limit_nsamples_val,
                          dataset);
}

bool vt_reader_has_test_set(const vt_config *config)
{
    vt_file_list files = {0};
    if (config->data_loader_config == VT_LOADER_SYNTHETIC || config->inf_data_path == NULL) return false;
    if (config->origin[VT_OPTION_inf_data_path] == VT_FROM_COMMAND_LINE) return true; /* else opening it says why */
    const bool any =
        vt_file_list_open(config->inf_data_path, "inf_data_path", config->variables != NULL, &files) == VT_OK;
    vt_error_clear();
    vt_file_list_close(&files);
    return any;
}

vt_status vt_reader_open_test_set(const vt_config *config, const vt_world *world, vt_dataset **dataset)
{
    return open_set(config, world, config->inf_data_path, "inf_data_path", config->limit_nsamples_val, dataset);
}

int64_t vt_reader_workers(const vt_config *config, const vt_world *world)
{
    if (config->num_data_workers != VT_UNSET_INTEGER) return config->num_data_workers;
    int64_t computing = config->num_threads != VT_UNSET_INTEGER ? config->num_threads : vt_world_cores(world);
    int64_t spare = vt_world_cores(world) - computing;
    return spare < 1 ? 1 : spare > MOST_WORKERS ? MOST_WORKERS : spare;
}

static void *allocate_pinned(size_t bytes, void *context)
{
    vt_backend *backend = context;
    void *memory = NULL;
    return backend->allocate_host(backend, bytes, &memory) == VT_OK ? memory : NULL;
}

static void release_pinned(void *memory, void *context)
{
    vt_backend *backend = context;
    backend->release_host(backend, memory);
}

vt_status vt_reader_open_loader(const vt_config *config, const vt_world *world, vt_backend *backend, bool training,
                                bool indices_only, vt_dataset *dataset, vt_loader **loader)
{
    vt_loader_options options = {.source = vt_dataset_source(dataset),
                                 .global_batch_size = config->global_batch_size,
                                 .part = vt_world_coordinate(world, VT_AXIS_DATA),
                                 .parts = vt_world_layout(world)->size[VT_AXIS_DATA],
                                 .drop_last = training,
                                 .shuffle = training && config->shuffle,
                                 .seed = (uint64_t)config->seed,
                                 .prefetch = training ? config->prefetch : VT_VALIDATION_PREFETCH,
                                 .workers = vt_reader_workers(config, world),
                                 .skip_bad = config->skip_bad_samples,
                                 .indices_only = indices_only};
    if (backend != NULL && !backend->shares_host_memory) {
        options.allocate = allocate_pinned;
        options.release = release_pinned;
        options.context = backend;
    }
    return vt_loader_open(&options, loader);
}

void vt_reader_warn_of_shared(const vt_dataset *one, const char *one_name, const vt_dataset *other,
                              const char *other_name)
{
    char *sentence = vt_dataset_shared_times(one, one_name, other, other_name);
    if (sentence != NULL) vt_log_warning("%s", sentence);
    free(sentence);
}

void vt_reader_log(const vt_config *config, const vt_world *world, const vt_dataset *dataset,
                   const vt_dataset *validation)
{
    const char *obstacle = vt_dataset_obstacle(dataset);
    const long long workers = (long long)vt_reader_workers(config, world);
    if (config->data_loader_config == VT_LOADER_SYNTHETIC) {
        vt_log_info("reading: nothing; every batch is the same noise");
        return;
    }
    vt_dataset_log_coordinates(dataset);
    vt_reader_warn_of_shared(dataset, "training", validation, "validation");
    vt_log_info("reading: %s, %lld thread%s%s", is_direct(config) && obstacle == NULL ? "past HDF5" : "through HDF5",
                workers, workers == 1 ? "" : "s",
                workers == 0                                   ? ": each step waits for its batch"
                : config->num_data_workers == VT_UNSET_INTEGER ? " (num_data_workers is not set: the cores to spare)"
                                                               : "");
    if (!is_direct(config) || obstacle == NULL) return;
    if (config->data_loader_config == VT_LOADER_AUTO)
        vt_log_info("HDF5 reads what can't be read past it: %s", obstacle);
    else
        vt_log_warning("data_loader_config asks to read past HDF5, but HDF5 has to read some files: %s", obstacle);
}

/* This rank's share of what is free, less what it will need. */
static double memory_left(const vt_world *world, double needed)
{
    double available = vt_memory_available();
    return available < 0 ? INFINITY : available / vt_world_ranks_of_memory(world, NULL) - needed;
}

double vt_reader_frame_bytes(const vt_dataset *dataset)
{
    const vt_source *source = vt_dataset_source(dataset);
    return (double)source->frame_count * (double)source->frame_bytes;
}

/* The set is kept if it fits into *left, which becomes smaller. The system may still refuse. */
static bool keep(vt_dataset *dataset, double *left)
{
    const double bytes = vt_reader_frame_bytes(dataset);
    if (bytes > *left) return false;
    if (vt_dataset_keep_frames(dataset) != VT_OK) {
        vt_error_clear();
        return false;
    }
    *left -= bytes;
    return true;
}

void vt_reader_open_cache(const vt_config *config, const vt_world *world, double needed, vt_dataset *training,
                          vt_dataset *validation)
{
    char sizes[3][VT_NUMBER_SIZE];
    if (config->cache != VT_CACHE_HOST || config->data_loader_config == VT_LOADER_SYNTHETIC) return;
    const double before = memory_left(world, needed);
    double left = before;
    const bool first = keep(training, &left), second = keep(validation, &left);
    vt_text_bytes(vt_reader_frame_bytes(training), sizes[0]);
    vt_text_bytes(vt_reader_frame_bytes(validation), sizes[1]);
    vt_text_bytes(fmax(before, 0), sizes[2]);
    const char *rank = vt_world_ranks(world) > 1 ? " on each rank" : "";
    if (first && second)
        vt_log_info("cache: what was read stays in memory: %s for training and %s for validation%s; %s are free",
                    sizes[0], sizes[1], rank, sizes[2]);
    else
        vt_log_warning("cache: host asks for %s for training and %s for validation%s, but %s are free beside the run: "
                       "%s is kept in memory, the rest is read from the files each time",
                       sizes[0], sizes[1], rank, sizes[2],
                       first    ? "only the training set"
                       : second ? "only the validation set"
                                : "nothing");
}

/* What any rank that has a part of a sample couldn't read is bad for all of them. */
static vt_status replace_bad(const vt_config *config, vt_world *world, vt_loader *loader, const vt_batch *batch,
                             int64_t *replaced)
{
    vt_status status = VT_OK;
    const size_t size = (size_t)config->global_batch_size;
    double *counts = vt_allocate(size, sizeof *counts, "a batch's bad samples");
    bool *bad = vt_allocate(size, sizeof *bad, "a batch's bad samples");
    for (int64_t i = 0; i < batch->sample_count; i++) counts[batch->first_in_batch + i] = batch->bad[i];
    vt_world_sum(world, counts, config->global_batch_size);
    for (size_t i = 0; i < size; i++) *replaced += counts[i] > 0;
    for (int64_t i = 0; i < batch->sample_count; i++) bad[i] = counts[batch->first_in_batch + i] > 0;
    status = vt_world_agree(world, vt_loader_replace_bad(loader, batch, bad));
    free(counts);
    free(bad);
    return status;
}

vt_status vt_reader_next(const vt_config *config, vt_world *world, vt_loader *loader, const vt_batch **batch,
                         double *waited, int64_t *replaced)
{
    vt_status status = vt_loader_next(loader, batch, waited);
    VT_TRY(vt_world_agree(world, status));
    if (config->skip_bad_samples && *batch != NULL && (*batch)->bad != NULL)
        VT_TRY(replace_bad(config, world, loader, *batch, replaced));
done:
    return status;
}
