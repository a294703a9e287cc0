/* The score of ensembles by itself: where members or truth are equal, points that are missing, and its expectation. The
 * golden files (golden/ensemble.c) have the rest. */
#include "backend/crps_measure.h"
#include "operations/paths.h"
#include "test.h"

enum { SIDE = 4, MEMBERS = 3, POINTS = SIDE * SIDE };

/* One sample of one channel on a grid of 4 × 4 points, in one patch. */
static vt_crps score(int64_t members, double alpha, int64_t side)
{
    return (vt_crps){.grid = {.batch = 1,
                              .field_channels = 1,
                              .channels = 1,
                              .height = SIDE,
                              .width = SIDE,
                              .patch = SIDE,
                              .order = VT_PATCH_CHANNEL_LAST,
                              .tokens = 1},
                     .members = members,
                     .alpha = alpha,
                     .scale_count = 1,
                     .sides = {side}};
}

GPU_TEST(equal_members_and_missing_points)
{
    static const float unit = 0.5f;
    FOR_EACH_BACKEND(isa, b)
    {
        float members[MEMBERS * POINTS], truth[POINTS], slopes[MEMBERS * POINTS];
        const vt_matrix x = vt_matrix_make(members, MEMBERS, POINTS), y = vt_matrix_make(truth, 1, POINTS);
        const vt_matrix d = vt_matrix_make(slopes, MEMBERS, POINTS), none = {0};
        double sums[2];
        const vt_crps how = score(MEMBERS, 1, 1), wide = score(MEMBERS, 1, 2);
        for (int i = 0; i < MEMBERS * POINTS; i++) members[i] = 2;
        for (int i = 0; i < POINTS; i++) truth[i] = i == 0 ? 2 : i == 1 ? VT_NO_POINT : 5;
        b->crps_sums(b, &how, x, y, none, &unit, sums);
        EXPECT_NEAR(sums[0], 14 * 3 * 0.5, 1e-12);
        EXPECT_NEAR(sums[1], 15, 1e-12);
        b->crps_backward(b, &how, x, y, none, &unit, sums, 30, NULL, d);
        for (int i = 0; i < MEMBERS * POINTS; i++)
            EXPECT_NEAR(slopes[i], i % POINTS < 2 ? 0 : -30.0 * 0.5 / 15 / MEMBERS, 1e-6);
        /* the first block has three points, whose truth is 4 in the mean */
        b->crps_sums(b, &wide, x, y, none, &unit, sums);
        EXPECT_NEAR(sums[0], (3 * 2 + 12 * 3) * 0.5, 1e-12);
        EXPECT_NEAR(sums[1], 15, 1e-12);
        b->crps_backward(b, &wide, x, y, none, &unit, sums, 30, NULL, d);
        for (int i = 0; i < MEMBERS * POINTS; i++)
            EXPECT_NEAR(slopes[i], i % POINTS == 1 ? 0 : -30.0 * 0.5 / 15 / MEMBERS, 1e-6);
        /* a value that is not finite shows in both */
        members[5] = NAN;
        b->crps_sums(b, &how, x, y, none, &unit, sums);
        b->crps_backward(b, &how, x, y, none, &unit, sums, 30, NULL, d);
        EXPECT(isnan(sums[0]) && isnan(slopes[5]), "%g, %g", sums[0], (double)slopes[5]);
    }
}

/* Members of N(0, s), truth of N(0, 1): the fair score's expectation is the CRPS of N(0, s) for any number of members,
 * s (sqrt(1 + 1 / s²) sqrt(2 / pi) - 1 / sqrt(pi)); that of the members as they are is larger by s / (M sqrt(pi)). */
TEST(the_fair_score_is_that_of_the_distribution)
{
    enum { TOKENS = 100000, MOST = 4 };
    static const float unit = 1;
    const double s = 1.3, exact = sqrt(1 + s * s) * sqrt(2 / M_PI) - s / sqrt(M_PI);
    SCOPED(vt_backend) *b = open_path(VT_ISA_PLAIN);
    float *members = vt_test_owned(malloc((size_t)MOST * TOKENS * sizeof *members));
    float *truth = vt_test_owned(malloc(2 * TOKENS * sizeof *truth));
    const uint32_t step = 3;
    const vt_noise draws = {.seed = 1, .rows = 1, .tokens = TOKENS, .numbers = 1};
    for (int64_t count = 2; count <= MOST; count++) {
        double sums[2];
        vt_crps how = score(count, 1, 1);
        how.grid = (vt_patch_grid){.batch = 1,
                                   .field_channels = 1,
                                   .channels = 1,
                                   .height = 1,
                                   .width = TOKENS,
                                   .patch = 1,
                                   .order = VT_PATCH_CHANNEL_LAST,
                                   .tokens = TOKENS};
        for (int64_t m = 0; m <= count; m++) {
            const uint32_t key[2] = {(uint32_t)(10 * count + m), 7};
            b->noise_draw(b, &draws, &step, key,
                          vt_matrix_make(truth, TOKENS, 2)); /* the second number is the token's */
            for (int64_t i = 0; i < TOKENS && m < count; i++) members[m * TOKENS + i] = (float)s * truth[2 * i + 1];
        }
        for (int64_t i = 0; i < TOKENS; i++) truth[i] = truth[2 * i + 1];
        const vt_matrix x = vt_matrix_make(members, count * TOKENS, 1), y = vt_matrix_make(truth, TOKENS, 1);
        b->crps_sums(b, &how, x, y, (vt_matrix){0}, &unit, sums);
        EXPECT_NEAR(sums[0] / sums[1], exact, 4 * s / sqrt(TOKENS)); /* each score varies by less than s */
        how.alpha = 0;
        b->crps_sums(b, &how, x, y, (vt_matrix){0}, &unit, sums);
        EXPECT_NEAR(sums[0] / sums[1], exact + s / ((double)count * sqrt(M_PI)), 4 * s / sqrt(TOKENS));
    }
}
