/* Which samples each training step used: <run directory>/logs/samples-<rank>.csv, for option sample_trace. docs/data.md
 * says how the order comes from the seed. */
#ifndef VT_JOURNAL_SAMPLE_TRACE_H
#define VT_JOURNAL_SAMPLE_TRACE_H

#include "data/loader.h"
#include "journal/rows.h"
#include "parallel/world.h"

/* Of a run that continues, rows of steps up to `steps` stay. NULL on ranks that share their samples with a lower rank.
 */
vt_status vt_sample_trace_open(const vt_world *world, const char *run_directory, int64_t steps, vt_rows **trace);

/* This rank's part of the batch of step `step` of epoch `epoch`, both 1 for the first. When it can't be written, the
 * run goes on without a trace, with a warning. NULL: nothing. */
void vt_sample_trace_add(vt_rows *trace, int64_t step, int64_t epoch, const vt_batch *batch);

#endif
