/* Forcings against the sun of another formula and against sums, and in the samples of a set; static fields; departures
 * from a climatology. */
#include <math.h>

#include "data/loader.h"
#include "settings.h"
#include "source/fields/dataset.h"
#include "source/fields/seasonal_fit.h"
#include "source/sources.h"
#include "task/weather/forcings.h"
#include "test.h"
#include "unit/data_files.h"
#include "unit/netcdf_files.h"

/* ---- the sun ---- */

static vt_date date_of(const char *text, vt_calendar calendar)
{
    vt_date date;
    VT_ASSERT(vt_date_parse(text, calendar, &date));
    return date;
}

static double degrees(double radians)
{
    return radians * 180 / M_PI;
}

/* The Astronomical Almanac's low-precision sun, good to 0.01 degrees: another series than Spencer's. */
static void almanac(vt_date date, double *declination, double *equation)
{
    const vt_date zero = date_of("2000-01-01T12:00", VT_CALENDAR_STANDARD);
    const double n = (double)(date.minutes - zero.minutes) / 1440, rad = M_PI / 180;
    const double mean = 280.460 + 0.9856474 * n, anomaly = (357.528 + 0.9856003 * n) * rad;
    const double longitude = (mean + 1.915 * sin(anomaly) + 0.020 * sin(2 * anomaly)) * rad;
    const double tilt = (23.439 - 0.0000004 * n) * rad;
    const double ascension = atan2(cos(tilt) * sin(longitude), cos(longitude));
    *declination = asin(sin(tilt) * sin(longitude));
    *equation = remainder(mean * rad - ascension, 2 * M_PI);
}

/* Spencer's series is one for all years: against the sun of a year it may be a day early or late, by which declination
 * moves 0.4 degrees and the equation of time 30 seconds (0.125 degrees); its own errors are 0.04 and 0.15 degrees. */
TEST(sun_is_that_of_the_almanac)
{
    for (int year = 2012; year < 2016; year++) {
        vt_date date;
        VT_ASSERT(vt_date_make(VT_CALENDAR_STANDARD, year, 1, 1, &date));
        for (int day = 0; day < 365; day++, date.minutes += 1440) {
            double declination, equation;
            almanac(date, &declination, &equation);
            const double of_year = vt_date_of_year(date);
            EXPECT_NEAR(degrees(vt_sun_declination(of_year)), degrees(declination), 0.45);
            EXPECT_NEAR(degrees(vt_sun_equation_of_time(of_year)), degrees(equation), 0.28);
        }
    }
}

/* The sun's height at an instant. */
static double height_at(double declination, double equation, double day, double latitude, double longitude)
{
    const double rad = M_PI / 180, angle = 2 * M_PI * (day - 0.5) + longitude * rad + equation;
    const double height = sin(latitude * rad) * sin(declination) + cos(latitude * rad) * cos(declination) * cos(angle);
    return height > 0 ? height : 0;
}

/* The mean over a step by 20,000 instants, each with Spencer's sun of that instant, in the units of the forcing. */
static double summed_height(vt_date date, int64_t minutes, double latitude, double longitude)
{
    enum { INSTANTS = 20000 };
    double sum = 0;
    for (int i = 0; i < INSTANTS; i++) {
        const double later = ((double)i + 0.5) / INSTANTS * (double)minutes;
        const vt_date at = vt_date_after(date, (int64_t)later);
        const double year = vt_date_of_year(at), day = ((double)vt_date_of_day(at) + later - floor(later)) / 1440;
        sum += height_at(vt_sun_declination(year), vt_sun_equation_of_time(year), day, latitude, longitude);
    }
    return (sum / INSTANTS - 0.25) / sqrt(5 / 48.0);
}

/* Through a step, or a day of a longer one, the forcing keeps the declination of its middle, which changes by up to
 * 0.007 radians a day: at its ends it is off by half of that, where the sun is up half of the time: 0.0018 a day, in
 * the forcing's units 0.0054. */
