/* Brings the gradients of all ranks together, bucket by bucket while backward goes on (Li et al. 2020, "PyTorch
 * Distributed"), and with ZeRO (Rajbhandari et al. 2020) deals out what each rank keeps: stage 1 slices of the moments,
 * 2 of the gradients, too, 3 of the values, too, which are then gathered unit by unit, one ahead of their use. */
#ifndef VT_OPTIMIZER_GRADIENT_SYNC_H
#define VT_OPTIMIZER_GRADIENT_SYNC_H

#include "model/parameters.h"

typedef struct vt_gradient_sync vt_gradient_sync;

/* Collective. How the configuration splits what is stored: for vt_parameters_allocate. Errors: nodes with different
 * numbers of data-parallel ranks under zero_group node. */
vt_status vt_gradient_sync_storage(const vt_config *config, vt_world *world, vt_backend *backend,
                                   vt_parameters_storage *storage);

/* Collective. Installs itself as the registry's hooks, and takes the memory in which units lie whole. */
vt_status vt_gradient_sync_open(const vt_config *config, vt_backend *backend, vt_parameters *parameters,
                                vt_gradient_sync **sync);
void vt_gradient_sync_close(vt_gradient_sync **sync);

/* Writes into the file `path`, from the next step on, when each unit's backward and each bucket's reduction began and
 * ended. */
vt_status vt_gradient_sync_trace(vt_gradient_sync *sync, const char *path);

/* A micro-batch begins; `last`: its backward completes the step's gradients. */
void vt_gradient_sync_begin(vt_gradient_sync *sync, int64_t step, bool last);

/* Behind the last micro-batch's backward: waits until every gradient that this rank keeps is the sum over all ranks. */
void vt_gradient_sync_finish(vt_gradient_sync *sync);

/* The optimizer has changed the values that this rank keeps (or they were read from a file): brings all of them to
 * where they are used, and rounds them. */
void vt_gradient_sync_values_changed(vt_gradient_sync *sync);

/* What was gathered of the values (ZeRO 3) is gathered anew: before a step is recorded, which must gather all that it
 * needs, and after a replay, of which this knows nothing. */
void vt_gradient_sync_forget(vt_gradient_sync *sync);

#endif
