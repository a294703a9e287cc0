/* For profilers: named ranges (NVTX), and the steps to record (cudaProfilerStart and Stop, for `nsys profile -c
 * cudaProfilerApi`). Does nothing without CUDA's headers at build time or without a profiler at run time. */
#ifndef VT_BASE_PROFILE_H
#define VT_BASE_PROFILE_H

#include <stdbool.h>

/* Ranges nest. The name is formatted only if a profiler is attached. */
void vt_range_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void vt_range_end(void);

void vt_profile_start(void);
void vt_profile_stop(void);

/* Why vt_profile_start would record nothing, and what to do, as the end of a sentence. NULL: a profiler is attached. */
const char *vt_profile_obstacle(void);

/* True between the two, if a profiler is attached; bench/gpu_step, which takes a step apart in other ways, sets it
 * without one. Steps should then not run as CUDA graphs, unless profile_graphs. */
extern bool vt_profile_records;

#endif
