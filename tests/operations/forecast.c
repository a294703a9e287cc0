/* What training over several steps of forecast adds to the operations: the gradient of patches, scaled sums, and
 * disturbed fields; each against its definition, on every back end. */
#include "backend/dropout.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

enum { BATCH = 2, FIELD_CHANNELS = 3, CHANNELS = 2, HEIGHT = 11, WIDTH = 13 };
enum { PLANE = HEIGHT * WIDTH, VALUES = BATCH * FIELD_CHANNELS * PLANE };
static const float zero[CHANNELS] = {0, 0}, one[CHANNELS] = {1, 1};

/* Σ load(x) · y = Σ x · backward(y): loading is linear in the points that are there. */
static void check_adjoint(vt_backend *b, const vt_patch_grid *grid)
{
    const int64_t rows = BATCH * grid->tokens, columns = CHANNELS * grid->patch * grid->patch;
    guarded loaded = guarded_open(rows, columns), gradient = guarded_open(rows, columns);
    float fields[VALUES], dfields[VALUES];
    double there = 0, back = 0;
    fill_random(fields, VALUES, 1, 1);
    for (int i = 0; i < VALUES; i += 7) fields[i] = NAN;
    for (int i = 0; i < VALUES; i++) dfields[i] = 0.25f;
    for (int64_t r = 0; r < rows; r++)
        fill_random(gradient.matrix.data + r * gradient.matrix.stride, columns, 10 + (uint32_t)r, 1);
    b->patches_load(b, grid, fields, zero, one, loaded.matrix);
    b->patches_load_backward(b, grid, gradient.matrix, fields, dfields);
    guarded_check(&gradient, "patches_load_backward");
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const float value = loaded.matrix.data[r * loaded.matrix.stride + c];
            if (value != VT_NO_POINT)
                there += (double)value * (double)gradient.matrix.data[r * gradient.matrix.stride + c];
        }
    for (int i = 0; i < VALUES; i++) {
        const bool untouched = isnan(fields[i]) || i / PLANE % FIELD_CHANNELS >= CHANNELS;
        if (untouched)
            EXPECT(dfields[i] == 0.25f, "gradient %g at %d, where nothing is read", (double)dfields[i], i);
        else
            back += (double)fields[i] * ((double)dfields[i] - 0.25);
    }
    EXPECT_NEAR(back, there, 1e-4);
}

GPU_TEST(gradients_of_patches)
{
    FOR_EACH_BACKEND(isa, b)
    {
        for (int kind = 0; kind < 2 * 3 * 2 * 2; kind++) {
            vt_patch_grid grid = {.batch = BATCH,
                                  .field_channels = FIELD_CHANNELS,
                                  .channels = CHANNELS,
                                  .height = HEIGHT,
                                  .width = WIDTH,
                                  .patch = kind / 12 == 0 ? 4 : 3,
                                  .order = (vt_patch_order)(kind % 2),
                                  .beyond = (vt_beyond)(kind / 2 % 3)};
            const int64_t tokens = (HEIGHT + grid.patch - 1) / grid.patch * vt_patch_grid_across(&grid);
            const bool some = kind / 6 % 2 == 1;
            grid.missing = grid.beyond == VT_BEYOND_LEFT_OUT ? VT_MISSING_LEFT_OUT : VT_MISSING_MEAN;
            grid.first_token = some ? 2 : 0;
            grid.tokens = some ? tokens - 5 : tokens;
            check_adjoint(b, &grid);
        }
    }
}

GPU_TEST(scaled_sums)
{
    enum { ROWS = 30, COLUMNS = 12, SCALES = 3 };
    static const float scale[SCALES] = {0.5f, -2, 4};
    FOR_EACH_BACKEND(isa, b)
    {
        guarded x = guarded_open(ROWS, COLUMNS), base = guarded_open(ROWS, COLUMNS), y = guarded_open(ROWS, COLUMNS);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++) {
                x.matrix.data[r * x.matrix.stride + c] = (float)(r * COLUMNS + c);
                base.matrix.data[r * base.matrix.stride + c] = (float)(100 * c - r);
            }
        base.matrix.data[2 * base.matrix.stride + 3] = x.matrix.data[4 * x.matrix.stride + 1] = VT_NO_POINT;
        for (int without = 0; without < 2; without++) {
            b->scaled_add(b, x.matrix, scale, SCALES, without ? (vt_matrix){0} : base.matrix, y.matrix);
            guarded_check(&y, "scaled_add");
            for (int r = 0; r < ROWS; r++)
                for (int c = 0; c < COLUMNS; c++) {
                    const float from = without ? 0 : base.matrix.data[r * base.matrix.stride + c];
                    const float by = r == 4 && c == 1 ? 0 : x.matrix.data[r * x.matrix.stride + c];
                    const float expected = from == VT_NO_POINT ? VT_NO_POINT : from + scale[c % SCALES] * by;
                    EXPECT_NEAR(y.matrix.data[r * y.matrix.stride + c], expected, 0);
                }
        }
    }
}

