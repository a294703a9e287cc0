/* The synthetic atmosphere obeys its formulas: waves move as stated, winds don't diverge, geopotential balances them;
 * copying is not a good forecast. */
#include "source/synthetic/atmosphere.h"

#include <complex.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings.h"
#include "source/fields/dataset.h"
#include "source/fields/fields_file.h"
#include "source/fields/statistics.h"
#include "source/synthetic/sets.h"
#include "test.h"
#include "unit/data_files.h"

static const double radians = M_PI / 180;

/* The complex amplitude of exp(i order longitude) in a row. */
static double complex fourier(const float *row, int64_t width, int order)
{
    double complex sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += 2.0 / (double)width * (double)row[i] * cexp(-I * (double)order * 2 * M_PI * (double)i / (double)width);
    return sum;
}

static double wrapped(double angle)
{
    return remainder(angle, 2 * M_PI);
}

/* The integral of P^2 over the sine of latitude is 2, and P(2,1) = sqrt(15/2) mu sqrt(1 - mu^2). */
TEST(profiles_of_a_harmonic)
{
    enum { STEPS = 20000 };
    const int pairs[4][2] = {{1, 1}, {2, 1}, {7, 4}, {16, 10}};
    double profiles[VT_ROSSBY_PROFILES];
    for (int k = 0; k < 4; k++) {
        double sum = 0;
        for (int i = 0; i < STEPS; i++) {
            double mu = -1 + (i + 0.5) * 2 / STEPS;
            vt_rossby_profiles(pairs[k][0], pairs[k][1], asin(mu), profiles);
            sum += profiles[VT_ROSSBY_STREAM] * profiles[VT_ROSSBY_STREAM] * 2 / STEPS;
        }
        EXPECT_NEAR(sum, 2, 1e-5); /* midpoint rule: error of the order (2 / STEPS)^2 n^2 */
    }
    vt_rossby_profiles(2, 1, 0.7, profiles);
    EXPECT_NEAR(profiles[VT_ROSSBY_STREAM], sqrt(7.5) * sin(0.7) * cos(0.7), 1e-12);
    /* u = -(1/a) d psi / d latitude, by central differences */
    const double h = 1e-5;
    double before[VT_ROSSBY_PROFILES], after[VT_ROSSBY_PROFILES];
    for (int k = 0; k < 4; k++) {
        vt_rossby_profiles(pairs[k][0], pairs[k][1], 0.4 - h, before);
        vt_rossby_profiles(pairs[k][0], pairs[k][1], 0.4 + h, after);
        vt_rossby_profiles(pairs[k][0], pairs[k][1], 0.4, profiles);
        double slope = (after[VT_ROSSBY_STREAM] - before[VT_ROSSBY_STREAM]) / (2 * h);
        EXPECT_NEAR(profiles[VT_ROSSBY_EASTWARD] * VT_EARTH_RADIUS, -slope, 1e-6 * (1 + fabs(slope)));
    }
}

/* laplace(Phi) = div(f grad psi) = f laplace(psi) + (1/a^2) df/dlat dpsi/dlat, by differences along the meridian, where
 * d^2/dlongitude^2 is -m^2. */
TEST(linear_balance)
{
    const int degree = 7, order = 4;
    const double h = 1e-4;
    for (double latitude = -1.3; latitude < 1.35; latitude += 0.2) {
        double p[3][VT_ROSSBY_PROFILES];
        for (int i = 0; i < 3; i++) vt_rossby_profiles(degree, order, latitude + (i - 1) * h, p[i]);
        double laplacian[2];
        const int kinds[2] = {VT_ROSSBY_GEOPOTENTIAL, VT_ROSSBY_STREAM};
        for (int k = 0; k < 2; k++) {
            double below = p[0][kinds[k]], here = p[1][kinds[k]], above = p[2][kinds[k]];
            laplacian[k] = (above - 2 * here + below) / (h * h) - tan(latitude) * (above - below) / (2 * h) -
                           order * order / (cos(latitude) * cos(latitude)) * here;
        }
        double slope = (p[2][VT_ROSSBY_STREAM] - p[0][VT_ROSSBY_STREAM]) / (2 * h);
        double divergence = 2 * VT_EARTH_ROTATION * (sin(latitude) * laplacian[1] + cos(latitude) * slope);
        /* differences: truncation h^2 n^4 / 12 = 2e-6 of values near n^2 f = 8e-3, rounding eps f / h^2 = 3e-12 */
        EXPECT_NEAR(laplacian[0], divergence, 1e-7);
    }
}

