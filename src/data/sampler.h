/* The order of the samples of an epoch, cut into batches. */
#ifndef VT_DATA_SAMPLER_H
#define VT_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    int64_t sample_count; /* of the dataset */
    int64_t batch_size;
    bool drop_last; /* the last, partial batch is left out, else it is smaller */
    bool shuffle;   /* vt_random_permutation(seed, epoch), else in order */
    uint64_t seed;
} vt_sampler_options;

typedef struct vt_sampler vt_sampler;

vt_status vt_sampler_open(const vt_sampler_options *options, vt_sampler **sampler);
void vt_sampler_close(vt_sampler **sampler);

/* Batches of one epoch. */
int64_t vt_sampler_batch_count(const vt_sampler *sampler);

/* The samples of batch `batch` of epoch `epoch`, [*count], valid until the next call. */
const int64_t *vt_sampler_batch(vt_sampler *sampler, int64_t epoch, int64_t batch, int64_t *count);

#endif
