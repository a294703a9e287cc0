#include "report/memory.h"

#include <stdio.h>

/* A "VmRSS:   1234 kB" line of /proc/self/status. */
static double status_bytes(const char *format)
{
    double kilobytes = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, format, &kilobytes) == 1) break;
    fclose(file);
    return 1024 * kilobytes;
}

double vt_memory_resident(void)
{
    return status_bytes("VmRSS: %lf kB");
}

double vt_memory_peak(void)
{
    return status_bytes("VmHWM: %lf kB");
}
