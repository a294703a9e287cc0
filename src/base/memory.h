/* Host memory for things that are small beside the model: tables, names, buffers. A run checks beforehand what its
 * model and data need (training/plan.h), so if even a small allocation fails, nothing sensible is left to do: the
 * program says so and exits with status 1. Large amounts, or those that a file names (tensors, readers' rings), are
 * errors as values instead: see vt_backend's allocate, and VT_CHECK. Below, how much of the machine's memory this
 * process uses, and could get. */
#ifndef VT_BASE_MEMORY_H
#define VT_BASE_MEMORY_H

#include <stddef.h>

/* count elements of `size` bytes, all zero, never NULL; free() releases them. If there is no memory, ends the program
 * with "out of memory: could not get N bytes for PURPOSE". Any thread. */
void *vt_allocate(size_t count, size_t size, const char *purpose) __attribute__((malloc, returns_nonnull));

/* A copy of `count` elements of `memory`, to be freed; NULL if that is NULL. Ends the program as above. */
void *vt_copy(const void *memory, size_t count, size_t size, const char *purpose);

/* Grows `memory` (or NULL) to `count` elements; the new ones are not set. Ends the program as above. */
void *vt_reallocate(void *memory, size_t count, size_t size, const char *purpose) __attribute__((returns_nonnull));

/* Room for one more element after `count`: memory that only this function grows doubles at every power of two. */
void *vt_grow(void *memory, size_t count, size_t size, const char *purpose) __attribute__((returns_nonnull));

/* Uninitialised memory for data that are read and written often, aligned to a cache line and in large pages if the
 * system has them: fewer page faults and TLB misses. NULL if there is none; free() releases it. */
void *vt_allocate_large(size_t bytes);

/* How both end the program; also for failed allocations in libraries. */
__attribute__((noreturn)) void vt_memory_exhausted(size_t bytes, const char *purpose);

/* Sets what is called with the message before the program ends this way; NULL: nothing. It must not allocate memory,
 * and need not return. */
void vt_memory_last_words(void (*tell)(void *context, const char *message), void *context);

/* ---- how much of the machine's memory this process uses ---- */

/* Bytes by a key of /proc/self/status: "VmRSS": resident now; "VmHWM": the most so far; "VmSize": address space.
 * 0 if the system doesn't say. */
double vt_memory_of_process(const char *key);

/* Bytes of address space that `ulimit -v` leaves; INFINITY without a limit. */
double vt_memory_address_space_left(void);

/* What the machine could give without swapping, or what the control group allows (a container, a batch job) if that is
 * less; -1 if the system doesn't say. */
double vt_memory_available(void);

#endif
