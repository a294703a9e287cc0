/* A practice run: real steps of a configuration by one rank alone, on random numbers in place of data, to measure how
 * long steps take; and what is measured with them: where their time goes, and what this machine can do. */
#ifndef VT_PLANNING_PRACTICE_H
#define VT_PLANNING_PRACTICE_H

#include "parallel/world.h"
#include "planning/hardware.h"
#include "training/plan.h"

typedef struct vt_practice vt_practice;

/* `samples` at once, neither split over ranks nor into micro-batches; the parameters stay as they start. Takes memory
 * of the back end, which outlives the run. Errors: memory. */
vt_status vt_practice_open(const vt_config *config, int64_t samples, vt_backend *backend, vt_practice **practice);
vt_status vt_practice_step(vt_practice *practice);
void vt_practice_close(vt_practice **practice);

/* The plan of such a run. */
vt_status vt_practice_plan(const vt_config *config, int64_t samples, vt_plan *plan);

/* `count` random numbers between -1 and 1; malloc'd. Rates are measured on them, because matrix units are faster on
 * zeros, which take less power. */
float *vt_practice_numbers(int64_t count, uint32_t stream);
/* Puts words of a vocabulary, int32_t, in the place of such numbers. */
void vt_practice_words(float *numbers, int64_t count, int64_t vocabulary);

/* ---- step_times.c ---- */

/* Makes a step that doesn't count, then `steps` that are timed, and prints a table of their operations, the longest
 * first. Limits are measured between the steps: multiply-adds of `type` on a CPU's registers, or a large product on a
 * GPU; and y += x over arrays beyond the caches. A GPU is waited for before and after each operation. */
vt_status vt_step_times_print(vt_practice *practice, vt_backend *backend, vt_type type, int64_t steps);

/* Runs the attention of `shape`, in bfloat16, with q, k and v side by side in one matrix as in a model, `rounds` times
 * on each engine after a run that doesn't count, and prints a line for forward and one for backward; then the same with
 * dropout. Nothing for a back end with one engine. queries and keys of the shape are equal. Errors: memory. */
vt_status vt_attention_times_print(vt_backend *backend, const vt_attention_shape *shape, int64_t rounds);

/* ---- calibrate.c: the rates that vitrain's own operations reach at a configuration's sizes, and what messages between
 * the ranks take ---- */

/* Collective; all ranks measure at the same time, since they share cores and memory, and come to the same table: the
 * slowest rank's times. `samples` a rank are worked on at once. Rates of products and attention in every precision;
 * what memory bounds in the configuration's. Messages to ranks that aren't there are guessed. */
vt_status vt_calibrate(const vt_config *config, int64_t samples, vt_world *world, vt_backend *backend,
                       vt_hardware *hardware);

#endif