static vt_synthetic *open_waves(int64_t height, int64_t width, const vt_rossby_wave *waves, int64_t count)
{
    const vt_synthetic_options options = {.height = height,
                                          .width = width,
                                          .channels = VT_CLIMATE_CHANNELS,
                                          .seed = 1,
                                          .waves = waves,
                                          .wave_count = count};
    return vt_synthetic_open(&options);
}

TEST(a_wave_moves_with_its_speed)
{
    enum { HEIGHT = 19, WIDTH = 48, POINTS = HEIGHT * WIDTH, V500 = 13, Z500 = 14 };
    static float first[VT_CLIMATE_CHANNELS * POINTS], later[VT_CLIMATE_CHANNELS * POINTS];
    const int pairs[3][2] = {{3, 2}, {5, 5}, {9, 6}};
    for (int k = 0; k < 3; k++) {
        const int degree = pairs[k][0], order = pairs[k][1];
        const vt_rossby_wave wave = {.degree = degree, .order = order, .amplitude = 1e7, .phase = 0.3};
        SCOPED(vt_synthetic) *synthetic = open_waves(HEIGHT, WIDTH, &wave, 1);
        vt_synthetic_fields(synthetic, 100, first);
        for (int steps = 1; steps < 40; steps += 13) {
            vt_synthetic_fields(synthetic, 100 + steps, later);
            double omega = 7.292e-5, zonal = 45 / 6.371e6;
            double speed = zonal - 2 * (omega + zonal) / (degree * (degree + 1));
            double expected = wrapped(order * speed * steps * 6 * 3600);
            for (int j = 4; j < HEIGHT; j += 2) { /* 50, 30, … -90 degrees; no wave on the pole and where P is 0 */
                const int64_t rows[2] = {(V500 * HEIGHT + j) * WIDTH, (Z500 * HEIGHT + j) * WIDTH};
                for (int r = 0; r < 2; r++) {
                    double complex before = fourier(first + rows[r], WIDTH, order);
                    double complex after = fourier(later + rows[r], WIDTH, order);
                    if (cabs(before) < 1) continue;
                    EXPECT_NEAR(wrapped(carg(before) - carg(after) - expected), 0, 1e-2);
                    EXPECT_NEAR(cabs(after) / cabs(before), 1, 1e-2);
                }
            }
        }
    }
}

/* du/dlongitude + d(v cos latitude)/dlatitude = 0 on every level */
TEST(winds_do_not_diverge)
{
    enum { HEIGHT = 361, WIDTH = 360, POINTS = HEIGHT * WIDTH };
    const int winds[4][2] = {{0, 1}, {6, 7}, {9, 10}, {12, 13}};
    float *fields = vt_test_owned(malloc(sizeof(float) * VT_CLIMATE_CHANNELS * POINTS));
    SCOPED(vt_synthetic) *synthetic = open_waves(HEIGHT, WIDTH, NULL, 0);
    vt_synthetic_fields(synthetic, 7, fields);
    for (int k = 0; k < 4; k++) {
        const float *u = fields + winds[k][0] * POINTS, *v = fields + winds[k][1] * POINTS;
        double sum = 0, scale = 0;
        for (int j = 10; j < HEIGHT - 10; j++)
            for (int i = 1; i < WIDTH - 1; i++) {
                double north = cos(vt_synthetic_latitude(HEIGHT, j - 1) * radians);
                double south = cos(vt_synthetic_latitude(HEIGHT, j + 1) * radians);
                double along = (double)(u[j * WIDTH + i + 1] - u[j * WIDTH + i - 1]) / (2 * radians);
                double across =
                    ((double)v[(j - 1) * WIDTH + i] * north - (double)v[(j + 1) * WIDTH + i] * south) / radians;
                sum += (along + across) * (along + across);
                scale += along * along;
            }
        /* central differences: (k h)^2 / 6 for wave number 10 along, 16 across, at 1 and 1/2 degree: below 0.01 */
        EXPECT(sqrt(sum / scale) < 0.01, "%g", sqrt(sum / scale));
    }
}

