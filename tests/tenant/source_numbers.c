/* The source `numbers`, which shows that a source is one file and one row: no files are read. A sample's input is
 * random numbers of (seed, set, sample), and its target a fixed linear map of them, which a model can learn. Its sizes
 * are those of fields: img_size, n_in_channels, n_out_channels; it has limit_nsamples (limit_nsamples_val) samples, or
 * 64. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/source.h"

extern const vt_source_kind vt_source_numbers;

enum { SAMPLES = 64 };

typedef struct {
    vt_source source;
    int64_t height, width, in_channels, out_channels;
    vt_span rows; /* of the height, that this rank reads */
    uint64_t seed, key;
} numbers;

static int specs(const vt_config *config, vt_span part, vt_tensor_spec *list)
{
    const int64_t width = config->img_size[1];
    list[VT_TENSOR_INPUT] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 3, {config->n_in_channels, part.count, width}};
    list[VT_TENSOR_TARGET] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 3, {config->n_out_channels, part.count, width}};
    return 2;
}

static vt_status open_set(const vt_config *config, vt_set set, vt_span part, vt_source **source)
{
    static const char *const names[] = {"numbers for training", "numbers for validation", "numbers for a test"};
    const int64_t limit = set == VT_SET_TRAINING ? config->limit_nsamples : config->limit_nsamples_val;
    numbers *own = vt_allocate(1, sizeof *own, "the source of numbers");
    *own = (numbers){.source = {.kind = &vt_source_numbers, .set = set, .option_name = "source", .path = "numbers"},
                     .height = config->img_size[0],
                     .width = config->img_size[1],
                     .in_channels = config->n_in_channels,
                     .out_channels = config->n_out_channels,
                     .rows = part,
                     .seed = (uint64_t)config->seed,
                     .key = vt_random_name_key(names[set])};
    own->source.sample_count = own->source.whole_count = limit != VT_UNSET_INTEGER ? limit : SAMPLES;
    own->source.tensor_count = specs(config, part, own->source.specs);
    *source = &own->source;
    return VT_OK;
}

static void close_set(vt_source *source)
{
    free(source);
}

static void describe(const vt_source *source, int64_t sample, char *buffer, int64_t size)
{
    (void)source;
    snprintf(buffer, (size_t)size, "number %ld", sample);
}

static float input_at(const numbers *own, int64_t sample, int64_t channel, int64_t point)
{
    const int64_t first = ((sample * own->in_channels + channel) * own->height + own->rows.first) * own->width;
    return (float)vt_random_normal_quantile(vt_random_element(own->seed, own->key, (uint64_t)(first + point)));
}

/* target[c] = input[c] / 2 - input[c + 1] / 4 at the same point; channels of the input go round. */
static vt_status read_sample(vt_source *source, int64_t sample, vt_decoder *decoder, void *const *tensors)
{
    const numbers *own = (const numbers *)source;
    const int64_t points = own->rows.count * own->width, in = own->in_channels;
    float *input = tensors[VT_TENSOR_INPUT], *target = tensors[VT_TENSOR_TARGET];
    (void)decoder;
    for (int64_t i = 0; input != NULL && i < in * points; i++) input[i] = input_at(own, sample, i / points, i % points);
    for (int64_t i = 0; target != NULL && i < own->out_channels * points; i++) {
        const int64_t c = i / points, point = i % points;
        target[i] = 0.5f * input_at(own, sample, c % in, point) - 0.25f * input_at(own, sample, (c + 1) % in, point);
    }
    return VT_OK;
}

const vt_source_kind vt_source_numbers = {
    .name = "numbers", .specs = specs, .open = open_set, .close = close_set, .describe = describe, .read = read_sample};
