/* Adafactor's operations beside their formulas in float64: whole tensors, and the parts that ranks have of them. */
#include "backend/factored.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

/* A tensor [matrices, rows, columns] of which the operands hold elements of a part; rows 0: a vector. */
static vt_factored shape_of(int64_t matrices, int64_t rows, int64_t columns)
{
    return (vt_factored){.elements = (double)(rows > 0 ? matrices * rows * columns : columns),
                         .matrices = rows > 0 ? matrices : 0,
                         .rows = rows,
                         .columns = rows > 0 ? columns : 0,
                         .part_rows = rows,
                         .part_columns = columns,
                         .count = rows > 0 ? matrices * rows * columns : columns};
}

typedef struct {
    int64_t row, column; /* among those of all matrices */
} place;

static place place_of(const vt_factored *s, int64_t i)
{
    const int64_t at = s->first + i, line = at / s->part_columns, matrix = s->first_matrix + line / s->part_rows;
    return (place){matrix * s->rows + s->first_row + line % s->part_rows,
                   matrix * s->columns + s->first_column + at % s->part_columns};
}

static double *doubles(int64_t count)
{
    return vt_test_owned(calloc((size_t)count + 1, sizeof(double)));
}

/* One update from random numbers. */
static void check_update(vt_backend *b, vt_cpu_isa isa, const vt_factored *shape, const vt_update *update)
{
    const guarded_rounded rounded = guarded_rounded_open(update->rounded, shape->count);
    const int64_t count = shape->count, rows = shape->matrices * shape->rows, sums_count = vt_factored_sums(shape);
    const int64_t columns = sums_count - rows;
    const bool is_vector = shape->rows == 0;
    const vt_adafactor *a = &update->adafactor;
    const vt_step_state state = {.learning_rate = 0.02, .factor = 0.5f, .updates = 7};
    guarded g = guarded_random(1, count, 1, 1), w = guarded_random(1, count, 2, 0.3f), w0 = guarded_copy(&w);
    guarded m = guarded_random(1, count, 3, 1e-3f), m0 = guarded_copy(&m), v = guarded_random(1, count, 4, 1);
    guarded r = guarded_random(1, is_vector ? 1 : rows, 5, 1), c = guarded_random(1, is_vector ? 1 : columns, 6, 1);
    guarded scales = guarded_open(1, is_vector ? 1 : sums_count);
    for (int64_t i = 0; i < count; i++) v.matrix.data[i] = fabsf(v.matrix.data[i]);
    for (int64_t i = 0; i < rows; i++) r.matrix.data[i] = fabsf(r.matrix.data[i]);
    for (int64_t i = 0; i < columns; i++) c.matrix.data[i] = fabsf(c.matrix.data[i]);
    guarded v0 = guarded_copy(&v), r0 = guarded_copy(&r), c0 = guarded_copy(&c);
    double *sums = doubles(sums_count), *expected = doubles(sums_count), *mean = doubles(shape->matrices);
    float *moment1 = a->beta1 > 0 ? m.matrix.data : NULL, *moment2 = is_vector ? v.matrix.data : NULL;
    const double keep = 1 - pow(7, a->decay), more = a->original ? a->eps[0] : 0, least = a->original ? 0 : a->eps[0];
    double norm = 1, expected_norm = 0, expected_steps = 0, expected_values = 0;

    for (int64_t i = 0; i < count && !is_vector; i++) {
        const double square = (double)g.matrix.data[i] * (double)g.matrix.data[i];
        expected[place_of(shape, i).row] += square;
        expected[rows + place_of(shape, i).column] += square;
        expected_norm += square;
    }
    if (!is_vector) b->factored_squares(b, shape, g.matrix.data, sums, 0.25, &norm);
    EXPECT_OK(b->check(b));
    for (int64_t i = 0; i < sums_count; i++)
        EXPECT(fabs(sums[i] - expected[i]) <= 1e-6 * fabs(expected[i]), "isa %d: sum %ld is %.9g, expected %.9g",
               (int)isa, i, sums[i], expected[i]);
    EXPECT(fabs(norm - (1 + 0.25 * expected_norm)) <= 1e-6 * norm, "isa %d: all squares are %.9g, expected %.9g",
           (int)isa, norm, 1 + 0.25 * expected_norm);

    if (!is_vector)
        b->adafactor_means(b, update, &state, shape, sums, r.matrix.data, c.matrix.data, scales.matrix.data);
    for (int64_t i = 0; i < rows; i++) {
        r0.matrix.data[i] = (float)(keep * (double)r0.matrix.data[i] +
                                    (1 - keep) * (0.25 * expected[i] / (double)shape->columns + more));
        mean[i / shape->rows] += (double)r0.matrix.data[i] / (double)shape->rows;
    }
    for (int64_t j = 0; j < columns; j++)
        c0.matrix.data[j] = (float)(keep * (double)c0.matrix.data[j] +
                                    (1 - keep) * (0.25 * expected[rows + j] / (double)shape->rows + more));
    guarded_compare(&r, &r0, is_vector ? 0 : 1e-6, "means of rows");
    guarded_compare(&c, &c0, is_vector ? 0 : 1e-6, "means of columns");

    double sizes[2] = {1, 2};
    b->adafactor_norm(b, update, &state, shape, g.matrix.data, w.matrix.data, scales.matrix.data, moment2, sizes);
    EXPECT_OK(b->check(b));
    double *quotients = doubles(count);
    for (int64_t i = 0; i < count; i++) {
        const double gradient = 0.5 * (double)g.matrix.data[i];
        double square;
        if (is_vector) {
            square = keep * (double)v0.matrix.data[i] + (1 - keep) * (gradient * gradient + more);
            v0.matrix.data[i] = (float)square;
        } else {
            const place at = place_of(shape, i);
            square = (double)r0.matrix.data[at.row] * (double)c0.matrix.data[at.column] /
                     fmax(mean[at.row / shape->rows], least);
        }
        quotients[i] = gradient / fmax(sqrt(square), least);
        expected_steps += quotients[i] * quotients[i];
        expected_values += (double)w.matrix.data[i] * (double)w.matrix.data[i];
    }
    guarded_compare(&v, &v0, is_vector ? 1e-6 : 0, "second moments");
    EXPECT(fabs(sizes[0] - 1 - expected_values) <= 1e-5 * sizes[0], "isa %d: %.9g, expected 1 + %.9g", (int)isa,
           sizes[0], expected_values);
    EXPECT(fabs(sizes[1] - 2 - expected_steps) <= 1e-5 * sizes[1], "isa %d: %.9g, expected 2 + %.9g", (int)isa,
           sizes[1], expected_steps);

    sizes[0] = 123;
    b->adafactor_apply(b, update, &state, shape, g.matrix.data, scales.matrix.data, moment2, sizes, w.matrix.data,
                       rounded.at, moment1);
    EXPECT_OK(b->check(b));
    guarded_rounded_check(&rounded, w.matrix.data, "an update by Adafactor");
    const double rate = fmax(a->eps[1], sqrt(123 / shape->elements)) * fmin(0.02, 1 / sqrt(7)) /
                        fmax(1, sqrt((2 + expected_steps) / shape->elements) / a->clip);
    for (int64_t i = 0; i < count; i++) {
        double change = rate * quotients[i];
        if (moment1 != NULL)
            m0.matrix.data[i] = (float)(change = a->beta1 * (double)m0.matrix.data[i] + (1 - a->beta1) * change);
        w0.matrix.data[i] = (float)((double)w0.matrix.data[i] * (1 - 0.02 * update->weight_decay) - change);
    }
    guarded_compare(&w, &w0, 2e-6, "values");
    guarded_compare(&m, &m0, moment1 != NULL ? 1e-5 : 0, "first moments");
    guarded *const written[] = {&g, &w, &m, &v, &r, &c, &scales};
    for (size_t k = 0; k < sizeof written / sizeof *written; k++) guarded_check(written[k], "an operand of Adafactor");
}

