/* A source's frames in the memory of a device (cache: device), where batches are assembled from them. */
#ifndef VT_TRAINING_DEVICE_CACHE_H
#define VT_TRAINING_DEVICE_CACHE_H

#include "backend/backend.h"
#include "data/source.h"

typedef struct vt_device_cache vt_device_cache;

/* Reads all frames of the source. Errors: the source's; no memory. Stops early, with VT_STOPPED, when the run is to
 * stop. */
vt_status vt_device_cache_open(vt_backend *backend, vt_source *source, vt_device_cache **cache);
void vt_device_cache_close(vt_device_cache **cache);

const vt_source *vt_device_cache_source(const vt_device_cache *cache);

/* Puts the tensors of the batch's samples together at tensors[t] [sample_count, shape…], in the device's memory. */
void vt_device_cache_batch(const vt_device_cache *cache, const vt_batch *batch, void *const *tensors);

#endif
