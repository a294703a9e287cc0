/* Small matrix products on packed operands: what attention and the large products are made of. A tile of sums stays in
 * registers while the depth runs; each sum is added up in the order of the depth, so results do not depend on how the
 * work around is split. */
#ifndef VT_BACKEND_CPU_VECTOR_TILE_H
#define VT_BACKEND_CPU_VECTOR_TILE_H

#include "backend/cpu/vector/vector.h"

enum {
    TILE_VECTORS = LANES == 16 ? 4 : 2, /* of a full tile: with 32 registers 6 × 4 sums, with 16 6 × 2 */
    TILE_ROWS = 6
};

/* c [rows × vectors·LANES] (+)= a [rows × depth] b [depth × vectors·LANES]; a's element (i, k) is a[i·a_row +
 * k·a_column]. rows and vectors are constants where it is inlined. */
INLINE void tile(int rows, int vectors, const float *a, int64_t a_row, int64_t a_column, const float *b,
                 int64_t b_stride, float *c, int64_t c_stride, int64_t depth, bool add)
{
    vector sum[8][4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) sum[i][j] = add ? load(c + i * c_stride + j * LANES) : (vector){0};
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
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) store(c + i * c_stride + j * LANES, sum[i][j]);
}

/* A column of tiles: `vectors` (a constant) wide, any number of rows. */
INLINE void tile_column(int full, int vectors, int64_t rows, const float *a, int64_t a_row, int64_t a_column,
                        const float *b, int64_t b_stride, float *c, int64_t c_stride, int64_t depth, bool add)
{
    int64_t i = 0;
    for (; i + full <= rows; i += full)
        tile(full, vectors, a + i * a_row, a_row, a_column, b, b_stride, c + i * c_stride, c_stride, depth, add);
    if (i + 4 <= rows) {
        tile(4, vectors, a + i * a_row, a_row, a_column, b, b_stride, c + i * c_stride, c_stride, depth, add);
        i += 4;
    }
    if (i + 2 <= rows) {
        tile(2, vectors, a + i * a_row, a_row, a_column, b, b_stride, c + i * c_stride, c_stride, depth, add);
        i += 2;
    }
    for (; i < rows; i++)
        tile(1, vectors, a + i * a_row, a_row, a_column, b, b_stride, c + i * c_stride, c_stride, depth, add);
}

/* The same for any number of rows and vectors. */
INLINE void tile_columns(int64_t rows, int64_t vectors, const float *a, int64_t a_row, int64_t a_column, const float *b,
                         int64_t b_stride, float *c, int64_t c_stride, int64_t depth, bool add)
{
    int64_t j = 0;
    for (; j + TILE_VECTORS <= vectors; j += TILE_VECTORS)
        tile_column(TILE_ROWS, TILE_VECTORS, rows, a, a_row, a_column, b + j * LANES, b_stride, c + j * LANES, c_stride,
                    depth, add);
    b += j * LANES;
    c += j * LANES;
    if (TILE_VECTORS > 3 && vectors - j == 3)
        tile_column(8, 3, rows, a, a_row, a_column, b, b_stride, c, c_stride, depth, add);
    else if (TILE_VECTORS > 2 && vectors - j == 2)
        tile_column(8, 2, rows, a, a_row, a_column, b, b_stride, c, c_stride, depth, add);
    else if (vectors - j == 1)
        tile_column(8, 1, rows, a, a_row, a_column, b, b_stride, c, c_stride, depth, add);
}

/* c [rows × vectors·LANES] (+)= a [rows × depth] b: a lies row by row. Not inlined: one copy a file is enough. */
static __attribute__((noinline)) void multiply(int64_t rows, int64_t vectors, const float *a, int64_t a_stride,
                                               const float *b, int64_t b_stride, float *c, int64_t c_stride,
                                               int64_t depth, bool add)
{
    tile_columns(rows, vectors, a, a_stride, 1, b, b_stride, c, c_stride, depth, add);
}

/* c [rows × vectors·LANES] (+)= aᵀ b with a [depth × rows], row by row. */
static __attribute__((noinline)) void multiply_transposed(int64_t rows, int64_t vectors, const float *a,
                                                          int64_t a_stride, const float *b, int64_t b_stride, float *c,
                                                          int64_t c_stride, int64_t depth, bool add)
{
    tile_columns(rows, vectors, a, 1, a_stride, b, b_stride, c, c_stride, depth, add);
}

#endif
