/* What a profiler sees: named ranges (NVTX), and the steps that are to be recorded (cudaProfilerStart and Stop, for
 * `nsys profile -c cudaProfilerApi`). Without CUDA's headers at build time, and without a profiler at run time,
 * nothing. */
#ifndef VT_REPORT_PROFILE_H
#define VT_REPORT_PROFILE_H

/* Ranges nest. The name is formatted only when a profiler listens. */
void vt_range_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void vt_range_end(void);

void vt_profile_start(void);
void vt_profile_stop(void);

#endif
