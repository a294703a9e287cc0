/* The source `fields`: what the configuration says of the files. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "config/roles.h"
#include "config/stages.h"
#include "source/fields/dataset_inside.h"
#include "source/fields/file_list.h"

vt_dataset_options vt_fields_options(const vt_config *config, vt_set set)
{
    static const char *const names[][2] = {
        {"train_data_path", "train_period"}, {"valid_data_path", "valid_period"}, {"inf_data_path", "test_period"}};
    const char *const directories[] = {config->train_data_path, config->valid_data_path, config->inf_data_path};
    const char *const periods[] = {config->train_period, config->valid_period, config->test_period};
    return (vt_dataset_options){.set = set,
                                .directory = directories[set],
                                .option_name = names[set][0],
                                .height = config->img_size[0],
                                .width = config->img_size[1],
                                .range = vt_window_range_of(config->lat_range, config->lon_range),
                                .in_channels = config->n_in_channels,
                                .out_channels = config->n_out_channels,
                                .forcing_channels = vt_config_role_count(config, VT_ROLE_FORCING),
                                .history = config->n_history,
                                .dt = config->dt,
                                .sample_limit = VT_UNSET_INTEGER,
                                .round = config->pad == VT_PAD_WRAP,
                                .files_apart = !config->cross_files,
                                .form = {.variables = config->variables,
                                         .coordinates = config->coordinates,
                                         .time_step = config->time_step,
                                         .period = periods[set],
                                         .period_option = names[set][1],
                                         .accept = config->accept,
                                         .transform = config->transform,
                                         .bounds = config->bounds,
                                         .masked = config->missing == VT_GAPS_MASK}};
}

/* What follows from the files: the number of static fields, and where ranges of degrees say it, the window. */
static vt_status complete(vt_config *config)
{
    vt_status status = VT_OK;
    vt_file_list list = {0};
    vt_fields_file *file = NULL;
    vt_frame_window window;
    char *advice = NULL;
    const vt_window_range range = vt_window_range_of(config->lat_range, config->lon_range);
    const vt_fields_form form = vt_fields_options(config, VT_SET_TRAINING).form;
    VT_TRY(vt_known_fields_complete(config));
    if (!vt_config_awaits_window(config)) goto done;
    VT_CHECK(
        config->data_loader_config != VT_LOADER_SYNTHETIC,
        "lat_range and lon_range are found by the coordinates of files, but data_loader_config synthetic reads none; "
        "give img_size");
    VT_TRY(vt_file_list_open(config->train_data_path, "train_data_path", &form, &list));
    VT_TRY(vt_file_list_use(&list, 0, &form, &file));
    VT_TRY(vt_window_find(&range, file->about, file->path, &window));
    status = vt_config_set_window(config, window.rows, window.width);
    if (status == VT_OK) goto done;
    advice = vt_window_advice(&range, file->about, &window, config->patch_size);
    vt_error_context("%s: the window of lat_range and lon_range has [%ld, %ld] grid points%s%s%s", file->path,
                     window.rows, window.width, advice != NULL ? " (" : "", advice != NULL ? advice : "",
                     advice != NULL ? ")" : "");
done:
    free(advice);
    vt_fields_file_close(&file);
    vt_file_list_close(&list);
    return status;
}

static bool has_test_set(const vt_config *config)
{
    vt_file_list files = {0};
    const vt_fields_form form = vt_fields_options(config, VT_SET_TEST).form;
    if (config->data_loader_config == VT_LOADER_SYNTHETIC || config->inf_data_path == NULL) return false;
    if (config->origin[VT_OPTION_inf_data_path] == VT_FROM_COMMAND_LINE) return true; /* else opening it says why */
    const bool any = vt_file_list_open(config->inf_data_path, "inf_data_path", &form, &files) == VT_OK;
    vt_error_clear();
    vt_file_list_close(&files);
    return any;
}

static int specs(const vt_config *config, vt_span part, vt_tensor_spec *list)
{
    return vt_fields_specs(config->n_in_channels, config->n_out_channels, vt_config_forcing_channels(config),
                           vt_config_longest_rollout(config), part.count, config->img_size[1], list);
}