/* Without an update nothing changes. */
static void check_left_out(vt_backend *b, const vt_factored *shape, const vt_update *update)
{
    const guarded_rounded rounded = guarded_rounded_open(update->rounded, shape->count);
    const vt_step_state none = {.learning_rate = 0.02, .factor = NAN, .updates = 7};
    const int64_t rows = shape->matrices * shape->rows;
    guarded g = guarded_random(1, shape->count, 1, 1), w = guarded_copy(&g), w0 = guarded_copy(&w);
    guarded r = guarded_random(1, rows, 2, 1), r0 = guarded_copy(&r),
            c = guarded_random(1, vt_factored_sums(shape) - rows, 3, 1);
    guarded c0 = guarded_copy(&c), scales = guarded_open(1, vt_factored_sums(shape));
    double *sums = doubles(vt_factored_sums(shape)), norm = 0, sizes[2] = {1, 0};
    b->factored_squares(b, shape, g.matrix.data, sums, 1, &norm);
    b->adafactor_means(b, update, &none, shape, sums, r.matrix.data, c.matrix.data, scales.matrix.data);
    b->adafactor_norm(b, update, &none, shape, g.matrix.data, w.matrix.data, scales.matrix.data, NULL, sizes);
    b->adafactor_apply(b, update, &none, shape, g.matrix.data, scales.matrix.data, NULL, sizes, w.matrix.data,
                       rounded.at, NULL);
    guarded_rounded_check(&rounded, NULL, "no update by Adafactor");
    guarded_compare(&w, &w0, 0, "values without an update");
    guarded_compare(&r, &r0, 0, "means of rows without an update");
    guarded_compare(&c, &c0, 0, "means of columns without an update");
}

