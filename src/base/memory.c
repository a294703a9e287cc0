#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*last_words)(const char *message);

void vt_memory_last_words(void (*tell)(const char *message))
{
    last_words = tell;
}

/* Without the exit handlers: those of libraries may want memory, and threads are still at work. */
void vt_memory_exhausted(size_t bytes, const char *purpose)
{
    char message[256];
    snprintf(message, sizeof message, "out of memory: could not get %zu bytes for %s", bytes, purpose);
    if (last_words != NULL) last_words(message);
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

void *vt_reallocate(void *memory, size_t count, size_t size, const char *purpose)
{
    if (count == 0 || size == 0) count = size = 1;
    void *grown = reallocarray(memory, count, size);
    if (grown == NULL) vt_memory_exhausted(size > (size_t)-1 / count ? (size_t)-1 : count * size, purpose);
    return grown;
}
