/* The data of a run: its sources, how they are read, the next batch on all ranks, and sets that stay in a device's
 * memory. */
#ifndef VT_TRAINING_READER_H
#define VT_TRAINING_READER_H

#include "config/config.h"
#include "data/loader.h"
#include "data/source.h"
#include "parallel/world.h"
#include "training/step.h"

/* Batches of the validation set that are kept ready: they must not take much memory while training goes on. */
enum { VT_VALIDATION_PREFETCH = 1 };

/* This rank's part of a set: the rows that its tokens touch. */
vt_status vt_reader_open_source(const vt_config *config, const vt_world *world, vt_set set, vt_source **source);

/* Samples of a global batch, of training or else of validation and test. */
int64_t vt_reader_batch(const vt_config *config, bool training);

/* Reader threads: num_data_workers if it is set, otherwise one for each core of this rank that does not compute, at
 * least one. */
int64_t vt_reader_workers(const vt_config *config, const vt_world *world);

/* What batches are for. */
typedef struct {
    bool training;     /* else validation or test */
    bool indices_only; /* they have samples, but no tensors, which a device holds */
    int64_t every;     /* not of training: only every N-th sample; 0: all */
} vt_reader_use;

/* The ring of batches lies in memory that the back end's device reaches by itself; NULL: in the host's. Close the
 * loader before the back end. */
vt_status vt_reader_open_loader(const vt_config *config, const vt_world *world, vt_backend *backend, vt_reader_use use,
                                vt_source *source, vt_loader **loader);

/* If `cache` names this place: which of the sets, training and validation, are kept there, where this rank has `room`
 * bytes left beside the run (INFINITY: nobody knows); the log says why not. In the host's memory they keep from now on
 * what they have read; before anything is read. Returns the bytes of what is kept. */
double vt_reader_keep_sets(const vt_config *config, vt_cache place, double room, vt_source *const sets[2],
                           bool kept[2]);

/* Collective. How many chunks of the set all ranks have decoded, in words, malloc'd; NULL: none. */
char *vt_reader_chunks(vt_world *world, vt_source *source);

/* Says in the log how the training set is read; warns of samples that are in both sets. test NULL: there is none. */
void vt_reader_log(const vt_config *config, const vt_world *world, const vt_source *training,
                   const vt_source *validation, const vt_source *test);

/* Collective: fails on all ranks when one can't read. *batch is NULL after the epoch's last. With skip_bad_samples,
 * what could not be read is replaced, in the same way on all ranks that share a sample, and *replaced is increased by
 * the number of such samples on all ranks. */
vt_status vt_reader_next(const vt_trainer *trainer, vt_loader *loader, const vt_batch **batch, int64_t *replaced);

/* ---- a source's frames in the memory of a device (cache: device), where batches are assembled from them ---- */

typedef struct vt_device_cache vt_device_cache;

/* Reads all frames of the source. Errors: the source's; no memory. Stops early, with VT_STOPPED, when the run is to
 * stop. */
vt_status vt_device_cache_open(vt_backend *backend, vt_source *source, vt_device_cache **cache);
void vt_device_cache_close(vt_device_cache **cache);

/* Puts the tensors of the batch's samples together at tensors[t] [sample_count, shape…], in the device's memory. Does
 * nothing if the batch is of another source. */
void vt_device_cache_batch(const vt_device_cache *cache, const vt_batch *batch, void *const *tensors);

#endif
