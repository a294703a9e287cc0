/* The seasonal climatology, scores and spectra against NumPy: scores.h5, made by make_scores_golden.py. */
#include "task/weather/scores.h"
#include "golden/golden_file.h"
#include "source/fields/time_statistics.h"
#include "storage/npy.h"
#include "task/weather/seasonal.h"
#include "task/weather/spectra.h"
#include "test.h"
#include "unit/data_files.h"

enum { CHANNELS = 2, HEIGHT = 4, WIDTH = 6, POINTS = HEIGHT * WIDTH, FIELDS = CHANNELS * POINTS };
enum { LEADS = 4, STARTS = 3, WAVES = WIDTH / 2 };

/* Sums of float64 lose no more than 1e-12 here. The mean, by far the largest coefficient, and its sum with the
 * harmonics are each rounded to float32: by up to 6e-8. */
static const double stored = 1.3e-7;

static vt_seasonal *open_seasonal(const char *path)
{
    const vt_seasonal_options options = {.path = path,
                                         .channels = CHANNELS,
                                         .grid_height = HEIGHT,
                                         .grid_width = WIDTH,
                                         .height = HEIGHT,
                                         .width = WIDTH,
                                         .own_rows = HEIGHT};
    vt_seasonal *seasonal = NULL;
    EXPECT_OK(vt_seasonal_open(&options, &seasonal));
    return seasonal;
}

static void expect_values(const char *what, const float *found, const double *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        EXPECT(isnan(expected[i]) ? isnan(found[i])
                                  : fabs((double)found[i] - expected[i]) <= stored * fabs(expected[i]),
               "%s %lld: %.9g, expected %.9g", what, (long long)i, (double)found[i], expected[i]);
}

/* The changes and the climatology of `fields` as they are written, beside a group of the golden file. */
static void check_climatology(hid_t file, const char *group, const float *fields, int64_t times, bool masked)
{
    char path[64], *notes = NULL;
    float values[FIELDS];
    vt_npy changes;
    int64_t count;
    vt_date first, later;
    const int64_t step = (int64_t)golden_attribute(file, "/", "minutes");
    const vt_seasonal_fit_options shape = {.channels = CHANNELS,
                                           .height = HEIGHT,
                                           .width = WIDTH,
                                           .harmonics = (int64_t)golden_attribute(file, "/", "harmonics"),
                                           .masked = masked};
    vt_time_statistics *statistics = vt_time_statistics_open(1, &shape, false, NULL);
    vt_date_make(VT_CALENDAR_STANDARD, 2015, 9, 1, &first);
    for (int64_t t = 0; t < times; t++) {
        const vt_date date = vt_date_after(first, t * step);
        EXPECT_OK(vt_time_statistics_add(statistics, &date, step, t == 0, fields + t * FIELDS));
    }
    EXPECT_OK(vt_time_statistics_write(statistics, vt_test_directory(), NULL, &notes));
    EXPECT(strstr(notes, "a mean and 2 harmonics of the year for each of 2 times of day\n") != NULL, "%s", notes);
    EXPECT_OK(vt_npy_open(test_path("time_diff_stds.npy"), &changes));
    vt_seasonal *seasonal = open_seasonal(test_path("climatology.h5"));
    snprintf(path, sizeof path, "%s/change_stds", group);
    const double *expected = golden_read(file, path, &count);
    for (int c = 0; c < CHANNELS; c++) EXPECT_NEAR(changes.values[c], expected[c], stored * expected[c]);
    snprintf(path, sizeof path, "%s/departure_stds", group);
    expect_values(path, vt_seasonal_facts_of(seasonal)->departure_stds, golden_read(file, path, &count), CHANNELS);
    snprintf(path, sizeof path, "%s/departure_change_stds", group);
    expect_values(path, vt_seasonal_facts_of(seasonal)->change_stds, golden_read(file, path, &count), CHANNELS);
    snprintf(path, sizeof path, "%s/later", group);
    expected = golden_read(file, path, &count);
    static const int days[4] = {0, 122, 181, 1000};
    for (int i = 0; i < 4; i++) {
        later = vt_date_after(first, 1440 * days[i] + 720);
        EXPECT_OK(vt_seasonal_at(seasonal, later, values));
        expect_values(path, values, expected + i * FIELDS, FIELDS);
    }
    vt_seasonal_close(&seasonal);
    vt_npy_close(&changes);
    free(notes);
    vt_time_statistics_close(&statistics);
}

TEST(climatology_against_numpy)
{
    hid_t file = golden_open("scores.h5");
    int64_t count;
    float *fields = golden_read_float(file, "fields", &count);
    check_climatology(file, "whole", fields, count / FIELDS, false);
    check_climatology(file, "whole", fields, count / FIELDS, true); /* each point has equations of its own */
    const float *missing = golden_read_float(file, "missing", &count);
    for (int64_t i = 0; i < count; i++)
        if (missing[i] != 0) fields[i] = NAN;
    check_climatology(file, "gaps", fields, count / FIELDS, true);
    H5Fclose(file);
}

