/* Linear layers' products over at most FEW_ROWS rows. */
#include "backend/cpu/vector/product_parts.h"

enum {
    TOGETHER = REGISTERS == 32 ? 3 : 1, /* rows of the weight whose sums with all rows of x fit the registers */
    SUMS = 8192,                        /* of columns of dx, that stay in the first-level cache */
    AHEAD = 512                         /* columns that a row of the weight is read ahead */
};

/* The rows as float32, the first one also in place of those that lack. memory [rows × columns] is for 16-bit rows. */
static void widen(vt_matrix matrix, float *memory, const float *rows[FEW_ROWS])
{
    for (int64_t r = 0; r < FEW_ROWS; r++) {
        const int64_t row = r < matrix.rows ? r : 0;
        float *to = memory + row * matrix.columns;
        rows[r] = matrix.type == VT_FLOAT32 ? matrix.data + row * matrix.stride : to;
        if (matrix.type == VT_FLOAT32 || r >= matrix.rows) continue;
        vt_half_widen_row(matrix.type, matrix.half + row * matrix.stride, matrix.columns, to);
    }
}

/* Adds the products of numbers k … of the rows, `count` (up to LANES), with those of the weight's rows. */
INLINE void add_products(const float *const x[FEW_ROWS], const vt_matrix *weight, const int64_t row[TOGETHER],
                         int64_t k, int64_t count, vector sum[TOGETHER][FEW_ROWS])
{
    vector of[TOGETHER];
#pragma GCC unroll 3
    for (int i = 0; i < TOGETHER; i++) of[i] = load_elements_up_to(weight, row[i] + k, count);
#pragma GCC unroll 8
    for (int r = 0; r < FEW_ROWS; r++) {
        const vector value = load_up_to(x[r] + k, count);
#pragma GCC unroll 3
        for (int i = 0; i < TOGETHER; i++) sum[i][r] += value * of[i];
    }
}

/* Columns o … o + TOGETHER - 1 of y, those beyond `end` left out. `type`, a constant, is the weight's. */
INLINE void forward_columns(vt_type type, const float *const x[FEW_ROWS], vt_matrix weight, int64_t o, int64_t end,
                            const float *bias, const vt_matrix *y)
{
    vector sum[TOGETHER][FEW_ROWS] = {{{0}}};
    float sums[TOGETHER][FEW_ROWS];
    int64_t row[TOGETHER], k = 0;
    weight.type = type;
    for (int i = 0; i < TOGETHER; i++) row[i] = smaller(o + i, end - 1) * weight.stride;
    for (; k + LANES <= weight.columns; k += LANES) {
#pragma GCC unroll 3
        for (int i = 0; i < TOGETHER; i++) prefetch_read(&weight, row[i] + k + AHEAD);
        add_products(x, &weight, row, k, LANES, sum);
    }
    if (k < weight.columns) add_products(x, &weight, row, k, weight.columns - k, sum);
#pragma GCC unroll 3
    for (int i = 0; i < TOGETHER; i++) /* a vector of a varying index would keep all of them in memory */
#pragma GCC unroll 8
        for (int r = 0; r < FEW_ROWS; r++) sums[i][r] = sum_lanes(sum[i][r]);
    for (int64_t i = 0; i < smaller(TOGETHER, end - o); i++)
        for (int64_t r = 0; r < y->rows; r++)
            store_some(y, r * y->stride + o + i, splat(sums[i][r] + (bias == NULL ? 0 : bias[o + i])), 1);
}

void VT_KERNEL(vt_few_rows_forward)(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    const float *rows[FEW_ROWS];
    float *memory = vt_cpu_shared(backend, (size_t)(x.rows * x.columns) * sizeof *memory);
    if (memory == NULL) return;
    widen(x, memory, rows);
    weight.columns = x.columns;
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < y.columns; o += TOGETHER) {
        FOR_EACH_TYPE(weight.type, forward_columns, rows, weight, o, y.columns, bias, &y);
    }
}

/* Columns first … of dx, SUMS / rows at most. Each pass over the sums takes four rows of the weight. `rows`, a
 * constant: at least dy's. */
