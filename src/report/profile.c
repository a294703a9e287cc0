#include "report/profile.h"

#include <stdlib.h>

#ifdef VT_HAS_CUDA

#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>
#include <stdarg.h>
#include <stdio.h>

/* NVTX loads what this names; nsys, ncu and others set it. */
bool vt_profile_is_on(void)
{
    static int known = -1;
    if (known < 0) known = getenv("NVTX_INJECTION64_PATH") != NULL;
    return known > 0;
}

void vt_range_begin(const char *format, ...)
{
    char name[128];
    if (!vt_profile_is_on()) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    nvtxRangePushA(name);
}

void vt_range_end(void)
{
    if (vt_profile_is_on()) nvtxRangePop();
}

void vt_profile_start(void)
{
    if (vt_profile_is_on()) (void)cudaProfilerStart();
}

void vt_profile_stop(void)
{
    if (vt_profile_is_on()) (void)cudaProfilerStop();
}

#else

bool vt_profile_is_on(void)
{
    return false;
}

void vt_range_begin(const char *format, ...)
{
    (void)format;
}

void vt_range_end(void)
{
}

void vt_profile_start(void)
{
}

void vt_profile_stop(void)
{
}

#endif
