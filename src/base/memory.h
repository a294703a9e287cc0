/* Host memory for what is small beside the model: tables, names, rooms. A run knows beforehand what its model and data
 * need (training/budget.h), so where even these can't be had, nothing sensible is left to do: the program says so and
 * ends with exit status 1. Large or foreign amounts (tensors, readers' rings, sizes that a file names) are errors as
 * values instead: see vt_backend's allocate, and VT_CHECK. */
#ifndef VT_BASE_MEMORY_H
#define VT_BASE_MEMORY_H

#include <stddef.h>

/* count elements of `size` bytes, all zero, never NULL; free() releases them. Ends the program with "out of memory:
 * could not get N bytes for PURPOSE" when they can't be had. Any thread. */
void *vt_allocate(size_t count, size_t size, const char *purpose) __attribute__((malloc, returns_nonnull));

/* `memory` (or NULL) with room for `count` elements; what is new is not set. Ends the program likewise. */
void *vt_reallocate(void *memory, size_t count, size_t size, const char *purpose) __attribute__((returns_nonnull));

/* Uninitialised memory for what many bytes are written to and read again, on a cache line of its own and in large pages
 * where the system has them: fewer page faults, and fewer misses of the table of pages. NULL when it can't be had;
 * free() releases it. */
void *vt_allocate_large(size_t bytes);

/* How the two end it; for libraries' own refusals. */
__attribute__((noreturn)) void vt_memory_exhausted(size_t bytes, const char *purpose);

/* What is called with the message before the program ends so, NULL: nothing. It must not ask for memory, and need not
 * return. */
void vt_memory_last_words(void (*tell)(void *context, const char *message), void *context);

#endif
