/* The right operand of the products as the tile (product_tile.h) reads it: panels of PANEL columns, one after another.
 * Packing also widens 16-bit numbers and transposes. */
#ifndef VT_BACKEND_CPU_VECTOR_PRODUCT_PACK_H
#define VT_BACKEND_CPU_VECTOR_PRODUCT_PACK_H

#include "backend/cpu/vector/elements.h"
#include "backend/cpu/vector/product_tile.h"

/* What step k of the depth has in columns column … (up to LANES of them): row k of the matrix, or with pairs rows 2 k
 * and 2 k + 1, joined column by column. */
INLINE vector load_step(const vt_matrix *from, int64_t k, int64_t column, int64_t count)
{
#if defined(VT_PAIRS)
    const int64_t index = 2 * k * from->stride + column;
    const vector lower = load_elements_up_to(from, index, count);
    const vector upper = 2 * k + 1 < from->rows ? load_elements_up_to(from, index + from->stride, count) : (vector){0};
    return (vector)((vector_word)upper | (vector_word)lower >> 16);
#else
    return load_elements_up_to(from, k * from->stride + column, count);
#endif
}

/* Floats from panel to panel; padded a little, so that panels do not compete for the same cache lines. */
static inline int64_t panel_stride(int64_t deep)
{
    return (deep + 1) * PANEL;
}

/* Steps first … end - 1 of right [deep × columns], row by row. `right` begins at the block's first row. */
static inline void pack_right_rows(const vt_matrix *right, int64_t first, int64_t end, int64_t stride, float *to)
{
    int64_t whole = right->columns / PANEL * PANEL;
    for (int64_t k = first; k < end; k++) {
        int64_t c = 0;
        float *row = to + k * PANEL;
        for (; c < whole; c += PANEL, row += stride) {
#pragma GCC unroll 4
            for (int64_t part = 0; part < PANEL; part += LANES) store(row + part, load_step(right, k, c + part, LANES));
        }
        for (int64_t part = 0; part < PANEL && whole < right->columns; part += LANES) {
            int64_t left = right->columns - whole - part;
            store(row + part, left > 0 ? load_step(right, k, whole + part, left) : (vector){0});
        }
    }
}

/* One panel of weightᵀ: columns first … of the product are rows of weight [columns × deep]. */
static inline void pack_right_transposed(const vt_matrix *weight, int64_t first, float *to)
{
    for (int64_t part = 0; part < PANEL; part += LANES) {
        int64_t rows = smaller(LANES, weight->rows - first - part), k = 0;
        for (; k < weight->columns; k += LANES) {
            vector square[LANES];
            int64_t some = weight->columns - k;
            for (int64_t i = 0; i < LANES; i++) {
                int64_t index = (first + part + i) * weight->stride + k;
                if (i >= rows)
                    square[i] = (vector){0};
                else
                    square[i] = load_elements_up_to(weight, index, some);
            }
            transpose(square);
            for (int64_t i = 0; i < smaller(LANES, some); i++) store(to + (k + i) * PANEL + part, square[i]);
        }
    }
}

#endif
