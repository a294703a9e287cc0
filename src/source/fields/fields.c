/* The source `fields`: a vt_dataset behind the interface of sources. */
#include <stdio.h>

#include "base/random.h"
#include "source/fields/dataset_inside.h"

static int specs(const vt_config *config, vt_span part, vt_tensor_spec *list)
{
    const int64_t rows = part.count, width = config->img_size[1];
    list[VT_TENSOR_INPUT] =
        (vt_tensor_spec){"input", VT_TENSOR_FLOAT32, 3, {config->n_in_channels, rows, width}};
    list[VT_TENSOR_TARGET] =
        (vt_tensor_spec){"target", VT_TENSOR_FLOAT32, 3, {config->n_out_channels, rows, width}};
    return 2;
}

static void close_set(vt_source *source)
{
    vt_dataset *dataset = (vt_dataset *)source;
    vt_dataset_close(&dataset);
}

static void describe(const vt_source *source, int64_t sample, char *buffer, int64_t size)
{
    vt_dataset_describe((const vt_dataset *)source, sample, buffer, size);
}

static vt_status check(vt_source *source, int64_t sample)
{
    return vt_dataset_check((vt_dataset *)source, sample);
}

/* ---- reading ---- */

static vt_status open_plan(vt_source *source, vt_read_plan **result)
{
    vt_fields_plan *plan = NULL;
    vt_status status = vt_fields_plan_open(source, &plan);
    *result = (vt_read_plan *)plan;
    return status;
}

static void close_plan(vt_read_plan *plan)
{
    vt_fields_plan *own = (vt_fields_plan *)plan;
    vt_fields_plan_close(&own);
}

static vt_status make_plan(vt_read_plan *plan, const int64_t *samples, int64_t count, void *const *tensors)
{
    return vt_dataset_plan((vt_dataset *)plan->source, samples, count, tensors[VT_TENSOR_INPUT],
                           tensors[VT_TENSOR_TARGET], (vt_fields_plan *)plan);
}

static void release_plan(vt_read_plan *plan)
{
    vt_dataset_release((vt_dataset *)plan->source, (vt_fields_plan *)plan);
}

static vt_status run_item(vt_read_plan *plan, int64_t item, vt_decoder *decoder)
{
    return vt_fields_plan_run((vt_fields_plan *)plan, item, decoder);
}

static void retry_item(const vt_read_plan *plan, int64_t item, vt_decoder *decoder,
                       void (*mark)(int64_t sample, void *context), void *context)
{
    vt_fields_plan_retry((const vt_fields_plan *)plan, item, decoder, mark, context);
}

static vt_file_extent extent(const vt_read_plan *plan, int64_t item)
{
    return vt_fields_plan_extent((const vt_fields_plan *)plan, item);
}

static const vt_reading reading = {open_plan, close_plan, make_plan, release_plan, run_item, retry_item, extent};

/* ---- frames ---- */

/* The newest time of the input comes first. */
static void pieces(const vt_source *source, int64_t sample, vt_sample_piece *list)
{
    const vt_dataset *dataset = (const vt_dataset *)source;
    const vt_dataset_options *options = &dataset->options;
    const size_t plane = (size_t)(options->rows * options->width) * sizeof(float);
    int64_t time;
    const vt_set_stretch *stretch = vt_dataset_find_sample(dataset, sample, &time);
    const int64_t frame = stretch->first_frame + time;
    for (int64_t back = 0; back <= options->history; back++)
        list[back] = (vt_sample_piece){frame - back * options->dt, VT_TENSOR_INPUT,
                                       (size_t)vt_dataset_window_channels(options) * plane};
    list[options->history + 1] =
        (vt_sample_piece){frame + options->dt, VT_TENSOR_TARGET, (size_t)options->out_channels * plane};
}

static vt_status read_frame(vt_source *source, int64_t frame, void *values)
{
    return vt_dataset_read_frame((vt_dataset *)source, frame, values);
}

static vt_status keep_frames(vt_source *source)
{
    return vt_dataset_keep_frames((vt_dataset *)source);
}

const vt_source_kind vt_source_fields = {.name = "fields",
                                         .specs = specs,
                                         .close = close_set,
                                         .describe = describe,
                                         .check = check,
                                         .reading = &reading,
                                         .pieces = pieces,
                                         .read_frame = read_frame,
                                         .keep_frames = keep_frames};

/* ---- data_loader_config: synthetic ---- */

/* Standard normal noise with coordinates: the same whatever rows a rank reads. */
static void fill_noise(const vt_dataset_options *options, const char *name, int64_t position, int64_t channels,
                       float *values)
{
    const uint64_t key = vt_random_name_key(name);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t row = 0; row < options->rows; row++)
            for (int64_t column = 0; column < options->width; column++) {
                int64_t index =
                    ((position * channels + c) * options->height + options->first_row + row) * options->width;
                double uniform = vt_random_element(options->seed, key, (uint64_t)(index + column));
                *values++ = (float)vt_random_normal_quantile(uniform);
            }
}

/* A constant source: the sample is a place in the batch. */
static vt_status read_noise(vt_source *source, int64_t sample, void *const *tensors)
{
    const vt_dataset_options *options = &((const vt_dataset *)source)->options;
    fill_noise(options, "synthetic input", sample, options->in_channels, tensors[VT_TENSOR_INPUT]);
    fill_noise(options, "synthetic target", sample, options->out_channels, tensors[VT_TENSOR_TARGET]);
    return VT_OK;
}

static void describe_noise(const vt_source *source, int64_t sample, char *buffer, int64_t size)
{
    (void)source;
    snprintf(buffer, (size_t)size, "synthetic sample %lld", (long long)sample);
}

const vt_source_kind vt_source_noise = {
    .name = "noise", .specs = specs, .close = close_set, .describe = describe_noise, .read = read_noise};