TEST(mean_height_of_the_sun)
{
    static const double latitudes[] = {90, 75, 66, 45, 23.4, 0.1, -12, -50, -68, -90},
                        longitudes[] = {-180, -97, 0, 13, 180, 271, 359};
    static const struct {
        const char *date;
        vt_calendar calendar;
        int64_t step;
    } steps[] = {
        {"2013-06-21T06:00", VT_CALENDAR_STANDARD, 360},       {"2013-01-01T00:00", VT_CALENDAR_STANDARD, 360},
        {"2013-12-31T18:00", VT_CALENDAR_STANDARD, 360},       {"2012-02-29T21:00", VT_CALENDAR_STANDARD, 180},
        {"2013-09-23T17:30", VT_CALENDAR_STANDARD, 60},        {"1850-03-20T12:00", VT_CALENDAR_NO_LEAP, 1440},
        {"2100-02-30T03:00", VT_CALENDAR_360_DAY, 720},        {"2013-03-10T00:00", VT_CALENDAR_PROLEPTIC, 2 * 1440},
        {"2013-02-01T00:00", VT_CALENDAR_STANDARD, VT_A_MONTH}};
    enum { ROWS = sizeof latitudes / sizeof latitudes[0], COLUMNS = sizeof longitudes / sizeof longitudes[0] };
    float field[ROWS * COLUMNS];
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        const vt_date date = date_of(steps[s].date, steps[s].calendar);
        const int64_t minutes = vt_date_after(date, steps[s].step).minutes - date.minutes;
        const double allowed = 2e-5 + 0.0054 * fmin((double)minutes / 1440, 1);
        vt_forcing_field(VT_FORCING_COS_ZENITH, date, steps[s].step, latitudes, ROWS, longitudes, COLUMNS, field);
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            const double expected = summed_height(date, minutes, latitudes[i / COLUMNS], longitudes[i % COLUMNS]);
            EXPECT(fabs((double)field[i] - expected) < allowed, "%s, %g, %g: %g, expected %g", steps[s].date,
                   latitudes[i / COLUMNS], longitudes[i % COLUMNS], (double)field[i], expected);
        }
    }
}

/* Over the sphere and a day the sun's height has the mean 1/4 and the mean square 1/6, whatever the season. */
TEST(height_of_the_sun_is_normalised)
{
    enum { ROWS = 360, COLUMNS = 48 };
    static float field[ROWS * COLUMNS];
    double latitudes[ROWS], longitudes[COLUMNS], weights = 0, mean = 0, square = 0;
    for (int i = 0; i < ROWS; i++) latitudes[i] = 89.75 - 0.5 * i;
    for (int i = 0; i < COLUMNS; i++) longitudes[i] = 7.5 * i;
    vt_forcing_field(VT_FORCING_COS_ZENITH, date_of("2013-05-05", VT_CALENDAR_STANDARD), 1, latitudes, ROWS, longitudes,
                     COLUMNS, field);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const double weight = cos(latitudes[i / COLUMNS] * M_PI / 180), value = (double)field[i];
        weights += weight;
        mean += weight * value;
        square += weight * value * value;
    }
    EXPECT_NEAR(mean / weights, 0, 2e-3); /* of the grid's rule for the integral */
    EXPECT_NEAR(square / weights, 1, 4e-3);
}

TEST(forcings_by_hand)
{
    static const double latitudes[] = {90, 30}, longitudes[] = {0, 90, 240};
    static const struct {
        vt_forcing forcing;
        const char *date;
        vt_calendar calendar;
        double values[6];
    } known[] = {
        {VT_FORCING_SIN_YEAR, "2013-04-02T06:00", VT_CALENDAR_STANDARD, {1, 1, 1, 1, 1, 1}}, /* 91.25 of 365 days */
        {VT_FORCING_COS_YEAR, "2012-07-02T00:00", VT_CALENDAR_STANDARD, {-1, -1, -1, -1, -1, -1}}, /* 183 of 366 */
        {VT_FORCING_SIN_YEAR, "2012-10-01", VT_CALENDAR_360_DAY, {-1, -1, -1, -1, -1, -1}},
        {VT_FORCING_SIN_DAY, "2013-04-02T06:00", VT_CALENDAR_NO_LEAP, {1, 1, 1, 1, 1, 1}},
        {VT_FORCING_COS_DAY, "2013-04-02T08:00", VT_CALENDAR_STANDARD, {-.5, -.5, -.5, -.5, -.5, -.5}},
        {VT_FORCING_SIN_LAT, "2013-04-02", VT_CALENDAR_STANDARD, {1, 1, 1, .5, .5, .5}},
        {VT_FORCING_COS_LAT, "2013-04-02", VT_CALENDAR_STANDARD, {0, 0, 0, .8660254, .8660254, .8660254}},
        {VT_FORCING_SIN_LON, "2013-04-02", VT_CALENDAR_STANDARD, {0, 1, -.8660254, 0, 1, -.8660254}},
        {VT_FORCING_COS_LON, "2013-04-02", VT_CALENDAR_STANDARD, {1, 0, -.5, 1, 0, -.5}}};
    float field[6];
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        vt_forcing_field(known[k].forcing, date_of(known[k].date, known[k].calendar), 360, latitudes, 2, longitudes, 3,
                         field);
        for (int i = 0; i < 6; i++) EXPECT_NEAR((double)field[i], known[k].values[i], 1e-6);
    }
}

