#include "base/process_memory.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

/* The number after `format` in the first line of a system file that matches, or -1. */
static double system_number(const char *path, const char *format)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) return -1;
    char line[128];
    double number = -1;
    while (number < 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, format, &number) != 1) number = -1;
    fclose(file);
    return number;
}

double vt_memory_available(void)
{
    double kilobytes = system_number("/proc/meminfo", "MemAvailable: %lf kB");
    double available = kilobytes < 0 ? -1 : 1024 * kilobytes;
    double limit = system_number("/sys/fs/cgroup/memory.max", "%lf");
    double used = system_number("/sys/fs/cgroup/memory.current", "%lf");
    if (limit >= 0 && used >= 0 && (available < 0 || limit - used < available)) available = fmax(0, limit - used);
    return available;
}

/* Bytes by a line of /proc/self/status such as "VmRSS: 1234 kB"; 0 if there is none. */
static double status_bytes(const char *format)
{
    return 1024 * fmax(0, system_number("/proc/self/status", format));
}

double vt_memory_resident(void)
{
    return status_bytes("VmRSS: %lf kB");
}

double vt_memory_shared(void)
{
    return status_bytes("RssShmem: %lf kB") + status_bytes("RssFile: %lf kB");
}

double vt_memory_peak(void)
{
    return status_bytes("VmHWM: %lf kB");
}

double vt_memory_address_space(void)
{
    return status_bytes("VmSize: %lf kB");
}

double vt_memory_address_space_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INFINITY;
    return fmax(0, (double)limit.rlim_cur - vt_memory_address_space());
}
