/* Where the time of steps goes, operation by operation, beside what the machine could do; and that of attention on each
 * of its engines (attention_times.c). */
#ifndef VT_PLANNING_STEP_TIMES_H
#define VT_PLANNING_STEP_TIMES_H

#include "planning/practice.h"

/* Makes a step that doesn't count, then `steps` that are timed, and prints a table of their operations, the longest
 * first. Limits are measured between the steps. Of a CPU: multiply-adds of `type` on registers, and y += x over arrays
 * beyond the caches. Of a GPU, which is waited for before and after each operation: a large product, and a copy inside
 * of its memory. */
vt_status vt_step_times_print(vt_practice *practice, vt_backend *backend, vt_type type, int64_t steps);

/* Runs the attention of `shape`, in bfloat16, with q, k and v side by side in one matrix as in a model, `rounds` times
 * on each engine after a run that doesn't count, and prints a line for forward and one for backward. Nothing for a back
 * end with one engine. queries and keys of the shape are equal. Errors: memory. */
vt_status vt_attention_times_print(vt_backend *backend, const vt_attention_shape *shape, int64_t rounds);

#endif
