/* Adafactor in float32. Sums are taken over a fixed number of runs of lines, then over the runs in order: the same bits
 * for any number of threads. */
#include <math.h>

#include "backend/cpu/vector/vector.h"
#include "backend/factored.h"

enum { RUNS = 32 };

/* The sum of the squares of x; those of its numbers are added to `columns`. */
INLINE float add_line(const float *x, int64_t count, float *columns)
{
    vector sum = {0};
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) {
        const vector square = load(x + j) * load(x + j);
        sum += square;
        store(columns + j, load(columns + j) + square);
    }
    if (j < count) {
        const vector last = load_part(x + j, count - j), square = last * last;
        sum += square;
        store_part(columns + j, load_part(columns + j, count - j) + square, count - j);
    }
    return sum_lanes(sum);
}

/* Lines of one matrix. */
static void squares_of_one(vt_backend *backend, const vt_factored *shape, const float *x, double *sums)
{
    const int64_t first = vt_factored_first_line(shape), lines = vt_factored_end_line(shape) - first;
    const int64_t columns = shape->part_columns, length = (lines + RUNS - 1) / RUNS;
    const int64_t matrix = shape->first_matrix + first / shape->part_rows;
    const int64_t begin = matrix * shape->columns + shape->first_column; /* of the part, among all columns */
    double *of_columns = sums + shape->matrices * shape->rows + begin;
    float *partial = vt_cpu_scratch(backend);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t run = 0; run < RUNS; run++) {
            float *own = partial + run * columns;
            memset(own, 0, (size_t)columns * sizeof *own);
            for (int64_t i = run * length; i < smaller((run + 1) * length, lines); i++) {
                const vt_factored_line line = vt_factored_line_at(shape, first + i);
                sums[line.row] += (double)add_line(x + line.begin, line.length, own + line.column - begin);
            }
        }
#pragma omp for schedule(static)
        for (int64_t column = 0; column < columns; column++) {
            double sum = 0;
            for (int64_t run = 0; run < RUNS; run++) sum += (double)partial[run * columns + column];
            of_columns[column] += sum;
        }
    }
}

/* Each thread has whole matrices, which are small. */
static void squares_of_many(const vt_factored *shape, const float *x, double *sums)
{
    const int64_t first = vt_factored_first_line(shape), end = vt_factored_end_line(shape), rows = shape->part_rows;
    double *of_columns = sums + shape->matrices * shape->rows;
#pragma omp parallel for schedule(static)
    for (int64_t matrix = first / rows; matrix <= (end - 1) / rows; matrix++) {
        const int64_t last = smaller((matrix + 1) * rows, end);
        for (int64_t i = matrix * rows > first ? matrix * rows : first; i < last; i++) {
            const vt_factored_line line = vt_factored_line_at(shape, i);
            for (int64_t j = 0; j < line.length; j++) {
                const double square = (double)x[line.begin + j] * (double)x[line.begin + j];
                sums[line.row] += square;
                of_columns[line.column + j] += square;
            }
        }
    }
}

static void factored_squares(vt_backend *backend, const vt_factored *shape, const float *x, double *sums)
{
    const int64_t first = vt_factored_first_line(shape), last = vt_factored_end_line(shape) - 1;
    if (shape->count == 0) return;
    if (first / shape->part_rows != last / shape->part_rows)
        squares_of_many(shape, x, sums);
    else if (vt_cpu_scratch_reserve(backend, (size_t)(RUNS * shape->part_columns) * sizeof(float)))
        squares_of_one(backend, shape, x, sums);
}

/* Gradients divided by their roots. */
INLINE vector quotients(vector gradients, float row, vector columns, float most)
{
    const vector scale = row * columns;
    return gradients * choose(scale < splat(most), scale, splat(most));
}

/* Numbers that are the same for all elements. */
typedef struct {
    float factor, most, least, shrink, rate, keep;
} numbers;

static numbers numbers_of(const vt_update *update, const vt_step_state *state)
{
    return (numbers){.factor = state->factor,
                     .most = (float)(1 / vt_adafactor_least(update)),
                     .least = (float)vt_adafactor_least(update),
                     .shrink = (float)(1 - state->learning_rate * update->weight_decay),
                     .keep = (float)update->adafactor.beta1};
}

static void adafactor_norm(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                           const vt_factored *shape, const float *gradients, const float *scales, float *moment2,
                           double *steps)
{
    if (shape->rows == 0) { /* few numbers */
        vt_plain_adafactor_norm(backend, update, state, shape, gradients, scales, moment2, steps);
        return;
    }
    if (isnan(state->factor) || steps == NULL) return;
    const numbers n = numbers_of(update, state);
    const float *columns = scales + shape->matrices * shape->rows;
    const int64_t first = vt_factored_first_line(shape), lines = vt_factored_end_line(shape) - first;
    const int64_t length = (lines + RUNS - 1) / RUNS;
    double partial[RUNS] = {0};
#pragma omp parallel for schedule(static)
    for (int64_t run = 0; run < RUNS; run++) {
        double total = 0;
        for (int64_t i = run * length; i < smaller((run + 1) * length, lines); i++) {
            const vt_factored_line line = vt_factored_line_at(shape, first + i);
            const float *g = gradients + line.begin, *c = columns + line.column;
            vector sum = {0};
            for (int64_t j = 0; j < line.length; j += LANES) {
                const int64_t left = line.length - j;
                const vector step =
                    quotients(n.factor * load_up_to(g + j, left), scales[line.row], load_up_to(c + j, left), n.most);
                sum += step * step;
            }
            total += (double)sum_lanes(sum);
        }
        partial[run] = total;
    }
    for (int run = 0; run < RUNS; run++) *steps += partial[run];
}

INLINE void apply_lanes(const numbers *n, vector step, float *values, float *moment1, int64_t count)
{
    vector change = n->rate * step;
    if (moment1 != NULL) {
        change = n->keep * load_up_to(moment1, count) + (1 - n->keep) * change;
        store_up_to(moment1, change, count);
    }
    store_up_to(values, load_up_to(values, count) * n->shrink - change, count);
}

static void adafactor_apply(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                            const vt_factored *shape, const float *gradients, const float *scales, const float *moment2,
                            const double *squares, const double *steps, float *values, float *moment1)
{
    if (shape->rows == 0) {
        vt_plain_adafactor_apply(backend, update, state, shape, gradients, scales, moment2, squares, steps, values,
                                 moment1);
        return;
    }
    if (isnan(state->factor)) return;
    numbers n = numbers_of(update, state);
    n.rate = (float)vt_adafactor_rate(update, state, shape, *squares, *steps);
    const float *columns = scales + shape->matrices * shape->rows;
    const int64_t end = vt_factored_end_line(shape);
#pragma omp parallel for schedule(static)
    for (int64_t i = vt_factored_first_line(shape); i < end; i++) {
        const vt_factored_line line = vt_factored_line_at(shape, i);
        for (int64_t j = 0; j < line.length; j += LANES) {
            const int64_t left = line.length - j, at = line.begin + j;
            const vector step = quotients(n.factor * load_up_to(gradients + at, left), scales[line.row],
                                          load_up_to(columns + line.column + j, left), n.most);
            apply_lanes(&n, step, values + at, moment1 != NULL ? moment1 + at : NULL, left);
        }
    }
}

void VT_KERNEL(vt_vector_adafactor_fill)(vt_backend *backend)
{
    backend->factored_squares = factored_squares;
    backend->adafactor_norm = adafactor_norm;
    backend->adafactor_apply = adafactor_apply;
}
