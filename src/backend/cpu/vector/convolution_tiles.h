/* Convolutions by tiles of 2 × 2 × 2 points of y, with 27 products where plain sums need 64 (convolution_values.h). The
 * cubes' side must be even. The arguments are those of the operations. */
#ifndef VT_BACKEND_CPU_VECTOR_CONVOLUTION_TILES_H
#define VT_BACKEND_CPU_VECTOR_CONVOLUTION_TILES_H

#include "backend/cpu/vector/convolution_values.h"
#include "backend/cpu/vector/product_tile.h"

void VT_KERNEL(vt_tiled_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                 vt_matrix y);
void VT_KERNEL(vt_tiled_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                        vt_matrix weight, vt_matrix dx);
void VT_KERNEL(vt_tiled_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                         float *dweight);

/* ---- what these share ---- */

/* A coordinate q of y meets p of x at tap p + 1 - 2 q. at: of y; the row of x at a tap, -1: padding. */
static inline int64_t row_of_x(int64_t side, const int64_t at[4], int64_t tap)
{
    int64_t row = at[0];
    for (int axis = 0; axis < 3; axis++) {
        const int64_t p = 2 * at[1 + axis] - 1 + (tap >> (4 - 2 * axis) & 3);
        if (p < 0 || p >= 2 * side) return -1;
        row = row * 2 * side + p;
    }
    return row;
}

static inline void point_place(int64_t side, int64_t row, int64_t at[4])
{
    for (int axis = 3; axis > 0; axis--, row /= side) at[axis] = row % side;
    at[0] = row;
}

enum {
    CACHED = 150000,           /* floats of a left operand that stay in the second-level cache */
    MOST_TILES = 8 * MOST_ROWS /* of a strip */
};

static inline int64_t tiles_of_strip(int64_t row)
{
    const int64_t fit = CACHED / (PLANE * row) / MOST_ROWS * MOST_ROWS;
    return fit < 2 * MOST_ROWS ? 2 * MOST_ROWS : smaller(fit, MOST_TILES);
}

/* to [rows × PANEL] = left right. */
static inline void multiply(const float *left, int64_t left_stride, int64_t rows, const float *right, int64_t deep,
                            float *to, int64_t to_stride)
{
    const int64_t runs = pieces(deep, DEPTH), tiles = pieces(rows, MOST_ROWS);
    for (int64_t run = 0; run < runs; run++) {
        const int64_t k = piece_begin(deep, runs, run), depth = piece_begin(deep, runs, run + 1) - k;
        upcoming next = {(const char *)(right + (k + depth) * PANEL), (int64_t)sizeof(float) * PANEL / tiles};
        for (int64_t tile = 0; tile < tiles; tile++, next.memory += depth * next.step) {
            const int64_t r = piece_begin(rows, tiles, tile);
            product_by_rows(piece_begin(rows, tiles, tile + 1) - r, left + r * left_stride + k, left_stride,
                            right + k * PANEL, depth, to + r * to_stride, to_stride, run > 0, next);
        }
    }
}

#endif
