/* Scores of ensembles against numbers computed by hand, against the definition, and against what statistics says of an
 * ensemble that is right; the noise on initial states. */
#include "task/weather/ensemble.h"

#include "base/random.h"
#include "base/text.h"
#include "storage/output_file.h"
#include "test.h"

enum { MEMBERS = 5, CHANNELS = 2, HEIGHT = 7, WIDTH = 9, PLANE = HEIGHT * WIDTH, FIELDS = CHANNELS * PLANE };

static const double latitudes[HEIGHT] = {75, 60, 45, 10, 0, -30, -80};

/* A standard normal number that depends on these alone. */
static double normal(uint64_t stream, int64_t index)
{
    return vt_random_normal_quantile(vt_random_element(7, stream, (uint64_t)index));
}

static vt_scores *opened(int64_t members, int64_t channels, int64_t height, int64_t width, const double *rows)
{
    vt_scores *ensemble = NULL;
    const vt_scores_options options = {2, channels, height, width, rows, .members = members};
    vt_ensemble_open(&options, &ensemble);
    return ensemble;
}

/* Two rows at 60 and 0 degrees, weights 1/2 and 1, and members 1, 2, 4. The target 2: mean error (1 + 0 + 2) / 3,
 * distances of the pairs 1 + 3 + 2 = 6, over 3 * 2; CRPS 1 - 1 = 0. The target 5: (4 + 3 + 1) / 3 - 1 = 5/3. The
 * variance of 1, 2, 4 is 7/3. */
TEST(ensemble_by_hand)
{
    const double rows[] = {60, 0};
    const float a[] = {1, 1}, b[] = {2, 2}, c[] = {4, 4}, target[] = {2, 5}, none[] = {NAN, NAN}, part[] = {NAN, 5};
    const float *const members[] = {a, b, c};
    vt_scores *ensemble = opened(3, 1, 2, 1, rows);
    EXPECT(isnan(vt_ensemble_crps(ensemble, 0, 0, 0)));
    vt_ensemble_add(ensemble, 0, members, target);
    vt_ensemble_add(ensemble, 0, members, none); /* counts in no mean */
    EXPECT_NEAR(vt_ensemble_crps(ensemble, 0, 0, 0), 5 / 3. * 1 / 1.5, 1e-15);
    EXPECT_NEAR(vt_ensemble_spread(ensemble, 0, 0), sqrt(7 / 3.), 1e-15);
    EXPECT_NEAR(vt_ensemble_ratio(ensemble, 0, 0, 0), sqrt(4 / 3. * 7 / 3. / ((0.5 / 9 + 64 / 9.) / 1.5)), 1e-15);
    vt_ensemble_add(ensemble, 1, members, part);
    EXPECT_NEAR(vt_ensemble_crps(ensemble, 1, 0, 0), 5 / 3., 1e-15);
    vt_scores_close(&ensemble);
    float mean[2];
    vt_ensemble_mean(3, members, 2, mean);
    EXPECT(mean[0] == (float)(7 / 3.) && mean[1] == (float)(7 / 3.));
}

/* All pairs of members at each point, as Zamo and Naveau write it. */
TEST(crps_is_the_double_sum)
{
    float values[MEMBERS][FIELDS], target[FIELDS];
    const float *members[MEMBERS];
    for (int64_t m = 0; m < MEMBERS; m++) {
        members[m] = values[m];
        for (int64_t i = 0; i < FIELDS; i++) values[m][i] = (float)(280 + 3 * normal((uint64_t)m, i));
    }
    for (int64_t i = 0; i < FIELDS; i++) target[i] = i % 11 == 0 ? NAN : (float)(280 + 4 * normal(MEMBERS, i));
    SCOPED(vt_scores) *ensemble = opened(MEMBERS, CHANNELS, HEIGHT, WIDTH, latitudes);
    vt_ensemble_add(ensemble, 1, members, target);
    for (int64_t c = 0; c < CHANNELS; c++) {
        double crps = 0, variance = 0, weights = 0;
        for (int64_t i = c * PLANE; i < (c + 1) * PLANE; i++) {
            const double weight = cos(latitudes[(i - c * PLANE) / WIDTH] * M_PI / 180);
            double errors = 0, pairs = 0, mean = 0, squares = 0;
            if (isnan(target[i])) continue;
            for (int j = 0; j < MEMBERS; j++) {
                errors += fabs((double)values[j][i] - (double)target[i]);
                mean += (double)values[j][i] / MEMBERS;
                for (int k = 0; k < MEMBERS; k++) pairs += fabs((double)values[j][i] - (double)values[k][i]);
            }
            for (int j = 0; j < MEMBERS; j++) squares += ((double)values[j][i] - mean) * ((double)values[j][i] - mean);
            crps += weight * (errors / MEMBERS - pairs / (2. * MEMBERS * (MEMBERS - 1)));
            variance += weight * squares / (MEMBERS - 1);
            weights += weight;
        }
        EXPECT_NEAR(vt_ensemble_crps(ensemble, 1, c, 0), crps / weights, 1e-12);
        EXPECT_NEAR(vt_ensemble_spread(ensemble, 1, c), sqrt(variance / weights), 1e-12);
        EXPECT(isnan(vt_ensemble_crps(ensemble, 0, c, 0)));
    }
    values[2][5] = NAN; /* not a missing point: it must show */
    vt_ensemble_add(ensemble, 0, members, target);
    EXPECT(isnan(vt_ensemble_crps(ensemble, 0, 0, 0)) && isfinite(vt_ensemble_crps(ensemble, 0, 1, 0)));
}

