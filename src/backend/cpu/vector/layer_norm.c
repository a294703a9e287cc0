#include <math.h>

#include "backend/cpu/vector/elements.h"

enum { AHEAD = 2 }; /* rows: how far ahead cache lines are prefetched */

/* f(c) summed over the columns: full vectors, alternating among four sums that do not wait for one another, then the
 * rest. */
#define SUM_COLUMNS(result, columns, full, rest)                                                                       \
    do {                                                                                                               \
        vector lanes[4] = {{0}};                                                                                       \
        int64_t c = 0;                                                                                                 \
        while (c + 4 * LANES <= (columns)) {                                                                           \
            _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++, c += LANES) lanes[i] += (full);                        \
        }                                                                                                              \
        for (; c + LANES <= (columns); c += LANES) lanes[0] += (full);                                                 \
        int64_t count = (columns)-c;                                                                                   \
        if (count > 0) lanes[1] += (rest);                                                                             \
        (result) = sum_lanes((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));                                           \
    } while (0)

/* Sets the lanes from `count` on to 0, where a difference from the mean would not be 0. */
INLINE vector first_lanes(vector value, int64_t count)
{
    float lanes[LANES];
    store(lanes, value);
    return load_part(lanes, count);
}

INLINE vector square(vector value)
{
    return value * value;
}

INLINE vector prefetching(const vt_matrix *to, int64_t index, const float *ahead, vector value)
{
    prefetch_write(to, index);
    __builtin_prefetch(ahead);
    return value;
}

/* `type`, a constant: of `result`; y: the element of its memory where the row begins; ahead: a later row of x. */
INLINE void forward_row(vt_type type, const float *x, const float *ahead, const float *weight, const float *bias,
                        float epsilon, vt_matrix result, int64_t y, float *mean, float *rstd)
{
    int64_t columns = result.columns;
    float sum, squares;
    result.type = type;
    SUM_COLUMNS(sum, columns, prefetching(&result, y + c, ahead + c, load(x + c)), load_part(x + c, count));
    float centre = sum / (float)columns;
    SUM_COLUMNS(squares, columns, square(load(x + c) - centre),
                square(first_lanes(load_part(x + c, count) - centre, count)));
    float scale = 1.0f / sqrtf(squares / (float)columns + epsilon);
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES)
        store_elements(&result, y + c, (load(x + c) - centre) * scale * load(weight + c) + load(bias + c));
    int64_t left = columns - c;
    if (left > 0)
        store_some(&result, y + c,
                   (load_part(x + c, left) - centre) * scale * load_part(weight + c, left) + load_part(bias + c, left),
                   left);
    *mean = centre;
    *rstd = scale;
}

void VT_VECTOR(layer_norm_forward)(vt_backend *backend, vt_matrix x, const float *weight, const float *bias,
                                   float epsilon, vt_matrix y, float *mean, float *rstd)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *row = x.data + r * x.stride;
        FOR_EACH_TYPE(y.type, forward_row, row, row + AHEAD * x.stride, weight, bias, epsilon, y, r * y.stride,
                      mean + r, rstd + r);
    }
}

/* sum = stream + a row of the branch, which begins at `added`; `type`, a constant, is the branch's. */
INLINE void add_row(vt_type type, const float *stream, vt_matrix branch, int64_t added, float *sum)
{
    int64_t c = 0, left = branch.columns % LANES;
    branch.type = type;
    for (; c + LANES <= branch.columns; c += LANES)
        store(sum + c, load(stream + c) + load_elements(&branch, added + c));
    if (left > 0) store_part(sum + c, load_part(stream + c, left) + load_some(&branch, added + c, left), left);
}

void VT_VECTOR(residual_add)(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y)
{
    if (vt_mask_is_active(mask)) backend->mask_multiply(backend, branch, mask, branch);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++)
        FOR_EACH_TYPE(branch.type, add_row, x.data + r * x.stride, branch, r * branch.stride, y.data + r * y.stride);
}

void VT_VECTOR(residual_layer_norm)(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                    const float *weight, const float *bias, float epsilon, vt_matrix y,
                                    vt_matrix normed, float *mean, float *rstd)
{
    if (vt_mask_is_active(mask)) backend->mask_multiply(backend, branch, mask, branch);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *stream = x.data + r * x.stride;
        float *sum = y.data + r * y.stride;
        FOR_EACH_TYPE(branch.type, add_row, stream, branch, r * branch.stride, sum);
        FOR_EACH_TYPE(normed.type, forward_row, sum, stream + AHEAD * x.stride, weight, bias, epsilon, normed,
                      r * normed.stride, mean + r, rstd + r);
    }
}

/* Rows over which dweight and dbias are summed in float32. */
enum { ROWS = 64 };

typedef struct {
    vt_matrix x, dy, dx, rounded;
    const float *weight, *mean, *rstd;
    float *partial; /* [ranges of ROWS][2 * columns]: of dweight and dbias */
} backward_arguments;