/* ---- in samples ---- */

enum { TIMES = 14, ROWS = 3, COLUMNS = 4, CHANNELS = 2, POINTS = ROWS * COLUMNS, BATCH = 4 };

/* Two files of 6-hourly times with coordinates, the second one behind a gap, in this calendar; rows from the north. */
static void write_set(const char *directory, const char *calendar)
{
    static const char *const names[] = {"2013.h5", "2015.h5"};
    for (int f = 0; f < 2; f++) {
        static float values[TIMES * CHANNELS * POINTS];
        double times[TIMES];
        const hsize_t extent[4] = {TIMES, CHANNELS, ROWS, COLUMNS};
        for (int i = 0; i < TIMES * CHANNELS * POINTS; i++) values[i] = (float)(270 + 1000 * f + i % 97);
        for (int i = 0; i < TIMES; i++) times[i] = 6 * i + 24000.0 * f;
        hid_t file = test_create(test_path(SETTINGS("%s/%s", directory, names[f])));
        hid_t fields = test_dataset(file, "fields", H5T_IEEE_F32LE, 4, extent, H5T_NATIVE_FLOAT, values);
        for (int v = 0; v < 4; v++) { /* which all differ */
            const hsize_t own[3] = {TIMES, ROWS, COLUMNS};
            test_dataset(file, (const char *const[]){"a", "b", "c", "d"}[v], H5T_IEEE_F32LE, 3, own, H5T_NATIVE_FLOAT,
                         values + v * POINTS);
        }
        hid_t axis = test_nc_times(file, "time", H5T_IEEE_F64LE, TIMES, times, "hours since 2013-02-26 06:00");
        test_nc_text(axis, "calendar", calendar);
        test_nc_axis(file, "lat", ROWS, 50, -10);
        test_nc_axis(file, "lon", COLUMNS, 350, 5);
        H5Dclose(fields);
        H5Fclose(file);
    }
}

/* Fixed fields: variables [lat, lon] and [time, lat, lon], rows from the south. */
static void write_static(const char *name, int rows)
{
    float height[16], land[16];
    const hsize_t extent[3] = {1, (hsize_t)rows, COLUMNS};
    for (int i = 0; i < rows * COLUMNS; i++) {
        height[i] = (float)(100 * (i / COLUMNS) + i % COLUMNS);
        land[i] = (float)(i % 2);
    }
    hid_t file = test_create(test_path(name));
    test_dataset(file, "z", H5T_IEEE_F32LE, 2, extent + 1, H5T_NATIVE_FLOAT, height);
    test_dataset(file, "lsm", H5T_IEEE_F32LE, 3, extent, H5T_NATIVE_FLOAT, land);
    test_nc_axis(file, "lat", rows, 30, 10);
    test_nc_axis(file, "lon", COLUMNS, 350, 5);
    H5Fclose(file);
}

/* A configuration of such a set, resolved; `settings` come behind. */
static vt_config *config_of(const char *settings)
{
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    set_options(config, SETTINGS("img_size=[%d,%d] patch_size=1 n_in_channels=%d n_out_channels=%d n_history=1 "
                                 "train_data_path=%s/set valid_data_path=%s/set climatology_path=%s/climatology.h5",
                                 ROWS, COLUMNS, 2 * CHANNELS, CHANNELS, vt_test_directory(), vt_test_directory(),
                                 vt_test_directory()));
    set_options(config, settings);
    EXPECT_OK(vt_config_resolve(config));
    return config;
}

static vt_status open_source(vt_config *config, vt_span rows, vt_source **source)
{
    vt_status status = vt_source_complete(config);
    *source = NULL;
    return status == VT_OK ? vt_source_kind_of(config)->open(config, VT_SET_TRAINING, rows, source) : status;
}

static vt_loader *open_loader(vt_source *source, int64_t workers, bool skip_bad)
{
    return TEST_LOADER_OF(source, .global_batch_size = BATCH, .drop_last = true, .shuffle = true, .seed = 3,
                          .prefetch = 2, .workers = workers, .skip_bad = skip_bad);
}

/* Calls look(batch) for all batches of three epochs. */
static void for_each_batch(vt_source *source, int64_t workers, bool skip_bad, void (*look)(const vt_batch *batch))
{
    SCOPED(vt_loader) *loader = open_loader(source, workers, skip_bad);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        vt_loader_begin(loader, epoch, 0);
        for (const vt_batch *batch; (batch = test_next(loader)) != NULL;) look(batch);
    }
}

