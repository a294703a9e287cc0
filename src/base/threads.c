#define _GNU_SOURCE /* sched_setaffinity */
#include "base/threads.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef union {
    cpu_set_t set;
    unsigned char bytes[VT_CORES_BYTES];
} core_set;

static core_set process;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static bool pinned; /* set by vt_threads_pin */

static bool bound_by_openmp(void)
{
    return omp_get_num_places() > 0;
}

static void find_cores(void)
{
    if (!bound_by_openmp()) {
        if (sched_getaffinity(0, VT_CORES_BYTES, &process.set) < 0) memset(&process, 0, sizeof process);
        return;
    }
    /* this thread's affinity is the first place alone, as OpenMP has bound it already */
    for (int place = 0; place < omp_get_num_places(); place++) {
        int count = omp_get_place_num_procs(place);
        int *cores = calloc((size_t)count + 1, sizeof *cores);
        if (cores == NULL) continue;
        omp_get_place_proc_ids(place, cores);
        for (int i = 0; i < count; i++) CPU_SET_S((size_t)cores[i], VT_CORES_BYTES, &process.set);
        free(cores);
    }
}

static const cpu_set_t *process_cores(void)
{
    pthread_once(&process_once, find_cores);
    return &process.set;
}

void vt_threads_wait_shortly(char *const *arguments)
{
    if (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL) return;
    if (setenv("GOMP_SPINCOUNT", "2000", 1) != 0) return;
    if (bound_by_openmp())
        sched_setaffinity(0, VT_CORES_BYTES, process_cores()); /* otherwise there would be only one core */
    execv("/proc/self/exe", arguments); /* returns only if that fails: then the threads spin as usual */
}

void vt_threads_cores(unsigned char cores[VT_CORES_BYTES])
{
    process_cores();
    memcpy(cores, process.bytes, VT_CORES_BYTES);
}

int vt_threads_core_count(void)
{
    return CPU_COUNT_S(VT_CORES_BYTES, process_cores());
}

/* Has the process one of the cores of a list like "0-15,32-47"? */
static bool has_one_of(FILE *list)
{
    size_t first, last;
    while (fscanf(list, "%zu", &first) == 1) {
        int next = fgetc(list);
        last = first;
        if (next == '-') {
            if (fscanf(list, "%zu", &last) != 1) return false;
            next = fgetc(list);
        }
        for (size_t core = first; core <= last && core < 8 * VT_CORES_BYTES; core++)
            if (CPU_ISSET_S(core, VT_CORES_BYTES, process_cores())) return true;
        if (next != ',') return false;
    }
    return false;
}

int vt_threads_domains(const char *directory)
{
    enum { MOST = 1024 };
    int count = 0;
    for (int domain = 0; domain < MOST; domain++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/node%d/cpulist", directory, domain);
        FILE *list = fopen(path, "r");
        if (list == NULL) continue;
        count += has_one_of(list);
        fclose(list);
    }
    return count > 0 ? count : 1;
}

/* Core number `index` of the process's cores, as a set. */
static bool single_core(int index, unsigned char cores[VT_CORES_BYTES])
{
    memset(cores, 0, VT_CORES_BYTES);
    for (int core = 0; core < 8 * VT_CORES_BYTES; core++) {
        if ((process.bytes[core / 8] >> core % 8 & 1) == 0 || index-- > 0) continue;
        cores[core / 8] = (unsigned char)(1 << core % 8);
        return true;
    }
    return false;
}

void vt_threads_pin(int count)
{
    const cpu_set_t *all = process_cores();
    bool pin = count > 1 && vt_threads_core_count() == count;
    const bool openmp_was_told =
        getenv("OMP_PROC_BIND") != NULL || getenv("OMP_PLACES") != NULL || getenv("GOMP_CPU_AFFINITY") != NULL;
    if (openmp_was_told || (!pin && !pinned)) return;
    pinned = pin;
#pragma omp parallel num_threads(count)
    {
        core_set own;
        if (pin && single_core(omp_get_thread_num(), own.bytes))
            sched_setaffinity(0, VT_CORES_BYTES, &own.set);
        else
            sched_setaffinity(0, VT_CORES_BYTES, all);
    }
}

void vt_threads_roam(void)
{
    if (pinned || bound_by_openmp()) sched_setaffinity(0, VT_CORES_BYTES, process_cores());
}
