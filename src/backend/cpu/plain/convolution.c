#include "backend/cpu/cpu.h"

enum { KERNEL = 4, TAPS = KERNEL * KERNEL * KERNEL, BLOCK = 64 /* channels of x */ };

/* The row of x that tap (i, j, k) of row `row` of y sees; -1: padding. */
static int64_t seen(const vt_convolution *shape, int64_t row, int64_t tap)
{
    const int64_t side = shape->side, whole = 2 * side;
    const int64_t at[3] = {row / side / side % side, row / side % side, row % side};
    const int64_t of[3] = {tap / 16, tap / 4 % 4, tap % 4};
    int64_t result = row / side / side / side;
    for (int axis = 0; axis < 3; axis++) {
        const int64_t place = 2 * at[axis] - 1 + of[axis];
        if (place < 0 || place >= whole) return -1;
        result = result * whole + place;
    }
    return result;
}

/* The row of y whose tap `tap` sees row `row` of x; -1: none. */
static int64_t seen_by(const vt_convolution *shape, int64_t row, int64_t tap)
{
    const int64_t side = shape->side, whole = 2 * side;
    const int64_t at[3] = {row / whole / whole % whole, row / whole % whole, row % whole};
    const int64_t of[3] = {tap / 16, tap / 4 % 4, tap % 4};
    int64_t result = row / whole / whole / whole;
    for (int axis = 0; axis < 3; axis++) {
        const int64_t twice = at[axis] + 1 - of[axis];
        if (twice < 0 || twice % 2 != 0 || twice / 2 >= side) return -1;
        result = result * side + twice / 2;
    }
    return result;
}

/* `to` = y from x; backward: the gradient of x from that of y. */
static void convolve(const vt_convolution *shape, bool backward, vt_matrix from, vt_matrix weight, vt_matrix to)
{
    const int64_t own = backward ? TAPS : weight.stride, other = backward ? weight.stride : TAPS;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < to.rows; r++) {
        int64_t row[TAPS];
        for (int64_t tap = 0; tap < TAPS; tap++) row[tap] = backward ? seen_by(shape, r, tap) : seen(shape, r, tap);
        for (int64_t c = 0; c < to.columns; c++) {
            double sum = 0;
            for (int64_t tap = 0; tap < TAPS; tap++) {
                const float *w = weight.data + c * own + tap;
                for (int64_t i = 0; row[tap] >= 0 && i < from.columns; i++)
                    sum += (double)from.data[row[tap] * from.stride + i] * (double)w[i * other];
            }
            to.data[r * to.stride + c] = (float)sum;
        }
    }
}

void vt_plain_convolution_forward(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                  vt_matrix y)
{
    convolve(shape, false, x, weight, y);
}

void vt_plain_convolution_backward_input(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                         vt_matrix weight, vt_matrix dx)
{
    convolve(shape, true, dy, weight, dx);
}

void vt_plain_convolution_backward_weight(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                          float *dweight)
{
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t o = 0; o < shape->out; o++) {
        for (int64_t tap = 0; tap < TAPS; tap++) {
            for (int64_t first = 0; first < shape->in; first += BLOCK) {
                const int64_t count = shape->in - first < BLOCK ? shape->in - first : BLOCK;
                double sums[BLOCK] = {0};
                for (int64_t r = 0; r < dy.rows; r++) {
                    const int64_t from = seen(shape, r, tap);
                    for (int64_t i = 0; from >= 0 && i < count; i++)
                        sums[i] += (double)dy.data[r * dy.stride + o] * (double)x.data[from * x.stride + first + i];
                }
                for (int64_t i = 0; i < count; i++) {
                    float *to = &dweight[(o * shape->in + first + i) * TAPS + tap];
                    *to += (float)sums[i];
                }
            }
        }
    }
}

static double activated(vt_activation kind, double x)
{
    if (kind == VT_ACTIVATION_TANH) return tanh(x);
    return x > 0 || isnan(x) ? x : kind == VT_ACTIVATION_LEAKY ? 0.01 * x : 0;
}

/* Where the activation gave y. */
static double slope(vt_activation kind, double y)
{
    if (kind == VT_ACTIVATION_TANH) return 1 - y * y;
    return y > 0 ? 1 : kind == VT_ACTIVATION_LEAKY ? 0.01 : 0;
}

void vt_plain_bias_activation_forward(vt_backend *backend, vt_activation kind, const float *bias, vt_matrix y)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t c = 0; c < y.columns; c++)
            y.data[r * y.stride + c] = (float)activated(kind, (double)y.data[r * y.stride + c] + (double)bias[c]);
}

void vt_plain_bias_activation_backward(vt_backend *backend, vt_activation kind, vt_matrix y, vt_matrix dy,
                                       vt_matrix more, vt_matrix dx, float *dbias)
{
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < y.columns; c++) {
        double sum = 0;
        for (int64_t r = 0; r < y.rows; r++) {
            const double whole =
                (double)dy.data[r * dy.stride + c] + (more.data != NULL ? (double)more.data[r * more.stride + c] : 0);
            const double result = whole * slope(kind, (double)y.data[r * y.stride + c]);
            dx.data[r * dx.stride + c] = (float)result;
            sum += result;
        }
        dbias[c] += (float)sum;
    }
}