/* What a sample's forcings must be, from the parts: the date of the sample, and the fields of the file above. */
static void expected_forcings(const vt_source *source, int64_t sample, vt_span rows, float *fields)
{
    static const double latitudes[] = {50, 40, 30}, longitudes[] = {350, 355, 360, 365};
    const int64_t points = rows.count * COLUMNS;
    vt_date date;
    EXPECT(vt_dataset_date(vt_dataset_of(source), sample, 0, &date));
    static const vt_forcing kinds[] = {VT_FORCING_COS_LAT, VT_FORCING_COS_ZENITH, VT_FORCING_SIN_YEAR};
    for (int k = 0; k < 3; k++)
        vt_forcing_field(kinds[k], date, 360, latitudes + rows.first, rows.count, longitudes, COLUMNS,
                         fields + k * points);
    double mean = 0, square = 0;
    for (int i = 0; i < POINTS; i++) mean += (100 * (i / COLUMNS) + i % COLUMNS) / (double)POINTS;
    for (int i = 0; i < POINTS; i++) square += pow(100 * (i / COLUMNS) + i % COLUMNS - mean, 2) / POINTS;
    for (int64_t i = 0; i < points; i++) {
        const int64_t row = rows.first + i / COLUMNS, column = i % COLUMNS;
        fields[3 * points + i] = (float)(((double)(100 * (ROWS - 1 - row) + column) - mean) / sqrt(square));
        fields[4 * points + i] = column % 2 == 0 ? -1 : 1; /* z and lsm have their rows turned */
    }
}

static void expect_batch(const vt_batch *batch)
{
    enum { KNOWN = 5 };
    float expected[KNOWN * POINTS];
    const vt_dataset_options *options = &vt_dataset_of(batch->source)->options;
    const vt_span rows = {options->first_row, options->rows};
    const int64_t floats = KNOWN * rows.count * COLUMNS;
    for (int64_t i = 0; i < batch->sample_count; i++) {
        const float *own = (const float *)batch->tensors[VT_TENSOR_FORCINGS] + i * floats;
        expected_forcings(batch->source, batch->samples[i], rows, expected);
        for (int64_t j = 0; j < floats; j++)
            EXPECT(fabs((double)(own[j] - expected[j])) < 1e-6, "sample %ld, %ld: %g, expected %g", batch->samples[i],
                   j, (double)own[j], (double)expected[j]);
    }
}

/* The pieces of a sample out of the frames are its tensors. */
static void expect_pieces(const vt_batch *batch)
{
    vt_source *source = batch->source;
    vt_sample_piece pieces[16];
    char *frame = vt_test_owned(malloc(source->frame_bytes));
    EXPECT(source->pieces_per_sample <= 16);
    for (int64_t i = 0; i < batch->sample_count; i++) {
        size_t done[3] = {0};
        const int64_t count = source->kind->pieces(source, batch->samples[i], 0, pieces);
        EXPECT(count <= source->pieces_per_sample);
        for (int64_t p = 0; p < count; p++) {
            const int t = pieces[p].tensor;
            const char *own = (const char *)batch->tensors[t] + (size_t)i * vt_tensor_bytes(&source->specs[t]);
            EXPECT(pieces[p].offset + pieces[p].bytes <= source->frame_bytes);
            EXPECT_OK(source->kind->read_frame(source, pieces[p].frame, frame));
            EXPECT(memcmp(own + done[t], frame + pieces[p].offset, pieces[p].bytes) == 0, "tensor %d of sample %ld", t,
                   batch->samples[i]);
            done[t] += pieces[p].bytes;
        }
        for (int t = 0; t < 3; t++) EXPECT(done[t] == vt_tensor_bytes(&source->specs[t]));
    }
}

#define FORCINGS "forcings=[cos_lat,cos_zenith,sin_year] static_variables=[z,lsm] static_fields="

/* From the files through threads and the host's cache, and in pieces for the device's: of all rows, and of some. */
TEST(forcings_of_samples)
{
    static const char *const calendars[] = {"standard", "noleap", "360_day"};
    static const vt_span parts[] = {{0, ROWS}, {1, 2}};
    for (int c = 0; c < 3; c++)
        for (int how = 0; how < 6; how++) {
            const vt_span rows = parts[how % 2];
            const bool on_device = how / 2 == 2;
            SCOPED(vt_source) *source = NULL;
            write_set("set", calendars[c]);
            write_static("fixed.nc", ROWS);
            SCOPED(vt_config) *config = config_of(SETTINGS(FORCINGS "%s/fixed.nc", vt_test_directory()));
            config->cache = on_device ? VT_CACHE_DEVICE : VT_CACHE_NONE;
            EXPECT_OK(open_source(config, rows, &source));
            VT_ASSERT(source != NULL);
            EXPECT(config->n_static_fields == 2 && vt_config_forcing_channels(config) == 5);
            EXPECT(source->tensor_count == 3 && vt_tensor_values(&source->specs[2]) == 5 * rows.count * COLUMNS);
            EXPECT(source->sample_count == 2 * (TIMES - 2));
            if (how / 2 == 1) EXPECT_OK(source->kind->keep_frames(source));
            for_each_batch(source, how % 3, false, expect_batch);
            if (on_device) for_each_batch(source, 0, false, expect_pieces);
        }
}

