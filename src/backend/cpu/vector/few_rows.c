#include "backend/cpu/vector/few_rows.h"

#include "backend/cpu/vector/adam.h"
#include "backend/cpu/vector/elements.h"

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

/* What becomes of the sums in a weight's gradient. */
typedef enum { ADDED, STORED, STREAMED } sums_use;

/* Rows o and o + 1 of dweight, or o alone, columns k … end - 1. `use` is a constant. */
INLINE void make_rows(const float *const x[FEW_ROWS], const float *const dy[FEW_ROWS], int64_t rows, int64_t o,
                      int64_t pair, int64_t columns, int64_t k, int64_t end, float *dweight, sums_use use)
{
    vector factor[2][FEW_ROWS];
    float *to[2] = {dweight + o * columns, dweight + (o + pair - 1) * columns};
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < FEW_ROWS; r++) factor[i][r] = splat(r < rows && i < pair ? dy[r][o + i] : 0);
    for (; k < end; k += LANES) {
        const int64_t count = end - k;
        vector sum[2] = {{0}};
#pragma GCC unroll 8
        for (int r = 0; r < FEW_ROWS; r++) {
            const vector value = load_up_to(x[r] + k, count);
            sum[0] += factor[0][r] * value;
            sum[1] += factor[1][r] * value;
        }
        for (int i = 0; i < pair; i++) {
            if (use == STREAMED)
                stream(to[i] + k, sum[i]);
            else
                store_up_to(to[i] + k, use == ADDED ? load_up_to(to[i] + k, count) + sum[i] : sum[i], count);
        }
    }
}

void VT_KERNEL(vt_few_rows_backward_weight)(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight,
                                            float *dbias, bool stores)
{
    /* Of dweight, a piece of work. If it streams, these columns of x stay in the first-level cache; if not, long rows
     * are faster. */
    enum { ROWS = 64, COLUMNS = 512 };
    const bool streams = stores && may_stream(dweight, dy.columns, x.columns);
    const int64_t wide = streams ? COLUMNS : x.columns;
    const float *rows[FEW_ROWS], *gradients[FEW_ROWS];
    float *memory = vt_cpu_shared(backend, (size_t)(x.rows * (x.columns + dy.columns)) * sizeof *memory);
    if (memory == NULL) return;
    widen(x, memory, rows);
    widen(dy, memory + x.rows * x.columns, gradients);
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t first = 0; first < dy.columns; first += ROWS) {
        for (int64_t k = 0; k < x.columns; k += wide) {
            const int64_t end = smaller(k + wide, x.columns), last = smaller(first + ROWS, dy.columns);
            for (int64_t o = first; o < last; o += 2) {
                const int64_t pair = smaller(2, last - o);
                if (streams)
                    make_rows(rows, gradients, x.rows, o, pair, x.columns, k, end, dweight, STREAMED);
                else if (stores)
                    make_rows(rows, gradients, x.rows, o, pair, x.columns, k, end, dweight, STORED);
                else
                    make_rows(rows, gradients, x.rows, o, pair, x.columns, k, end, dweight, ADDED);
            }
            if (streams) stream_end();
        }
    }
    for (int64_t o = 0; o < dy.columns && dbias != NULL; o++) {
        double sum = 0;
        for (int64_t r = 0; r < dy.rows; r++) sum += (double)gradients[r][o];
        dbias[o] += (float)sum;
    }
}

enum { UPDATED_TOGETHER = 2 }; /* rows of a weight, so that a number of x serves both */

/* What an update changes: a weight and its moments, and its copy in 16 bits, if it has memory. */
typedef struct {
    float *value, *moment1, *moment2;
    vt_matrix rounded;
} moving;

/* Columns k … end - 1 of `together` rows of the weight, from row o on. factor [rows of the weight, rows of x]: dy's.
 * `type`, the copy's, and `together` are constants. */
INLINE void update_rows(vt_type type, int together, const adam_numbers *numbers, const vt_matrix *x,
                        const float *factor, int64_t o, int64_t k, int64_t end, const moving *weight)
{
    enum { VECTORS = 2, READ_AHEAD = 128 };
    const adam_numbers n = *numbers;
    const int64_t width = x->columns, next = together * width - (end - k);
    vt_matrix rounded = weight->rounded;
    rounded.type = type;
    for (; k < end; k += VECTORS * LANES) {
        vector gradient[UPDATED_TOGETHER][VECTORS] = {{{0}}};
#pragma GCC unroll 2
        for (int i = 0; i < together; i++) {
            /* behind the end come the same columns of the next rows */
            const int64_t ahead = (o + i) * width + k + READ_AHEAD + (k + READ_AHEAD < end ? 0 : next);
#pragma GCC unroll 2
            for (int64_t j = 0; j < VECTORS * LANES; j += LANES) {
                __builtin_prefetch(weight->value + ahead + j, 0, 3);
                __builtin_prefetch(weight->moment1 + ahead + j, 0, 3);
                __builtin_prefetch(weight->moment2 + ahead + j, 0, 3);
            }
            if (type != VT_FLOAT32) __builtin_prefetch(rounded.half + ahead, 1, 3);
        }
        for (int64_t r = 0; r < x->rows; r++) {
            vector number[VECTORS];
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; j++) number[j] = load(x->data + r * x->stride + k + j * LANES);
#pragma GCC unroll 2
            for (int i = 0; i < together; i++)
#pragma GCC unroll 2
                for (int j = 0; j < VECTORS; j++) gradient[i][j] += factor[(o + i) * x->rows + r] * number[j];
        }
#pragma GCC unroll 2
        for (int i = 0; i < together; i++)
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; j++) {
                const int64_t at = (o + i) * width + k + j * LANES;
                const vector value = update_adam(&n, gradient[i][j], weight->value + at, weight->moment1 + at,
                                                 weight->moment2 + at, LANES);
                if (type != VT_FLOAT32) store_elements(&rounded, at, value);
            }
    }
}

void VT_KERNEL(vt_few_rows_update)(vt_backend *backend, vt_matrix x, vt_matrix dy, const vt_update *update,
                                   const vt_step_state *state, float *weight, uint16_t *rounded, float *moment1,
                                   float *moment2)
{
    enum { CACHED = 1 << 17 }; /* numbers of x that stay in the second-level cache; long pieces of rows are faster */
    const int64_t most = smaller(x.columns, CACHED / x.rows / 64 * 64);
    const adam_numbers numbers = adam_numbers_of(update, state);
    const vt_type type = rounded == NULL ? VT_FLOAT32 : update->rounded;
    const moving all = {weight, moment1, moment2, {.half = rounded}};
    float *factors = vt_cpu_shared(backend, (size_t)(dy.rows * dy.columns) * sizeof *factors);
    if (factors == NULL || isnan(state->factor)) return;
    for (int64_t r = 0; r < dy.rows; r++)
        for (int64_t o = 0; o < dy.columns; o++) factors[o * dy.rows + r] = load_some(&dy, r * dy.stride + o, 1)[0];
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t k = 0; k < x.columns; k += most) {
        for (int64_t o = 0; o < dy.columns; o += UPDATED_TOGETHER) {
            const int64_t end = smaller(k + most, x.columns);
            if (o + UPDATED_TOGETHER <= dy.columns)
                FOR_EACH_TYPE(type, update_rows, UPDATED_TOGETHER, &numbers, &x, factors, o, k, end, &all);
            else
                FOR_EACH_TYPE(type, update_rows, 1, &numbers, &x, factors, o, k, end, &all);
        }
    }
}
