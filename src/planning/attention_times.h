/* How long attention takes on each of a back end's engines. */
#ifndef VT_PLANNING_ATTENTION_TIMES_H
#define VT_PLANNING_ATTENTION_TIMES_H

#include "backend/backend.h"

/* Runs the attention of `shape`, in bfloat16, with q, k and v side by side in one matrix as in a model, `rounds` times
 * on each engine after a run that doesn't count, and prints a line for forward and one for backward. Nothing for a back
 * end with one engine. queries and keys of the shape are equal. Errors: memory. */
vt_status vt_attention_times_print(vt_backend *backend, const vt_attention_shape *shape, int64_t rounds);

#endif