/* With h = (x - mean) * rstd and g = dy * weight: dx += rstd * (g - mean(g) - h * mean(g * h)), dweight += dy * h,
 * dbias += dy. The second loop finds the row in the first-level cache. `type`, a constant, is dy's; `rounds`, another:
 * dx is also written in 16 bits. */
INLINE void backward_row(vt_type type, bool rounds, const backward_arguments *a, int64_t r, float *dweight,
                         float *dbias)
{
    vt_matrix dy = vt_matrix_rows(a->dy, r, 1), rounded = rounds ? vt_matrix_rows(a->rounded, r, 1) : a->rounded;
    const float *x = a->x.data + r * a->x.stride, *weight = a->weight;
    float *dx = a->dx.data + r * a->dx.stride, mean = a->mean[r], rstd = a->rstd[r];
    int64_t columns = a->x.columns, c = 0, left = columns % LANES;
    vector sums = {0}, products = {0};
    dy.type = type;
    if (type != VT_FLOAT32) rounded.type = type;
    for (; c + LANES <= columns; c += LANES) {
        __builtin_prefetch(x + AHEAD * a->x.stride + c);
        prefetch_read(&dy, AHEAD * dy.stride + c);
        __builtin_prefetch(dx + AHEAD * a->dx.stride + c, 1);
        vector gradient = load_elements(&dy, c) * load(weight + c);
        sums += gradient;
        products += gradient * (load(x + c) - mean);
    }
    if (left > 0) {
        vector gradient = load_some(&dy, c, left) * load_part(weight + c, left);
        sums += gradient;
        products += gradient * (load_part(x + c, left) - mean);
    }
    float sum = sum_lanes(sums) / (float)columns, product = sum_lanes(products) * rstd * rstd / (float)columns;
    for (c = 0; c + LANES <= columns; c += LANES) {
        vector outer = load_elements(&dy, c), centred = load(x + c) - mean;
        vector result = load(dx + c) + rstd * (outer * load(weight + c) - sum - centred * product);
        store(dx + c, result);
        if (rounds) store_elements(&rounded, c, result);
        store(dweight + c, load(dweight + c) + outer * (centred * rstd));
        store(dbias + c, load(dbias + c) + outer);
    }
    if (left == 0) return;
    vector outer = load_some(&dy, c, left), centred = load_part(x + c, left) - mean;
    vector result = load_part(dx + c, left) + rstd * (outer * load_part(weight + c, left) - sum - centred * product);
    store_part(dx + c, result, left);
    if (rounds) store_some(&rounded, c, result, left);
    store_part(dweight + c, load_part(dweight + c, left) + outer * (centred * rstd), left);
    store_part(dbias + c, load_part(dbias + c, left) + outer, left);
}

/* Adds up the parts of columns first … of dweight and dbias, which lie side by side, in order, in float64. */
static void add_runs(const backward_arguments *a, int64_t runs, int64_t first, float *dweight, float *dbias)
{
    int64_t columns = a->x.columns, count = 2 * columns - first < LANES ? 2 * columns - first : LANES;
    double total[LANES] = {0};
    for (int64_t run = 0; run < runs; run++)
        for (int64_t i = 0; i < count; i++) total[i] += (double)a->partial[run * 2 * columns + first + i];
    for (int64_t c = first; c < first + count; c++) {
        float *to = c < columns ? dweight + c : dbias + c - columns;
        *to += (float)total[c - first];
    }
}

/* One pass over the rows; its ranges of rows do not depend on the number of threads. */
void VT_VECTOR(layer_norm_backward)(vt_backend *backend, vt_matrix x, const float *weight, const float *mean,
                                    const float *rstd, vt_matrix dy, vt_matrix dx, vt_matrix rounded, float *dweight,
                                    float *dbias)
{
    int64_t runs = (x.rows + ROWS - 1) / ROWS, columns = x.columns;
    const bool rounds = rounded.data != NULL;
    backward_arguments a = {x, dy, dx, rounded, weight, mean, rstd, NULL};
    a.partial = vt_cpu_shared(backend, (size_t)(runs * 2 * columns) * sizeof(float));
    if (a.partial == NULL) return;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t run = 0; run < runs; run++) {
            float *sums = a.partial + run * 2 * columns;
            int64_t end = (run + 1) * ROWS < x.rows ? (run + 1) * ROWS : x.rows;
            memset(sums, 0, (size_t)(2 * columns) * sizeof(float));
            for (int64_t r = run * ROWS; r < end; r++) {
                if (rounds) {
                    FOR_EACH_TYPE(dy.type, backward_row, true, &a, r, sums, sums + columns);
                } else {
                    FOR_EACH_TYPE(dy.type, backward_row, false, &a, r, sums, sums + columns);
                }
            }
        }
#pragma omp for schedule(static)
        for (int64_t first = 0; first < 2 * columns; first += LANES) add_runs(&a, runs, first, dweight, dbias);
    }
}