GPU_TEST(adafactor_operations)
{
    static const int64_t sizes[][3] = {{1, 0, 1},   {1, 0, 97},  {1, 0, 5003}, {1, 1, 7},     {1, 7, 1},
                                       {1, 97, 41}, {3, 5, 129}, {60, 4, 4},   {1, 200, 300}, {1, 1, 1013}};
    vt_update update = {.kind = VT_OPTIMIZER_Adafactor,
                        .weight_decay = 0.1,
                        .adafactor = {.decay = -0.8, .clip = 1, .eps = {0x1p-23, 1e-3}}};
    FOR_EACH_BACKEND(isa, b)
    for (int original = 0; original < 2; original++) {
        update.adafactor.original = original;
        update.rounded = original ? VT_FLOAT16 : VT_BFLOAT16;
        update.adafactor.beta1 = original ? 0.9 : 0;
        update.adafactor.eps[0] = original ? 1e-30 : 0x1p-23;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            vt_factored shape = shape_of(sizes[i][0], sizes[i][1], sizes[i][2]);
            check_update(b, isa, &shape, &update);
            shape.first = shape.count / 3; /* what ZeRO leaves of it */
            shape.count =
                shape.count / 2 + 1 > shape.count - shape.first ? shape.count - shape.first : shape.count / 2 + 1;
            check_update(b, isa, &shape, &update);
        }
        /* what tensor parallelism leaves: rows, columns, matrices */
        vt_factored shard = shape_of(2, 30, 70);
        shard.first_row = 10, shard.part_rows = 15, shard.first = 40, shard.count = 1900;
        check_update(b, isa, &shard, &update);
        shard = shape_of(2, 30, 70);
        shard.first_column = 35, shard.part_columns = 35, shard.first = 17, shard.count = 2000;
        check_update(b, isa, &shard, &update);
        shard = shape_of(6, 5, 7);
        shard.first_matrix = 2, shard.first = 3, shard.count = 3 * 35 - 3;
        check_update(b, isa, &shard, &update);
        check_left_out(b, &shard, &update);
    }
}
