#include "data/sampler.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"

struct vt_sampler {
    vt_sampler_options options;
    int64_t epoch;  /* whose order is in `order`; -1: none yet */
    int64_t *order; /* [sample_count]; of more than MOST_STORED samples [global_batch_size], those of the last batch */
};

enum { MOST_STORED = 1 << 24 };

static bool is_stored(const vt_sampler_options *options)
{
    return options->sample_count <= MOST_STORED;
}

vt_sampler *vt_sampler_open(const vt_sampler_options *options)
{
    vt_sampler *sampler = vt_allocate(1, sizeof *sampler, "the order of samples");
    VT_ASSERT(options->global_batch_size > 0 && options->sample_count >= 0);
    sampler->options = *options;
    if (options->parts == 0) sampler->options.parts = 1;
    const int64_t part = sampler->options.part, parts = sampler->options.parts;
    VT_ASSERT(part >= 0 && part < parts && options->global_batch_size % parts == 0);
    sampler->epoch = -1;
    const int64_t kept = is_stored(options) ? options->sample_count : options->global_batch_size;
    sampler->order = vt_allocate((size_t)kept, sizeof *sampler->order, "the order of samples");
    return sampler;
}

void vt_sampler_close(vt_sampler **sampler)
{
    if (*sampler == NULL) return;
    free((*sampler)->order);
    free(*sampler);
    *sampler = NULL;
}

int64_t vt_sampler_batch_count(const vt_sampler *sampler)
{
    const vt_sampler_options *options = &sampler->options;
    int64_t rounding = options->drop_last ? 0 : options->global_batch_size - 1;
    return (options->sample_count + rounding) / options->global_batch_size;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The epoch's samples are in `order`. */
static void order_epoch(vt_sampler *sampler, int64_t epoch)
{
    const vt_sampler_options *options = &sampler->options;
    const int64_t from = options->is_drawn ? epoch * options->sample_count : 0;
    if (options->shuffle && !options->is_drawn)
        vt_random_permutation(options->seed, (uint64_t)epoch, options->sample_count, sampler->order);
    else
        for (int64_t i = 0; i < options->sample_count; i++) sampler->order[i] = from + i;
    sampler->epoch = epoch;
}

/* The number of sample `place` of an epoch whose order is not kept. */
static int64_t sample_at(const vt_sampler_options *options, int64_t epoch, int64_t place)
{
    if (options->is_drawn) return epoch * options->sample_count + place;
    return options->shuffle ? vt_random_permuted(options->seed, (uint64_t)epoch, options->sample_count, place) : place;
}

vt_sampler_slice vt_sampler_batch(vt_sampler *sampler, int64_t epoch, int64_t batch)
{
    const vt_sampler_options *options = &sampler->options;
    VT_ASSERT(epoch >= 0 && batch >= 0 && batch < vt_sampler_batch_count(sampler));
    const bool stored = is_stored(options);
    if (stored && sampler->epoch != epoch) order_epoch(sampler, epoch);
    const int64_t first = batch * options->global_batch_size;
    const int64_t size = smaller(options->global_batch_size, options->sample_count - first);
    const int64_t run = (size + options->parts - 1) / options->parts; /* exact for a full batch */
    const int64_t begin = smaller(options->part * run, size);
    const int64_t count = smaller(run, size - begin);
    for (int64_t i = 0; i < count && !stored; i++) sampler->order[i] = sample_at(options, epoch, first + begin + i);
    return (vt_sampler_slice){.samples = sampler->order + (stored ? first + begin : 0),
                              .count = count,
                              .first_in_batch = begin,
                              .global_count = size};
}
