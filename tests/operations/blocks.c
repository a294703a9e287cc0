/* Operations on a block of a larger tensor, as one rank of several holds it: the results equal those of the whole. */
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

static const uint32_t dropout_step = 5; /* of dropout */

static const double unit = 0x1p-24;

/* ---- dropout ---- */

static void check_mask(vt_backend *b, part p)
{
    enum { BATCH = 2, TOKENS = 11, COLUMNS = 37 };
    guarded x = guarded_random(BATCH * TOKENS, COLUMNS, 1, 1), y = guarded_open(BATCH * TOKENS, COLUMNS);
    guarded stream = guarded_random(BATCH * TOKENS, COLUMNS, 2, 1);
    vt_mask mask = {
        .elements = {.rate = 0.4f, .seed = 3, .step = &dropout_step, .layer = 2, .site = 1, .first_sample = 6},
        .path = {.rate = 0.3f, .seed = 3, .step = &dropout_step, .layer = 2, .site = 4, .first_sample = 6},
        .tokens = TOKENS};
    b->mask_multiply(b, x.matrix, &mask, y.matrix);
    guarded block = guarded_part(x.matrix, BATCH, p), masked = guarded_open(BATCH * p.tokens, p.columns);
    guarded block_stream = guarded_part(stream.matrix, BATCH, p);
    mask.tokens = p.tokens;
    mask.first_token = p.first_token;
    mask.first_column = p.first_column;
    b->mask_multiply(b, block.matrix, &mask, masked.matrix);
    guarded_compare_part(&masked, &y, BATCH, p, 0, "mask_multiply of a block");
    b->residual_add(b, block_stream.matrix, block.matrix, &mask, block_stream.matrix);
    guarded_compare_part(&block, &y, BATCH, p, 0, "the branch of residual_add of a block");
}

GPU_TEST(dropout_of_a_block_is_the_wholes)
{
    static const part parts[] = {{0, 11, 0, 37}, {3, 5, 0, 37}, {0, 11, 1, 36}, {4, 7, 2, 3},
                                 {1, 9, 3, 1},   {2, 3, 5, 20}, {10, 1, 7, 30}, {6, 2, 8, 29}};
    FOR_EACH_BACKEND(isa, b)
    {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) check_mask(b, parts[i]);
    }
}

/* ---- loss and metrics (patches: gaps.c) ---- */

enum { BATCH = 2, CHANNELS = 3, HEIGHT = 12, ACROSS = 3, PATCH = 3, TOKENS = HEIGHT / PATCH * ACROSS };
enum { PLANE = HEIGHT * ACROSS * PATCH, FIELDS = BATCH * CHANNELS * PLANE, PATCH_SIZE = CHANNELS * PATCH * PATCH };

static vt_patch_grid grid_of(vt_patch_order order, int64_t first_token, int64_t tokens)
{
    return (vt_patch_grid){.batch = BATCH,
                           .field_channels = CHANNELS,
                           .channels = CHANNELS,
                           .height = HEIGHT,
                           .width = ACROSS * PATCH,
                           .patch = PATCH,
                           .order = order,
                           .first_token = first_token,
                           .tokens = tokens};
}

/* Sums of a few hundred terms in float64. */
static const double sum64 = 1e3 * 0x1p-53;