/* Variables that are forcings, behind those that are known of the date: `c` and `d` of the input's newest time. */
static void expect_variables(const vt_batch *batch)
{
    enum { KNOWN = 2 };
    float values[4 * POINTS];
    const vt_dataset *dataset = vt_dataset_of(batch->source);
    const int64_t count = dataset->options.rows * COLUMNS;
    for (int64_t i = 0; i < batch->sample_count; i++) {
        vt_date date;
        vt_fields_file *file = NULL;
        vt_frame_window window = {.rows = ROWS, .width = COLUMNS};
        EXPECT(vt_dataset_date(dataset, batch->samples[i], 0, &date));
        EXPECT_OK(vt_dataset_open_file((vt_dataset *)(uintptr_t)dataset, batch->samples[i], &file));
        const int64_t time = (date.minutes - file->times.begin.minutes) / 360;
        EXPECT_OK(vt_fields_file_read(file, time, 4, &window, true, values));
        const float *own = (const float *)batch->tensors[VT_TENSOR_FORCINGS] + i * (KNOWN + 2) * count;
        for (int v = 0; v < 2; v++)
            EXPECT(memcmp(own + (KNOWN + v) * count, values + (2 + v) * POINTS + POINTS - count,
                          (size_t)count * sizeof *own) == 0,
                   "sample %ld, variable %d", batch->samples[i], v);
    }
}

TEST(variables_that_are_forcings)
{
    static const vt_span parts[] = {{0, ROWS}, {1, 2}};
    for (int how = 0; how < 6; how++) {
        SCOPED(vt_source) *source = NULL;
        write_set("set", "standard");
        SCOPED(vt_config) *config = config_of("variables=[c,a,b,d] roles=[b=diagnostic,c=forcing,d=forcing] "
                                              "forcings=[cos_lat,cos_zenith] n_in_channels=2 n_out_channels=2");
        config->cache = how / 2 == 2 ? VT_CACHE_DEVICE : VT_CACHE_NONE;
        EXPECT(strcmp(config->variables, "[a, b, c, d]") == 0 && vt_config_forcing_channels(config) == 4);
        const vt_span rows = parts[how % 2];
        EXPECT_OK(open_source(config, rows, &source));
        VT_ASSERT(source != NULL);
        if (how / 2 == 1) EXPECT_OK(source->kind->keep_frames(source));
        for_each_batch(source, how % 3, false, expect_variables);
        if (how / 2 == 2) for_each_batch(source, 0, false, expect_pieces);
    }
}

/* A rollout of three steps sees the forcings of its first three times, also where only two of them are asked for. */
TEST(forcings_of_a_rollout)
{
    enum { STEPS = 3, KNOWN = 2, FLOATS = KNOWN * POINTS };
    static float input[2 * CHANNELS * POINTS], target[STEPS * CHANNELS * POINTS], forcings[STEPS * FLOATS], one[FLOATS];
    write_set("set", "standard");
    SCOPED(vt_config) *config = config_of("forcings=cos_zenith,sin_day");
    vt_dataset_options options = vt_fields_options(config, VT_SET_TRAINING);
    options.directory = config->train_data_path;
    options.option_name = "train_data_path";
    options.known = vt_known_options_of(config);
    options.targets = options.reach = STEPS;
    SCOPED(vt_dataset) *dataset = test_open(&options);
    vt_source *source = &dataset->source;
    EXPECT(source->sample_count == 2 * (TIMES - 4) && source->specs[2].shape[0] == STEPS);
    EXPECT(vt_tensor_values(&source->specs[2]) == STEPS * FLOATS);
    const vt_reading *reading = vt_source_reading(source);
    vt_read_plan *plan = reading->open(source);
    for (int64_t sample = 0; sample < source->sample_count; sample++) {
        vt_decoder decoder = {0};
        vt_date date;
        const int64_t steps = 2 + sample % 2;
        for (int i = 0; i < STEPS * FLOATS; i++) forcings[i] = NAN;
        plan->steps = steps;
        EXPECT_OK(reading->make(plan, &sample, 1, (void *const[]){input, target, forcings}));
        for (int64_t i = 0; i < plan->item_count; i++) EXPECT_OK(reading->run(plan, i, &decoder));
        reading->release(plan);
        vt_decoder_close(&decoder);
        EXPECT(vt_dataset_date(dataset, sample, 0, &date));
        const double *latitudes = vt_dataset_known_coordinate(dataset, false);
        for (int64_t k = 0; k < STEPS; k++) {
            vt_forcing_field(VT_FORCING_COS_ZENITH, vt_date_after(date, 360 * k), 360, latitudes, ROWS,
                             vt_dataset_known_coordinate(dataset, true), COLUMNS, one);
            vt_forcing_field(VT_FORCING_SIN_DAY, vt_date_after(date, 360 * k), 360, NULL, ROWS, NULL, COLUMNS,
                             one + POINTS);
            const float *own = forcings + k * FLOATS;
            EXPECT(k < steps ? memcmp(own, one, sizeof one) == 0 : isnan(own[0]), "sample %ld, step %ld", sample, k);
        }
    }
    reading->close(plan);
}

