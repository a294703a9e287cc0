/* What the products' kernels in vector/ and amx/product.c share: how rows are divided among threads, and how sums
 * become results. */
#ifndef VT_BACKEND_CPU_VECTOR_PRODUCT_PARTS_H
#define VT_BACKEND_CPU_VECTOR_PRODUCT_PARTS_H

#include "backend/cpu/vector/elements.h"
#include "backend/cpu/vector/gelu.h"

/* 0 … count - 1 in pieces for `threads` threads that take them one by one: `whole` pieces of `size`, then smaller ones,
 * so that all threads end at nearly the same time even if one is slower. */
typedef struct {
    int64_t count, size, whole, small, pieces;
} shares;

static inline shares share_out(int64_t count, int64_t size, int64_t threads)
{
    shares s = {.count = count, .size = size, .small = pieces(size, 4)};
    int64_t last = threads * size / 2; /* at least this many go in small pieces */
    s.whole = count > last ? (count - last) / size : 0;
    s.pieces = s.whole + pieces(count - s.whole * size, s.small);
    return s;
}

static inline int64_t share_begin(const shares *s, int64_t index)
{
    int64_t small = index > s->whole ? index - s->whole : 0;
    return smaller(s->count, (index - small) * s->size + small * s->small);
}

/* Prefetches rows first … first + rows - 1, columns begin … end - 1 of a matrix. */
INLINE void look_ahead_rows(const vt_matrix *matrix, int64_t first, int64_t rows, int64_t begin, int64_t end, int write)
{
    int64_t size = (int64_t)vt_type_size(matrix->type);
    for (int64_t r = first; r < first + rows; r++) {
        const char *row = (const char *)matrix->data + (r * matrix->stride + begin) * size;
        for (int64_t byte = 0; byte < (end - begin) * size; byte += 64) {
            if (write)
                __builtin_prefetch(row + byte, 1);
            else
                __builtin_prefetch(row + byte, 0);
        }
    }
}

typedef enum { FINISH_SUM, FINISH_ERF, FINISH_TANH } finish_kind;

/* Where a product's sums are stored. */
typedef struct {
    vt_matrix result, active; /* active: gelu(result), unless FINISH_SUM */
    const float *bias;        /* NULL, or [columns] */
    finish_kind finish;
} product_result;

/* Bias, GELU and storing of `count` <= LANES sums. */
INLINE void finish_vector(finish_kind finish, const product_result *to, vector sum, int64_t row, int64_t column,
                          int64_t count)
{
    bool whole = count >= LANES;
    vector value = sum;
    if (to->bias != NULL) value += whole ? load(to->bias + column) : load_part(to->bias + column, count);
    int64_t at = row * to->result.stride + column;
    if (whole)
        store_elements(&to->result, at, value);
    else
        store_some(&to->result, at, value, count);
    if (finish == FINISH_SUM) return;
    value = gelu(finish == FINISH_ERF ? VT_GELU_ERF : VT_GELU_TANH, as_stored(&to->result, value)).value;
    at = row * to->active.stride + column;
    if (whole)
        store_elements(&to->active, at, value);
    else
        store_some(&to->active, at, value, count);
}

/* Results of one type, a constant, so that the loop contains no others. */
INLINE void finish_rows(vt_type type, finish_kind finish, product_result to, const float *sums, int64_t width,
                        int64_t first, int64_t rows, int64_t column, int64_t columns)
{
    int64_t left = smaller(columns, to.result.columns - column), whole = left / LANES * LANES;
    to.result.type = to.active.type = type;
    for (int64_t r = 0; r < rows; r++, sums += width) {
        for (int64_t part = 0; part < whole; part += LANES)
            finish_vector(finish, &to, load(sums + part), first + r, column + part, LANES);
        if (whole < left) finish_vector(finish, &to, load(sums + whole), first + r, column + whole, left - whole);
    }
}

/* Stores sums [rows × columns], `width` apart, as the result's rows first …, columns column …, without those beyond it.
 * The result and its GELU have the same type. */
INLINE void finish_block(const product_result *to, const float *sums, int64_t width, int64_t first, int64_t rows,
                         int64_t column, int64_t columns)
{
    if (to->finish == FINISH_SUM) {
        FOR_EACH_TYPE(to->result.type, finish_rows, FINISH_SUM, *to, sums, width, first, rows, column, columns);
    } else if (to->finish == FINISH_ERF) {
        FOR_EACH_TYPE(to->result.type, finish_rows, FINISH_ERF, *to, sums, width, first, rows, column, columns);
    } else {
        FOR_EACH_TYPE(to->result.type, finish_rows, FINISH_TANH, *to, sums, width, first, rows, column, columns);
    }
}

#endif
