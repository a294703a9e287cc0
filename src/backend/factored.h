/* Tensors as Adafactor sees them (Shazeer, Stern 2018): the last two dimensions are those of matrices, whose squared
 * gradients are kept as means of rows and of columns. A tensor of one dimension keeps all of them. */
#ifndef VT_BACKEND_FACTORED_H
#define VT_BACKEND_FACTORED_H

#include <math.h>

#include "backend/backend.h"
#include "base/random.h" /* VT_ON_DEVICE_TOO */

/* Lines of matrices: the first that the operands hold, or a part of, and the one behind the last. */
VT_ON_DEVICE_TOO static inline int64_t vt_factored_first_line(const vt_factored *shape)
{
    return shape->first / shape->part_columns;
}

VT_ON_DEVICE_TOO static inline int64_t vt_factored_end_line(const vt_factored *shape)
{
    return shape->count > 0 ? (shape->first + shape->count - 1) / shape->part_columns + 1
                            : vt_factored_first_line(shape);
}

/* What the operands hold of a line. */
typedef struct {
    int64_t row, column;   /* among the rows, and the columns, of all matrices: of its first element */
    int64_t begin, length; /* in the operands */
} vt_factored_line;

VT_ON_DEVICE_TOO static inline vt_factored_line vt_factored_line_at(const vt_factored *shape, int64_t index)
{
    const int64_t matrix = shape->first_matrix + index / shape->part_rows, whole = index * shape->part_columns;
    const int64_t begin = whole > shape->first ? whole : shape->first, last = shape->first + shape->count;
    const int64_t end = whole + shape->part_columns < last ? whole + shape->part_columns : last;
    vt_factored_line line;
    line.row = matrix * shape->rows + shape->first_row + index % shape->part_rows;
    line.column = matrix * shape->columns + shape->first_column + begin - whole;
    line.begin = begin - shape->first;
    line.length = end - begin;
    return line;
}

/* The share of its old value that a mean of squares keeps in this update. */
VT_ON_DEVICE_TOO static inline double vt_adafactor_keep(const vt_update *update, const vt_step_state *state)
{
    return 1 - pow((double)state->updates, update->adafactor.decay);
}

/* The least root of a square that a gradient is divided by. */
VT_ON_DEVICE_TOO static inline double vt_adafactor_least(const vt_update *update)
{
    return update->adafactor.original ? 1e-37 : update->adafactor.eps[0];
}

/* What is added to the square of a gradient. */
VT_ON_DEVICE_TOO static inline double vt_adafactor_more(const vt_update *update)
{
    return update->adafactor.original ? update->adafactor.eps[0] : 0;
}

/* What the gradients divided by their roots are multiplied by: sizes [2] are the sums of the squares of the tensor's
 * values, and of these quotients. */
VT_ON_DEVICE_TOO static inline double vt_adafactor_rate(const vt_update *update, const vt_step_state *state,
                                                        const vt_factored *shape, const double *sizes)
{
    const vt_adafactor *a = &update->adafactor;
    const double slow = 1 / sqrt((double)state->updates), size = sqrt(sizes[0] / shape->elements);
    const double rate = state->learning_rate < slow ? state->learning_rate : slow;
    const double excess = sqrt(sizes[1] / shape->elements) / a->clip;
    return (size > a->eps[1] ? size : a->eps[1]) * rate / (excess > 1 ? excess : 1);
}

#endif
