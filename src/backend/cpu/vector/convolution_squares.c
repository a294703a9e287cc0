/* The sum of squares of the gradient of a convolution's weight, without the gradient. X holds for each point of y the
 * numbers of x that it sees. The gradient is dYᵀ X, and its sum of squares is the sum over all pairs of points (i, j)
 * of (X Xᵀ)ᵢⱼ (dY dYᵀ)ᵢⱼ. All in float64, because the pairs' terms may cancel. */
#include "backend/cpu/vector/convolution_tiles.h"

/* Rows that consist of pieces of `length` numbers. */
typedef struct {
    int64_t rows, pieces, length;
    const double **piece; /* [rows][pieces] */
} row_pieces;

/* The products of row r with rows s to s + 3, but none after the last. */
static void multiply_rows(const row_pieces *x, int64_t r, int64_t s, double products[4])
{
    double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
    for (int64_t i = 0; i < x->pieces; i++) {
        const double *own = x->piece[r * x->pieces + i], *other[4];
        for (int k = 0; k < 4; k++) other[k] = x->piece[smaller(s + k, x->rows - 1) * x->pieces + i];
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
        for (int64_t c = 0; c < x->length; c++) {
            sum0 += own[c] * other[0][c];
            sum1 += own[c] * other[1][c];
            sum2 += own[c] * other[2][c];
            sum3 += own[c] * other[3][c];
        }
    }
    products[0] = sum0, products[1] = sum1, products[2] = sum2, products[3] = sum3;
}

/* The terms of the pairs (r, 0) … (r, r); those before (r, r) also stand for the pairs the other way round. */
static double terms_of_row(const row_pieces *x, const row_pieces *dy, int64_t r)
{
    double sum = 0;
    for (int64_t s = 0; s <= r; s += 4) {
        double of_x[4], of_dy[4];
        multiply_rows(x, r, s, of_x);
        multiply_rows(dy, r, s, of_dy);
        for (int64_t i = 0; s + i <= r && i < 4; i++) sum += (s + i < r ? 2 : 1) * of_x[i] * of_dy[i];
    }
    return sum;
}

static void widen_rows(const vt_matrix *from, double *to)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < from->rows; r++) {
        for (int64_t c = 0; c < from->columns; c += LANES) {
            const vector values = load_elements_up_to(from, r * from->stride + c, from->columns - c);
            for (int64_t i = 0; i < smaller(LANES, from->columns - c); i++)
                to[r * from->columns + c + i] = (double)values[i];
        }
    }
}

static void convolution_squares(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                double *squares)
{
    const int64_t points = dy.rows, numbers = (x.rows + 1) * x.columns + points * dy.columns;
    const size_t row_bytes = (TAPS + 1) * sizeof(double *) + sizeof(double);
    double *memory = vt_cpu_shared(backend, (size_t)numbers * sizeof *memory + (size_t)points * row_bytes), sum = 0;
    if (memory == NULL) return;
    double *const zeros = memory + x.rows * x.columns, *const own = zeros + x.columns, *const terms = memory + numbers;
    const double **piece = (const double **)(terms + points);
    const row_pieces rows_of_x = {points, TAPS, x.columns, piece};
    const row_pieces rows_of_dy = {points, 1, dy.columns, piece + TAPS * points};
    widen_rows(&x, memory);
    widen_rows(&dy, own);
    memset(zeros, 0, (size_t)x.columns * sizeof *zeros);
    for (int64_t point = 0; point < points; point++) {
        int64_t at[4];
        point_place(shape->side, point, at);
        for (int64_t tap = 0; tap < TAPS; tap++) {
            const int64_t row = row_of_x(shape->side, at, tap);
            rows_of_x.piece[point * TAPS + tap] = row < 0 ? zeros : memory + row * x.columns;
        }
        rows_of_dy.piece[point] = own + point * dy.columns;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t r = 0; r < points; r++) terms[r] = terms_of_row(&rows_of_x, &rows_of_dy, r);
    for (int64_t r = 0; r < points; r++) sum += terms[r];
    *squares += sum < 0 ? 0 : sum; /* where all cancels */
}

void VT_KERNEL(vt_vector_convolution_squares_fill)(vt_backend *backend)
{
    backend->convolution_squares = convolution_squares;
}
