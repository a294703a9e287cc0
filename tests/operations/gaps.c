/* Missing points of fields, and points beyond their edges: patches, loss and metrics against plain definitions. */
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "test.h"

enum { BATCH = 2, FIELD_CHANNELS = 3, CHANNELS = 2, MOST_HEIGHT = 32, MOST_WIDTH = 48 };
static const float mean[CHANNELS] = {1, -2}, inverse_std[CHANNELS] = {0.5f, 4}; /* powers of two: exact */

/* Whole numbers, and a few invalid values; every fifth point and one whole channel of the second sample are missing. */
static float *make_fields(int64_t height, int64_t width)
{
    const int64_t plane = height * width, size = BATCH * FIELD_CHANNELS * plane;
    float *fields = vt_test_owned(malloc((size_t)size * sizeof *fields));
    for (int64_t i = 0; i < size; i++) fields[i] = (float)(i % 977);
    for (int64_t i = 0; i < size; i++)
        if (i % 5 == 0 || i / plane == FIELD_CHANNELS)
            fields[i] = NAN;
        else if (i % 83 == 7)
            fields[i] = i % 2 == 0 ? 9.96921e36f : -1e35f;
    return fields;
}

/* The value at (row, column) of the patches, as backend.h defines it. */
static float wanted(const vt_patch_grid *grid, const float *fields, int64_t sample, int64_t channel, int64_t row,
                    int64_t column)
{
    const bool south = row >= grid->height, east = column >= grid->width;
    if ((south || east) && grid->beyond == VT_BEYOND_LEFT_OUT) return VT_NO_POINT;
    while (row >= grid->height) row--;
    while (column >= grid->width) column -= grid->beyond == VT_BEYOND_WRAP ? grid->width : 1;
    float value = fields[((sample * FIELD_CHANNELS + channel) * grid->height + row) * grid->width + column];
    if (grid->missing == VT_MISSING_SHOWN) return isnan(value) ? 0.0f : 1.0f;
    if (fabsf(value) > 1e30f) return INFINITY; /* invalid, but not missing either */
    if (!isnan(value)) return (value - mean[channel]) * inverse_std[channel];
    return grid->missing == VT_MISSING_STAYS ? NAN : grid->missing == VT_MISSING_MEAN ? 0 : VT_NO_POINT;
}

