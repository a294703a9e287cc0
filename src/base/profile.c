#include "base/profile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool vt_profile_records;

#ifdef VT_HAS_CUDA

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

/* NVTX loads the library that this names; nsys, ncu and other tools set it. */
static bool is_on(void)
{
    static int known = -1;
    if (known < 0) known = getenv("NVTX_INJECTION64_PATH") != NULL;
    return known > 0;
}

const char *vt_profile_obstacle(void)
{
    int gpus = 0;
    if (!is_on())
        return "no profiler is attached; start the run under `nsys profile -c cudaProfilerApi`, as the scripts of "
               "submit/ do with ENABLE_PROFILING=1";
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0)
        return "nsys starts with the first call to a GPU, and no GPU can be used here; run it on a machine with one";
    return NULL;
}

#else

#define nvtxRangePushA(name) (void)(name)
#define nvtxRangePop() (void)0
#define cudaProfilerStart() (void)0
#define cudaProfilerStop() (void)0

static bool is_on(void)
{
    return false;
}

const char *vt_profile_obstacle(void)
{
    return "this program was built without CUDA, through which a profiler is told what to record; build it where make "
           "finds nvcc (docs/gpu.md)";
}

#endif

void vt_range_begin(const char *format, ...)
{
    char name[128];
    if (!is_on()) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    nvtxRangePushA(name);
}

void vt_range_end(void)
{
    if (is_on()) nvtxRangePop();
}

void vt_profile_start(void)
{
    if (!is_on()) return;
    vt_profile_records = true;
    (void)cudaProfilerStart();
}

void vt_profile_stop(void)
{
    if (!is_on()) return;
    vt_profile_records = false;
    (void)cudaProfilerStop();
}
