#include <math.h>

#include "backend/cpu/vector/vector.h"

/* f(c) summed over the columns: full vectors, then the rest. */
#define SUM_COLUMNS(result, columns, full, rest)                                                                       \
    do {                                                                                                               \
        vector lanes = {0};                                                                                            \
        int64_t c = 0;                                                                                                 \
        for (; c + LANES <= (columns); c += LANES) lanes += (full);                                                    \
        int64_t count = (columns)-c;                                                                                   \
        if (count > 0) lanes += (rest);                                                                                \
        (result) = sum_lanes(lanes);                                                                                   \
    } while (0)

/* Lanes at and beyond `count` made 0, where a difference from the mean would not be. */
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

static void forward_row(const float *x, const float *weight, const float *bias, float epsilon, int64_t columns,
                        float *y, float *mean, float *rstd)
{
    float sum, squares;
    SUM_COLUMNS(sum, columns, load(x + c), load_part(x + c, count));
    float centre = sum / (float)columns;
    SUM_COLUMNS(squares, columns, square(load(x + c) - centre),
                square(first_lanes(load_part(x + c, count) - centre, count)));
    float scale = 1.0f / sqrtf(squares / (float)columns + epsilon);
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES)
        store(y + c, (load(x + c) - centre) * scale * load(weight + c) + load(bias + c));
    for (; c < columns; c++) y[c] = (x[c] - centre) * scale * weight[c] + bias[c];
    *mean = centre;
    *rstd = scale;
}

static void layer_norm_forward(vt_backend *backend, vt_matrix x, const float *weight, const float *bias, float epsilon,
                               vt_matrix y, float *mean, float *rstd)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++)
        forward_row(x.data + r * x.stride, weight, bias, epsilon, x.columns, y.data + r * y.stride, mean + r, rstd + r);
}

static void residual_layer_norm(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                const float *weight, const float *bias, float epsilon, vt_matrix y, vt_matrix normed,
                                float *mean, float *rstd)
{
    if (vt_mask_is_active(mask)) backend->mask_multiply(backend, branch, mask, branch);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *stream = x.data + r * x.stride, *added = branch.data + r * branch.stride;
        float *sum = y.data + r * y.stride;
#pragma omp simd
        for (int64_t c = 0; c < x.columns; c++) sum[c] = stream[c] + added[c];
        forward_row(sum, weight, bias, epsilon, x.columns, normed.data + r * normed.stride, mean + r, rstd + r);
    }
}

/* With h = (x - mean) * rstd and g = dy * weight: dx += rstd * (g - mean(g) - h * mean(g * h)). */
static void backward_row(const float *x, const float *weight, float mean, float rstd, const float *dy, int64_t columns,
                         float *dx)
{
    float sum, product;
    SUM_COLUMNS(sum, columns, load(dy + c) * load(weight + c), load_part(dy + c, count) * load_part(weight + c, count));
    SUM_COLUMNS(product, columns, load(dy + c) * load(weight + c) * (load(x + c) - mean),
                load_part(dy + c, count) * load_part(weight + c, count) * (load_part(x + c, count) - mean));
    sum /= (float)columns;
    product *= rstd * rstd / (float)columns;
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
        vector gradient = rstd * (load(dy + c) * load(weight + c) - sum - (load(x + c) - mean) * product);
        store(dx + c, load(dx + c) + gradient);
    }
    for (; c < columns; c++) dx[c] += rstd * (dy[c] * weight[c] - sum - (x[c] - mean) * product);
}

/* A run of columns of dweight and dbias, down all rows: sums of 64 rows in float32, those in float64. */
static void add_weight_gradients(vt_matrix x, const float *mean, const float *rstd, vt_matrix dy, int64_t first,
                                 int64_t count, float *dweight, float *dbias)
{
    enum { COLUMNS = 32, ROWS = 64 };
    double weight_total[COLUMNS] = {0}, bias_total[COLUMNS] = {0};
    for (int64_t block = 0; block < x.rows; block += ROWS) {
        float weight_sum[COLUMNS] = {0}, bias_sum[COLUMNS] = {0};
        int64_t end = block + ROWS < x.rows ? block + ROWS : x.rows;
        for (int64_t r = block; r < end; r++) {
            const float *x_row = x.data + r * x.stride + first, *dy_row = dy.data + r * dy.stride + first;
            float centre = mean[r], scale = rstd[r];
#pragma omp simd
            for (int64_t c = 0; c < count; c++) {
                weight_sum[c] += dy_row[c] * (x_row[c] - centre) * scale;
                bias_sum[c] += dy_row[c];
            }
        }
        for (int64_t c = 0; c < count; c++) {
            weight_total[c] += (double)weight_sum[c];
            bias_total[c] += (double)bias_sum[c];
        }
    }
    for (int64_t c = 0; c < count; c++) {
        dweight[first + c] += (float)weight_total[c];
        dbias[first + c] += (float)bias_total[c];
    }
}

static void layer_norm_backward(vt_backend *backend, vt_matrix x, const float *weight, const float *mean,
                                const float *rstd, vt_matrix dy, vt_matrix dx, float *dweight, float *dbias)
{
    (void)backend;
    enum { COLUMNS = 32 };
#pragma omp parallel
    {
#pragma omp for schedule(static) nowait
        for (int64_t first = 0; first < x.columns; first += COLUMNS) {
            int64_t count = x.columns - first < COLUMNS ? x.columns - first : COLUMNS;
            add_weight_gradients(x, mean, rstd, dy, first, count, dweight, dbias);
        }
#pragma omp for schedule(static)
        for (int64_t r = 0; r < x.rows; r++)
            backward_row(x.data + r * x.stride, weight, mean[r], rstd[r], dy.data + r * dy.stride, x.columns,
                         dx.data + r * dx.stride);
    }
}

void VT_KERNEL(vt_vector_layer_norm_fill)(vt_backend *backend)
{
    backend->layer_norm_forward = layer_norm_forward;
    backend->layer_norm_backward = layer_norm_backward;
    backend->residual_layer_norm = residual_layer_norm;
}
