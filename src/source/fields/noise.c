/* data_loader_config: synthetic: a vt_dataset without files, whose samples are noise. */
#include <stdio.h>

#include "base/log.h"
#include "base/random.h"
#include "source/fields/dataset_inside.h"

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
static vt_status read(vt_source *source, int64_t sample, void *const *tensors)
{
    const vt_dataset_options *options = &((const vt_dataset *)source)->options;
    fill_noise(options, "synthetic input", sample, options->in_channels, tensors[VT_TENSOR_INPUT]);
    fill_noise(options, "synthetic target", sample, options->targets * options->out_channels,
               tensors[VT_TENSOR_TARGET]);
    const int64_t forcings = options->targets * vt_dataset_forcings(options);
    if (forcings > 0) fill_noise(options, "synthetic forcings", sample, forcings, tensors[VT_TENSOR_FORCINGS]);
    return VT_OK;
}

static void describe(const vt_source *source, int64_t sample, char *buffer, int64_t size)
{
    (void)source;
    snprintf(buffer, (size_t)size, "synthetic sample %lld", (long long)sample);
}

static void log_noise(const vt_source *training, const vt_source *validation, const vt_source *test,
                      const char *threads)
{
    (void)training, (void)validation, (void)test, (void)threads;
    vt_log_info("reading: nothing; every batch is the same noise");
}

const vt_source_kind vt_source_noise = {
    .name = "noise", .read = read, .close = vt_fields_close, .log = log_noise, .describe = describe};
