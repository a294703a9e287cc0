/* What a profiler sees: named ranges (NVTX), and the steps that are to be recorded (cudaProfilerStart and Stop, for
 * `nsys profile -c cudaProfilerApi`). Without CUDA's headers at build time, and without a profiler at run time,
 * nothing. */
#ifndef VT_BASE_PROFILE_H
#define VT_BASE_PROFILE_H

#include <stdbool.h>

/* Ranges nest. The name is formatted only when a profiler listens. */
void vt_range_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void vt_range_end(void);

void vt_profile_start(void);
void vt_profile_stop(void);

/* Why vt_profile_start would record nothing, and what to do: the end of a sentence. NULL: a profiler listens. */
const char *vt_profile_obstacle(void);

/* Between the two, where a profiler listens: steps are to run uncaptured, unless profile_graphs. */
bool vt_profile_records(void);
/* The same without a profiler, for who takes a step apart otherwise (bench/gpu_step). */
void vt_profile_pretend(bool records);

#endif
