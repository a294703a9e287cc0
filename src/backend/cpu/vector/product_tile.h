/* The inner loop of the large matrix products: a tile of rows × PANEL sums that stays in registers while the depth
 * runs. The left operand's numbers are spread over a vector one by one, the right one's come as two vectors; with 14
 * rows that is one load for nearly two multiply-adds, so both operands may lie in the second cache. */
#ifndef VT_BACKEND_CPU_VECTOR_PRODUCT_TILE_H
#define VT_BACKEND_CPU_VECTOR_PRODUCT_TILE_H

#include "backend/cpu/vector/vector.h"

enum {
    PANEL = 2 * LANES,                /* columns of the result that are made at once */
    MOST_ROWS = LANES == 16 ? 14 : 6, /* of a tile: 28 sums in 32 registers, 12 in 16 */
    DEPTH = 384,                      /* at most so many products are added up before the sums are added to others */
    ROW_STRIDE = DEPTH + 16,          /* of a packed left operand that lies row by row: no power of two */
    COLUMN_STRIDE = LANES == 16 ? 16 : 8, /* of one that lies column by column */
};

/* Memory that is read soon: it is asked for while a tile is made, `step` bytes for each of its depth. */
typedef struct {
    const char *memory;
    int64_t step;
} soon;

/* One step of the depth. */
INLINE void add_products(int rows, const float *a, int64_t a_row, const float *b, vector sum[MOST_ROWS][2])
{
    vector left = load(b), right = load(b + LANES);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        vector value = splat(a[i * a_row]);
        sum[i][0] += value * left;
        sum[i][1] += value * right;
    }
}

/* to [rows × PANEL] (+)= a b: a's element (i, k) is a[i·a_row + k·a_column], b lies in rows of PANEL. rows is a
 * constant where this is inlined. */
INLINE void product_tile(int rows, const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t depth,
                         float *to, int64_t to_stride, bool add, soon ahead)
{
    vector sum[MOST_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = (vector){0};
    int64_t k = 0;
    for (; k + 2 <= depth; k += 2) { /* by twos: two threads that share a core also share its decoders */
        __builtin_prefetch(ahead.memory + k * ahead.step, 0, 2);
        add_products(rows, a + k * a_column, a_row, b + k * PANEL, sum);
        add_products(rows, a + (k + 1) * a_column, a_row, b + (k + 1) * PANEL, sum);
    }
    if (k < depth) add_products(rows, a + k * a_column, a_row, b + k * PANEL, sum);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        float *row = to + i * to_stride;
        store(row, add ? load(row) + sum[i][0] : sum[i][0]);
        store(row + LANES, add ? load(row + LANES) + sum[i][1] : sum[i][1]);
    }
}

#define PRODUCT_CASE(rows)                                                                                             \
    case rows:                                                                                                         \
        product_tile(rows <= MOST_ROWS ? rows : 1, a, PRODUCT_STEPS, b, depth, to, to_stride, add, ahead);             \
        return
#define PRODUCT_CASES                                                                                                  \
    PRODUCT_CASE(1);                                                                                                   \
    PRODUCT_CASE(2);                                                                                                   \
    PRODUCT_CASE(3);                                                                                                   \
    PRODUCT_CASE(4);                                                                                                   \
    PRODUCT_CASE(5);                                                                                                   \
    PRODUCT_CASE(6);                                                                                                   \
    PRODUCT_CASE(7);                                                                                                   \
    PRODUCT_CASE(8);                                                                                                   \
    PRODUCT_CASE(9);                                                                                                   \
    PRODUCT_CASE(10);                                                                                                  \
    PRODUCT_CASE(11);                                                                                                  \
    PRODUCT_CASE(12);                                                                                                  \
    PRODUCT_CASE(13);                                                                                                  \
    PRODUCT_CASE(14)

/* The same for any number of rows up to MOST_ROWS; a lies row by row, ROW_STRIDE apart. */
static __attribute__((noinline)) void product_by_rows(int64_t rows, const float *a, const float *b, int64_t depth,
                                                      float *to, int64_t to_stride, bool add, soon ahead)
{
#define PRODUCT_STEPS ROW_STRIDE, 1
    switch (rows) {
        PRODUCT_CASES;
    default:
        return;
    }
#undef PRODUCT_STEPS
}

/* a lies column by column, COLUMN_STRIDE apart. */
static __attribute__((noinline)) void product_by_columns(int64_t rows, const float *a, const float *b, int64_t depth,
                                                         float *to, int64_t to_stride, bool add, soon ahead)
{
#define PRODUCT_STEPS 1, COLUMN_STRIDE
    switch (rows) {
        PRODUCT_CASES;
    default:
        return;
    }
#undef PRODUCT_STEPS
}

#endif
