/* What the products' kernels in vector/ and amx/product.c share: how rows are divided among threads, how sums become
 * results, and the products of some shapes that have kernels of their own. */
#ifndef VT_BACKEND_CPU_VECTOR_PRODUCT_PARTS_H
#define VT_BACKEND_CPU_VECTOR_PRODUCT_PARTS_H

#include "backend/cpu/vector/elements.h"
#include "backend/cpu/vector/gelu.h"
#include "backend/cpu/vector/kernels.h"

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
    vector value = sum;
    if (to->bias != NULL) value += load_up_to(to->bias + column, count);
    store_elements_up_to(&to->result, row * to->result.stride + column, value, count);
    if (finish == FINISH_SUM) return;
    value = gelu(finish == FINISH_ERF ? VT_GELU_ERF : VT_GELU_TANH, as_stored(&to->result, value)).value;
    store_elements_up_to(&to->active, row * to->active.stride + column, value, count);
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

/* ---- few rows (few_rows.c): reading the weight takes the time, so it is read once, as it lies, and not packed ---- */

enum { FEW_ROWS = 8 };

/* As the operations linear_forward, linear_backward_input and linear_backward_weight, for at most FEW_ROWS rows. */
void VT_KERNEL(vt_few_rows_forward)(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y);
void VT_KERNEL(vt_few_rows_backward_input)(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx);
void VT_KERNEL(vt_few_rows_backward_weight)(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight,
                                            float *dbias);

/* ---- some rows and a weight that is much larger (product_panels.c) ---- */

/* Whether vt_panels_multiply is faster for these rows and `columns` columns of the result. */
static inline bool panels_suit(const vt_matrix *left, int64_t columns)
{
    /* faster with 64 and 512 rows and weights of 8 to 67 MB; more rows and smaller weights were not tried */
    enum { MOST = 512, LEAST_WEIGHT = 1 << 20 };
    return left->rows <= MOST && left->columns * columns >= LEAST_WEIGHT && columns >= left->rows;
}

/* to = left weightᵀ if `across`, else left weight. The sums have the bits that they have without panels. */
void VT_KERNEL(vt_panels_multiply)(vt_backend *backend, vt_matrix left, vt_matrix weight, bool across,
                                   product_result to);

#endif
