/* A set's times in the memory of a device that has its own (cache: device): every batch is put together there. */
#ifndef VT_TRAINING_DEVICE_CACHE_H
#define VT_TRAINING_DEVICE_CACHE_H

#include "backend/backend.h"
#include "data/loader.h"

typedef struct vt_device_cache vt_device_cache;

/* Reads all of the set, this rank's rows of it. Errors: the reader's; no memory. Stops early, with VT_STOPPED, when the
 * run is to stop. */
vt_status vt_device_cache_open(vt_backend *backend, vt_dataset *dataset, vt_device_cache **cache);
void vt_device_cache_close(vt_device_cache **cache);

const vt_dataset *vt_device_cache_dataset(const vt_device_cache *cache);

/* input [sample_count, in_channels, rows, width] and target [sample_count, out_channels, rows, width], in the device's
 * memory, of the batch's samples. */
void vt_device_cache_batch(const vt_device_cache *cache, const vt_batch *batch, float *input, float *target);

#endif
