#include "backend/cpu/vector/gelu.h"

#include "backend/cpu/vector/elements.h"

/* Bytes: how far ahead cache lines are prefetched. These loops compute so much for each line that the processor's own
 * prefetching is too late. */
enum { AHEAD = 2048 };

INLINE int64_t elements_ahead(vt_type type)
{
    return AHEAD / (int64_t)vt_type_size(type);
}

/* `type`, a constant, is the type of all the matrices. */
INLINE void forward_row(vt_type type, vt_gelu kind, vt_matrix x, int64_t from, vt_matrix y, int64_t to)
{
    int64_t c = 0, left = x.columns % LANES;
    x.type = y.type = type;
    for (; c + LANES <= x.columns; c += LANES) {
        prefetch_read(&x, from + c + elements_ahead(type));
        prefetch_write(&y, to + c + elements_ahead(type) / 2);
        store_elements(&y, to + c, gelu(kind, load_elements(&x, from + c)).value);
    }
    if (left > 0) store_some(&y, to + c, gelu(kind, load_some(&x, from + c, left)).value, left);
}

void VT_VECTOR(gelu_forward)(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        if (kind == VT_GELU_ERF) {
            FOR_EACH_TYPE(x.type, forward_row, VT_GELU_ERF, x, r * x.stride, y, r * y.stride);
        } else {
            FOR_EACH_TYPE(x.type, forward_row, VT_GELU_TANH, x, r * x.stride, y, r * y.stride);
        }
    }
}

typedef struct {
    vt_matrix x, dy, dx, y;
} backward_arguments;

INLINE void backward_row(vt_type type, vt_gelu kind, backward_arguments a, int64_t row)
{
    int64_t x = row * a.x.stride, dy = row * a.dy.stride, dx = row * a.dx.stride, y = row * a.y.stride;
    int64_t c = 0, left = a.x.columns % LANES;
    a.x.type = a.dy.type = a.dx.type = a.y.type = type;
    for (; c + LANES <= a.x.columns; c += LANES) {
        prefetch_read(&a.x, x + c + elements_ahead(type));
        prefetch_read(&a.dy, dy + c + elements_ahead(type));
        gelu_result result = gelu(kind, load_elements(&a.x, x + c));
        store_elements(&a.dx, dx + c, load_elements(&a.dy, dy + c) * result.slope);
        if (a.y.data != NULL) store_elements(&a.y, y + c, result.value);
    }
    if (left == 0) return;
    gelu_result result = gelu(kind, load_some(&a.x, x + c, left));
    store_some(&a.dx, dx + c, load_some(&a.dy, dy + c, left) * result.slope, left);
    if (a.y.data != NULL) store_some(&a.y, y + c, result.value, left);
}

void VT_VECTOR(gelu_backward)(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y)
{
    const backward_arguments arguments = {x, dy, dx, y};
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        if (kind == VT_GELU_ERF) {
            FOR_EACH_TYPE(x.type, backward_row, VT_GELU_ERF, arguments, r);
        } else {
            FOR_EACH_TYPE(x.type, backward_row, VT_GELU_TANH, arguments, r);
        }
    }
}
