/* The seasonal climatology: what times can tell, its file and what it is refused for; Fourier transforms. */
#include "source/fields/seasonal.h"

#include <unistd.h>

#include "base/fourier.h"
#include "source/fields/seasonal_fit.h"
#include "source/fields/time_statistics.h"
#include "storage/npy.h"
#include "task/weather/spectra.h"
#include "test.h"
#include "unit/data_files.h"

TEST(fourier_transforms_of_any_length)
{
    for (int64_t length = 1; length <= 30; length++) {
        vt_complex from[30], to[30], scratch[30];
        for (int64_t x = 0; x < length; x++) from[x] = (vt_complex){(double)(x * x % 7) - 3, (double)(x * 5 % 11)};
        SCOPED(vt_fourier) *fourier = vt_fourier_open(length);
        vt_fourier_transform(fourier, from, to, scratch);
        for (int64_t m = 0; m < length; m++) {
            double real = 0, imaginary = 0;
            for (int64_t x = 0; x < length; x++) {
                const double angle = -2 * M_PI * (double)(m * x % length) / (double)length;
                real += from[x].real * cos(angle) - from[x].imaginary * sin(angle);
                imaginary += from[x].real * sin(angle) + from[x].imaginary * cos(angle);
            }
            EXPECT_NEAR(to[m].real, real, 1e-12 * (double)length);
            EXPECT_NEAR(to[m].imaginary, imaginary, 1e-12 * (double)length);
        }
    }
}

/* The powers of a row sum up to its variance; a window loses the line through its ends. */
TEST(powers_are_the_variance)
{
    for (int64_t width = 2; width <= 9; width++) {
        float row[9];
        const double latitude = 10;
        double mean = 0, variance = 0, sum = 0;
        for (int64_t x = 0; x < width; x++) mean += (double)(row[x] = (float)(x * x % 5) + 100) / (double)width;
        for (int64_t x = 0; x < width; x++) variance += pow((double)row[x] - mean, 2) / (double)width;
        SCOPED(vt_scores) *spectra = NULL;
        vt_spectra_open(&(vt_scores_options){1, 1, 1, width, &latitude, .goes_round = true}, &spectra);
        vt_spectra_add(spectra, 0, row, row);
        for (int64_t m = 1; m <= width / 2; m++) sum += vt_spectra_power(spectra, 0, 0, m, false);
        EXPECT_NEAR(sum, variance, 1e-12);
        vt_scores_close(&spectra);
        for (int64_t x = 0; x < width; x++) row[x] = (float)(7 - 2 * x);
        vt_spectra_open(
            &(vt_scores_options){.leads = 1, .channels = 1, .height = 1, .width = width, .latitudes = &latitude},
            &spectra);
        vt_spectra_add(spectra, 0, row, row);
        for (int64_t m = 1; m <= width / 2; m++) EXPECT_NEAR(vt_spectra_power(spectra, 0, 0, m, true), 0, 1e-20);
    }
}

TEST(fractions_of_years)
{
    static const struct {
        vt_calendar calendar;
        const char *date;
        double fraction;
        int64_t minute;
    } known[] = {{VT_CALENDAR_STANDARD, "2013-01-01", 0, 0},
                 {VT_CALENDAR_STANDARD, "2013-07-02T12", 182.5 / 365, 720},
                 {VT_CALENDAR_STANDARD, "2016-07-02", 183. / 366, 0},
                 {VT_CALENDAR_STANDARD, "2016-12-31T18:30", (365 + 18.5 / 24) / 366, 1110},
                 {VT_CALENDAR_NO_LEAP, "2016-03-01T06", (59 + 0.25) / 365, 360},
                 {VT_CALENDAR_360_DAY, "2016-07-01", 0.5, 0},
                 {VT_CALENDAR_PROLEPTIC, "9999-12-31", 364. / 365, 0}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        vt_date date;
        EXPECT(vt_date_parse(known[i].date, known[i].calendar, &date));
        EXPECT_NEAR(vt_date_of_year(date), known[i].fraction, 1e-15);
        EXPECT(vt_date_of_day(date) == known[i].minute, "%s", known[i].date);
    }
}

/* ---- what times can tell ---- */