/* The CRPS of one member is its MAE, and it has no spread; equal members have that CRPS, too, and a spread of 0. */
TEST(ensembles_of_one)
{
    float forecast[FIELDS], target[FIELDS];
    const float *const equal[] = {forecast, forecast, forecast}, stds[CHANNELS] = {1, 1};
    for (int64_t i = 0; i < FIELDS; i++) forecast[i] = (float)normal(0, i);
    for (int64_t i = 0; i < FIELDS; i++) target[i] = (float)normal(1, i);
    const vt_scores_options options = {
        .leads = 2, .channels = CHANNELS, .height = HEIGHT, .width = WIDTH, .latitudes = latitudes, .stds = stds};
    SCOPED(vt_scores) *scores = NULL;
    vt_scores_open(&options, &scores);
    vt_scores_add(scores, 0, &(vt_score_fields){forecast, target, NULL, NULL, {0}});
    SCOPED(vt_scores) *one = opened(1, CHANNELS, HEIGHT, WIDTH, latitudes),
                      *three = opened(3, CHANNELS, HEIGHT, WIDTH, latitudes);
    vt_ensemble_add(one, 0, equal, target);
    vt_ensemble_add(three, 0, equal, target);
    for (int64_t c = 0; c < CHANNELS; c++) {
        EXPECT_NEAR(vt_ensemble_crps(one, 0, c, 0), vt_scores_mean(scores, 0, c, VT_SCORE_MAE), 1e-14);
        EXPECT_NEAR(vt_ensemble_crps(three, 0, c, 0), vt_scores_mean(scores, 0, c, VT_SCORE_MAE), 1e-14);
        EXPECT(isnan(vt_ensemble_spread(one, 0, c)) && isnan(vt_ensemble_ratio(one, 0, c, 0)));
        EXPECT(vt_ensemble_spread(three, 0, c) < 1e-7 && vt_ensemble_ratio(three, 0, c, 0) < 1e-7);
    }
}

/* Members and target from the same standard normal distribution: the ratio is 1, and whatever the number of members,
 * the CRPS is 1 / sqrt(pi). The standard errors over 60,000 points are below 0.4 %. */
TEST(ensembles_that_are_right)
{
    enum { LONG = 60000 };
    const double equator[] = {0};
    for (int64_t count = 2; count <= 6; count += 2) {
        float *values = vt_test_owned(malloc((size_t)((count + 1) * LONG) * sizeof *values));
        const float *members[6];
        for (int64_t i = 0; i < (count + 1) * LONG; i++) values[i] = (float)normal(3, i);
        for (int64_t m = 0; m < count; m++) members[m] = values + (m + 1) * LONG;
        SCOPED(vt_scores) *ensemble = opened(count, 1, 1, LONG, equator);
        vt_ensemble_add(ensemble, 0, members, values);
        EXPECT_NEAR(vt_ensemble_crps(ensemble, 0, 0, 0), 1 / sqrt(M_PI), 0.008);
        EXPECT_NEAR(vt_ensemble_ratio(ensemble, 0, 0, 0), 1, 0.02);
    }
}

/* The noise has the standard deviations that were asked for, differs between members, initial times, channels and
 * seeds, and depends on nothing else. */