/* What the forcings and the climatology keep, in both sets. */
static size_t held_bytes(const vt_config *config, vt_span part)
{
    const int64_t points = part.count * config->img_size[1];
    const vt_known_options known = vt_known_options_of(config);
    size_t bytes = (size_t)(vt_known_fixed_count(&known) * points) * sizeof(float);
    if (config->data_loader_config == VT_LOADER_SYNTHETIC) return 0;
    if (config->normalise == VT_NORMALISE_CLIMATOLOGY)
        bytes += vt_seasonal_bytes(config->climatology_path, vt_config_frame_channels(config), points);
    return 2 * bytes;
}

static vt_status check_directory(const vt_config *config)
{
    char *advice = vt_text_format(
        "`vitrain synth %s --img_size=[%ld,%ld] --channels=%ld` makes synthetic data for this configuration",
        config->data_dir, config->img_size[0], config->img_size[1], config->n_out_channels);
    const vt_status status = vt_source_check_directory(config, VT_OPTION_train_data_path, advice);
    free(advice);
    return status;
}

static vt_status open_set(const vt_config *config, vt_set set, vt_span part, vt_source **source)
{
    vt_status status = VT_OK;
    vt_dataset *dataset = NULL;
    vt_dataset_options options = vt_fields_options(config, set);
    options.first_row = part.first;
    options.rows = part.count;
    options.targets = vt_config_longest_rollout(config);
    options.reach = set == VT_SET_TRAINING ? options.targets : 1;
    options.sample_limit = set == VT_SET_TRAINING ? config->limit_nsamples : config->limit_nsamples_val;
    options.insists = config->data_loader_config == VT_LOADER_DALI || config->data_loader_config == VT_LOADER_DIRECT;
    options.direct = options.insists || config->data_loader_config == VT_LOADER_AUTO;
    options.tolerant = config->skip_bad_samples;
    options.unchecked = !config->skip_bad_samples; /* the loss tells */
    options.known = vt_known_options_of(config);
    if (config->normalise == VT_NORMALISE_CLIMATOLOGY) options.climatology = config->climatology_path;
    options.known_in_frames = config->cache == VT_CACHE_DEVICE;
    options.synthetic = config->data_loader_config == VT_LOADER_SYNTHETIC;
    options.seed = (uint64_t)config->seed;
    *source = NULL;
    if (!options.synthetic) VT_TRY(check_directory(config));
    VT_CHECK(options.synthetic || options.form.period != NULL || !vt_store_is_directory(options.directory) ||
                 strcmp(config->train_data_path, config->valid_data_path) != 0,
             "%s '%s' is one store for all sets: --train_period=1979..2015 and --valid_period=2016..2017 say which of "
             "its times are whose",
             options.option_name, options.directory);
    VT_TRY(vt_dataset_open(&options, &dataset));
    *source = &dataset->source;
done:
    return status;
}

/* What else the input holds, and what the fields are taken off. */
static void log_known(const vt_dataset *dataset)
{
    const vt_known_options *known = &dataset->options.known;
    vt_text text = {0};
    for (int i = 0; i < known->forcings.count; i++)
        vt_text_append(&text, "%s%s", i > 0 ? ", " : "", vt_forcing_name(known->forcings.kinds[i]));
    if (known->static_count > 0)
        vt_text_append(&text, "%s%ld static field%s of %s", known->forcings.count > 0 ? " and " : "",
                       known->static_count, known->static_count == 1 ? "" : "s", known->static_path);
    for (int64_t c = 0; c < dataset->options.forcing_channels; c++)
        vt_text_append(&text, "%s%s of the files", text.length > 0 ? ", " : "",
                       vt_dataset_channel_names(dataset)[vt_dataset_first_forcing(&dataset->options) + c]);
    if (text.length > 0) vt_log_info("the input also holds %s", text.characters);
    if (dataset->seasonal != NULL)
        vt_log_info("fields are departures from the seasonal climatology %s: %s", dataset->options.climatology,
                    dataset->seasonal->description);
    vt_text_close(&text);
}