/* ---- departures ---- */

/* A climatology of the four times of day, of a year of the fields 270 + channel + 5 cos(year) + time of day / 6 h +
 * place / 100 + noise. */
static void write_climatology(int channels, int rows)
{
    static double latitudes[] = {50, 40, 30, 20}, longitudes[] = {350, 355, 0, 5};
    const vt_seasonal_fit_options options = {.channels = channels, .height = rows, .width = COLUMNS, .harmonics = 1};
    const vt_fields_about about = {.channels = channels,
                                   .rows = rows,
                                   .columns = COLUMNS,
                                   .latitudes = latitudes,
                                   .longitudes = longitudes,
                                   .window = {.rows = rows, .width = COLUMNS}};
    SCOPED(vt_seasonal_fit) *fit = vt_seasonal_fit_open(&options);
    char *summary = NULL;
    float fields[3 * 4 * COLUMNS];
    vt_date date = date_of("2012-01-01T00:00", VT_CALENDAR_STANDARD);
    for (int time = 0; time < 4 * 366; time++, date.minutes += 360) {
        const double season = 5 * cos(2 * M_PI * vt_date_of_year(date)) + time % 4;
        for (int i = 0; i < channels * rows * COLUMNS; i++)
            fields[i] =
                (float)(270 + i / (rows * COLUMNS) + season + i % (rows * COLUMNS) / 100.0 + 0.1 * (time * 7 % 11));
        EXPECT_OK(vt_seasonal_fit_add(fit, date, fields));
    }
    EXPECT_OK(vt_seasonal_fit_write(fit, NULL, NULL, &about, test_path("climatology.h5"), &summary));
    free(summary);
}

static vt_dataset *plain_set;    /* the fields as they are */
static vt_seasonal *climatology; /* of the rows that the samples have */

/* One time of a sample: what was taken off. */
static void expect_departure(const float *fields, const float *plain, vt_date date, vt_span rows, int64_t sample)
{
    float expected[CHANNELS * POINTS];
    const int64_t own = rows.count * COLUMNS;
    EXPECT_OK(vt_seasonal_at(climatology, date, expected));
    for (int64_t i = 0; i < CHANNELS * own; i++) {
        const double whole = (double)plain[i / own * POINTS + rows.first * COLUMNS + i % own];
        EXPECT(fabs((double)fields[i] - (whole - (double)expected[i])) < 1e-4, "sample %ld, %ld: %g of %g", sample, i,
               (double)fields[i], whole);
    }
}

static void expect_departures(const vt_batch *batch)
{
    static float input[2 * CHANNELS * POINTS], target[CHANNELS * POINTS];
    const vt_dataset_options *options = &vt_dataset_of(batch->source)->options;
    const vt_span rows = {options->first_row, options->rows};
    const int64_t own = CHANNELS * rows.count * COLUMNS;
    for (int64_t i = 0; i < batch->sample_count; i++) {
        vt_date date;
        const int64_t sample = batch->samples[i];
        if (batch->bad != NULL && batch->bad[i]) continue;
        EXPECT_OK(vt_dataset_read(plain_set, sample, input, target));
        EXPECT(vt_dataset_date(plain_set, sample, 0, &date));
        const float *inputs = test_input(batch) + 2 * i * own;
        expect_departure(inputs, input, date, rows, sample);
        expect_departure(inputs + own, input + CHANNELS * POINTS, vt_date_after(date, -360), rows, sample);
        expect_departure(test_target(batch) + i * own, target, vt_date_after(date, 360), rows, sample);
    }
}