TEST(noise_on_initial_states)
{
    enum { ROWS = 60, COLUMNS = 101, POINTS = ROWS * COLUMNS, TIMES = 2, STATE = TIMES * CHANNELS * POINTS };
    const float stds[CHANNELS] = {0.5F, 20};
    float *states = vt_test_owned(calloc((size_t)(6 * STATE), sizeof(float)));
    const vt_perturbation how = {.seed = 5,
                                 .member = 3,
                                 .start = 1000,
                                 .channels = TIMES * CHANNELS,
                                 .height = ROWS,
                                 .width = COLUMNS,
                                 .period = CHANNELS,
                                 .stds = stds};
    vt_perturbation others[6] = {how, how, how, how, how, how};
    others[1].member = 4;
    others[2].start = 1001;
    others[3].seed = 6;
    others[5].stds = (const float[CHANNELS]){0, 0};
    for (int64_t i = 0; i < STATE; i++) states[5 * STATE + i] = (float)i;
    states[7] = NAN;
    for (int k = 0; k < 6; k++) vt_ensemble_perturb(&others[k], states + k * STATE);
    EXPECT(isnan(states[7]));
    states[7] = states[4 * STATE + 7];
    EXPECT(memcmp(states, states + 4 * STATE, STATE * sizeof(float)) == 0);
    for (int64_t i = 0; i < STATE; i++)
        if (states[5 * STATE + i] != (float)i) EXPECT(false, "no noise: %g", (double)states[5 * STATE + i]);
    for (int64_t c = 0; c < TIMES * CHANNELS; c++) {
        double squares[4] = {0}, products[5] = {0};
        const float *own = states + c * POINTS, *next = states + (c + 1) % (TIMES * CHANNELS) * POINTS;
        for (int64_t i = 0; i < POINTS; i++) {
            for (int k = 0; k < 4; k++) {
                squares[k] += pow((double)own[k * STATE + i], 2) / POINTS;
                products[k] += (double)own[i] * (double)own[k * STATE + i] / POINTS;
            }
            products[4] += (double)own[i] * (double)next[i] / POINTS;
        }
        const double std = (double)stds[c % CHANNELS];
        for (int k = 0; k < 4; k++) EXPECT_NEAR(sqrt(squares[k]) / std, 1, 0.05);
        for (int k = 1; k < 4; k++) EXPECT_NEAR(products[k] / (std * std), 0, 0.07);
        const double product = std * (double)stds[(c + 1) % CHANNELS];
        EXPECT_NEAR(products[4] / product, 0, 0.07);
    }
}

/* Members 1, 2, 4: the target 2 equals one, so ranks 1 and 2 get half of its weight 1/2 each; 5 is above all, and 0
 * below all, of weight 1. */
TEST(ranks_by_hand)
{
    const double rows[] = {60, 0, 0};
    const float a[] = {1, 1, 4}, b[] = {4, 2, 2}, c[] = {2, 4, 1}, target[] = {2, 5, 0}, part[] = {NAN, 5, NAN};
    const float *const members[] = {a, b, c};
    const double expected[] = {1 / 2.5, 0.25 / 2.5, 0.25 / 2.5, 1 / 2.5};
    SCOPED(vt_scores) *ensemble = opened(3, 1, 3, 1, rows);
    vt_ensemble_add(ensemble, 0, members, target);
    vt_ensemble_add(ensemble, 1, members, part);
    for (int64_t rank = 0; rank < 4; rank++) {
        EXPECT_NEAR(vt_ensemble_rank(ensemble, 0, 0, rank), expected[rank], 1e-15);
        EXPECT_NEAR(vt_ensemble_rank(ensemble, 1, 0, rank), rank == 3, 1e-15);
    }
}

/* What comes is like one more member: the ranks are equally frequent. TIMES * POINTS of them, of which `n` vary like
 * independent ones: no frequency is further from 1 / (N + 1) than five standard deviations. Half of the values are
 * rounded, so that there are ties. */