/* x = 10 + 3 cos + sin at 00 UTC and 1 more for each hour: in column 0; column 1 is 5 everywhere. */
static float value_at(vt_date date, int64_t column)
{
    double basis[3];
    vt_seasonal_basis(date, 1, basis);
    return column == 1 ? 5 : (float)(10 * basis[0] + 3 * basis[1] + basis[2] + (double)vt_date_of_day(date) / 60);
}

static vt_seasonal *open_file(const char *path, int64_t width)
{
    const vt_fields_about data = {.window = {.rows = 1, .width = width}};
    vt_seasonal *seasonal = NULL;
    EXPECT_OK(vt_seasonal_open(path, &data, 1, (vt_span){0, 1}, false, &seasonal));
    return seasonal;
}

static vt_seasonal_fit *open_fit(int64_t width, bool masked)
{
    return vt_seasonal_fit_open(
        &(vt_seasonal_fit_options){.channels = 1, .height = 1, .width = width, .harmonics = 1, .masked = masked});
}

/* Writes climatology.h5, closes the fit, and returns the summary. */
static const char *finish_fit(vt_seasonal_fit *fit, const vt_fields_about *about)
{
    char *summary = NULL;
    EXPECT_OK(vt_seasonal_fit_write(fit, NULL, NULL, about, test_path("climatology.h5"), &summary));
    vt_seasonal_fit_close(&fit);
    return vt_test_owned(summary);
}

/* Fits `count` times, `step` apart, and returns the summary; the file is climatology.h5. */
static const char *fit_times(vt_calendar calendar, const char *first, int64_t step, int64_t count, bool masked)
{
    vt_date begin;
    EXPECT(vt_date_parse(first, calendar, &begin));
    vt_seasonal_fit *fit = open_fit(2, masked);
    for (int64_t i = 0; i < count; i++) {
        const vt_date date = vt_date_after(begin, i * step);
        EXPECT_OK(vt_seasonal_fit_add(fit, date, (float[2]){value_at(date, 0), value_at(date, 1)}));
    }
    return finish_fit(fit, NULL);
}

static void expect_fit(const char *found, const char *expected)
{
    EXPECT_TEXT(found, expected);
}

TEST(fits_every_calendar_and_step)
{
    static const char each[] = "a mean and 1 harmonic of the year for each of ";
    float values[2];
    vt_date date;
    char expected[128];
    for (int c = 0; c <= VT_CALENDAR_360_DAY; c++)
        for (int masked = 0; masked < 2; masked++) {
            snprintf(expected, sizeof expected, "%s8 times of day", each); /* 9 h: eight of them in three days */
            expect_fit(fit_times((vt_calendar)c, "2003-11-05T03", 540, 1100, masked == 1), expected);
            SCOPED(vt_seasonal) *seasonal = open_file(test_path("climatology.h5"), 2);
            EXPECT(vt_date_parse("2031-02-07T15", (vt_calendar)c, &date));
            EXPECT_OK(vt_seasonal_at(seasonal, date, values));
            EXPECT_NEAR((double)values[0], (double)value_at(date, 0), 1e-5);
            EXPECT_NEAR((double)values[1], 5, 1e-5);
            EXPECT_NEAR((double)seasonal->departure_stds[0], 0, 1e-5);
            date.minutes += 30;
            EXPECT(!vt_seasonal_has(seasonal, date));
            EXPECT_ERROR(vt_seasonal_at(seasonal, date, values),
                         "has no climatology for the time of day of 2031-02-07 15:30; make it again");
        }
    /* months, dated by their middles at 00 or 12 UTC, belong to one climatology */
    EXPECT(vt_date_parse("2001-01-16", VT_CALENDAR_STANDARD, &date));
    vt_seasonal_fit *fit = open_fit(2, false);
    for (int64_t i = 0; i < 36; i++) {
        const vt_date middle = vt_date_after(vt_date_after(date, i * VT_A_MONTH), i % 2 * 720);
        double basis[3];
        vt_seasonal_basis(middle, 1, basis);
        EXPECT_OK(vt_seasonal_fit_add(fit, middle, (float[2]){(float)(7 + 2 * basis[2]), 5}));
    }
    expect_fit(finish_fit(fit, NULL), "a mean and 1 harmonic of the year for any time of day");
    SCOPED(vt_seasonal) *seasonal = open_file(test_path("climatology.h5"), 2);
    EXPECT(vt_date_parse("2010-04-02T07", VT_CALENDAR_STANDARD, &date));
    EXPECT_OK(vt_seasonal_at(seasonal, date, values));
    EXPECT_NEAR((double)values[0], 7 + 2 * sin(2 * M_PI * vt_date_of_year(date)), 1e-5);
    vt_seasonal_close(&seasonal);
    /* also if all of them are dated 12 UTC */
    fit = open_fit(2, false);
    EXPECT(vt_date_parse("2001-01-16T12", VT_CALENDAR_STANDARD, &date));
    for (int64_t i = 0; i < 36; i++)
        EXPECT_OK(vt_seasonal_fit_add(fit, vt_date_after(date, i * VT_A_MONTH), (float[2]){7, 5}));
    expect_fit(finish_fit(fit, NULL), "a mean and 1 harmonic of the year for any time of day");
    seasonal = open_file(test_path("climatology.h5"), 2);
    EXPECT(vt_date_parse("2010-04-15T00", VT_CALENDAR_STANDARD, &date));
    EXPECT_OK(vt_seasonal_at(seasonal, date, values));
    EXPECT_NEAR((double)values[1], 5, 1e-5);
}

