/* Internals of the CPU back end: which file fills which rows of the table. The plain loops fill all of it and are the
 * oracle; the vector kernels replace the rows where the time is spent. */
#ifndef VT_BACKEND_CPU_CPU_H
#define VT_BACKEND_CPU_CPU_H

#include "backend/backend.h"

/* Operations have the parameters of the table, of which some need only a few. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

typedef struct {
    void *memory;
    size_t bytes;
} vt_cpu_room;

typedef struct {
    int threads;
    vt_backend without_half; /* the table before half.c took its rows */
    vt_backend vectors;      /* the table before tiles or pairs replaced rows: for operands that these cannot take */
    vt_cpu_room stand_ins;   /* half.c's memory */
    vt_cpu_room shared;      /* one operation's, for all threads */
    vt_cpu_room scratch;     /* for each thread a piece of whole pages */
    vt_cpu_room *mappings;   /* what it has allocated */
    size_t mapping_count;
    bool failed;                                           /* an operation found no memory (noted) */
    double (*multiply_adds)(vt_type type, int64_t rounds); /* see vt_backend_cpu_multiply_adds */
} vt_cpu_state;

/* Makes at least `bytes` of scratch memory for each thread; call before a parallel region. It grows only in a run's
 * first step. False: there is no memory; the operation must return, and the back end's check will fail. */
bool vt_cpu_scratch_reserve(vt_backend *backend, size_t bytes);

/* The calling thread's scratch memory, aligned to 64 bytes. */
void *vt_cpu_scratch(vt_backend *backend);

/* Memory that an operation's threads share, aligned to 64 bytes, valid until the next operation. NULL as above. */
void *vt_cpu_shared(vt_backend *backend, size_t bytes);

static inline int vt_cpu_threads(const vt_backend *backend)
{
    return ((const vt_cpu_state *)backend->state)->threads;
}

/* The kernels for operands that those on tiles or for pairs cannot take. */
static inline const vt_backend *vt_cpu_vectors(const vt_backend *backend)
{
    return &((const vt_cpu_state *)backend->state)->vectors;
}

/* Memory for float32 stand-ins of 16-bit operands, aligned to 64 bytes, valid until the next call. NULL as above. */
void *vt_cpu_stand_in_memory(vt_backend *backend, size_t bytes);

/* half.c: what updates of the plain back end do last: rounded [count] = values, rounded to the 16 bits of
 * update->rounded. Does nothing if `rounded` is NULL. */
void vt_cpu_round_values(const vt_update *update, const float *values, uint16_t *rounded, int64_t count);

/* half.c: makes the operations that are still the plain loops take 16-bit matrices. */
void vt_cpu_half_fill(vt_backend *backend);

/* plain/: one loop each, sums in float64. */
#define OPTIONAL_OPERATION(name, work, ...)
#define OPERATION(name, work, ...) void vt_plain_##name(vt_backend *backend VT_PARAMETERS(__VA_ARGS__));
#include "backend/operations.def"

/* vector/: compiled once for each instruction set, under these names. */
void vt_vector_fill_baseline(vt_backend *backend);
void vt_vector_fill_avx2(vt_backend *backend);
void vt_vector_fill_avx512(vt_backend *backend);
void vt_vector_fill_bf16(vt_backend *backend); /* products of pairs of bfloat16 (VT_HAS_BF16) */
void vt_vector_fill_amx(vt_backend *backend);  /* AVX-512 with rounding to bfloat16 */

/* amx/: attention and products on tiles; call after the vector kernels. Compiled for processors with AMX (VT_HAS_AMX),
 * and for tests over a software model of the tiles. */
void vt_tiles_fill_amx(vt_backend *backend);
void vt_tiles_fill_model(vt_backend *backend);

#endif
