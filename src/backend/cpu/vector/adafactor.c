/* Adafactor in float32. Sums are taken over a fixed number of runs of lines, then over the runs in order: the same bits
 * for any number of threads. */
#include <math.h>
#include <omp.h>

#include "backend/cpu/vector/vector.h"
#include "backend/factored.h"
#include "backend/half.h"

enum { RUNS = 32 };

/* The sum of the squares of x [count], which are also added to `columns`. */
INLINE double add_line(const float *x, int64_t count, float *columns)
{
    vector sum = {0};
    for (int64_t j = 0; j < count; j += LANES) {
        const vector number = load_up_to(x + j, count - j);
        sum += number * number;
        store_up_to(columns + j, load_up_to(columns + j, count - j) + number * number, count - j);
    }
    return (double)sum_lanes(sum);
}

/* Lines of one matrix. totals [RUNS]: of all that a run has. */
static void squares_of_one(vt_backend *backend, const vt_factored *shape, const float *x, double *sums, double *totals)
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
            const int64_t end = first + smaller((run + 1) * length, lines);
            for (int64_t i = first + run * length; i < end; i++) {
                const vt_factored_line line = vt_factored_line_at(shape, i);
                const double squares = add_line(x + line.begin, line.length, own + line.column - begin);
                sums[line.row] += squares;
                totals[run] += squares;
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

/* Each run has whole matrices, which are small. */
static void squares_of_many(const vt_factored *shape, const float *x, double *sums, double *totals)
{
    const int64_t first = vt_factored_first_line(shape), end = vt_factored_end_line(shape), rows = shape->part_rows;
    const int64_t first_matrix = first / rows, matrices = (end - 1) / rows + 1 - first_matrix;
    double *of_columns = sums + shape->matrices * shape->rows;
#pragma omp parallel for schedule(static)
    for (int64_t run = 0; run < RUNS; run++) {
        const int64_t begin = (first_matrix + piece_begin(matrices, RUNS, run)) * rows;
        const int64_t last = smaller((first_matrix + piece_begin(matrices, RUNS, run + 1)) * rows, end);
        for (int64_t i = begin > first ? begin : first; i < last; i++) {
            const vt_factored_line line = vt_factored_line_at(shape, i);
            for (int64_t j = 0; j < line.length; j++) {
                const double square = (double)x[line.begin + j] * (double)x[line.begin + j];
                sums[line.row] += square;
                of_columns[line.column + j] += square;
                totals[run] += square;
            }
        }
    }
}

void VT_VECTOR(factored_squares)(vt_backend *backend, const vt_factored *shape, const float *x, double *sums,
                                 double weight, double *result)
{
    const int64_t first = vt_factored_first_line(shape), last = vt_factored_end_line(shape) - 1;
    double totals[RUNS] = {0}, total = 0;
    if (shape->count == 0) return;
    if (first / shape->part_rows != last / shape->part_rows)
        squares_of_many(shape, x, sums, totals);
    else if (vt_cpu_scratch_reserve(backend, (size_t)(RUNS * shape->part_columns) * sizeof(float)))
        squares_of_one(backend, shape, x, sums, totals);
    for (int run = 0; run < RUNS; run++) total += totals[run];
    *result += weight * total;
}

/* Gradients divided by their roots. */
INLINE vector quotients(vector gradients, float row, vector columns, float most)
{
    const vector scale = row * columns;
    return gradients * choose(scale < splat(most), scale, splat(most));
}

/* Numbers that are the same for all elements. */
typedef struct {
    float factor, most, shrink, rate, keep;
} numbers;

static numbers numbers_of(const vt_update *update, const vt_step_state *state)
{
    return (numbers){.factor = state->factor,
                     .most = (float)(1 / vt_adafactor_least(update)),
                     .shrink = (float)(1 - state->learning_rate * update->weight_decay),
                     .keep = (float)update->adafactor.beta1};
}

/* sums [2] += the sums of the squares of w, and of the quotients of g; both [count]. */
INLINE void add_sizes(const numbers *n, const float *g, const float *w, int64_t count, float row, const float *columns,
                      double *sums)
{
    vector values = {0}, steps = {0};
    for (int64_t j = 0; j < count; j += LANES) {
        const int64_t left = count - j;
        const vector value = load_up_to(w + j, left);
        const vector step = quotients(n->factor * load_up_to(g + j, left), row, load_up_to(columns + j, left), n->most);
        values += value * value;
        steps += step * step;
    }
    sums[0] += (double)sum_lanes(values);
    sums[1] += (double)sum_lanes(steps);
}

void VT_VECTOR(adafactor_norm)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                               const vt_factored *shape, const float *gradients, const float *values,
                               const float *scales, float *moment2, double *sizes)
{
    if (shape->rows == 0) { /* few numbers */
        vt_plain_adafactor_norm(backend, update, state, shape, gradients, values, scales, moment2, sizes);
        return;
    }
    if (isnan(state->factor) || sizes == NULL) return;
    const numbers n = numbers_of(update, state);
    const float *columns = scales + shape->matrices * shape->rows;
    const int64_t first = vt_factored_first_line(shape), lines = vt_factored_end_line(shape) - first;
    const int64_t length = (lines + RUNS - 1) / RUNS;
    double partial[RUNS][2] = {{0}};
#pragma omp parallel for schedule(static)
    for (int64_t run = 0; run < RUNS; run++) {
        const int64_t end = first + smaller((run + 1) * length, lines);
        double own[2] = {0};
        for (int64_t i = first + run * length; i < end; i++) {
            const vt_factored_line line = vt_factored_line_at(shape, i);
            add_sizes(&n, gradients + line.begin, values + line.begin, line.length, scales[line.row],
                      columns + line.column, own);
        }
        memcpy(partial[run], own, sizeof own);
    }
    for (int run = 0; run < RUNS; run++)
        for (int k = 0; k < 2; k++) sizes[k] += partial[run][k];
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

/* Each thread has nearly the lines that it had in adafactor_norm, from the last to the first: those that it read last
 * are still in its second-level cache. */
void VT_VECTOR(adafactor_apply)(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                                const vt_factored *shape, const float *gradients, const float *scales,
                                const float *moment2, const double *sizes, float *values, uint16_t *rounded,
                                float *moment1)
{
    if (shape->rows == 0) {
        vt_plain_adafactor_apply(backend, update, state, shape, gradients, scales, moment2, sizes, values, rounded,
                                 moment1);
        return;
    }
    if (isnan(state->factor)) return;
    numbers n = numbers_of(update, state);
    n.rate = (float)vt_adafactor_rate(update, state, shape, sizes);
    const float *columns = scales + shape->matrices * shape->rows;
    const int64_t first = vt_factored_first_line(shape), lines = vt_factored_end_line(shape) - first;
#pragma omp parallel
    for (int64_t begin = piece_begin(lines, omp_get_num_threads(), omp_get_thread_num()),
                 i = piece_begin(lines, omp_get_num_threads(), omp_get_thread_num() + 1);
         i-- > begin;) {
        const vt_factored_line line = vt_factored_line_at(shape, first + i);
        for (int64_t j = 0; j < line.length; j += LANES) {
            const int64_t left = line.length - j, at = line.begin + j;
            const vector step = quotients(n.factor * load_up_to(gradients + at, left), scales[line.row],
                                          load_up_to(columns + line.column + j, left), n.most);
            apply_lanes(&n, step, values + at, moment1 != NULL ? moment1 + at : NULL, left);
        }
        if (rounded != NULL) vt_half_round_row(update->rounded, values + line.begin, line.length, rounded + line.begin);
    }
}