TEST(less_than_a_year_gives_means)
{
    vt_date date;
    float values[2];
    double sum = 0;
    expect_fit(fit_times(VT_CALENDAR_STANDARD, "2003-01-01", 1440, 200, false),
               "a mean for 1 time of day alone, as the times leave 166 days of the year without one");
    vt_seasonal *seasonal = open_file(test_path("climatology.h5"), 2);
    EXPECT(vt_date_parse("2003-01-01", VT_CALENDAR_STANDARD, &date));
    for (int64_t i = 0; i < 200; i++) sum += (double)value_at(vt_date_after(date, 1440 * i), 0) / 200;
    EXPECT_OK(vt_seasonal_at(seasonal, date, values));
    EXPECT_NEAR((double)values[0], sum, 2e-6);
    EXPECT_TEXT(seasonal->description,
                "a mean for 1 time of day, fitted to 200 times, 2003-01-01 00:00 to 2003-07-19 00:00");
    vt_seasonal_close(&seasonal);
    fit_times(VT_CALENDAR_STANDARD, "2003-01-01", 360, 1, true); /* a single time */
}

/* With missing values: a point that has values in a few months only gets their mean, one without any NaN. */
TEST(points_with_few_values_get_means)
{
    vt_date begin;
    float values[3];
    double sum = 0;
    EXPECT(vt_date_parse("2003-01-01", VT_CALENDAR_STANDARD, &begin));
    vt_seasonal_fit *fit = open_fit(3, true);
    for (int64_t i = 0; i < 365; i++) {
        const vt_date date = vt_date_after(begin, 1440 * i);
        const float value = value_at(date, 0);
        const bool summer = i >= 170 && i < 230;
        if (summer) sum += (double)value / 60;
        EXPECT_OK(vt_seasonal_fit_add(fit, date, (float[3]){value, summer ? value : NAN, NAN}));
    }
    finish_fit(fit, NULL);
    SCOPED(vt_seasonal) *seasonal = open_file(test_path("climatology.h5"), 3);
    EXPECT_OK(vt_seasonal_at(seasonal, begin, values));
    EXPECT_NEAR((double)values[0], (double)value_at(begin, 0), 1e-5);
    EXPECT_NEAR((double)values[1], sum, 2e-6);
    EXPECT(isnan(values[2]));
}

/* ---- windows, and what is refused ---- */

enum { ROWS = 4, COLUMNS = 6 };
static char *grid_names[2] = {"t2m", "u10"};
static double grid_latitudes[ROWS] = {60, 50, 40, 30}, grid_longitudes[COLUMNS] = {0, 60, 120, 180, 240, 300};

