#include "data/loader.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/whole.h"
#include "data/source.h"

struct vt_sampler {
    vt_loader_options options;
    int64_t sample_count; /* of an epoch */
    int64_t epoch;        /* whose order is kept; -1: none yet */
    int64_t *order; /* where it is kept: [sample_count]; else [global_batch_size], the samples of the last batch */
};

/* Is the order of a whole epoch made at once? Otherwise each sample's number is computed when it is needed. */
static bool is_kept(const vt_sampler *sampler)
{
    enum { MOST_KEPT = 1 << 24 };
    const vt_loader_options *options = &sampler->options;
    return options->shuffle && !options->source->is_drawn && sampler->sample_count <= MOST_KEPT;
}

vt_sampler *vt_sampler_open(const vt_loader_options *options)
{
    vt_sampler *sampler = vt_allocate(1, sizeof *sampler, "the order of samples");
    sampler->options = *options;
    sampler->epoch = -1;
    if (options->parts == 0) sampler->options.parts = 1;
    if (options->every == 0) sampler->options.every = 1;
    const int64_t every = sampler->options.every;
    sampler->sample_count = vt_quotient_up(options->source->sample_count, every);
    const int64_t part = options->part, parts = sampler->options.parts, batch = options->global_batch_size;
    VT_ASSERT(batch > 0 && sampler->sample_count >= 0 && part >= 0 && part < parts && batch % parts == 0);
    VT_ASSERT(every == 1 || !options->shuffle);
    const int64_t room = is_kept(sampler) ? sampler->sample_count : batch;
    sampler->order = vt_allocate((size_t)room, sizeof *sampler->order, "the order of samples");
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
    const vt_loader_options *options = &sampler->options;
    int64_t rounding = options->drop_last ? 0 : options->global_batch_size - 1;
    return (sampler->sample_count + rounding) / options->global_batch_size;
}

/* The number of sample `place` of an epoch whose order is not kept. */
static int64_t sample_at(const vt_sampler *sampler, int64_t epoch, int64_t place)
{
    const vt_loader_options *options = &sampler->options;
    if (options->source->is_drawn) return epoch * sampler->sample_count + place;
    return options->shuffle ? vt_random_permuted(options->seed, (uint64_t)epoch, sampler->sample_count, place)
                            : place * options->every;
}

vt_batch vt_sampler_batch(vt_sampler *sampler, int64_t epoch, int64_t number)
{
    const vt_loader_options *options = &sampler->options;
    VT_ASSERT(epoch >= 0 && number >= 0 && number < vt_sampler_batch_count(sampler));
    const bool kept = is_kept(sampler);
    if (kept && sampler->epoch != epoch)
        vt_random_permutation(options->seed, (uint64_t)epoch, sampler->sample_count, sampler->order);
    sampler->epoch = epoch;
    const int64_t first = number * options->global_batch_size;
    const int64_t size = vt_smaller(options->global_batch_size, sampler->sample_count - first);
    const int64_t run = (size + options->parts - 1) / options->parts; /* exact for a full batch */
    const int64_t begin = vt_smaller(options->part * run, size);
    const int64_t count = vt_smaller(run, size - begin);
    for (int64_t i = 0; i < count && !kept; i++) sampler->order[i] = sample_at(sampler, epoch, first + begin + i);
    return (vt_batch){.samples = sampler->order + (kept ? first + begin : 0),
                      .sample_count = count,
                      .first_sample = first + begin,
                      .first_in_batch = begin,
                      .global_count = size,
                      .source = options->source};
}