TEST(sizes_are_the_earths)
{
    enum { HEIGHT = 32, WIDTH = 64, POINTS = HEIGHT * WIDTH, STEPS = 120 };
    float *fields = vt_test_owned(malloc(sizeof(float) * VT_CLIMATE_CHANNELS * POINTS));
    SCOPED(vt_synthetic) *synthetic = open_waves(HEIGHT, WIDTH, NULL, 0);
    SCOPED(vt_statistics) *statistics = vt_statistics_open(VT_CLIMATE_CHANNELS, HEIGHT, WIDTH);
    for (int64_t step = 0; step < STEPS; step++) {
        vt_synthetic_fields(synthetic, 12 * step, fields);
        vt_statistics_add(statistics, fields);
    }
    for (int c = 0; c < VT_CLIMATE_CHANNELS; c++) {
        /* the noise is a part of `spread`, which therefore has to be about right */
        double ratio = vt_statistics_std(statistics, c) / vt_climate_channels[c].spread;
        EXPECT(ratio > 0.5 && ratio < 2, "%s: std %g, spread %g", vt_climate_channels[c].name,
               vt_statistics_std(statistics, c), vt_climate_channels[c].spread);
    }
    EXPECT_NEAR(vt_statistics_mean(statistics, 4), 101000, 500);  /* msl, Pa */
    EXPECT_NEAR(vt_statistics_mean(statistics, 14), 54000, 1500); /* z500, m^2/s^2 */
    EXPECT_NEAR(vt_statistics_mean(statistics, 2), 278, 8);       /* t2m, K */
}

/* Over land the day's range moves with the sun: six hours later it is warmest a quarter round to the west. */
TEST(the_day_moves_with_the_sun)
{
    enum { HEIGHT = 33, WIDTH = 64, POINTS = HEIGHT * WIDTH, T2M = 2 };
    static float fields[4][VT_CLIMATE_CHANNELS * POINTS];
    const vt_rossby_wave none = {.degree = 1, .order = 1, .amplitude = 0};
    SCOPED(vt_synthetic) *synthetic = open_waves(HEIGHT, WIDTH, &none, 1);
    for (int step = 0; step < 4; step++) vt_synthetic_fields(synthetic, 400 + step, fields[step]);
    int64_t land = 0;
    for (int64_t i = 0; i < POINTS; i++) {
        double complex day = 0;
        for (int step = 0; step < 4; step++)
            day += 0.5 * (double)fields[step][T2M * POINTS + i] * cexp(-I * 2 * M_PI * step / 4);
        if (cabs(day) < 2) continue;
        land++;
        double hour = -carg(day) / (2 * M_PI) * 24;
        double local = hour + vt_synthetic_longitude(WIDTH, i % WIDTH) / 15;
        EXPECT_NEAR(remainder(local - 14, 24), 0, 0.1);
    }
    EXPECT(land > POINTS / 20 && land < POINTS * 19 / 20, "%ld points", land);
}

static vt_synthetic_set_options small_set(const char *directory)
{
    return (vt_synthetic_set_options){.output = {.directory = directory, .seed = 333},
                                      .height = 32,
                                      .width = 64,
                                      .channels = 8,
                                      .years = 1,
                                      .steps_per_year = 40,
                                      .valid_steps = 20,
                                      .noise = 0.02};
}

/* Every form of storage holds the same numbers, and the second year continues where the first ends. */
TEST(storage_and_years)
{
    vt_synthetic_set_options set = small_set(test_path("plain"));
    set.years = 2;
    set.test_steps = 3;
    EXPECT_OK(vt_synthetic_set_write(&set));
    set.output.directory = test_path("packed");
    set.chunk_times = 7;
    set.compression = 4;
    EXPECT_OK(vt_synthetic_set_write(&set));
    set.output.directory = test_path("one");
    set.years = 1;
    set.steps_per_year = 80;
    EXPECT_OK(vt_synthetic_set_write(&set));
    enum { VALUES = 8 * 32 * 64 };
    static float expected[VALUES], found[VALUES];
    const vt_frame_window whole = {.rows = 32, .width = 64};
    const char *const years[2] = {"2001.h5", "2002.h5"};
    vt_fields_file *one = NULL;
    EXPECT_OK(vt_fields_file_open((const char *[]){test_path("one/train/2001.h5")}, 1, &(vt_fields_form){0}, &one));
    for (int year = 0; year < 2; year++)
        for (int packed = 0; packed < 2; packed++) {
            SCOPED(vt_fields_file) *file = NULL;
            const char *path = test_path(SETTINGS("%s/train/%s", packed ? "packed" : "plain", years[year]));
            EXPECT_OK(vt_fields_file_open(&path, 1, &(vt_fields_form){0}, &file));
            for (int64_t t = 0; t < 40; t += 13) {
                EXPECT_OK(vt_fields_file_read(one, 40 * year + t, 8, &whole, true, expected));
                EXPECT_OK(vt_fields_file_read(file, t, 8, &whole, true, found));
                EXPECT(memcmp(expected, found, sizeof found) == 0);
            }
        }
    vt_fields_file_close(&one);
    vt_dataset_options options = TEST_OPTIONS(.height = 32, .width = 64, .in_channels = 8, .out_channels = 8);
    options.directory = test_path("packed/train");
    vt_dataset *dataset = test_open(&options);
    EXPECT(!vt_dataset_is_of_earth(dataset), "no coasts of ours on another planet");
    vt_dataset_close(&dataset);
    struct stat plain, packed;
    EXPECT(stat(test_path("plain/train/2001.h5"), &plain) == 0 &&
           stat(test_path("packed/train/2001.h5"), &packed) == 0);
    EXPECT(packed.st_size < plain.st_size);
    EXPECT(access(test_path("plain/test/2004.h5"), F_OK) == 0);
}