/* The data of the file that write_grid writes; without names and coordinates everything fits. */
static vt_fields_about grid_data(bool known)
{
    return (vt_fields_about){.channels = 2,
                             .names = known ? grid_names : NULL,
                             .rows = ROWS,
                             .columns = COLUMNS,
                             .latitudes = known ? grid_latitudes : NULL,
                             .longitudes = known ? grid_longitudes : NULL,
                             .window = {.rows = ROWS, .width = COLUMNS}};
}

/* A file of that data, whose climatology is 100 c + 10 y + x. */
static void write_grid(const vt_fields_about *data)
{
    float fields[2 * ROWS * COLUMNS];
    vt_date date;
    for (int i = 0; i < 2 * ROWS * COLUMNS; i++)
        fields[i] = (float)(100 * (i / (ROWS * COLUMNS)) + 10 * (i / COLUMNS % ROWS) + i % COLUMNS);
    EXPECT(vt_date_parse("2003-01-01", VT_CALENDAR_STANDARD, &date));
    vt_seasonal_fit *fit = vt_seasonal_fit_open(
        &(vt_seasonal_fit_options){.channels = 2, .height = ROWS, .width = COLUMNS, .harmonics = 1});
    EXPECT_OK(vt_seasonal_fit_add(fit, date, fields));
    finish_fit(fit, data);
}

static vt_status open_grid(const vt_fields_about *data, int64_t channels, vt_seasonal **seasonal)
{
    return vt_seasonal_open(test_path("climatology.h5"), data, channels, (vt_span){0, data->window.rows}, false,
                            seasonal);
}

static void expect_window(const vt_fields_about *data, int64_t channels, vt_span rows)
{
    SCOPED(vt_seasonal) *seasonal = NULL;
    float values[2 * ROWS * COLUMNS];
    vt_date date;
    const vt_frame_window *window = &data->window;
    EXPECT(vt_date_parse("2004-06-01", VT_CALENDAR_STANDARD, &date));
    EXPECT_OK(vt_seasonal_open(test_path("climatology.h5"), data, channels, rows, false, &seasonal));
    if (seasonal == NULL) return;
    EXPECT_OK(vt_seasonal_at(seasonal, date, values));
    for (int64_t i = 0; i < channels * rows.count * window->width; i++) {
        const int64_t row = window->first_row + rows.first + i / window->width % rows.count;
        const int64_t column = vt_window_column(window, i % window->width);
        const int64_t channel = i / (window->width * rows.count);
        EXPECT_NEAR((double)values[i], (double)(100 * channel + 10 * row + column), 0);
    }
}

TEST(windows_of_a_climatology)
{
    double others[COLUMNS] = {0, 60, 120, 180, -120, -60};
    vt_fields_about data = grid_data(true);
    write_grid(&data);
    data = grid_data(false);
    expect_window(&data, 2, (vt_span){0, ROWS});
    data = grid_data(true);
    data.longitudes = others;
    data.window = (vt_frame_window){1, 3, 4, 4, COLUMNS}; /* round past the last column */
    expect_window(&data, 1, (vt_span){1, 2});
    data.window.width = COLUMNS; /* all columns, from another one on */
    expect_window(&data, 1, (vt_span){1, 2});
    double shifted[ROWS] = {60, 50, 40, 31};
    vt_seasonal *seasonal = NULL;
    data.latitudes = shifted;
    EXPECT_ERROR(open_grid(&data, 1, &seasonal),
                 "is of another grid: its row 2 is at 30 degrees, that of the data at 31; make it again with");
}

/* Of a grid whose last column is its first meridian once more, the window goes on behind that. */
TEST(windows_over_a_meridian_that_comes_twice)
{
    double longitudes[COLUMNS] = {0, 72, 144, 216, 288, 360};
    vt_fields_about data = grid_data(true);
    data.longitudes = longitudes;
    write_grid(&data);
    data.window = (vt_frame_window){0, ROWS, 3, 4, COLUMNS - 1};
    expect_window(&data, 2, (vt_span){0, ROWS});
}

