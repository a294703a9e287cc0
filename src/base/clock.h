/* Time for measuring (monotonic) and for the log (wall clock). */
#ifndef VT_BASE_CLOCK_H
#define VT_BASE_CLOCK_H

#include <stdio.h>
#include <sys/time.h>
#include <time.h>

/* Monotonic seconds; only differences mean anything. */
static inline double vt_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Local time as "2025-11-13 21:35:55,423" (Python's logging format, which log parsers expect). */
static inline void vt_clock_stamp(char buffer[32])
{
    struct timeval now;
    gettimeofday(&now, NULL);
    struct tm local;
    localtime_r(&now.tv_sec, &local);
    char seconds[24];
    strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(buffer, 32, "%s,%03d", seconds, (int)(now.tv_usec / 1000));
}

#endif
