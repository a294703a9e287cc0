/* Small matrix products on packed operands: the building blocks of attention and of the large products, and the
 * prefetching beside them. A tile of sums stays in registers along the depth; each sum is added up in the order of the
 * depth, so results do not depend on how the work is divided. */
#ifndef VT_BACKEND_CPU_VECTOR_TILE_H
#define VT_BACKEND_CPU_VECTOR_TILE_H

#include "backend/cpu/vector/vector.h"

/* ---- prefetching ----
 * Rows that are read or written soon, a line at a time: kernels prefetch a few lines of them beside each tile that they
 * compute. Many prefetches at once would wait for one another, and everything behind them would wait, too. The
 * processor does not prefetch such rows by itself: each is on a different page. */

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

/* ---- tiles ---- */

enum {
    TILE_VECTORS = REGISTERS == 32 ? 4 : 2, /* rows of a full tile: with 32 registers 6 × 4 sums, with 16 6 × 2 */
    TILE_ROWS = 6
};

/* How a tile's sums are stored. */
typedef enum {
    TILE_SET,   /* c = sums */
    TILE_ADD,   /* c += sums */
    TILE_POWER, /* c = 2^(sums - less) */
    TILE_TIMES  /* c = factor · (sums - less) */
} tile_finish;

/* For TILE_POWER and TILE_TIMES: a number for each row, and a factor for each element with the same strides as c. */
typedef struct {
    lines_ahead *ahead; /* what is prefetched meanwhile */
    const float *less, *factor;
} tile_beside;

/* Also for TILE_ADD the sums begin with 0: if they begin with c, gcc 12 moves all of them to the stack and back. */
INLINE vector tile_begin(tile_finish finish, tile_beside beside, int64_t row)
{
    if (finish == TILE_ADD || finish == TILE_SET) return (vector){0};
    return -splat(beside.less[row]);
}

INLINE vector tile_end(tile_finish finish, vector sum, const float *c, const float *factor)
{
    if (finish == TILE_ADD) return load(c) + sum;
    if (finish == TILE_POWER) return exp2_vector(sum);
    return finish == TILE_TIMES ? load(factor) * sum : sum;
}

/* sum += a [rows × depth] b [depth × vectors·LANES]; a's element (i, k) is a[i·a_row + k·a_column]. rows and vectors
 * are constants where it is inlined. */
INLINE void tile_products(int rows, int vectors, const float *a, int64_t a_row, int64_t a_column, const float *b,
                          int64_t b_stride, int64_t depth, vector sum[8][4])
{
#pragma GCC unroll 4 /* two threads that share a core also share its decoders */
    for (int64_t k = 0; k < depth; k++) {
        vector row[4];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) row[j] = load(b + k * b_stride + j * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vector value = splat(a[i * a_row + k * a_column]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sum[i][j] += value * row[j];
        }
    }
}

/* c [rows × vectors·LANES] from a b, as in tile_products. finish is a constant, too. */
INLINE void tile(int rows, int vectors, tile_finish finish, const float *a, int64_t a_row, int64_t a_column,
                 const float *b, int64_t b_stride, float *c, int64_t c_stride, int64_t depth, tile_beside beside)
{
    vector sum[8][4];
    look_ahead_some(beside.ahead);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) sum[i][j] = tile_begin(finish, beside, i);
    tile_products(rows, vectors, a, a_row, a_column, b, b_stride, depth, sum);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            store(c + i * c_stride + j * LANES,
                  tile_end(finish, sum[i][j], c + i * c_stride + j * LANES, beside.factor + i * c_stride + j * LANES));
}

/* A column of tiles: `vectors` (a constant) wide, any number of rows. */
INLINE void tile_column(int full, int vectors, tile_finish finish, int64_t rows, const float *a, int64_t a_row,
                        int64_t a_column, const float *b, int64_t b_stride, float *c, int64_t c_stride, int64_t depth,
                        tile_beside beside)
{
#define TILES(count)                                                                                                   \
    tile(count, vectors, finish, a + i * a_row, a_row, a_column, b, b_stride, c + i * c_stride, c_stride, depth,       \
         (tile_beside){beside.ahead, beside.less + i, beside.factor + i * c_stride})
    int64_t i = 0;
    for (; i + full <= rows; i += full) TILES(full);
    if (i + 4 <= rows) {
        TILES(4);
        i += 4;
    }
    if (i + 2 <= rows) {
        TILES(2);
        i += 2;
    }
    for (; i < rows; i++) TILES(1);
#undef TILES
}

/* The same for any number of rows and vectors. */
INLINE void tile_columns(tile_finish finish, int64_t rows, int64_t vectors, const float *a, int64_t a_row,
                         int64_t a_column, const float *b, int64_t b_stride, float *c, int64_t c_stride, int64_t depth,
                         tile_beside beside)
{
#define COLUMN(full, count)                                                                                            \
    tile_column(full, count, finish, rows, a, a_row, a_column, b + j * LANES, b_stride, c + j * LANES, c_stride,       \
                depth, (tile_beside){beside.ahead, beside.less, beside.factor + j * LANES})
    int64_t j = 0;
    for (; j + TILE_VECTORS <= vectors; j += TILE_VECTORS) COLUMN(TILE_ROWS, TILE_VECTORS);
    if (TILE_VECTORS > 3 && vectors - j == 3)
        COLUMN(8, 3);
    else if (TILE_VECTORS > 2 && vectors - j == 2)
        COLUMN(8, 2);
    else if (vectors - j == 1)
        COLUMN(8, 1);
#undef COLUMN
}

#endif