static void log_sets(const vt_source *training, const vt_source *validation, const vt_source *test, const char *threads)
{
    (void)test;
    const vt_dataset *dataset = (const vt_dataset *)training;
    const vt_file_list *list = &dataset->reading.list;
    const char *obstacle = training->obstacle;
    const bool direct = dataset->options.direct;
    vt_dataset_log_coordinates(dataset);
    log_known(dataset);
    vt_source_warn_of_shared(training, validation);
    vt_log_info("reading: %s, %s",
                list->group_count > 0 && vt_store_is_directory(list->paths[0]) ? "chunk by chunk"
                : direct && obstacle == NULL                                   ? "past HDF5"
                                                                               : "through HDF5",
                threads);
    if (!direct || obstacle == NULL) return;
    if (dataset->options.insists)
        vt_log_warning("data_loader_config asks to read past HDF5, but HDF5 has to read some files: %s", obstacle);
    else
        vt_log_info("HDF5 reads what can't be read past it: %s", obstacle);
}

static void close_fields(vt_source *source)
{
    vt_dataset *dataset = (vt_dataset *)source;
    vt_dataset_close(&dataset);
}

static const vt_reading reading = {.open = vt_fields_plan_open,
                                   .close = vt_fields_plan_close,
                                   .make = vt_dataset_plan,
                                   .release = vt_dataset_release,
                                   .run = vt_fields_plan_run,
                                   .retry = vt_fields_plan_retry,
                                   .extent = vt_fields_plan_extent};

const vt_source_kind vt_source_fields = {.name = "fields",
                                         .complete = complete,
                                         .has_test_set = has_test_set,
                                         .specs = specs,
                                         .held_bytes = held_bytes,
                                         .open = open_set,
                                         .close = close_fields,
                                         .agree = vt_dataset_agree,
                                         .shared = vt_dataset_shared_times,
                                         .list_files = vt_dataset_list_files,
                                         .log = log_sets,
                                         .describe = vt_dataset_describe,
                                         .check = vt_dataset_check,
                                         .reading = &reading,
                                         .pieces = vt_dataset_pieces,
                                         .read_frame = vt_dataset_read_frame,
                                         .keep_frames = vt_dataset_keep_frames};

/* ---- data_loader_config: synthetic: a vt_dataset without files, whose samples are noise ---- */

/* Standard normal noise with coordinates: the same whatever rows a rank reads. */
static void fill_noise(const vt_dataset_options *options, const char *name, int64_t position, int64_t channels,
                       float *values)
{
    const uint64_t key = vt_random_name_key(name);
    for (int64_t c = 0; c < channels && values != NULL; c++)
        for (int64_t row = 0; row < options->rows; row++)
            for (int64_t column = 0; column < options->width; column++) {
                int64_t index =
                    ((position * channels + c) * options->height + options->first_row + row) * options->width;
                double uniform = vt_random_element(options->seed, key, (uint64_t)(index + column));
                *values++ = (float)vt_random_normal_quantile(uniform);
            }
}

/* A constant source: the sample is a place in the batch. */
static vt_status read_noise(vt_source *source, int64_t sample, vt_decoder *decoder, void *const *tensors)
{
    (void)decoder;
    const vt_dataset_options *options = &((const vt_dataset *)source)->options;
    fill_noise(options, "synthetic input", sample, options->in_channels, tensors[VT_TENSOR_INPUT]);
    fill_noise(options, "synthetic target", sample, options->targets * options->out_channels,
               tensors[VT_TENSOR_TARGET]);
    const int64_t forcings = options->targets * vt_dataset_forcings(options);
    if (forcings > 0) fill_noise(options, "synthetic forcings", sample, forcings, tensors[VT_TENSOR_FORCINGS]);
    return VT_OK;
}

static void log_noise(const vt_source *training, const vt_source *validation, const vt_source *test,
                      const char *threads)
{
    (void)training, (void)validation, (void)test, (void)threads;
    vt_log_info("reading: nothing; every batch is the same noise");
}

const vt_source_kind vt_source_noise = {
    .name = "noise", .read = read_noise, .close = close_fields, .log = log_noise, .describe = vt_source_describe_noise};
