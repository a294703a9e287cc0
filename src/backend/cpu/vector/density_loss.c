/* The loss of cosmological fields, in blocks of points. Densities and sums are float64. */
#include <math.h>

#include "backend/cpu/vector/elements.h"

enum { BLOCK = 64 };

INLINE vector_wide choose_wide(vector_wide_bits mask, vector_wide yes, vector_wide no)
{
    return (vector_wide)(((vector_wide_bits)yes & mask) | ((vector_wide_bits)no & ~mask));
}

/* exp(14 x) to 1e-13, |14 x| up to 700; beyond that as at 700. 14 x = n ln 2 + f, |f| <= ln 2 / 2; the series of exp(f)
 * up to f^11 omits less than 1e-14. */
INLINE vector_wide density(vector_wide x)
{
    static const double series[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                    1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1,          1};
    const vector_wide none = {0},
                      shift = 0x1.8p52 - none; /* float64 numbers near it are whole; their lowest bits count */
    x *= 14;
    x = choose_wide(x > 700, 700 - none, choose_wide(x < -700, -700 - none, x));
    const vector_wide shifted = x * 1.4426950408889634 + shift, n = shifted - shift;
    const vector_wide f = (x - n * 0x1.62e42fefap-1) - n * 0x1.cf79abc9e3b39p-40; /* ln 2 in two parts */
    vector_wide power = series[0] - none;
#pragma GCC unroll 11
    for (int i = 1; i < 12; i++) power = power * f + series[i];
    return (vector_wide)((vector_wide_bits)power + ((vector_wide_bits)shifted << 52));
}

/* densities [BLOCK] = those of a block's points; past `count` anything finite. */
static void block_densities(const vt_matrix *fields, int64_t first, int64_t count, double *densities)
{
    for (int64_t i = 0; i < BLOCK; i++)
        densities[i] = i < count ? (double)fields->data[(first + i) * fields->stride] : 0;
    for (int64_t i = 0; i < BLOCK; i += WIDE_LANES) {
        vector_wide x;
        memcpy(&x, densities + i, sizeof x);
        x = density(x);
        memcpy(densities + i, &x, sizeof x);
    }
}

/* Rows without gaps are taken as one. */
static int64_t rows_at_once(const vt_matrix *a, const vt_matrix *b, int64_t rows)
{
    return a->stride == a->columns && b->stride == a->columns ? rows : 1;
}

INLINE vector_wide widened(const float *from)
{
    return __builtin_convertvector(load_narrow(from), vector_wide);
}

static double sum_of_differences(const float *p, const float *t, int64_t count)
{
    enum { SUMS = 2 }; /* two, so that an addition need not wait for the one before */
    vector_wide sums[SUMS] = {{0}};
    double total = 0;
    int64_t i = 0;
    for (; i + SUMS * WIDE_LANES <= count; i += SUMS * WIDE_LANES)
        for (int k = 0; k < SUMS; k++) {
            const vector_wide difference = widened(p + i + k * WIDE_LANES) - widened(t + i + k * WIDE_LANES);
            sums[k] += (vector_wide)((vector_wide_bits)difference & INT64_MAX);
        }
    for (; i < count; i++) total += fabs((double)p[i] - (double)t[i]);
    for (int lane = 0; lane < WIDE_LANES; lane++) total += sums[0][lane] + sums[1][lane];
    return total;
}

static double block_sum(double lambda, const vt_matrix *prediction, const vt_matrix *target, int64_t first,
                        int64_t count)
{
    const int64_t at_once = rows_at_once(prediction, target, count), columns = prediction->columns;
    double predicted[BLOCK], wanted[BLOCK], fields = 0, densities = 0;
    for (int64_t r = first; r < first + count; r += at_once)
        fields += sum_of_differences(prediction->data + r * prediction->stride, target->data + r * target->stride,
                                     at_once * columns);
    if (lambda > 0) {
        block_densities(prediction, first, count, predicted);
        block_densities(target, first, count, wanted);
        for (int64_t i = 0; i < count; i++) densities += fabs(predicted[i] - wanted[i]);
    }
    return fields + lambda * (double)columns * densities;
}

/* Blocks are added in order: the same bits for any number of threads. */
static void density_loss_sums(vt_backend *backend, double lambda, int64_t batch, vt_matrix prediction, vt_matrix target,
                              double *sums)
{
    const int64_t points = prediction.rows / batch, blocks = pieces(points, BLOCK);
    double *parts = vt_cpu_shared(backend, (size_t)(batch * blocks) * sizeof *parts);
    if (parts == NULL) return;
#pragma omp parallel for schedule(static)
    for (int64_t work = 0; work < batch * blocks; work++) {
        const int64_t begin = work % blocks * BLOCK;
        parts[work] =
            block_sum(lambda, &prediction, &target, work / blocks * points + begin, smaller(BLOCK, points - begin));
    }
    for (int64_t sample = 0; sample < batch; sample++) {
        sums[2 * sample] = 0;
        for (int64_t block = 0; block < blocks; block++) sums[2 * sample] += parts[sample * blocks + block];
        sums[2 * sample + 1] = (double)(points * prediction.columns);
    }
}

/* 1, -1, 0 or NaN: the sign of a - b. */
INLINE vector sign_of_difference(vector a, vector b)
{
    return choose(a > b, splat(1), choose(a < b, splat(-1), a - b));
}

/* first [count] = the gradients of column 0, of which a field's part is `factor`. */
static void gradients_of_densities(const vt_matrix *prediction, const vt_matrix *target, int64_t begin, int64_t count,
                                   double lambda, double factor, float *first)
{
    double densities[BLOCK];
    block_densities(prediction, begin, count, densities);
    for (int64_t i = 0; i < count; i++) {
        const float p = prediction->data[(begin + i) * prediction->stride];
        const float t = target->data[(begin + i) * target->stride];
        const double size = factor * (1 + lambda * (double)prediction->columns * 14 * densities[i]);
        first[i] = (float)(p > t ? size : p < t ? -size : (double)(p - t));
    }
}

static void density_loss_backward(vt_backend *backend, double lambda, int64_t batch, vt_matrix prediction,
                                  vt_matrix target, float scale, const double *loss_scale, vt_matrix dprediction)
{
    (void)backend;
    const int64_t columns = prediction.columns, stride = dprediction.stride;
    const double factor =
        (double)scale * (loss_scale != NULL ? *loss_scale : 1) / (double)(prediction.rows / batch * columns);
#pragma omp parallel for schedule(static)
    for (int64_t begin = 0; begin < prediction.rows; begin += BLOCK) {
        const int64_t count = smaller(BLOCK, prediction.rows - begin);
        const int64_t at_once = stride == columns ? rows_at_once(&prediction, &target, count) : 1;
        float first[BLOCK];
        if (lambda > 0) gradients_of_densities(&prediction, &target, begin, count, lambda, factor, first);
        for (int64_t r = begin; r < begin + count; r += at_once) {
            const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
            for (int64_t c = 0, left = at_once * columns; left > 0; c += LANES, left -= LANES) {
                const vector sign = sign_of_difference(load_up_to(p + c, left), load_up_to(t + c, left));
                store_elements_up_to(&dprediction, r * stride + c, splat((float)factor) * sign, left);
            }
        }
        for (int64_t i = 0; i < count && lambda > 0; i++)
            store_some(&dprediction, (begin + i) * stride, splat(first[i]), 1);
    }
}

void VT_KERNEL(vt_vector_density_loss_fill)(vt_backend *backend)
{
    backend->density_loss_sums = density_loss_sums;
    backend->density_loss_backward = density_loss_backward;
}
