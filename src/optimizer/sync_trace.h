/* The file of comm_trace: when each unit's backward and each bucket's reduction began and ended; of a
 * pipeline also the passes of micro-batches and the waits for their messages. A trace that can't be
 * written is closed with a warning, and the run goes on without it. `trace` may be NULL: there is none. */
#ifndef VT_OPTIMIZER_SYNC_TRACE_H
#define VT_OPTIMIZER_SYNC_TRACE_H

#include <stdint.h>

#include "base/status.h"

typedef struct vt_sync_trace vt_sync_trace;

vt_status vt_sync_trace_open(const char *path, int rank, vt_sync_trace **trace);
void vt_sync_trace_close(vt_sync_trace **trace);

/* A micro-batch of step `step` begins. Rows count seconds from the first one of the step. */
void vt_sync_trace_begin(vt_sync_trace *trace, int64_t step);

/* `what` number `index` began at `begin` (vt_clock_seconds) and ends now. */
void vt_sync_trace_note(vt_sync_trace *trace, const char *what, int64_t index, int64_t bytes, double begin);

/* The step's gradients are complete, after a wait that began at `begin`: writes its rows. */
void vt_sync_trace_end(vt_sync_trace *trace, double begin);

#endif
