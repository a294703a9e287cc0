/* How much processor time everything together, and this program, used. */
#ifndef VT_BENCH_PROCESSOR_TIME_H
#define VT_BENCH_PROCESSOR_TIME_H

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Seconds that all cores have worked since the machine started, including other guests of the same host; 0 if the
 * system doesn't say. */
static inline double busy_seconds(void)
{
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0, stolen = 0;
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL) return 0;
    int read = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &waiting, &interrupts,
                      &soft, &stolen);
    fclose(file);
    return read < 8 ? 0 : (user + nice + system + interrupts + soft + stolen) / (double)sysconf(_SC_CLK_TCK);
}

/* The part of this process, or of its ended children: RUSAGE_SELF, RUSAGE_CHILDREN. */
static inline double own_seconds(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

#endif
