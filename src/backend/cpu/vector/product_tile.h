/* The inner loop of the large matrix products: a tile of rows × PANEL sums that stays in registers along the depth.
 * Each number of the left operand is broadcast over a vector for a whole row of the tile: two threads that share a core
 * share its decoders, and of the tiles that fit the registers this one needs the fewest instructions. */
#ifndef VT_BACKEND_CPU_VECTOR_PRODUCT_TILE_H
#define VT_BACKEND_CPU_VECTOR_PRODUCT_TILE_H

#include "backend/cpu/vector/vector.h"
#if defined(VT_PAIRS) && defined(__aarch64__)
#include <arm_neon.h>
#endif

/* The kernels compiled with VT_PAIRS multiply bfloat16 numbers by the processor's own instruction: each lane holds a
 * pair of them, neighbours along the depth, and gets the sum of two products. So to these kernels a matrix of pairs is
 * one of float32 with half the depth, whose lanes are moved but never computed with. */
#if defined(VT_PAIRS)
enum { NUMBERS = 2 }; /* in a lane */
#else
enum { NUMBERS = 1 };
#endif

enum {
    WIDE = REGISTERS == 32 ? 4 : 2, /* vectors in a tile's row */
    PANEL = WIDE * LANES,           /* columns of the result that are computed at once */
    MOST_ROWS = 6,                  /* rows of a tile: 24 sums in 32 registers, 12 in 16 */
    COLUMN_STRIDE = 48,             /* row length of a left operand packed by columns: full tiles side by side */
    DEPTH = 384,                    /* maximum number of products that are added up before the sum is added to others */
    ROW_STRIDE = DEPTH + 16,        /* row length of a left operand packed by rows: no power of two */
    STEPS = 4                       /* unrolled steps of the depth */
};

/* Memory that is read soon: prefetched while a tile is computed, `step` bytes for each step of its depth. */
typedef struct {
    const char *memory;
    int64_t step;
} upcoming;

/* `from` in each lane. */
INLINE vector broadcast(const float *from)
{
#if defined(VT_PAIRS)
    uint32_t bits;
    memcpy(&bits, from, sizeof bits);
    return (vector)(bits - (vector_word){0});
#else
    return splat(*from);
#endif
}

INLINE vector add_product(vector sum, vector a, vector b)
{
#if defined(VT_PAIRS) && defined(__aarch64__)
    return (vector)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)b);
#elif defined(VT_PAIRS)
    return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    return sum + a * b;
#endif
}

/* One step of the depth. */
INLINE void add_products(int rows, const float *a, int64_t a_row, const float *b, vector sum[MOST_ROWS][WIDE])
{
    vector row[WIDE];
#pragma GCC unroll 4
    for (int j = 0; j < WIDE; j++) row[j] = load(b + j * LANES);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        vector value = broadcast(a + i * a_row);
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; j++) sum[i][j] = add_product(sum[i][j], value, row[j]);
    }
}

/* to [rows × PANEL] (+)= a b: a's element (i, k) is a[i·a_row + k·a_column], b's rows are b_row apart. rows is a
 * constant where this is inlined. */
INLINE void product_tile(int rows, const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t b_row,
                         int64_t depth, float *to, int64_t to_stride, bool add, upcoming ahead)
{
    vector sum[MOST_ROWS][WIDE];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; j++) sum[i][j] = (vector){0};
    int64_t k = 0;
    for (; k + STEPS <= depth; k += STEPS) {
        __builtin_prefetch(ahead.memory + k * ahead.step, 0, 2);
#pragma GCC unroll 4
        for (int64_t step = k; step < k + STEPS; step++)
            add_products(rows, a + step * a_column, a_row, b + step * b_row, sum);
    }
    for (; k < depth; k++) add_products(rows, a + k * a_column, a_row, b + k * b_row, sum);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float *row = to + i * to_stride;
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; j++) store(row + j * LANES, add ? load(row + j * LANES) + sum[i][j] : sum[i][j]);
    }
}

#define PRODUCT_CASE(rows)                                                                                             \
    case rows:                                                                                                         \
        product_tile(rows, a, PRODUCT_STEPS, depth, to, to_stride, add, ahead);                                        \
        return
#define PRODUCT_CASES                                                                                                  \
    PRODUCT_CASE(1);                                                                                                   \
    PRODUCT_CASE(2);                                                                                                   \
    PRODUCT_CASE(3);                                                                                                   \
    PRODUCT_CASE(4);                                                                                                   \
    PRODUCT_CASE(5);                                                                                                   \
    PRODUCT_CASE(6)

/* The same for any number of rows up to MOST_ROWS; a lies row by row. */
static __attribute__((noinline, unused)) void product_by_rows(int64_t rows, const float *a, int64_t a_row,
                                                              const float *b, int64_t depth, float *to,
                                                              int64_t to_stride, bool add, upcoming ahead)
{
#define PRODUCT_STEPS a_row, 1, b, PANEL
    switch (rows) {
        PRODUCT_CASES;
    default:
        return;
    }
#undef PRODUCT_STEPS
}

/* a lies column by column, a_column apart. */
static __attribute__((noinline, unused)) void product_by_columns(int64_t rows, const float *a, int64_t a_column,
                                                                 const float *b, int64_t b_row, int64_t depth,
                                                                 float *to, int64_t to_stride, bool add, upcoming ahead)
{
#define PRODUCT_STEPS 1, a_column, b, b_row
    switch (rows) {
        PRODUCT_CASES;
    default:
        return;
    }
#undef PRODUCT_STEPS
}

#endif