static bool same(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void check_patches(vt_backend *b, const vt_patch_grid *grid, const float *fields)
{
    const int64_t patch = grid->patch, points = patch * patch, across = (grid->width + patch - 1) / patch;
    const int64_t columns = CHANNELS * points;
    const bool first = grid->order == VT_PATCH_CHANNEL_FIRST;
    guarded patches = guarded_open(BATCH * grid->tokens, columns);
    int64_t wrong = 0;
    b->patches_load(b, grid, fields, mean, inverse_std, patches.matrix);
    guarded_check(&patches, "patches_load");
    for (int64_t r = 0; r < BATCH * grid->tokens; r++)
        for (int64_t i = 0; i < CHANNELS * points; i++) {
            const int64_t channel = first ? i / points : i % CHANNELS, point = first ? i % points : i / CHANNELS;
            const int64_t token = grid->first_token + r % grid->tokens;
            float value = wanted(grid, fields, r / grid->tokens, channel, token / across * patch + point / patch,
                                 token % across * patch + point % patch);
            wrong += !same(patches.matrix.data[r * patches.matrix.stride + i], value);
        }
    EXPECT(wrong == 0, "%ld elements: [%ld, %ld] in patches of %ld, order %d, missing %d, beyond %d", wrong,
           grid->height, grid->width, patch, (int)grid->order, (int)grid->missing, (int)grid->beyond);
}

/* Rows without gaps between them (which may be moved many points at once) hold the same; of 16 bits, the same
 * rounded. */
static void check_tight_patches(vt_backend *b, const vt_patch_grid *grid, const float *fields, vt_type type)
{
    const int64_t rows = BATCH * grid->tokens, columns = CHANNELS * grid->patch * grid->patch;
    guarded apart = guarded_open(rows, columns);
    const twins tight = twins_open(type, rows, columns, TWINS_TIGHT);
    int64_t wrong = 0;
    b->patches_load(b, grid, fields, mean, inverse_std, apart.matrix);
    b->patches_load(b, grid, fields, mean, inverse_std, tight.own);
    for (int64_t i = 0; i < rows * columns; i++) {
        const float value = apart.matrix.data[i / columns * apart.matrix.stride + i % columns];
        wrong += type == VT_FLOAT32 ? !same(tight.own.data[i], value) : tight.own.half[i] != vt_half_round(type, value);
    }
    twins_compare(&tight, -1, "patches without gaps between them");
    EXPECT(wrong == 0, "%ld elements without gaps in %s", wrong, half_name(type));
}

/* The way back: only the fields' points are written. */
static void check_store(vt_backend *b, const vt_patch_grid *grid, const float *fields)
{
    const int64_t patch = grid->patch, across = (grid->width + patch - 1) / patch, plane = grid->height * grid->width;
    guarded patches = guarded_open(BATCH * grid->tokens, CHANNELS * patch * patch);
    float back[BATCH * FIELD_CHANNELS * MOST_HEIGHT * MOST_WIDTH];
    for (int64_t i = 0; i < BATCH * FIELD_CHANNELS * plane; i++) back[i] = -7;
    b->patches_load(b, grid, fields, mean, inverse_std, patches.matrix);
    b->patches_store(b, grid, patches.matrix, mean, inverse_std, back);
    for (int64_t i = 0; i < BATCH * FIELD_CHANNELS * plane; i++) {
        const int64_t row = i % plane / grid->width, column = i % grid->width;
        const int64_t token = row / patch * across + column / patch;
        const bool written = i / plane % FIELD_CHANNELS < CHANNELS && token >= grid->first_token &&
                             token < grid->first_token + grid->tokens;
        const float expected = !written                                               ? -7
                               : fabsf(fields[i]) > 1e30f                             ? INFINITY
                               : isnan(fields[i]) && grid->missing == VT_MISSING_MEAN ? mean[i / plane % FIELD_CHANNELS]
                                                                                      : fields[i];
        EXPECT(same(back[i], expected), "at %ld: %g, expected %g", i, (double)back[i], (double)expected);
    }
}

static void check_grid(vt_backend *b, int64_t height, int64_t width, int64_t patch)
{
    const int64_t tokens = (height + patch - 1) / patch * ((width + patch - 1) / patch);
    float *fields = make_fields(height, width);
    for (int kind = 0; kind < 2 * 4 * 3 * 4; kind++) {
        vt_patch_grid grid = {.batch = BATCH,
                              .field_channels = FIELD_CHANNELS,
                              .channels = CHANNELS,
                              .height = height,
                              .width = width,
                              .patch = patch,
                              .tokens = tokens,
                              .order = (vt_patch_order)(kind % 2),
                              .missing = (vt_missing)(kind / 2 % 4),
                              .beyond = (vt_beyond)(kind / 8 % 3)};
        if (kind >= 24 &&
            tokens > 3) { /* spans that begin and end within rows of tokens, or at their ends; one token */
            static const int64_t ahead[] = {0, 1, 0, 2}, behind[] = {0, 1, 1, 0};
            grid.first_token = ahead[kind / 24];
            grid.tokens = kind / 24 == 3 ? 1 : tokens - grid.first_token - behind[kind / 24];
        }
        check_patches(b, &grid, fields);
        if (grid.missing != VT_MISSING_SHOWN) check_store(b, &grid, fields);
        const bool finite = grid.missing == VT_MISSING_MEAN && grid.beyond > 0; /* but for what is invalid */
        for (vt_type type = VT_FLOAT32; type < (finite ? VT_TYPE_COUNT : VT_BFLOAT16); type++)
            check_tight_patches(b, &grid, fields, type);
    }
}

GPU_TEST(patches_with_gaps_and_beyond_the_edges)
{
    static const int64_t grids[][3] = {{12, 8, 4}, {11, 13, 4}, {17, 31, 8}, {16, 20, 8}, {20, 24, 8}, {13, 12, 6},
                                       {5, 3, 8},  {7, 9, 1},   {11, 13, 3}, {1, 1, 2},   {32, 48, 16}};
    FOR_EACH_BACKEND(isa, b)
    {
        for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) check_grid(b, grids[i][0], grids[i][1], grids[i][2]);
    }
}

