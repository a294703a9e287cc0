/* Which samples each training step used: <run directory>/logs/samples-<rank>.csv, for option sample_trace. docs/data.md
 * says how the order comes from the seed. */
#ifndef VT_JOURNAL_SAMPLE_TRACE_H
#define VT_JOURNAL_SAMPLE_TRACE_H

#include "data/loader.h"
#include "parallel/world.h"

typedef struct vt_sample_trace vt_sample_trace;

/* Of a run that continues, rows of steps up to `steps` stay. NULL on ranks that share their samples with a lower rank.
 */
vt_status vt_sample_trace_open(const vt_world *world, const char *run_directory, int64_t steps,
                               vt_sample_trace **trace);

/* This rank's part of the batch of step `step` of epoch `epoch`, both 1 for the first. A trace that can't be written
 * ends, with a warning: the run does without. NULL: nothing. */
void vt_sample_trace_add(vt_sample_trace *trace, int64_t step, int64_t epoch, const vt_batch *batch);

void vt_sample_trace_close(vt_sample_trace **trace);

#endif
