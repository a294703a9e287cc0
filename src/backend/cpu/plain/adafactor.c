/* Adafactor (Shazeer, Stern 2018, algorithms 4 to 6). Each sum is made by one thread, in order. */
#include "backend/cpu/cpu.h"
#include "backend/factored.h"

void vt_plain_factored_squares(vt_backend *backend, const vt_factored *shape, const float *x, double *sums,
                               double weight, double *result)
{
    vt_plain_sum_of_squares(backend, x, shape->count, weight, result);
    double *columns = sums + shape->matrices * shape->rows;
    const int64_t first = vt_factored_first_line(shape), end = vt_factored_end_line(shape);
#pragma omp parallel for schedule(static)
    for (int64_t i = first; i < end; i++) {
        const vt_factored_line line = vt_factored_line_at(shape, i);
        double sum = 0;
        for (int64_t j = 0; j < line.length; j++) sum += (double)x[line.begin + j] * (double)x[line.begin + j];
        sums[line.row] += sum;
    }
#pragma omp parallel for schedule(static)
    for (int64_t column = 0; column < shape->part_columns; column++)
        for (int64_t i = first; i < end; i++) {
            const vt_factored_line line = vt_factored_line_at(shape, i);
            const int64_t at = column - (shape->first + line.begin - i * shape->part_columns); /* in the line */
            if (at < 0 || at >= line.length) continue;
            columns[line.column + at] += (double)x[line.begin + at] * (double)x[line.begin + at];
        }
}

void vt_plain_adafactor_means(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                              const vt_factored *shape, const double *sums, float *row, float *column, float *scales)
{
    const double keep = vt_adafactor_keep(update, state), more = vt_adafactor_more(update);
    const double factor = (double)state->factor * (double)state->factor, least = vt_adafactor_least(update);
    const int64_t rows = shape->rows, columns = shape->columns;
    if (isnan(state->factor)) return;
#pragma omp parallel for schedule(static)
    for (int64_t matrix = 0; matrix < shape->matrices; matrix++) {
        const int64_t behind = shape->matrices * rows + matrix * columns;
        float *r = row + matrix * rows, *c = column + matrix * columns;
        double mean = 0;
        for (int64_t i = 0; i < rows; i++) {
            const double now = factor * sums[matrix * rows + i] / (double)columns + more;
            r[i] = (float)(keep * (double)r[i] + (1 - keep) * now);
            mean += (double)r[i] / (double)rows;
        }
        mean = mean > least ? mean : least;
        for (int64_t i = 0; i < rows; i++) scales[matrix * rows + i] = (float)sqrt(mean / (double)r[i]);
        for (int64_t j = 0; j < columns; j++) {
            const double now = factor * sums[behind + j] / (double)rows + more;
            c[j] = (float)(keep * (double)c[j] + (1 - keep) * now);
            scales[behind + j] = (float)(1 / sqrt((double)c[j]));
        }
    }
}

/* The gradient of an element divided by the root of its mean square, of which `scale` is the inverse. */
static double quotient(double gradient, double scale, double least)
{
    return gradient * (scale < 1 / least ? scale : 1 / least);
}

/* Vectors: the second moments move, if they are to, and the sum of the quotients' squares. */
static double norm_of_vector(const vt_update *update, const vt_step_state *state, const vt_factored *shape,
                             const float *gradients, float *moment2)
{
    const double keep = vt_adafactor_keep(update, state), more = vt_adafactor_more(update);
    const double least = vt_adafactor_least(update);
    double sum = 0;
    for (int64_t i = 0; i < shape->count; i++) {
        const double gradient = (double)state->factor * (double)gradients[i];
        moment2[i] = (float)(keep * (double)moment2[i] + (1 - keep) * (gradient * gradient + more));
        const double step = quotient(gradient, 1 / sqrt((double)moment2[i]), least);
        sum += step * step;
    }
    return sum;
}

void vt_plain_adafactor_norm(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                             const vt_factored *shape, const float *gradients, const float *values, const float *scales,
                             float *moment2, double *sizes)
{
    const float *columns = scales + shape->matrices * shape->rows;
    const double least = vt_adafactor_least(update);
    double total = 0;
    if (isnan(state->factor)) return;
    if (shape->rows == 0) {
        total = norm_of_vector(update, state, shape, gradients, moment2);
    } else if (sizes != NULL) {
        const int64_t end = vt_factored_end_line(shape);
#pragma omp parallel for ordered schedule(static, 1)
        for (int64_t i = vt_factored_first_line(shape); i < end; i++) {
            const vt_factored_line line = vt_factored_line_at(shape, i);
            double sum = 0;
            for (int64_t j = 0; j < line.length; j++) {
                const double gradient = (double)state->factor * (double)gradients[line.begin + j];
                const double step =
                    quotient(gradient, (double)scales[line.row] * (double)columns[line.column + j], least);
                sum += step * step;
            }
#pragma omp ordered
            total += sum;
        }
    }
    if (sizes == NULL) return;
    vt_plain_sum_of_squares(backend, values, shape->count, 1, &sizes[0]);
    sizes[1] += total;
}

/* One element. */
static void apply(const vt_update *update, double shrink, double rate, double step, float *value, float *moment1)
{
    const double keep = update->adafactor.beta1;
    double change = rate * step;
    if (keep > 0 && moment1 != NULL) {
        change = keep * (double)*moment1 + (1 - keep) * change;
        *moment1 = (float)change;
    }
    *value = (float)((double)*value * shrink - change);
}

void vt_plain_adafactor_apply(vt_backend *backend, const vt_update *update, const vt_step_state *state,
                              const vt_factored *shape, const float *gradients, const float *scales,
                              const float *moment2, const double *sizes, float *values, uint16_t *rounded,
                              float *moment1)
{
    const float *columns = scales + shape->matrices * shape->rows;
    const double least = vt_adafactor_least(update), shrink = 1 - state->learning_rate * update->weight_decay;
    if (isnan(state->factor)) return;
    const double rate = vt_adafactor_rate(update, state, shape, sizes);
    if (shape->rows == 0) {
        for (int64_t i = 0; i < shape->count; i++) {
            const double gradient = (double)state->factor * (double)gradients[i];
            apply(update, shrink, rate, quotient(gradient, 1 / sqrt((double)moment2[i]), least), &values[i],
                  moment1 != NULL ? moment1 + i : NULL);
        }
        vt_cpu_round_values(update, values, rounded, shape->count);
        return;
    }
    const int64_t end = vt_factored_end_line(shape);
#pragma omp parallel for schedule(static)
    for (int64_t i = vt_factored_first_line(shape); i < end; i++) {
        const vt_factored_line line = vt_factored_line_at(shape, i);
        for (int64_t j = 0; j < line.length; j++) {
            const int64_t at = line.begin + j;
            const double gradient = (double)state->factor * (double)gradients[at];
            const double scale = (double)scales[line.row] * (double)columns[line.column + j];
            apply(update, shrink, rate, quotient(gradient, scale, least), &values[at],
                  moment1 != NULL ? moment1 + at : NULL);
        }
    }
    vt_cpu_round_values(update, values, rounded, shape->count);
}