/* ---- loss and metrics ---- */

enum { HEIGHT = 11, WIDTH = 13, PATCH = 4, ACROSS = 4, TOKENS = 3 * ACROSS, COLUMNS = CHANNELS * PATCH * PATCH };
static const double sum64 = 1e3 * 0x1p-53; /* of a few hundred terms in float64 */

typedef struct {
    guarded prediction, target, gradient;
    double squares[BATCH][2], channels[BATCH][CHANNELS][2];
    float losses[BATCH], weights[HEIGHT];
    vt_loss_measure measure;
    guarded point_weights; /* [TOKENS, COLUMNS] */
    bool weighted;
} scored;

enum { LOSSES = 6 }; /* three measures, with weights and without */

static void open_scored(scored *s, int loss)
{
    s->measure = (vt_loss_measure)(loss / 2);
    s->weighted = loss % 2 == 1;
    s->point_weights = guarded_random(TOKENS, COLUMNS, 3, 1);
    for (int i = 0; i < TOKENS * COLUMNS; i++) {
        float *weight = s->point_weights.matrix.data + i / COLUMNS * s->point_weights.matrix.stride + i % COLUMNS;
        *weight *= *weight;
    }
    s->prediction = guarded_random(BATCH * TOKENS, COLUMNS, 1, 1);
    s->target = guarded_random(BATCH * TOKENS, COLUMNS, 2, 1);
    s->gradient = guarded_open(BATCH * TOKENS, COLUMNS);
    for (int row = 0; row < HEIGHT; row++) s->weights[row] = 0.25f * (float)(row + 1);
}

static float *at(const guarded *g, int64_t row, int64_t column)
{
    return g->matrix.data + row * g->matrix.stride + column;
}

static void run(vt_backend *b, scored *s)
{
    vt_patch_grid grid = {.batch = BATCH,
                          .field_channels = CHANNELS,
                          .channels = CHANNELS,
                          .height = HEIGHT,
                          .width = WIDTH,
                          .patch = PATCH,
                          .order = VT_PATCH_CHANNEL_LAST,
                          .tokens = TOKENS};
    vt_matrix p = s->prediction.matrix, t = s->target.matrix;
    const vt_matrix w = s->weighted ? s->point_weights.matrix : (vt_matrix){0};
    b->loss_sums(b, s->measure, BATCH, p, t, w, s->squares[0]);
    b->loss_values(b, s->measure, BATCH, s->squares[0], s->losses, NULL);
    b->loss_backward(b, s->measure, BATCH, p, t, w, s->squares[0], 0.5f, NULL, s->gradient.matrix);
    b->channel_squares(b, &grid, p, t, s->weights, s->channels[0][0]);
}

