/* Bias and activation of a convolution's sums, and their gradients. Rows are taken in blocks, whose sums of the bias's
 * gradient are added up in order: runs in float32, their sums in float64. */
#include "backend/cpu/vector/elements.h"

enum {
    BLOCK = 1024,
    RUN = 32,
    SUMS = 4,
    AHEAD = 16 /* rows: where a layer has half of each row, the processor's own prefetching reads the other half, too */
};

INLINE vector activated(vt_activation kind, vector x)
{
    if (kind != VT_ACTIVATION_TANH) return choose(x <= splat(0), x * splat(kind == VT_ACTIVATION_LEAKY ? 0.01f : 0), x);
    return tanh_vector(x);
}

/* Where the activation gave y. */
INLINE vector slope(vt_activation kind, vector y)
{
    if (kind == VT_ACTIVATION_TANH) return splat(1) - y * y;
    return choose(y > splat(0), splat(1), splat(kind == VT_ACTIVATION_LEAKY ? 0.01f : 0));
}

/* Rows shorter than a vector that lie without gaps are taken LANES at a time, as one row. Returns 1 or LANES. */
static int64_t rows_together(const vt_matrix *a, const vt_matrix *b, const vt_matrix *c)
{
    const bool is_dense = a->stride == a->columns && b->stride == a->columns && c->stride == a->columns;
    return is_dense && a->columns < LANES && a->rows >= LANES ? LANES : 1;
}

static vt_matrix as_long_rows(vt_matrix matrix, int64_t together)
{
    matrix.rows /= together;
    matrix.columns *= together;
    matrix.stride *= together;
    return matrix;
}

void VT_VECTOR(bias_activation_forward)(vt_backend *backend, vt_activation kind, const float *bias, vt_matrix y)
{
    const int64_t together = rows_together(&y, &y, &y), folded = y.rows / together * together;
    float many[LANES * LANES];
    if (together > 1) {
        for (int64_t i = 0; i < together * y.columns; i++) many[i] = bias[i % y.columns];
        backend->bias_activation_forward(backend, kind, bias, from_row(y, folded));
        bias = many;
        y = as_long_rows(y, together);
    }
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < y.rows; r++) {
        for (int64_t c = 0; c < y.columns; c += LANES) {
            const int64_t count = y.columns - c, at = r * y.stride + c;
            const vector added = load_up_to(bias + c, count);
            prefetch_read(&y, at + AHEAD * y.stride);
            store_elements_up_to(&y, at, activated(kind, load_elements_up_to(&y, at, count) + added), count);
        }
    }
}

typedef struct {
    vt_activation kind;
    vt_matrix y, dy, more, dx;
} backward_work;

/* `count` columns, up to SUMS vectors, from column c on, of rows first … end - 1: sums [SUMS * LANES] += their sums. */
INLINE void backward_columns(const backward_work *w, int64_t first, int64_t end, int64_t c, int64_t count, int vectors,
                             double *sums)
{
    vector sum[SUMS] = {{0}};
    for (int64_t r = first; r < end; r++) {
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) {
            const int64_t at = c + i * LANES, left = count - i * LANES;
            vector d = load_elements_up_to(&w->dy, r * w->dy.stride + at, left);
            prefetch_read(&w->dy, (r + AHEAD) * w->dy.stride + at);
            prefetch_read(&w->y, (r + AHEAD) * w->y.stride + at);
            if (w->more.data != NULL) d += load_elements_up_to(&w->more, r * w->more.stride + at, left);
            d *= slope(w->kind, load_elements_up_to(&w->y, r * w->y.stride + at, left));
            store_elements_up_to(&w->dx, r * w->dx.stride + at, d, left);
            sum[i] += d;
        }
    }
    for (int i = 0; i < vectors; i++)
        for (int lane = 0; lane < LANES; lane++) sums[i * LANES + lane] += (double)sum[i][lane];
}

/* Rows first … end - 1; sums [columns, rounded up to whole vectors] = their sums. */
static void backward_block(const backward_work *w, int64_t first, int64_t end, double *sums)
{
    const int64_t columns = w->dx.columns;
    memset(sums, 0, (size_t)(pieces(columns, LANES) * LANES) * sizeof *sums);
    for (int64_t run = first; run < end; run += RUN) {
        const int64_t last = smaller(run + RUN, end);
        int64_t c = 0;
        for (; c + SUMS * LANES <= columns; c += SUMS * LANES)
            backward_columns(w, run, last, c, SUMS * LANES, SUMS, sums + c);
        for (; c < columns; c += LANES) backward_columns(w, run, last, c, columns - c, 1, sums + c);
    }
}

void VT_VECTOR(bias_activation_backward)(vt_backend *backend, vt_activation kind, vt_matrix y, vt_matrix dy,
                                         vt_matrix more, vt_matrix dx, float *dbias)
{
    const int64_t columns = dx.columns, together = more.data == NULL ? rows_together(&dx, &dy, &y) : 1;
    if (together > 1) {
        const int64_t whole = dx.rows / together * together;
        if (whole < dx.rows)
            backend->bias_activation_backward(backend, kind, from_row(y, whole), from_row(dy, whole), more,
                                              from_row(dx, whole), dbias);
        y = as_long_rows(y, together);
        dy = as_long_rows(dy, together);
        dx = as_long_rows(dx, together);
    }
    const backward_work w = {kind, y, dy, more, dx};
    const int64_t blocks = pieces(dx.rows, BLOCK), width = pieces(dx.columns, LANES) * LANES;
    double *sums = vt_cpu_shared(backend, (size_t)(blocks * width) * sizeof *sums);
    if (sums == NULL) return;
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < blocks; block++)
        backward_block(&w, block * BLOCK, smaller(dx.rows, (block + 1) * BLOCK), sums + block * width);
    for (int64_t c = 0; c < columns; c++) {
        double sum = 0;
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t i = c; i < dx.columns; i += columns) sum += sums[block * width + i];
        dbias[c] += (float)sum;
    }
}
