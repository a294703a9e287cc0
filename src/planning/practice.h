/* A practice run: real steps of a configuration by one rank alone, on random numbers in place of data, to measure how
 * long steps take. */
#ifndef VT_PLANNING_PRACTICE_H
#define VT_PLANNING_PRACTICE_H

#include "training/plan.h"
#include "training/step.h"

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

/* Fills memory of the back end with random bfloat16 numbers; two of them, read as one float32, lie between -1 and 1,
 * too. */
vt_status vt_practice_fill(vt_backend *backend, void *memory, size_t bytes);

#endif