static double score_of(const vt_scores *scores, int kind, int64_t lead, int64_t channel)
{
    switch (kind) {
    case 0:
    case 1:
    case 2:
    case 3:
        return vt_scores_mean(scores, lead, channel, VT_SCORE_RMSE + kind);
    case 4:
    case 5:
    case 6:
    case 7:
        return vt_scores_pooled_rmse(scores, lead, channel, kind - 4);
    case 8:
    case 9:
        return vt_scores_mean(scores, lead, channel, VT_SCORE_ACC + kind - 8);
    case 10:
    case 11:
        return vt_scores_mean(scores, lead, channel, VT_SCORE_SEASONAL_ACC + kind - 10);
    case 12:
        return vt_scores_skill(scores, lead, channel, VT_SCORE_SEASONAL);
    case 13:
        return vt_scores_skill(scores, lead, channel, VT_SCORE_PERSISTENCE);
    case 14:
        return vt_scores_mean(scores, lead, channel, VT_SCORE_BIAS);
    default:
        return vt_scores_mean(scores, lead, channel, VT_SCORE_MAE);
    }
}

TEST(scores_against_numpy)
{
    static const char *const kinds[16] = {"rmse_model",
                                          "rmse_persistence",
                                          "rmse_climatology",
                                          "rmse_seasonal",
                                          "pooled_model",
                                          "pooled_persistence",
                                          "pooled_climatology",
                                          "pooled_seasonal",
                                          "acc_model",
                                          "acc_persistence",
                                          "seasonal_acc_model",
                                          "seasonal_acc_persistence",
                                          "skill",
                                          "skill_over_persistence",
                                          "bias",
                                          "mae"};
    hid_t file = golden_open("scores.h5");
    int64_t count;
    const float stds[CHANNELS] = {1, 1};
    const float *forecast = golden_read_float(file, "scores/forecast", &count);
    const float *target = golden_read_float(file, "scores/target", &count);
    const float *seasonal = golden_read_float(file, "scores/seasonal", &count);
    const float *persistence = golden_read_float(file, "scores/persistence", &count);
    const vt_scores_options options = {.leads = LEADS,
                                       .channels = CHANNELS,
                                       .height = HEIGHT,
                                       .width = WIDTH,
                                       .latitudes = golden_read(file, "scores/latitudes", &count),
                                       .climatology = golden_read_float(file, "scores/mean", &count),
                                       .stds = stds};
    vt_scores *scores = NULL;
    vt_scores_open(&options, &scores);
    for (int64_t i = 0; i < STARTS * LEADS; i++) {
        const vt_score_fields fields = {
            forecast + i * FIELDS, target + i * FIELDS, persistence + i / LEADS * FIELDS, seasonal + i * FIELDS, {0}};
        vt_scores_add(scores, i % LEADS, &fields);
    }
    for (int kind = 0; kind < 16; kind++) {
        char path[64];
        snprintf(path, sizeof path, "scores/%s", kinds[kind]);
        const double *expected = golden_read(file, path, &count);
        for (int64_t i = 0; i < LEADS * CHANNELS; i++) {
            const double found = score_of(scores, kind, i / CHANNELS, i % CHANNELS);
            EXPECT(fabs(found - expected[i]) < 1e-12, "%s %lld: %.15g, expected %.15g", path, (long long)i, found,
                   expected[i]);
        }
    }
    const double *horizons = golden_read(file, "scores/horizons", &count);
    for (int64_t c = 0; c < CHANNELS; c++)
        EXPECT_NEAR(vt_scores_horizon(scores, c, VT_SCORE_MODEL, 6), horizons[c], 1e-10);
    vt_scores_close(&scores);
    H5Fclose(file);
}

TEST(spectra_against_numpy)
{
    hid_t file = golden_open("scores.h5");
    int64_t count;
    const float *forecast = golden_read_float(file, "scores/forecast", &count);
    const float *target = golden_read_float(file, "scores/target", &count);
    for (int round = 0; round < 2; round++) {
        const vt_scores_options options = {.leads = LEADS,
                                           .channels = CHANNELS,
                                           .height = HEIGHT,
                                           .width = WIDTH,
                                           .latitudes = golden_read(file, "scores/latitudes", &count),
                                           .goes_round = round == 1};
        const double *expected = golden_read(file, round ? "scores/spectra_round" : "scores/spectra_window", &count);
        vt_scores *spectra = NULL;
        vt_spectra_open(&options, &spectra);
        EXPECT(count == LEADS * CHANNELS * 2 * WAVES);
        for (int64_t i = 0; i < STARTS * LEADS; i++)
            vt_spectra_add(spectra, i % LEADS, forecast + i * FIELDS, target + i * FIELDS);
        for (int64_t i = 0; i < count; i++) {
            const int64_t wave = i % WAVES + 1, which = i / WAVES % 2, cell = i / (2 * WAVES);
            const double found = vt_spectra_power(spectra, cell / CHANNELS, cell % CHANNELS, wave, which == 1);
            EXPECT_NEAR(found, expected[i], 1e-12);
        }
        vt_scores_close(&spectra);
    }
    H5Fclose(file);
}
