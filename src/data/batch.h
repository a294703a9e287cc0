/* Samples as typed tensors: what a source gives, the loader reads ahead, and a model takes. */
#ifndef VT_DATA_BATCH_H
#define VT_DATA_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { VT_TENSOR_FLOAT32, VT_TENSOR_INT32 } vt_tensor_type;

/* The first two tensors of every source: what the model sees, and what its prediction is compared with. Then, where a
 * source has them: what is known of the input's time and place, which the model sees, too. */
enum { VT_TENSOR_INPUT, VT_TENSOR_TARGET, VT_TENSOR_FORCINGS };

enum { VT_SPEC_DIMENSIONS = 5, VT_BATCH_TENSORS = 4 };

/* One tensor of a sample, or this rank's part of it. */
typedef struct {
    vt_tensor_type type;
    int dimensions;
    int64_t shape[VT_SPEC_DIMENSIONS];
} vt_tensor_spec;

static inline int64_t vt_tensor_values(const vt_tensor_spec *spec)
{
    int64_t values = 1;
    for (int d = 0; d < spec->dimensions; d++) values *= spec->shape[d];
    return values;
}

static inline size_t vt_tensor_bytes(const vt_tensor_spec *spec)
{
    return (size_t)vt_tensor_values(spec) * (spec->type == VT_TENSOR_INT32 ? sizeof(int32_t) : sizeof(float));
}

typedef struct vt_source vt_source;

/* This rank's slice of a global batch. Every rank gets the same number of batches. */
typedef struct {
    int64_t sample_count;                  /* may be fewer than in other batches, down to 0, in the last one of a set */
    int64_t first_sample;                  /* position of the first one within the epoch */
    int64_t first_in_batch;                /* and within the global batch */
    int64_t global_count;                  /* samples of the whole global batch, but for blank ones */
    int64_t steps;                         /* of forecast whose targets were read; 0: 1 */
    int64_t lead;                          /* steps of forecast that its inputs are the result of */
    const void *tensors[VT_BATCH_TENSORS]; /* [sample_count, shape…]; NULL: it has not been read, or is not there */
    vt_source *source;                     /* NULL: not known */
    const int64_t *samples; /* which samples of the source, [sample_count]; -1: a blank one, which counts nothing */
    /* Its samples are members of ensembles already: what the noise of each depends on, [sample_count, 2]. NULL: they
     * are not. */
    const uint32_t *noise_keys;
    double waited;   /* seconds, for this batch */
    const bool *bad; /* those that could not be read and have to be replaced, [sample_count]; NULL: errors are errors */
} vt_batch;

/* The numbers of tensor `tensor` of the batch from its sample `sample` on; NULL where there are none. */
static inline const void *vt_batch_tensor(const vt_batch *batch, const vt_tensor_spec *specs, int tensor,
                                          int64_t sample)
{
    const char *values = batch->tensors[tensor];
    return values != NULL ? values + (size_t)sample * vt_tensor_bytes(&specs[tensor]) : NULL;
}

#endif
