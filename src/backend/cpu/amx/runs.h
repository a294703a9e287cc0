/* Sums of 32 × 32 along any depth, for products (product.c): in runs, each of which is
 * summed in the tiles; the runs' sums are added in order. */
#ifndef VT_BACKEND_CPU_AMX_RUNS_H
#define VT_BACKEND_CPU_AMX_RUNS_H

#include "backend/cpu/amx/terms.h"
#include "backend/cpu/vector/product_parts.h"

enum { RUN = 12 }; /* steps that are summed in the tiles */

/* Rows of memory that will be written soon: they are prefetched evenly while sums are computed. */
typedef struct {
    char *memory;
    int64_t row, bytes, rows; /* bytes from row to row, of a row; number of rows */
    int64_t step, steps;      /* counts the products done beside it */
} upcoming;

/* Rows of a matrix of results, `columns` columns. */
static inline upcoming rows_of(const vt_matrix *matrix, int64_t first, int64_t rows, int64_t column, int64_t columns)
{
    int64_t size = (int64_t)vt_type_size(matrix->type), count = smaller(columns, matrix->columns - column);
    return (upcoming){.memory = (char *)matrix->data + (first * matrix->stride + column) * size,
                      .row = matrix->stride * size,
                      .bytes = count * size,
                      .rows = rows};
}

INLINE void prefetch_beside(void *work, int place)
{
    upcoming *ahead = work;
    if (place != 0 || ahead->step == ahead->steps) return;
    int64_t end = piece_begin(ahead->rows, ahead->steps, ahead->step + 1);
    for (int64_t r = piece_begin(ahead->rows, ahead->steps, ahead->step++); r < end; r++)
        for (int64_t byte = 0; byte < ahead->bytes; byte += 64)
            __builtin_prefetch(ahead->memory + r * ahead->row + byte, 1);
}

/* A run of at most RUN steps. add: to the sums of the runs before. */
INLINE void multiply_run(int terms, packed a, packed b, int64_t steps, float *sums, int64_t width, bool add,
                         upcoming *ahead)
{
    float more[BLOCK * BLOCK];
    const tile_block block = {.a = a, .b = b, .steps = steps, .sums = add ? more : sums, .width = add ? BLOCK : width};
    multiply_block(terms, true, true, block, prefetch_beside, ahead);
    for (int64_t r = 0; r < BLOCK && add; r++)
        for (int64_t c = 0; c < BLOCK; c += LANES)
            store(sums + r * width + c, load(sums + r * width + c) + load(more + r * BLOCK + c));
}

INLINE void multiply_runs(int terms, packed a, packed b, int64_t steps, float *sums, int64_t width, bool add,
                          upcoming *ahead)
{
    ahead->steps = steps;
    for (int64_t k = 0; k < steps; k += RUN) {
        multiply_run(terms, a, b, smaller(RUN, steps - k), sums, width, add || k > 0, ahead);
        a.tiles += RUN * (a.row == 0 ? terms * TILE_PAIRS : a.step);
        b.tiles += RUN * terms * TILE_PAIRS;
    }
}

/* sums [32 × 32], or += if `add`, of the first two pieces of a and b. Not inlined: one copy of each is enough. */
static __attribute__((noinline, unused)) void multiply(int terms, packed a, packed b, int64_t steps, float *sums,
                                                       int64_t width, bool add, upcoming ahead)
{
    if (terms == 1)
        multiply_runs(1, a, b, steps, sums, width, add, &ahead);
    else
        multiply_runs(TERMS, a, b, steps, sums, width, add, &ahead);
}

#endif
