/* Batches of a source in the order of training (or of validation), read ahead by threads into a ring. */
#ifndef VT_DATA_LOADER_H
#define VT_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/status.h"
#include "config/stages.h"
#include "data/batch.h"

typedef struct {
    vt_source *source;
    int64_t global_batch_size;
    int64_t part, parts; /* this data-parallel rank's slice of each global batch, see vt_sampler_batch; parts 0: one */
    bool drop_last;      /* training: the last partial batch of an epoch is dropped; validation: it is kept, smaller */
    bool fill;           /* a partial batch is filled up with the source's blank samples, to the size of every other */
    bool shuffle;        /* vt_random_permutation(seed, epoch), of many samples vt_random_permuted; else in order */
    int64_t every;       /* in order: only every N-th sample; 0: all */
    uint64_t seed;
    int64_t prefetch;    /* batches ready ahead */
    int64_t workers;     /* threads that read; 0: none, vt_loader_next reads */
    vt_stages rollout;   /* steps of forecast whose targets are read, by epoch; none: 1 */
    bool indices_only;   /* nothing is read: batches have samples, but no tensors */
    unsigned unread;     /* tensors that are not read, as bits 1 << VT_TENSOR_…; batches don't have them */
    bool skip_bad;       /* samples that cannot be read are marked in the batch instead of being an error */
    vt_backend *backend; /* whose pinned memory the ring is in, so that the device reaches it; NULL: other memory */
} vt_loader_options;

typedef struct vt_loader vt_loader;

/* The only batch of a constant source is read here, and no threads are started. */
vt_status vt_loader_open(const vt_loader_options *options, vt_loader **loader);

const vt_loader_options *vt_loader_options_of(const vt_loader *loader);

/* Stops the threads, also in the middle of an epoch. */
void vt_loader_close(vt_loader **loader);

/* Batches of one epoch. */
int64_t vt_loader_batch_count(const vt_loader *loader);

/* Begins epoch `epoch` (0, 1, …) at its batch `first_batch`; what was read ahead for another position is dropped. The
 * readers continue into epoch + 1 by themselves, so that beginning it next finds its batches ready. */
void vt_loader_begin(vt_loader *loader, int64_t epoch, int64_t first_batch);

/* Drops what was read ahead, and reads nothing until the next vt_loader_begin. */
void vt_loader_rest(vt_loader *loader);

/* The next batch of the epoch, valid until the next call; *batch is NULL after the last one. Errors of the reader
 * threads come out here. */
vt_status vt_loader_next(vt_loader *loader, const vt_batch **batch);

/* With skip_bad, for every batch: the samples i with bad[i] (those of batch->bad and perhaps more) become copies of the
 * next good sample of this part of the batch, wrapping round; without one, of the last good sample of an earlier batch.
 * Fails when there is none either. */
vt_status vt_loader_replace_bad(vt_loader *loader, const vt_batch *batch, const bool *bad);

/* ---- the order alone (sampler.c): the samples of an epoch, cut into global batches, and each of those into the slices
 * of the data-parallel ranks ---- */

typedef struct vt_sampler vt_sampler;

/* Uses these options alone: source, global_batch_size, part, parts, drop_last, shuffle, every and seed. The source must
 * outlive the sampler. */
vt_sampler *vt_sampler_open(const vt_loader_options *options);
void vt_sampler_close(vt_sampler **sampler);

/* Batches of one epoch, the same for every part. */
int64_t vt_sampler_batch_count(const vt_sampler *sampler);

/* Batch `number` of epoch `epoch`: this part's samples, which are valid until the next call, and no tensors. A full
 * batch is cut evenly; a partial one of n samples into spans of ceil(n / parts), so that the last parts may get fewer
 * or none. Parts in their order give the order of one rank. */
vt_batch vt_sampler_batch(vt_sampler *sampler, int64_t epoch, int64_t number);

#endif
