/* The seasonal climatology, scores and spectra against NumPy: scores.h5, made by make_scores_golden.py. */
#include "task/weather/scores.h"
#include "golden/golden_file.h"
#include "source/fields/seasonal.h"
#include "source/fields/time_statistics.h"
#include "storage/npy.h"
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
    const vt_fields_about data = {.rows = HEIGHT, .columns = WIDTH, .window = {.rows = HEIGHT, .width = WIDTH}};
    vt_seasonal *seasonal = NULL;
    EXPECT_OK(vt_seasonal_open(path, &data, CHANNELS, (vt_span){0, HEIGHT}, false, &seasonal));
    return seasonal;
}

static void expect_values(const char *what, const float *found, const double *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        EXPECT(isnan(expected[i]) ? isnan(found[i])
                                  : fabs((double)found[i] - expected[i]) <= stored * fabs(expected[i]),
               "%s %ld: %.9g, expected %.9g", what, i, (double)found[i], expected[i]);
}

/* The changes and the climatology of `fields` as they are written, beside a group of the golden file. */
static void check_climatology(hid_t file, const char *group, const float *fields, int64_t times, bool masked)
{
    char *notes = NULL;
    float values[FIELDS];
    SCOPED(vt_npy) changes;
    vt_date first, later;
    const int64_t step = (int64_t)golden_attribute(file, "/", "minutes");
    const vt_seasonal_fit_options shape = {.channels = CHANNELS,
                                           .height = HEIGHT,
                                           .width = WIDTH,
                                           .harmonics = (int64_t)golden_attribute(file, "/", "harmonics"),
                                           .masked = masked};
    SCOPED(vt_time_statistics) *statistics = vt_time_statistics_open(1, &shape, false, NULL);
    vt_date_make(VT_CALENDAR_STANDARD, 2015, 9, 1, &first);
    for (int64_t t = 0; t < times; t++) {
        const vt_date date = vt_date_after(first, t * step);
        EXPECT_OK(vt_time_statistics_add(statistics, &date, step, t == 0, fields + t * FIELDS));
    }
    EXPECT_OK(vt_time_statistics_write(statistics, vt_test_directory(), NULL, &notes));
    EXPECT_PART(notes, "a mean and 2 harmonics of the year for each of 2 times of day\n");
    EXPECT_OK(vt_npy_open(test_path("time_diff_stds.npy"), &changes));
    SCOPED(vt_seasonal) *seasonal = open_seasonal(test_path("climatology.h5"));
    const double *expected = golden_read(file, NULL, "%s/change_stds", group);
    for (int c = 0; c < CHANNELS; c++) EXPECT_NEAR(changes.values[c], expected[c], stored * expected[c]);
    expect_values("departure_stds", seasonal->departure_stds, golden_read(file, NULL, "%s/departure_stds", group),
                  CHANNELS);
    expect_values("departure_change_stds", seasonal->change_stds,
                  golden_read(file, NULL, "%s/departure_change_stds", group), CHANNELS);
    expected = golden_read(file, NULL, "%s/later", group);
    static const int days[4] = {0, 122, 181, 1000};
    for (int i = 0; i < 4; i++) {
        later = vt_date_after(first, 1440 * days[i] + 720);
        EXPECT_OK(vt_seasonal_at(seasonal, later, values));
        expect_values("later", values, expected + i * FIELDS, FIELDS);
    }
    free(notes);
}

TEST(climatology_against_numpy)
{
    hid_t file = golden_open("scores.h5");
    int64_t count;
    float *fields = golden_read_float(file, &count, "fields");
    check_climatology(file, "whole", fields, count / FIELDS, false);
    check_climatology(file, "whole", fields, count / FIELDS, true); /* each point has equations of its own */
    const float *missing = golden_read_float(file, &count, "missing");
    for (int64_t i = 0; i < count; i++)
        if (missing[i] != 0) fields[i] = NAN;
    check_climatology(file, "gaps", fields, count / FIELDS, true);
}

