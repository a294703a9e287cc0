#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* On x86-64, and on 64-bit ARM with pages of 4 kB. */
#define LARGE_PAGE ((size_t)2 << 20)

static void (*last_words)(void *context, const char *message);
static void *last_context;

void vt_memory_last_words(void (*tell)(void *context, const char *message), void *context)
{
    last_words = tell;
    last_context = context;
}

/* Skips the exit handlers: those of libraries may need memory, and threads are still running. */
void vt_memory_exhausted(size_t bytes, const char *purpose)
{
    char message[256];
    snprintf(message, sizeof message, "out of memory: could not get %zu bytes for %s", bytes, purpose);
    if (last_words != NULL) last_words(last_context, message);
    char line[sizeof message + 16];
    int length = snprintf(line, sizeof line, "vitrain: %s\n", message);
    (void)!write(STDERR_FILENO, line, (size_t)length);
    _exit(EXIT_FAILURE);
}

void *vt_allocate(size_t count, size_t size, const char *purpose)
{
    if (count == 0 || size == 0) count = size = 1;
    void *memory = calloc(count, size);
    if (memory == NULL) vt_memory_exhausted(size > (size_t)-1 / count ? (size_t)-1 : count * size, purpose);
    return memory;
}

void *vt_copy(const void *memory, size_t count, size_t size, const char *purpose)
{
    return memory != NULL ? memcpy(vt_allocate(count, size, purpose), memory, count * size) : NULL;
}

void *vt_reallocate(void *memory, size_t count, size_t size, const char *purpose)
{
    if (count == 0 || size == 0) count = size = 1;
    void *grown = reallocarray(memory, count, size);
    if (grown == NULL) vt_memory_exhausted(size > (size_t)-1 / count ? (size_t)-1 : count * size, purpose);
    return grown;
}

void *vt_grow(void *memory, size_t count, size_t size, const char *purpose)
{
    if ((count & (count - 1)) != 0) return memory;
    return vt_reallocate(memory, count == 0 ? 1 : 2 * count, size, purpose);
}

/* Whole large pages only, so that no more is used than was requested. */
void *vt_allocate_large(size_t bytes)
{
    const size_t whole = bytes / LARGE_PAGE * LARGE_PAGE;
    void *memory = NULL;
    if (bytes > (size_t)-1 / 2 || posix_memalign(&memory, whole > 0 ? LARGE_PAGE : 64, bytes > 0 ? bytes : 1) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (whole > 0) (void)madvise(memory, whole, MADV_HUGEPAGE); /* advice only */
#endif
    return memory;
}

/* ---- how much is used ---- */

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

double vt_memory_of_process(const char *key)
{
    char format[64];
    snprintf(format, sizeof format, "%s: %%lf kB", key);
    return 1024 * fmax(0, system_number("/proc/self/status", format));
}

double vt_memory_address_space_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INFINITY;
    return fmax(0, (double)limit.rlim_cur - vt_memory_of_process("VmSize"));
}