static void check_against_sums(const scored *s)
{
    const bool relative = s->measure == VT_MEASURE_RELATIVE, absolute = s->measure == VT_MEASURE_ABSOLUTE;
    for (int sample = 0; sample < BATCH; sample++) {
        double difference = 0, size = 0, channels[CHANNELS][2] = {{0}};
        for (int i = 0; i < TOKENS * COLUMNS; i++) {
            const int row = sample * TOKENS + i / COLUMNS, column = i % COLUMNS, token = i / COLUMNS;
            const int y = token / ACROSS * PATCH + column / CHANNELS / PATCH;
            const int x = token % ACROSS * PATCH + column / CHANNELS % PATCH;
            const double p = *at(&s->prediction, row, column), t = *at(&s->target, row, column);
            const bool there = p < 1e30 && t < 1e30;
            double *channel = channels[column % CHANNELS];
            const double weight = s->weighted ? *at(&s->point_weights, token, column) : 1;
            if (there) difference += weight * (absolute ? fabs(p - t) : (p - t) * (p - t));
            if (there) size += weight * (relative ? t * t : 1);
            if (y < HEIGHT && x < WIDTH) channel[!there] += (double)s->weights[y] * (there ? (p - t) * (p - t) : 1);
        }
        EXPECT_NEAR(s->squares[sample][0], difference, sum64 * difference);
        EXPECT_NEAR(s->squares[sample][1], size, sum64 * size);
        const double ratio = difference > 0 ? difference / size : 0, loss = relative ? sqrt(ratio) : ratio;
        EXPECT_NEAR(s->losses[sample], loss, 1e-6 * loss);
        for (int c = 0; c < CHANNELS; c++)
            for (int i = 0; i < 2; i++) EXPECT_NEAR(s->channels[sample][c][i], channels[c][i], sum64 * channels[c][i]);
        for (int i = 0; i < TOKENS * COLUMNS; i++) {
            const int row = sample * TOKENS + i / COLUMNS, column = i % COLUMNS;
            const double p = *at(&s->prediction, row, column), t = *at(&s->target, row, column);
            const double weight = s->weighted ? *at(&s->point_weights, i / COLUMNS, column) : 1;
            const double factor = weight / (relative ? sqrt(difference * size) : size);
            const double direction = absolute ? (p > t) - (p < t) : relative ? p - t : 2 * (p - t);
            const double slope = p < 1e30 && t < 1e30 ? 0.5 * factor * direction : 0;
            EXPECT_NEAR(*at(&s->gradient, row, column), slope, 1e-6 * fabs(slope));
        }
    }
}

/* The grid is padded: points beyond the fields count in none of the sums of weights. */
GPU_TEST(loss_and_metrics_leave_gaps_out)
{
    FOR_EACH_BACKEND(isa, b)
    for (int loss = 0; loss < LOSSES; loss++) {
        scored s;
        open_scored(&s, loss);
        for (int row = 0; row < BATCH * TOKENS; row++)
            for (int column = 0; column < COLUMNS; column++) {
                const int token = row % TOKENS, y = token / ACROSS * PATCH + column / CHANNELS / PATCH;
                const int x = token % ACROSS * PATCH + column / CHANNELS % PATCH;
                if (y >= HEIGHT || x >= WIDTH || (x * y + column) % 3 == 0) *at(&s.target, row, column) = VT_NO_POINT;
                if ((x + y) % 10 == 0) *at(&s.prediction, row, column) = VT_NO_POINT;
                if (y >= HEIGHT || x >= WIDTH) *at(&s.point_weights, token, column) = VT_NO_POINT;
            }
        run(b, &s);
        guarded_check(&s.gradient, "loss_backward");
        check_against_sums(&s);
    }
}

/* A sample without a point has no loss and no gradient; this does not affect the other one. */
GPU_TEST(a_sample_without_points)
{
    FOR_EACH_BACKEND(isa, b)
    for (int loss = 0; loss < LOSSES; loss++) {
        scored s, whole;
        open_scored(&s, loss);
        open_scored(&whole, loss);
        for (int i = 0; i < TOKENS * COLUMNS; i++) *at(&s.target, i / COLUMNS, i % COLUMNS) = VT_NO_POINT;
        run(b, &s);
        run(b, &whole);
        check_against_sums(&s);
        EXPECT(s.losses[0] == 0 && s.losses[1] == whole.losses[1] && s.losses[1] > 0);
    }
}

/* A missing point where none is allowed is not a gap: it must show. */
GPU_TEST(a_nan_reaches_the_loss)
{
    FOR_EACH_BACKEND(isa, b)
    for (int loss = 0; loss < LOSSES; loss++) {
        scored s;
        open_scored(&s, loss);
        *at(&s.target, 3, 5) = NAN;
        run(b, &s);
        EXPECT(isnan(s.losses[0]) && isfinite(s.losses[1]));
    }
}