INLINE void input_columns(int rows, const float *const dy[FEW_ROWS], int64_t deep, const vt_matrix *weight,
                          int64_t first, int64_t columns, const vt_matrix *dx)
{
    enum { PASS = 4 };
    const int64_t chunk = SUMS / rows;
    float sums[SUMS] = {0};
    for (int64_t o = 0; o < deep; o += PASS) {
        vector factor[FEW_ROWS][PASS];
        int64_t row[PASS];
        for (int i = 0; i < PASS; i++) row[i] = smaller(o + i, deep - 1) * weight->stride + first;
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < PASS; i++) factor[r][i] = splat(o + i < deep ? dy[r][o + i] : 0);
        for (int64_t k = 0; k < columns; k += LANES) {
            vector of[PASS];
#pragma GCC unroll 4
            for (int i = 0; i < PASS; i++) {
                if (o + PASS + i < deep) prefetch_second(weight, row[i] + PASS * weight->stride + k);
                of[i] = load_elements_up_to(weight, row[i] + k, columns - k);
            }
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                vector sum = load(&sums[r * chunk + k]);
#pragma GCC unroll 4
                for (int i = 0; i < PASS; i++) sum += factor[r][i] * of[i];
                store(&sums[r * chunk + k], sum);
            }
        }
    }
    for (int64_t r = 0; r < dx->rows; r++)
        for (int64_t k = 0; k < columns; k += LANES)
            store_elements_up_to(dx, r * dx->stride + first + k, load(&sums[r * chunk + k]), columns - k);
}

void VT_KERNEL(vt_few_rows_backward_input)(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    const float *rows[FEW_ROWS];
    float *memory = vt_cpu_shared(backend, (size_t)(dy.rows * dy.columns) * sizeof *memory);
    if (memory == NULL) return;
    widen(dy, memory, rows);
    const int64_t most = SUMS / (dy.rows == 1 ? 1 : FEW_ROWS), share = pieces(dx.columns, 2 * vt_cpu_threads(backend));
    const int64_t chunk = smaller(most, pieces(share, 64) * 64);
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t first = 0; first < dx.columns; first += chunk) {
        const int64_t columns = smaller(chunk, dx.columns - first);
        if (dy.rows == 1)
            input_columns(1, rows, dy.columns, &weight, first, columns, &dx);
        else
            input_columns(FEW_ROWS, rows, dy.columns, &weight, first, columns, &dx);
    }
}

/* Adds to rows o and o + 1 of dweight, or to o alone. */
static void add_rows(const float *const x[FEW_ROWS], const float *const dy[FEW_ROWS], int64_t rows, int64_t o,
                     int64_t pair, int64_t columns, float *dweight)
{
    vector factor[2][FEW_ROWS];
    float *to[2] = {dweight + o * columns, dweight + (o + pair - 1) * columns};
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < FEW_ROWS; r++) factor[i][r] = splat(r < rows && i < pair ? dy[r][o + i] : 0);
    for (int64_t k = 0; k < columns; k += LANES) {
        const int64_t count = columns - k;
        vector sum[2] = {{0}};
#pragma GCC unroll 8
        for (int r = 0; r < FEW_ROWS; r++) {
            const vector value = load_up_to(x[r] + k, count);
            sum[0] += factor[0][r] * value;
            sum[1] += factor[1][r] * value;
        }
        for (int i = 0; i < pair; i++) store_up_to(to[i] + k, load_up_to(to[i] + k, count) + sum[i], count);
    }
}

void VT_KERNEL(vt_few_rows_backward_weight)(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight,
                                            float *dbias)
{
    const float *rows[FEW_ROWS], *gradients[FEW_ROWS];
    float *memory = vt_cpu_shared(backend, (size_t)(x.rows * (x.columns + dy.columns)) * sizeof *memory);
    if (memory == NULL) return;
    widen(x, memory, rows);
    widen(dy, memory + x.rows * x.columns, gradients);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < dy.columns; o += 2)
        add_rows(rows, gradients, x.rows, o, smaller(2, dy.columns - o), x.columns, dweight);
    for (int64_t o = 0; o < dy.columns && dbias != NULL; o++) {
        double sum = 0;
        for (int64_t r = 0; r < dy.rows; r++) sum += (double)gradients[r][o];
        dbias[o] += (float)sum;
    }
}
