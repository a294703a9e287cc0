/* Rows that are read or written soon, a line at a time: kernels prefetch a few lines of them beside each tile that they
 * compute. Many prefetches at once would wait for one another, and everything behind them would wait, too. The
 * processor does not prefetch such rows by itself: each is on a different page. */
#ifndef VT_BACKEND_CPU_VECTOR_AHEAD_H
#define VT_BACKEND_CPU_VECTOR_AHEAD_H

#include "backend/cpu/vector/vector.h"

/* The rows of one matrix that are still to be prefetched. */
typedef struct {
    const char *row;
    int64_t rows, stride, bytes; /* how many; from one to the next; of one */
    int64_t done;                /* bytes of the first row that are prefetched */
} rows_ahead;

typedef struct {
    rows_ahead all[8];
    int64_t first, count; /* of `all`: the one at hand, and how many were added */
    int64_t lines;        /* of all that were added */
    int64_t pace;         /* lines beside a tile */
} lines_ahead;

/* Columns column … column + columns - 1 of rows first … first + rows - 1. */
static inline void add_ahead(lines_ahead *ahead, const vt_matrix *matrix, int64_t first, int64_t rows, int64_t column,
                             int64_t columns)
{
    const int64_t size = (int64_t)vt_type_size(matrix->type);
    if (rows <= 0) return;
    ahead->all[ahead->count++] =
        (rows_ahead){.row = (const char *)matrix->data + (first * matrix->stride + column) * size,
                     .rows = rows,
                     .stride = matrix->stride * size,
                     .bytes = columns * size};
    ahead->lines += rows * pieces(columns * size, 64);
}

/* Spreads all lines over `tiles` tiles. */
static inline void pace_ahead(lines_ahead *ahead, int64_t tiles)
{
    ahead->pace = pieces(ahead->lines, tiles);
}

/* Prefetches the lines that are due beside one tile. */
INLINE void look_ahead_some(lines_ahead *ahead)
{
    for (int64_t i = 0; i < ahead->pace && ahead->first < ahead->count; i++) {
        rows_ahead *next = &ahead->all[ahead->first];
        __builtin_prefetch(next->row + next->done);
        next->done += 64;
        if (next->done < next->bytes) continue;
        next->done = 0;
        next->row += next->stride;
        if (--next->rows == 0) ahead->first++;
    }
}

#endif