/* Forecasting by copying is neither nearly perfect nor hopeless; statistics and names are those of the files. */
TEST(persistence_and_statistics)
{
    enum { CHANNELS = 8, POINTS = 32 * 64 };
    vt_synthetic_set_options set = small_set(test_path("set"));
    set.steps_per_year = 200;
    set.valid_steps = 100;
    EXPECT_OK(vt_synthetic_set_write(&set));
    float means[CHANNELS], stds[CHANNELS];
    EXPECT_OK(test_read_pair(test_path("set/stats/global_means.npy"), test_path("set/stats/global_stds.npy"), CHANNELS,
                             means, stds));
    vt_statistics *statistics = NULL;
    const vt_statistics_source source = {.directory = test_path("set/train"), .option_name = "data directory"};
    EXPECT_OK(vt_statistics_gather(&source, &statistics));
    for (int c = 0; c < CHANNELS; c++) {
        EXPECT_NEAR((double)means[c], vt_statistics_mean(statistics, c),
                    1e-6 * fabs(vt_statistics_mean(statistics, c)));
        EXPECT_TEXT(statistics->about->names[c], vt_climate_channels[c].name);
    }
    vt_statistics_close(&statistics);
    vt_dataset_options options =
        TEST_OPTIONS(.height = 32, .width = 64, .in_channels = CHANNELS, .out_channels = CHANNELS);
    options.directory = test_path("set/valid");
    SCOPED(vt_dataset) *dataset = test_open(&options);
    static float input[CHANNELS * POINTS], target[CHANNELS * POINTS];
    double loss = 0;
    const int64_t samples = dataset->source.sample_count;
    EXPECT(samples == 99, "%ld", samples);
    for (int64_t s = 0; s < samples; s++) {
        EXPECT_OK(vt_dataset_read(dataset, s, input, target));
        double change = 0, size = 0;
        for (int i = 0; i < CHANNELS * POINTS; i++) {
            double std = (double)stds[i / POINTS];
            change += pow((double)(target[i] - input[i]) / std, 2);
            size += pow((double)(target[i] - means[i / POINTS]) / std, 2);
        }
        loss += sqrt(change / size) / (double)samples;
    }
    EXPECT(loss > 0.3 && loss < 0.6, "persistence has a loss of %g", loss);
}

TEST(nothing_is_lost)
{
    vt_synthetic_set_options set = small_set(test_path("set"));
    EXPECT_OK(vt_synthetic_set_write(&set));
    EXPECT_ERROR(vt_synthetic_set_write(&set), "set/train/2001.h5 exists already; give --force");
    set.output.force = true;
    EXPECT_OK(vt_synthetic_set_write(&set));
    EXPECT(rename(test_path("set/train/2001.h5"), test_path("set/train/1999.h5")) == 0);
    EXPECT_ERROR(vt_synthetic_set_write(&set), "set/train/1999.h5 exists already and isn't among the files to be made");
    EXPECT(access(test_path("set/train/2001.h5"), F_OK) != 0);
    set.output.force = false;
    EXPECT(unlink(test_path("set/train/1999.h5")) == 0 && unlink(test_path("set/valid/2002.h5")) == 0);
    EXPECT_ERROR(vt_synthetic_set_write(&set), "set/stats/global_means.npy exists already");
    set.output.directory = "/proc/nowhere";
    EXPECT_ERROR(vt_synthetic_set_write(&set), "can't make the directory /proc/nowhere");
}