TEST(scores_against_numpy)
{
    static const struct {
        const char *name;
        double (*of)(const vt_scores *scores, int64_t lead, int64_t channel, int which);
        int which;
    } kinds[] = {{"rmse_model", vt_scores_mean, VT_SCORE_RMSE},
                 {"rmse_persistence", vt_scores_mean, VT_SCORE_RMSE + VT_SCORE_PERSISTENCE},
                 {"rmse_climatology", vt_scores_mean, VT_SCORE_RMSE + VT_SCORE_CLIMATOLOGY},
                 {"rmse_seasonal", vt_scores_mean, VT_SCORE_RMSE + VT_SCORE_SEASONAL},
                 {"pooled_model", vt_scores_pooled_rmse, VT_SCORE_MODEL},
                 {"pooled_persistence", vt_scores_pooled_rmse, VT_SCORE_PERSISTENCE},
                 {"pooled_climatology", vt_scores_pooled_rmse, VT_SCORE_CLIMATOLOGY},
                 {"pooled_seasonal", vt_scores_pooled_rmse, VT_SCORE_SEASONAL},
                 {"acc_model", vt_scores_mean, VT_SCORE_ACC},
                 {"acc_persistence", vt_scores_mean, VT_SCORE_ACC + VT_SCORE_PERSISTENCE},
                 {"seasonal_acc_model", vt_scores_mean, VT_SCORE_SEASONAL_ACC},
                 {"seasonal_acc_persistence", vt_scores_mean, VT_SCORE_SEASONAL_ACC + VT_SCORE_PERSISTENCE},
                 {"skill", vt_scores_skill, VT_SCORE_SEASONAL},
                 {"skill_over_persistence", vt_scores_skill, VT_SCORE_PERSISTENCE},
                 {"bias", vt_scores_mean, VT_SCORE_BIAS},
                 {"mae", vt_scores_mean, VT_SCORE_MAE}};
    hid_t file = golden_open("scores.h5");
    const float stds[CHANNELS] = {1, 1};
    const float *forecast = golden_read_float(file, NULL, "scores/forecast");
    const float *target = golden_read_float(file, NULL, "scores/target");
    const float *seasonal = golden_read_float(file, NULL, "scores/seasonal");
    const float *persistence = golden_read_float(file, NULL, "scores/persistence");
    const vt_scores_options options = {.leads = LEADS,
                                       .channels = CHANNELS,
                                       .height = HEIGHT,
                                       .width = WIDTH,
                                       .latitudes = golden_read(file, NULL, "scores/latitudes"),
                                       .climatology = golden_read_float(file, NULL, "scores/mean"),
                                       .stds = stds};
    SCOPED(vt_scores) *scores = NULL;
    vt_scores_open(&options, &scores);
    for (int64_t i = 0; i < STARTS * LEADS; i++) {
        const vt_score_fields fields = {
            forecast + i * FIELDS, target + i * FIELDS, persistence + i / LEADS * FIELDS, seasonal + i * FIELDS, {0}};
        vt_scores_add(scores, i % LEADS, &fields);
    }
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        const double *expected = golden_read(file, NULL, "scores/%s", kinds[kind].name);
        for (int64_t i = 0; i < LEADS * CHANNELS; i++) {
            const double found = kinds[kind].of(scores, i / CHANNELS, i % CHANNELS, kinds[kind].which);
            EXPECT(fabs(found - expected[i]) < 1e-12, "%s %ld: %.15g, expected %.15g", kinds[kind].name, i, found,
                   expected[i]);
        }
    }
    const double *horizons = golden_read(file, NULL, "scores/horizons");
    for (int64_t c = 0; c < CHANNELS; c++)
        EXPECT_NEAR(vt_scores_horizon(scores, c, VT_SCORE_MODEL, 6), horizons[c], 1e-10);
}

TEST(spectra_against_numpy)
{
    hid_t file = golden_open("scores.h5");
    int64_t count;
    const float *forecast = golden_read_float(file, NULL, "scores/forecast");
    const float *target = golden_read_float(file, NULL, "scores/target");
    for (int round = 0; round < 2; round++) {
        const vt_scores_options options = {.leads = LEADS,
                                           .channels = CHANNELS,
                                           .height = HEIGHT,
                                           .width = WIDTH,
                                           .latitudes = golden_read(file, NULL, "scores/latitudes"),
                                           .goes_round = round == 1};
        const double *expected = golden_read(file, &count, "scores/spectra_%s", round ? "round" : "window");
        SCOPED(vt_scores) *spectra = NULL;
        vt_spectra_open(&options, &spectra);
        EXPECT(count == LEADS * CHANNELS * 2 * WAVES);
        for (int64_t i = 0; i < STARTS * LEADS; i++)
            vt_spectra_add(spectra, i % LEADS, forecast + i * FIELDS, target + i * FIELDS);
        for (int64_t i = 0; i < count; i++) {
            const int64_t wave = i % WAVES + 1, which = i / WAVES % 2, cell = i / (2 * WAVES);
            const double found = vt_spectra_power(spectra, cell / CHANNELS, cell % CHANNELS, wave, which == 1);
            EXPECT_NEAR(found, expected[i], 1e-12);
        }
    }
}
