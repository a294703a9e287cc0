/* The order of the samples of an epoch, cut into global batches, and each of those into the slices of the data-parallel
 * ranks. */
#ifndef VT_DATA_SAMPLER_H
#define VT_DATA_SAMPLER_H

#include "data/loader.h"

typedef struct vt_sampler vt_sampler;

/* Of the options those of the order count: source, global_batch_size, part to drop_last, shuffle and seed. */
vt_sampler *vt_sampler_open(const vt_loader_options *options);
void vt_sampler_close(vt_sampler **sampler);

/* Batches of one epoch, the same for every part. */
int64_t vt_sampler_batch_count(const vt_sampler *sampler);

/* Batch `number` of epoch `epoch`: this part's samples, which are valid until the next call, and no tensors. A full
 * batch is cut evenly; a partial one of n samples into spans of ceil(n / parts), so that the last parts may get fewer
 * or none. Parts in their order give the order of one rank. */
vt_batch vt_sampler_batch(vt_sampler *sampler, int64_t epoch, int64_t number);

#endif