TEST(ranks_of_a_right_ensemble_are_flat)
{
    enum { TIMES = 20, SIDE = 30, POINTS = SIDE * SIDE };
    static float values[MEMBERS + 1][POINTS];
    double rows[SIDE], sum = 0, squares = 0;
    const float *members[MEMBERS + 1];
    for (int m = 0; m <= MEMBERS; m++) members[m] = values[m];
    for (int y = 0; y < SIDE; y++) {
        rows[y] = -87 + 6 * y;
        sum += cos(rows[y] * M_PI / 180) / SIDE;
        squares += pow(cos(rows[y] * M_PI / 180), 2) / SIDE;
    }
    const double n = (double)TIMES * POINTS * sum * sum / squares, flat = 1. / (MEMBERS + 1);
    SCOPED(vt_scores) *ensemble = opened(MEMBERS, 1, SIDE, SIDE, rows);
    for (int64_t time = 0; time < TIMES; time++) {
        for (int64_t m = 0; m <= MEMBERS; m++)
            for (int64_t i = 0; i < POINTS; i++) {
                const double value = normal((uint64_t)(time * (MEMBERS + 1) + m), i);
                values[m][i] = (float)(i % 2 == 0 ? value : round(2 * value));
            }
        vt_ensemble_add(ensemble, 0, members, values[MEMBERS]);
    }
    sum = 0;
    for (int64_t rank = 0; rank <= MEMBERS; rank++) {
        sum += vt_ensemble_rank(ensemble, 0, 0, rank);
        EXPECT_NEAR(vt_ensemble_rank(ensemble, 0, 0, rank), flat, 5 * sqrt(flat * (1 - flat) / n));
    }
    EXPECT_NEAR(sum, 1, 1e-12);
}

/* Two whole blocks of 8 x 8 points lie in 9 x 17 points: members that are the same in each of them score as two points
 * of their rows' weight do, whatever is at the edge; none of 24 x 24 does. */
TEST(blocks_score_as_points)
{
    enum { ROWS = 9, COLUMNS = 17, SIDE = 8 };
    static float fields[3][ROWS * COLUMNS];
    double rows[ROWS], one[] = {0};
    const float a[] = {1, 4}, b[] = {3, -2}, target[] = {2.5, 5};
    for (int y = 0; y < ROWS; y++) rows[y] = 10 * y;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const int y = i / COLUMNS, x = i % COLUMNS, block = x / SIDE;
        const float ripple = (x + y) % 2 == 0 ? 7 : -7; /* no part of a block's mean */
        const bool inside = y < SIDE && block < 2;
        fields[0][i] = inside ? a[block] + ripple : 99;
        fields[1][i] = inside ? b[block] - 3 * ripple : -99;
        fields[2][i] = inside ? target[block] + 2 * ripple : 0;
    }
    const float *const members[] = {fields[0], fields[1]}, *const points[] = {a, b};
    SCOPED(vt_scores) *ensemble = opened(2, 1, ROWS, COLUMNS, rows), *small = opened(2, 1, 1, 2, one);
    vt_ensemble_add(ensemble, 0, members, fields[2]);
    vt_ensemble_add(small, 0, points, target);
    EXPECT_NEAR(vt_ensemble_crps(ensemble, 0, 0, 1), vt_ensemble_crps(small, 0, 0, 0), 1e-12);
    EXPECT_NEAR(vt_ensemble_ratio(ensemble, 0, 0, 1), vt_ensemble_ratio(small, 0, 0, 0), 1e-12);
    const double variance = (2 + 18) / 2., square = (0.25 + 16) / 2; /* the means are 2 and 1 */
    EXPECT_NEAR(vt_ensemble_ratio(small, 0, 0, 0), sqrt(1.5 * variance / square), 1e-12);
    vt_ensemble_add(small, 1, points, (const float[]){2, 1}); /* perfect */
    EXPECT(isnan(vt_ensemble_ratio(small, 1, 0, 0)));
    EXPECT(isnan(vt_ensemble_crps(ensemble, 0, 0, 2)) && isnan(vt_ensemble_ratio(ensemble, 0, 0, 2)));
    fields[2][3] = NAN; /* the first block is left out; the second is 4, -2 */
    vt_ensemble_add(ensemble, 1, members, fields[2]);
    EXPECT_NEAR(vt_ensemble_crps(ensemble, 1, 0, 1), (1 + 7) / 2. - 6 / 2., 1e-12);
}