/* Limits, and the gradient of what was limited: 0 at a bound, also where a value happens to be there. */
GPU_TEST(limits)
{
    enum { ROWS = 30, COLUMNS = 12, BOUNDS = 3 };
    static const float low[BOUNDS] = {-1, -INFINITY, 0}, high[BOUNDS] = {1, 2, INFINITY};
    FOR_EACH_BACKEND(isa, b)
    {
        guarded x = guarded_random(ROWS, COLUMNS, 1, 2), gradient = guarded_random(ROWS, COLUMNS, 2, 1);
        x.matrix.data[2 * x.matrix.stride + 3] = VT_NO_POINT;
        x.matrix.data[5 * x.matrix.stride + 6] = 1; /* a bound */
        x.matrix.data[7 * x.matrix.stride + 8] = NAN;
        guarded before = guarded_copy(&x), slope = guarded_copy(&gradient);
        b->limit(b, x.matrix, low, high, BOUNDS, (vt_matrix){0});
        guarded_check(&x, "limit");
        b->limit(b, x.matrix, low, high, BOUNDS, gradient.matrix);
        guarded_check(&gradient, "limit's gradient");
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++) {
                const float value = before.matrix.data[r * before.matrix.stride + c];
                const float least = low[c % BOUNDS], most = high[c % BOUNDS], whole = fminf(fmaxf(value, least), most);
                const float limited = x.matrix.data[r * x.matrix.stride + c];
                const bool inside = value > least && value < most;
                const float expected = inside || isnan(value) ? slope.matrix.data[r * slope.matrix.stride + c] : 0;
                if (isnan(value))
                    EXPECT(isnan(limited));
                else
                    EXPECT_NEAR(limited, value == VT_NO_POINT ? VT_NO_POINT : whole, 0);
                EXPECT_NEAR(gradient.matrix.data[r * gradient.matrix.stride + c], expected, 0);
            }
    }
}

/* ---- disturbed fields ---- */

enum { SAMPLES = 64, ROWS = 24, COLUMNS = 31, STRIDE = 3 * ROWS * COLUMNS };

static vt_disturbance disturbance(bool flips, int64_t first_row, int64_t rows)
{
    return (vt_disturbance){.seed = 5,
                            .first_sample = 3,
                            .flips = flips,
                            .copies = 1,
                            .samples = SAMPLES,
                            .channels = CHANNELS,
                            .rows = rows,
                            .width = COLUMNS,
                            .first_row = first_row,
                            .sample_stride = STRIDE};
}

/* Half of the samples change their sign, whole; noise has mean 0 and the standard deviation asked for, and depends on
 * where a value is, not on who computes it. */
GPU_TEST(disturbed_fields)
{
    static const float mean[CHANNELS] = {1, -2}, inverse_std[CHANNELS] = {0.5f, 2}, noise[CHANNELS] = {0.125f, 3};
    const uint32_t step = 7;
    float *fields = vt_test_owned(malloc((size_t)(SAMPLES * STRIDE) * sizeof *fields));
    float *y = vt_test_owned(malloc((size_t)(SAMPLES * STRIDE) * sizeof *y));
    float *below = vt_test_owned(malloc((size_t)(SAMPLES * STRIDE) * sizeof *below));
    fill_random(fields, SAMPLES * STRIDE, 1, 1);
    fields[5] = NAN;
    FOR_EACH_BACKEND(isa, b)
    {
        const vt_disturbance flips = disturbance(true, 0, ROWS), quiet = disturbance(false, 0, ROWS);
        const vt_disturbance lower = disturbance(true, 10, ROWS - 10);
        int negative = 0;
        double sums[CHANNELS][2] = {{0}};
        b->fields_disturb(b, &flips, &step, fields, mean, inverse_std, NULL, y);
        for (int i = 0; i < SAMPLES; i++) {
            const int at = i * CHANNELS * ROWS * COLUMNS;
            const float first = (fields[i * STRIDE + 1] - mean[0]) * inverse_std[0], sign = y[at + 1] / first;
            negative += sign < 0;
            for (int p = 0; p < CHANNELS * ROWS * COLUMNS; p++) {
                const int c = p / (ROWS * COLUMNS);
                const float expected = (sign < 0 ? -1 : 1) * ((fields[i * STRIDE + p] - mean[c]) * inverse_std[c]);
                EXPECT(y[at + p] == expected || (isnan(y[at + p]) && isnan(expected)), "sample %d, %d: %g, expected %g",
                       i, p, (double)y[at + p], (double)expected);
            }
        }
        EXPECT(negative > SAMPLES / 4 && negative < 3 * SAMPLES / 4, "%d of %d samples have changed their sign",
               negative, SAMPLES);
        b->fields_disturb(b, &quiet, &step, fields, mean, inverse_std, noise, y);
        for (int i = 0; i < SAMPLES * CHANNELS * ROWS * COLUMNS; i++) {
            const int c = i / (ROWS * COLUMNS) % CHANNELS, sample = i / (CHANNELS * ROWS * COLUMNS);
            const int p = i % (CHANNELS * ROWS * COLUMNS);
            const double added = (double)y[i] - (double)((fields[sample * STRIDE + p] - mean[c]) * inverse_std[c]);
            if (isnan(added)) continue;
            sums[c][0] += added;
            sums[c][1] += added * added;
        }
        for (int c = 0; c < CHANNELS; c++) {
            const double count = SAMPLES * ROWS * COLUMNS;
            EXPECT_NEAR(sums[c][0] / count, 0, 5 * (double)noise[c] / sqrt(count));
            EXPECT_NEAR(sqrt(sums[c][1] / count), noise[c], 0.02 * (double)noise[c]);
        }
        b->fields_disturb(b, &flips, &step, fields, mean, inverse_std, noise, y);
        b->fields_disturb(b, &lower, &step, fields + 10 * COLUMNS, mean, inverse_std, noise,
                          below); /* channel 0's rows */
        for (int p = 0; p < (ROWS - 10) * COLUMNS; p++)
            EXPECT(below[p] == y[10 * COLUMNS + p], "row %d: other noise on a part of the rows", p / COLUMNS);
    }
}