/* Stored in chunks of several times and a part of the rows. */
static void chunk_set(void)
{
    for (int f = 0; f < 2; f++) {
        const char *path = test_path(f == 0 ? "set/2013.h5" : "set/2015.h5");
        const hsize_t chunk[4] = {3, 1, 2, 3}, extent[4] = {TIMES, CHANNELS, ROWS, COLUMNS};
        static float values[TIMES * CHANNELS * POINTS];
        hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), whole = H5Dopen2(file, "fields", H5P_DEFAULT);
        VT_ASSERT(H5Dread(whole, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
        H5Dclose(whole);
        H5Ldelete(file, "fields", H5P_DEFAULT);
        hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(properties, 4, chunk);
        H5Pset_deflate(properties, 1);
        H5Dclose(test_dataset_with(properties, file, "fields", H5T_IEEE_F32LE, 4, extent, H5T_NATIVE_FLOAT, values));
        H5Fclose(file);
    }
}

/* One value that is not a number at time 5, in row 1 and column 2, which chunk (or run) and time share with others. */
static void poison(const char *name, int rank)
{
    const hsize_t start[4] = {5, 1, rank == 4 ? 1 : 2, 2}, count[4] = {1, 1, 1, 1};
    const float nan = NAN;
    hid_t file = H5Fopen(test_path("set/2013.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t fields = H5Dopen2(file, name, H5P_DEFAULT), all = H5Dget_space(fields);
    hid_t memory = H5Screate_simple(rank, count, NULL);
    H5Sselect_hyperslab(all, H5S_SELECT_SET, start, NULL, count, NULL);
    VT_ASSERT(H5Dwrite(fields, H5T_NATIVE_FLOAT, memory, all, H5P_DEFAULT, &nan) >= 0);
    H5Sclose(memory);
    H5Sclose(all);
    H5Dclose(fields);
    H5Fclose(file);
}

/* Where a loss is not finite, the forcings of a sample that its files hold are looked at, too. */
TEST(forcings_are_checked)
{
    SCOPED(vt_source) *source = NULL;
    write_set("set", "standard");
    poison("d", 3);
    SCOPED(vt_config) *config =
        config_of("variables=[a,b,c,d] roles=[b=diagnostic,c=forcing,d=forcing] n_in_channels=2 "
                  "n_out_channels=2");
    EXPECT_OK(open_source(config, (vt_span){0, ROWS}, &source));
    VT_ASSERT(source != NULL);
    EXPECT_OK(source->kind->check(source, 3));
    EXPECT_ERROR(source->kind->check(source, 4), "'d' is NaN at time 5, channel 3 (d), row 1, column 2");
}

/* Past HDF5 and through it, contiguous and chunked, of all rows and of some, with the host's cache and without, by
 * threads and by none; and beside a value that can't be read, after which the others are departures all the same. */
TEST(departures_of_samples)
{
    static const vt_span parts[] = {{0, ROWS}, {1, 2}};
    write_climatology(CHANNELS, ROWS);
    for (int how = 0; how < 32; how++) {
        const bool chunked = (how & 1) != 0, keeps = (how & 4) != 0, bad = (how & 8) != 0;
        const vt_span rows = parts[how >> 1 & 1];
        SCOPED(vt_source) *source = NULL;
        write_set("set", "standard");
        if (chunked) chunk_set();
        if (bad) poison("fields", 4);
        SCOPED(vt_config) *config = config_of("");
        vt_dataset_options options = vt_fields_options(config, VT_SET_TRAINING);
        options.directory = config->train_data_path;
        options.option_name = "train_data_path";
        options.form.masked = true;
        plain_set = test_open(&options);
        EXPECT_OK(vt_seasonal_open(config->climatology_path, plain_set->about, CHANNELS, rows, false, &climatology));
        set_options(config, SETTINGS("normalise=climatology data_loader_config=%s skip_bad_samples=%s",
                                     (how & 16) != 0 ? "pytorch" : "auto", bad ? "true" : "false"));
        EXPECT_OK(vt_config_resolve(config));
        EXPECT_OK(open_source(config, rows, &source));
        VT_ASSERT(source != NULL && climatology != NULL);
        if (keeps) EXPECT_OK(source->kind->keep_frames(source));
        for_each_batch(source, how % 3, bad, expect_departures);
        vt_seasonal_close(&climatology);
        vt_dataset_close(&plain_set);
    }
}

/* ---- what is refused ---- */

static void expect_refused(const char *settings, const char *message)
{
    vt_source *source = NULL;
    SCOPED(vt_config) *config = config_of(settings);
    EXPECT_ERROR(open_source(config, (vt_span){0, ROWS}, &source), message);
}

static void expect_no_option(const char *settings, const char *message)
{
    SCOPED(vt_config) *config = default_config();
    set_options(config, settings);
    EXPECT_ERROR(vt_config_resolve(config), message);
}

/* A set of one file without time coordinate, grid or date in its name. */
static void write_undated(const char *name)
{
    const test_fields fields = {.times = TIMES, .channels = CHANNELS, .height = ROWS, .width = COLUMNS};
    test_fields_write(test_path(name), &fields);
}

TEST(bad_forcings)
{
    expect_no_option("forcings=sin_lat,cos_zenit", "there is no 'cos_zenit'; there are sin_year,");
    expect_no_option("forcings=[sin_lat,sin_lat]", "sin_lat comes twice");
    expect_no_option("forcings=[]", "names none");
    expect_no_option("n_static_fields=2", "n_static_fields without a file: name it by --static_fields=PATH");
    expect_no_option("static_variables=z", "static_variables without a file");
    write_undated("set/2013.h5");
    expect_refused("forcings=cos_zenith", "cos_zenith needs latitudes, but");
    expect_refused("forcings=sin_lon", "sin_lon needs longitudes, but");
    write_set("set", "standard");
    write_static("fixed.nc", ROWS);
    write_static("other.nc", ROWS + 1);
    expect_refused(SETTINGS("static_fields=%s/none.nc", vt_test_directory()), "none.nc");
    expect_refused(SETTINGS("static_fields=%s/fixed.nc", vt_test_directory()),
                   "has no dataset 'fields'; expected float32 'fields' [time, channel, lat, lon], or with "
                   "--static_variables");
    expect_refused(SETTINGS("static_variables=[z,soil] static_fields=%s/fixed.nc", vt_test_directory()),
                   "no variable 'soil'; found:");
    expect_refused(SETTINGS("static_variables=[z] static_fields=%s/other.nc", vt_test_directory()),
                   "has a grid of [4, 4], ");
    expect_refused(SETTINGS("static_variables=[z] n_static_fields=2 static_fields=%s/fixed.nc", vt_test_directory()),
                   "holds 1 channels, but n_static_fields is 2");
    expect_refused(SETTINGS("static_fields=%s/set/2013.h5", vt_test_directory()), "holds 14 times");
    hid_t file = H5Fopen(test_path("fixed.nc"), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, "lon", H5P_DEFAULT);
    test_nc_axis(file, "lon", COLUMNS, 350, 6);
    H5Fclose(file);
    expect_refused(SETTINGS("static_variables=[z] static_fields=%s/fixed.nc", vt_test_directory()),
                   "fixed.nc go from 350 to 368, those of ");
}

/* A field that is the same everywhere, and one that has gaps. */
TEST(bad_static_fields)
{
    float values[POINTS];
    const hsize_t extent[2] = {ROWS, COLUMNS};
    SCOPED(vt_source) *source = NULL;
    for (int i = 0; i < POINTS; i++) values[i] = 7;
    write_set("set", "standard");
    hid_t file = test_create(test_path("fixed.nc"));
    hid_t flat = test_dataset(file, "flat", H5T_IEEE_F32LE, 2, extent, H5T_NATIVE_FLOAT, values);
    H5Fclose(file);
    (void)flat;
    const char *settings = SETTINGS("static_variables=flat static_fields=%s/fixed.nc", vt_test_directory());
    expect_refused(settings, "channel 0 (flat) of");
    values[3] = NAN;
    values[4] = 8;
    file = test_create(test_path("fixed.nc"));
    test_dataset(file, "flat", H5T_IEEE_F32LE, 2, extent, H5T_NATIVE_FLOAT, values);
    H5Fclose(file);
    expect_refused(settings, "static_fields: ");
    SCOPED(vt_config) *config = config_of(settings);
    config->missing = VT_GAPS_MASK;
    EXPECT_OK(open_source(config, (vt_span){0, ROWS}, &source));
}

TEST(bad_dates_and_climatologies)
{
    write_set("set", "standard");
    write_climatology(CHANNELS, ROWS + 1);
    expect_refused("normalise=climatology", "is of a grid of [4, 4], neither the window [3, 4] nor the grid [3, 4]");
    write_climatology(CHANNELS - 1, ROWS);
    expect_refused("normalise=climatology", "climatology_path: /coefficients of");
    EXPECT(remove(test_path("climatology.h5")) == 0);
    expect_refused("normalise=climatology", "`vitrain stats` makes such a file");
    EXPECT(remove(test_path("set/2013.h5")) == 0 && remove(test_path("set/2015.h5")) == 0);
    write_undated("set/all9999.h5");
    expect_refused("forcings=sin_year", "says no dates, neither by a time coordinate nor by its name");
    expect_refused("normalise=climatology", "normalise: climatology: ");
}