/* The CRPS is the integral of (P(x) - [x >= value])^2: here by the trapezoid rule on both sides of the value. */
TEST(crps_of_a_normal_distribution)
{
    enum { STEPS = 20000 };
    static const double cases[][3] = {{0, 1, 0}, {0, 1, 1.7}, {280, 3, 271}, {-2, 0.1, -1.9}, {5, 2, 30}};
    for (int k = 0; k < 5; k++) {
        const double mean = cases[k][0], std = cases[k][1], value = cases[k][2];
        double integral = 0;
        for (int side = 0; side < 2; side++) {
            const double end = side == 0 ? fmin(mean, value) - 10 * std : fmax(mean, value) + 10 * std;
            const double step = fabs(end - value) / STEPS;
            for (int i = 0; i <= STEPS; i++) {
                const double x = value + (end - value) * i / STEPS, tail = 0.5 * erfc((x - mean) / std / M_SQRT2);
                integral += (i == 0 || i == STEPS ? 0.5 : 1) * step * pow(side == 0 ? 1 - tail : tail, 2);
            }
        }
        EXPECT_NEAR(vt_normal_crps(mean - value, std) / integral, 1, 1e-6);
    }
    EXPECT_NEAR(vt_normal_crps(0, 1), (M_SQRT2 - 1) / sqrt(M_PI), 1e-15);
    EXPECT_NEAR(vt_normal_crps(1 - 4, 1e-300), 3, 1e-15);
    EXPECT(vt_normal_crps(2, 0) == 2 && isnan(vt_normal_crps(-1, NAN)));
}

/* Rows of weights 1/2 and 1; the standard deviation of the third point isn't known, nor the climatology of the first.
 * The seasonal climatology counts, where there is one, else the mean. */
TEST(dressed_forecasts_by_hand)
{
    const double rows[] = {60, 0, 0};
    const float forecast[] = {1.5, 0, 0}, broken[] = {NAN, 0, 0}, target[] = {1, 2, 9}, stds[] = {3, 0, NAN};
    const float season[] = {NAN, 5, 5}, mean[] = {1, 2, 4}, spreads[] = {1, 2, 3};
    const vt_scores_options options = {2, 1, 3, 1, rows, mean, .members = 1};
    vt_score_fields fields = {forecast, target, NULL, season, {stds, spreads}};
    SCOPED(vt_scores) *scores = NULL;
    vt_scores_open(&options, &scores);
    EXPECT(isnan(vt_scores_mean(scores, 0, 0, VT_SCORE_DRESSED)));
    vt_scores_add(scores, 0, &fields);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_DRESSED), (0.5 * vt_normal_crps(0.5, 3) + 2) / 1.5, 1e-15);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_DRESSED + 1),
                (vt_normal_crps(5 - 2, 2) + vt_normal_crps(5 - 9, 3)) / 2, 1e-15);
    fields.forecast = broken;
    fields.seasonal = NULL;
    vt_scores_add(scores, 1, &fields);
    EXPECT(isnan(vt_scores_mean(scores, 1, 0, VT_SCORE_DRESSED))); /* it must show */
    const double expected = 0.5 * vt_normal_crps(1 - 1, 1) + vt_normal_crps(2 - 2, 2) + vt_normal_crps(4 - 9, 3);
    EXPECT_NEAR(vt_scores_mean(scores, 1, 0, VT_SCORE_DRESSED + 1), expected / 2.5, 1e-15);
}

/* The file's memory: zeros at first, then what was written; what can't be had is refused. */
TEST(scratch_memory)
{
    enum { BYTES = 3 << 20 };
    const char *directory = vt_test_directory();
    void *memory = NULL;
    EXPECT_OK(vt_scratch_open(directory, BYTES, &memory));
    unsigned char *bytes = memory;
    EXPECT(bytes != NULL && bytes[0] == 0 && bytes[BYTES - 1] == 0);
    for (int64_t i = 0; bytes != NULL && i < BYTES; i++) bytes[i] = (unsigned char)(i % 251);
    const int last = (BYTES - 1) % 251;
    EXPECT(bytes != NULL && bytes[BYTES - 1] == last);
    char *command = vt_text_format("test -z \"$(ls -A '%s')\"", directory); /* no name is left there */
    EXPECT(system(command) == 0);
    free(command);
    vt_scratch_close(&memory, BYTES);
    EXPECT(memory == NULL);
    vt_scratch_close(&memory, BYTES);
    EXPECT_ERROR(vt_scratch_open("/nowhere/at/all", BYTES, &memory), "/nowhere/at/all: can't make a file for 3");
    EXPECT_ERROR(vt_scratch_open(directory, (size_t)1 << 62, &memory), "can't make a file of ");
    EXPECT(memory == NULL);
}
