/* Sums each gradient over the ranks that add to it, bucket by bucket, while backward is still running (Li et al. 2020,
 * "PyTorch Distributed"). With ZeRO (Rajbhandari et al. 2020) each rank keeps only a slice: of the moments from stage 1
 * on, of the gradients from stage 2 on, and of the values in stage 3, where they are gathered unit by unit, one unit
 * ahead of their use. Also the file of comm_trace, which shows when all that happens. */
#ifndef VT_OPTIMIZER_GRADIENT_SYNC_H
#define VT_OPTIMIZER_GRADIENT_SYNC_H

#include "model/parameters.h"

/* ---- the file of comm_trace (sync_trace.c): when each unit's backward and each bucket's reduction began and ended; of
 * a pipeline also the passes of micro-batches and the waits for their messages. A trace that can't be written is closed
 * with a warning, and the run goes on without it. `trace` may be NULL: there is none. ---- */

typedef struct vt_sync_trace vt_sync_trace;

vt_status vt_sync_trace_open(const char *path, int rank, vt_sync_trace **trace);
void vt_sync_trace_close(vt_sync_trace **trace);

/* A micro-batch of step `step` begins. Rows count seconds from the first one of the step. */
void vt_sync_trace_begin(vt_sync_trace *trace, int64_t step);

/* `what` number `index` began at `begin` (vt_clock_seconds) and ends now. */
void vt_sync_trace_note(vt_sync_trace *trace, const char *what, int64_t index, int64_t bytes, double begin);

/* The step's gradients are complete, after a wait that began at `begin`: writes its rows. */
void vt_sync_trace_end(vt_sync_trace *trace, double begin);

/* ---- the sums ---- */

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

/* That file, for the rows of others; NULL: there is none. */
vt_sync_trace *vt_gradient_sync_rows(const vt_gradient_sync *sync);

/* At the start of a step, and before each backward; `last`: this backward completes the step's gradients. */
void vt_gradient_sync_begin(vt_gradient_sync *sync, int64_t step, bool last);

/* After the last micro-batch's backward: waits until every gradient that this rank keeps is the sum over all ranks. */
void vt_gradient_sync_finish(vt_gradient_sync *sync);

/* To be called after the values that this rank keeps have changed (read from a file, say): sends them to where they are
 * used, and rounds them. */
void vt_gradient_sync_values_changed(vt_gradient_sync *sync);

/* The same after an update, which has rounded what is not sent (vt_parameters_rounded). */
void vt_gradient_sync_values_updated(vt_gradient_sync *sync);

/* Forgets which values were gathered (ZeRO stage 3), so that they are gathered again. To be called before a step is
 * recorded, because the record must hold all gathers, and after a replay, which this code does not see. */
void vt_gradient_sync_forget(vt_gradient_sync *sync);

#endif