TEST(climatologies_that_do_not_fit)
{
    const char *path = test_path("climatology.h5");
    vt_seasonal *seasonal = NULL;
    vt_fields_about data = grid_data(true);
    write_grid(&data);
    data = grid_data(false);
    data.rows = data.window.rows = 5;
    EXPECT_ERROR(open_grid(&data, 2, &seasonal),
                 "climatology.h5 is of a grid of [4, 6], neither the window [5, 6] nor the grid [5, 6] of the data");
    data = grid_data(false);
    EXPECT_ERROR(open_grid(&data, 3, &seasonal), "with C at least 3, the channels in use");
    char *names[2] = {"t2m", "v10"};
    data.names = names;
    EXPECT_ERROR(open_grid(&data, 2, &seasonal), "has no channel 'v10', which the data have");
    const vt_span rows = {0, ROWS};
    EXPECT_ERROR(vt_seasonal_open(test_path("none.h5"), &data, 2, rows, false, &seasonal),
                 "none.h5; `vitrain stats` makes such a file");
    const test_fields fields = {.times = 1, .channels = 1, .height = 2, .width = 2};
    test_fields_write(test_path("2001.h5"), &fields);
    EXPECT_ERROR(vt_seasonal_open(test_path("2001.h5"), &data, 2, rows, false, &seasonal),
                 "holds no seasonal climatology that this program reads");
    FILE *file = fopen(path, "r+b"); /* a value of the coefficients: 113 */
    float value = 0;
    int64_t at = 0;
    while (value != 113 && fseek(file, at, SEEK_SET) == 0 && fread(&value, sizeof value, 1, file) == 1) at += 4;
    EXPECT(value == 113);
    fseek(file, at - 4, SEEK_SET);
    fwrite(&(float){114}, sizeof value, 1, file);
    fclose(file);
    data = grid_data(false);
    EXPECT_ERROR(open_grid(&data, 2, &seasonal), "dataset /coefficients is damaged");
    EXPECT(truncate(path, 900) == 0);
    EXPECT_ERROR(open_grid(&data, 2, &seasonal), "climatology_path (`vitrain stats` makes such a file): ");
    EXPECT(seasonal == NULL);
}

/* ---- changes ---- */

/* Times 0 … 4 with a gap before time 3, in dt of 1 and 2: only pairs without the gap between them count. */
TEST(changes_over_dt)
{
    const float values[5] = {1, 2, 4, 8, 16};
    const double expected[2] = {sqrt((1 + 4 + 64) / 3. - pow(11 / 3., 2)), 0};
    const vt_seasonal_fit_options shape = {.channels = 1, .height = 1, .width = 1};
    for (int64_t dt = 1; dt <= 2; dt++) {
        vt_date date;
        char *notes = NULL;
        vt_npy stds;
        EXPECT(vt_date_parse("2003-01-01", VT_CALENDAR_STANDARD, &date));
        SCOPED(vt_time_statistics) *statistics = vt_time_statistics_open(dt, &shape, false, NULL);
        for (int i = 0; i < 5; i++) {
            const vt_date own = vt_date_after(date, 360 * (i + (i >= 3)));
            const bool begins = i == 0 || i >= 3; /* time 4 begins a file, but follows by its date */
            EXPECT_OK(vt_time_statistics_add(statistics, &own, 360, begins, &values[i]));
        }
        EXPECT_OK(vt_time_statistics_write(statistics, vt_test_directory(), NULL, &notes));
        EXPECT_OK(vt_npy_open(test_path("time_diff_stds.npy"), &stds));
        EXPECT(stds.shape.dimensions == 4 && stds.shape.shape[1] == 1);
        EXPECT_NEAR(stds.values[0], expected[dt - 1], 1e-6);
        EXPECT_PART(notes, dt == 1 ? "of 3 pairs of times" : "of 1 pairs of times");
        vt_npy_close(&stds);
        vt_time_statistics_close(&statistics);
        free(notes);
        /* what can't be made is not left over from another set */
        statistics = vt_time_statistics_open(7, &shape, false, NULL);
        EXPECT_OK(vt_time_statistics_add(statistics, NULL, 360, true, values));
        EXPECT_OK(vt_time_statistics_write(statistics, vt_test_directory(), NULL, &notes));
        EXPECT_PART(notes, "no time_diff_stds.npy: no two times of these files are 7 apart\nno climatology.h5: ");
        EXPECT(access(test_path("time_diff_stds.npy"), F_OK) != 0 && access(test_path("climatology.h5"), F_OK) != 0);
        free(notes);
    }
}