/* Three ranks share each sample; their squares add up to the whole's, and each rank's gradient is its part. */
GPU_TEST(loss_and_metrics_of_parts_add_up)
{
    static const part parts[3] = {{0, 4, 0, PATCH_SIZE}, {4, 7, 0, PATCH_SIZE}, {11, 1, 0, PATCH_SIZE}};
    enum { FIGURES = 2 * BATCH * CHANNELS };
    FOR_EACH_BACKEND(isa, b)
    {
        guarded prediction = guarded_random(BATCH * TOKENS, PATCH_SIZE, 1, 1);
        guarded target = guarded_random(BATCH * TOKENS, PATCH_SIZE, 2, 1);
        guarded gradient = guarded_open(BATCH * TOKENS, PATCH_SIZE);
        double squares[2 * BATCH], sums[2 * BATCH] = {0}, points[FIGURES], point_sums[FIGURES] = {0};
        float weights[HEIGHT], losses[BATCH];
        vt_patch_grid grid = grid_of(VT_PATCH_CHANNEL_LAST, 0, TOKENS);
        for (int i = 0; i < HEIGHT; i++) weights[i] = 0.25f * (float)(i + 1);
        guarded point_weights = guarded_random(TOKENS, PATCH_SIZE, 3, 1);
        const vt_loss_measure measure = VT_MEASURE_RELATIVE;
        for (int i = 0; i < TOKENS * PATCH_SIZE; i++) {
            float *weight = point_weights.matrix.data + i / PATCH_SIZE * point_weights.matrix.stride + i % PATCH_SIZE;
            *weight = fabsf(*weight);
        }
        const vt_matrix w = point_weights.matrix;
        b->loss_sums(b, measure, BATCH, prediction.matrix, target.matrix, w, squares);
        b->channel_squares(b, &grid, prediction.matrix, target.matrix, weights, points);
        b->loss_values(b, measure, BATCH, squares, losses, NULL);
        b->loss_backward(b, measure, BATCH, prediction.matrix, target.matrix, w, squares, 0.5f, NULL, gradient.matrix);
        for (int i = 0; i < 3; i++) {
            guarded p = guarded_part(prediction.matrix, BATCH, parts[i]),
                    t = guarded_part(target.matrix, BATCH, parts[i]);
            guarded some_weights = guarded_part(w, 1, parts[i]);
            double some[2 * BATCH], some_points[FIGURES];
            grid = grid_of(VT_PATCH_CHANNEL_LAST, parts[i].first_token, parts[i].tokens);
            b->loss_sums(b, measure, BATCH, p.matrix, t.matrix, some_weights.matrix, some);
            b->channel_squares(b, &grid, p.matrix, t.matrix, weights, some_points);
            for (int j = 0; j < 2 * BATCH; j++) sums[j] += some[j];
            for (int j = 0; j < FIGURES; j++) point_sums[j] += some_points[j];
            b->loss_backward(b, measure, BATCH, p.matrix, t.matrix, some_weights.matrix, squares, 0.5f, NULL, p.matrix);
            guarded_compare_part(&p, &gradient, BATCH, parts[i], 0, "loss_backward of a part");
        }
        for (int j = 0; j < 2 * BATCH; j++) EXPECT_NEAR(sums[j], squares[j], sum64 * squares[j]);
        for (int j = 0; j < FIGURES; j++) EXPECT_NEAR(point_sums[j], points[j], sum64 * points[j]);
        for (int j = 0; j < BATCH; j++) {
            double loss = sqrt(squares[2 * j]) / sqrt(squares[2 * j + 1]);
            EXPECT_NEAR(losses[j], loss, unit * loss);
        }
    }
}

GPU_TEST(channel_squares_weigh_each_row)
{
    FOR_EACH_BACKEND(isa, b)
    {
        static const float mean[CHANNELS] = {0}, inverse_std[CHANNELS] = {1, 1, 1};
        guarded prediction = guarded_open(BATCH * 7, PATCH_SIZE), target = guarded_open(BATCH * 7, PATCH_SIZE);
        vt_patch_grid grid = grid_of(VT_PATCH_CHANNEL_LAST, 4, 7);
        float fields[2][FIELDS], weights[HEIGHT];
        double squares[BATCH * CHANNELS][2], expected[BATCH * CHANNELS] = {0};
        for (int i = 0; i < HEIGHT; i++) weights[i] = 0.25f * (float)(i + 1);
        for (int i = 0; i < 2; i++) fill_random(fields[i], FIELDS, 7 + (uint64_t)i, 1);
        b->patches_load(b, &grid, fields[0], mean, inverse_std, prediction.matrix);
        b->patches_load(b, &grid, fields[1], mean, inverse_std, target.matrix);
        b->channel_squares(b, &grid, prediction.matrix, target.matrix, weights, squares[0]);
        for (int i = 0; i < FIELDS; i++) {
            int y = i % PLANE / (ACROSS * PATCH), x = i % (ACROSS * PATCH), token = y / PATCH * ACROSS + x / PATCH;
            double difference = (double)fields[0][i] - (double)fields[1][i];
            if (token >= 4 && token < 11) expected[i / PLANE] += (double)weights[y] * difference * difference;
        }
        for (int i = 0; i < BATCH * CHANNELS; i++) EXPECT_NEAR(squares[i][0], expected[i], sum64 * expected[i]);
        for (int i = 0; i < BATCH * CHANNELS; i++) EXPECT(squares[i][1] == 0, "no point is missing");
    }
}

TEST(a_perfect_forecast_has_no_gradient)
{
    SCOPED(vt_backend) *b = open_path(VT_ISA_AUTO);
    guarded x = guarded_random(4, 9, 1, 1), gradient = guarded_open(4, 9), zero = guarded_random(4, 9, 1, 0);
    double sums[4];
    for (vt_loss_measure measure = VT_MEASURE_RELATIVE; measure <= VT_MEASURE_ABSOLUTE; measure++) {
        b->loss_sums(b, measure, 2, x.matrix, x.matrix, (vt_matrix){0}, sums);
        b->loss_backward(b, measure, 2, x.matrix, x.matrix, (vt_matrix){0}, sums, 1, NULL, gradient.matrix);
        guarded_compare(&gradient, &zero, 0, "gradient of a perfect forecast");
    }
}

GPU_TEST(sum_of_squares_adds)
{
    FOR_EACH_BACKEND(isa, b)
    {
        float x[1013];
        double expected = 3, result = 3;
        fill_random(x, 1013, 1, 1);
        for (int i = 0; i < 1013; i++) expected += 0.25 * (double)x[i] * (double)x[i];
        b->sum_of_squares(b, x, 500, 0.25, &result);
        b->sum_of_squares(b, x + 500, 513, 0.25, &result);
        EXPECT_NEAR(result, expected, 4 * sum64 * expected);
    }
}

/* ---- positions of few tokens; of one, which is a bias ---- */

static void check_position(vt_backend *b, int64_t tokens, int64_t samples, int64_t columns)
{
    guarded x = guarded_random(tokens * samples, columns, 1, 1), y = guarded_copy(&x), sum = guarded_copy(&x);
    guarded own = guarded_random(tokens, columns, 2, 1), down = guarded_copy(&own), expected = guarded_copy(&own);
    for (int64_t token = 0; token < tokens; token++)
        for (int64_t c = 0; c < columns; c++) {
            double total = 0;
            for (int64_t r = token; r < tokens * samples; r += tokens) {
                total += (double)x.matrix.data[r * x.matrix.stride + c];
                sum.matrix.data[r * sum.matrix.stride + c] += own.matrix.data[token * own.matrix.stride + c];
            }
            expected.matrix.data[token * expected.matrix.stride + c] += (float)total;
        }
    b->position_add(b, y.matrix, own.matrix);
    b->position_backward(b, x.matrix, down.matrix);
    guarded_compare(&y, &sum, 0, "position_add of few tokens");
    guarded_compare(&down, &expected, 4 * unit, "position_backward of few tokens");
}

GPU_TEST(positions_of_few_tokens)
{
    FOR_EACH_BACKEND(isa, b)
    {
        check_position(b, 1, 1, 7);
        check_position(b, 1, 1013, 97);
        check_position(b, 1, 97, 1);
        check_position(b, 3, 70, 97);
    }
}
