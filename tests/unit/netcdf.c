/* netCDF files: when their times are, which values are valid, which variables are channels. */
#include <hdf5.h>
#include <math.h>
#include <unistd.h>

#include "config/config.h"
#include "data/dataset.h"
#include "data/fields_file.h"
#include "data/time_axis.h"
#include "report/log.h"
#include "test.h"
#include "unit/data_files.h"

enum { ROWS = 2, COLUMNS = 3, POINTS = ROWS * COLUMNS, MOST = 64 };

static void put_text(hid_t dataset, const char *name, const char *text)
{
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text) + 1);
    hid_t attribute = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    VT_ASSERT(H5Awrite(attribute, type, text) >= 0);
    H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
}

static void put_numbers(hid_t dataset, const char *name, hid_t type, int count, const double *values)
{
    hsize_t extent = (hsize_t)count;
    hid_t space = H5Screate_simple(1, &extent, NULL),
          attribute = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    VT_ASSERT(H5Awrite(attribute, H5T_NATIVE_DOUBLE, values) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
}

static void put_number(hid_t dataset, const char *name, hid_t type, double value)
{
    put_numbers(dataset, name, type, 1, &value);
}

/* t [times, ROWS, COLUMNS] of whole numbers, 100 · time + place */
static hid_t put_variable(hid_t file, const char *name, int times, hid_t type)
{
    const hsize_t extent[3] = {(hsize_t)times, ROWS, COLUMNS};
    int values[MOST * POINTS];
    for (int i = 0; i < times * POINTS; i++) values[i] = 100 * (i / POINTS) + i % POINTS;
    hid_t space = H5Screate_simple(3, extent, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    VT_ASSERT(times <= MOST && H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Sclose(space);
    return dataset;
}

static hid_t put_times(hid_t file, const char *name, hid_t type, int times, const double *values, const char *units)
{
    hsize_t extent = (hsize_t)times;
    hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    VT_ASSERT(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Sclose(space);
    if (units != NULL) put_text(dataset, "units", units);
    return dataset;
}

static hid_t create(const char *name)
{
    return H5Fcreate(test_path(name), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
}

/* A file of the variable `t` with these times, in the units. */
static void write_times(const char *name, int times, const double *values, const char *units)
{
    hid_t file = create(name);
    H5Dclose(put_variable(file, "t", times, H5T_IEEE_F32LE));
    H5Dclose(put_times(file, "time", H5T_IEEE_F64LE, times, values, units));
    H5Fclose(file);
}

/* … of `times` of them, from `first` on, `step` apart */
static void write_even(const char *name, int times, double first, double step, const char *units)
{
    double values[MOST];
    for (int i = 0; i < times; i++) values[i] = first + i * step;
    write_times(name, times, values, units);
}

static vt_dataset_options options_of(const char *variables)
{
    return (vt_dataset_options){.directory = vt_test_directory(),
                                .option_name = "train_data_path",
                                .height = ROWS,
                                .width = COLUMNS,
                                .in_channels = 1,
                                .out_channels = 1,
                                .dt = 1,
                                .sample_limit = VT_UNSET_INTEGER,
                                .variables = variables,
                                .direct = true};
}

static const char *date_of(const vt_dataset *dataset, int64_t sample)
{
    static char text[VT_DATE_SIZE];
    vt_date date;
    return vt_dataset_date(dataset, sample, &date) ? vt_date_format(date, text) : "none";
}

#define EXPECT_DATE(dataset, sample, text)                                                                             \
    EXPECT(strcmp(date_of(dataset, sample), text) == 0, "%s, expected %s", date_of(dataset, sample), text)

/* ---- units ---- */

TEST(units_of_times)
{
    static const struct {
        const char *units;
        double value;
        const char *date; /* NULL: no such units */
    } known[] = {{"hours since 1900-01-01 00:00:00.0", 990552, "2013-01-01 00:00"},
                 {"seconds since 1970-01-01", 1356998400, "2013-01-01 00:00"},
                 {"days since 2013-01-01", 0.25, "2013-01-01 06:00"},
                 {"Hours since 1-1-1 00:00:0.0", 17636880, "2013-01-01 00:00"},
                 {"hours since 1800-01-01 00:00:0.0", 1867128, "2013-01-01 00:00"},
                 {"minutes since 2013-01-01T00:30:00Z", 60, "2013-01-01 01:30"},
                 {"h since 2013-1-1 6:0 UTC", 1, "2013-01-01 07:00"},
                 {"hr since 2013-01-01 06", 1, "2013-01-01 07:00"},
                 {"hours since 2013-01-01 00:00:00 +02:00", 0, "2012-12-31 22:00"},
                 {"hours since 2013-01-01 00:00:00 -0530", 0, "2013-01-01 05:30"},
                 {"hours since 2013-01-01 00:00:00 -6", 0, "2013-01-01 06:00"},
                 {"msec since 2013-01-01 00:00:00.000000", 3600000, "2013-01-01 01:00"},
                 {"days since 2012-12-31 23:59:60", 1, "2013-01-02 00:00"},
                 {"months since 2013-01-01", 0, NULL},
                 {"years since 2013-01-01", 0, NULL},
                 {"hours", 0, NULL},
                 {"hours since", 0, NULL},
                 {"hours since yesterday", 0, NULL},
                 {"hours since 2013-02-30", 0, NULL},
                 {"hours since 2013-01-01 25:00", 0, NULL},
                 {"hours since 2013-01-01 00:61", 0, NULL},
                 {"hours since 2013-01-01 00:00 CET", 0, NULL},
                 {"hours after 2013-01-01", 0, NULL},
                 {"K", 0, NULL}};
    char text[VT_DATE_SIZE];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        double unit = 0, seconds = 0;
        vt_date zero = {0};
        const bool readable = vt_time_units(known[i].units, VT_CALENDAR_STANDARD, &unit, &zero, &seconds);
        EXPECT(readable == (known[i].date != NULL), "'%s'", known[i].units);
        if (!readable || known[i].date == NULL) continue;
        vt_date_format(vt_date_after(zero, llrint(known[i].value * unit + seconds / 60)), text);
        EXPECT(strcmp(text, known[i].date) == 0, "'%s': %s, expected %s", known[i].units, text, known[i].date);
    }
}

/* ---- dates ---- */

/* Stored in every way, it is the same date: 2013-03-01 06:00, six hours apart. The file is named otherwise. */
TEST(netcdf_times_are_read)
{
    static const struct {
        const char *name, *units;
        hid_t type;
        double first, step, scale, offset;
    } forms[] = {{"time", "hours since 1900-01-01 00:00:00.0", 0, 991974, 6, 1, 0},
                 {"valid_time", "seconds since 1970-01-01", 1, 1362117600, 21600, 1, 0},
                 {"time", "days since 2013-01-01 00:00", 2, 59.25, 0.25, 1, 0},
                 {"time", "hours since 2013-01-01", 3, 0, 1, 6, 1422},
                 {"time", "days since 2013-03-01", 4, 0.25, 0.25, 1, 0}};
    const hid_t types[] = {H5T_STD_I32LE, H5T_STD_I64BE, H5T_IEEE_F64LE, H5T_STD_I16LE, H5T_IEEE_F32LE};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        double values[9];
        for (int t = 0; t < 9; t++) values[t] = forms[i].first + t * forms[i].step;
        hid_t file = create("x_1999.nc");
        H5Dclose(put_variable(file, "t", 9, H5T_IEEE_F32LE));
        hid_t times = put_times(file, forms[i].name, types[forms[i].type], 9, values, forms[i].units);
        if (forms[i].scale != 1) put_number(times, "scale_factor", H5T_IEEE_F64LE, forms[i].scale);
        if (forms[i].offset != 0) put_number(times, "add_offset", H5T_IEEE_F64LE, forms[i].offset);
        put_number(times, "_FillValue", types[forms[i].type], -32767);
        H5Dclose(times);
        H5Fclose(file);
        vt_dataset *dataset = NULL;
        vt_dataset_options options = options_of("t");
        EXPECT_OK(vt_dataset_open(&options, &dataset));
        if (dataset == NULL) continue;
        EXPECT(vt_dataset_sample_count(dataset) == 8 && vt_dataset_minutes_a_time(dataset) == 360);
        EXPECT_DATE(dataset, 0, "2013-03-01 06:00");
        EXPECT_DATE(dataset, 7, "2013-03-03 00:00");
        vt_dataset_close(&dataset);
    }
}

TEST(netcdf_calendars)
{
    static const struct {
        const char *calendar, *next; /* what comes 6 hours after 2012-02-28 18:00 */
    } known[] = {{NULL, "2012-02-29 00:00"},
                 {"standard", "2012-02-29 00:00"},
                 {"proleptic_gregorian", "2012-02-29 00:00"},
                 {"noleap", "2012-03-01 00:00"},
                 {"360_day", "2012-02-29 00:00"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const double values[4] = {12, 18, 24, 30};
        hid_t file = create("x_2012.nc");
        H5Dclose(put_variable(file, "t", 4, H5T_IEEE_F32LE));
        hid_t times = put_times(file, "time", H5T_STD_I32LE, 4, values, "hours since 2012-02-28");
        if (known[i].calendar != NULL) put_text(times, "calendar", known[i].calendar);
        H5Dclose(times);
        H5Fclose(file);
        vt_dataset *dataset = NULL;
        vt_dataset_options options = options_of("t");
        EXPECT_OK(vt_dataset_open(&options, &dataset));
        if (dataset == NULL) continue;
        EXPECT_DATE(dataset, 1, "2012-02-28 18:00");
        EXPECT_DATE(dataset, 2, known[i].next);
        vt_dataset_close(&dataset);
    }
}

/* Without a coordinate, or with one that can't be read, the file's name says when it begins. */
TEST(netcdf_times_by_name)
{
    static const struct {
        const char *units, *doubt; /* NULL: none */
        double last;
    } known[] = {{"", "'time' has no units, like 'hours since 1900-01-01'", 18},
                 {"months since 1900-01-01", "'time' has the units 'months since 1900-01-01'", 18},
                 {"hours since 2000-01-01", "'time' is nan at 3", NAN},
                 {"hours since 2000-01-01", "'time' is -99 at 3 (counted from 0), which is missing", -99},
                 {"days since 2000-01-01", "'time' is 1e+09 at 3 (counted from 0), beyond the year 9999", 1e9},
                 {NULL, NULL, 0}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const double values[4] = {0, 6, 12, known[i].last};
        hid_t file = create("x_2013-02.nc");
        H5Dclose(put_variable(file, "t", 4, H5T_IEEE_F32LE));
        if (known[i].units != NULL) {
            hid_t times = put_times(file, "time", H5T_IEEE_F64LE, 4, values, known[i].units);
            put_number(times, "_FillValue", H5T_IEEE_F64LE, -99);
            H5Dclose(times);
        }
        H5Fclose(file);
        vt_fields_file *opened = NULL;
        const char *path = test_path("x_2013-02.nc");
        EXPECT_OK(vt_fields_file_open(&path, 1, "t", &opened));
        if (opened == NULL) continue;
        const vt_time_axis *axis = vt_fields_file_times(opened);
        EXPECT(axis->count == 0 && (axis->doubt != NULL) == (known[i].doubt != NULL));
        EXPECT(axis->doubt == NULL || strstr(axis->doubt, known[i].doubt) != NULL, "'%s' lacks '%s'", axis->doubt,
               known[i].doubt);
        vt_fields_file_close(&opened);
        vt_dataset *dataset = NULL;
        vt_dataset_options options = options_of("t");
        EXPECT_OK(vt_dataset_open(&options, &dataset));
        EXPECT_DATE(dataset, 2, "2013-02-01 12:00");
        vt_dataset_close(&dataset);
    }
    double months[4] = {0, 31, 59, 90};
    write_times("x_2013-02.nc", 4, months, "days since 2013-01-01");
    vt_fields_file *opened = NULL;
    const char *path = test_path("x_2013-02.nc");
    EXPECT_OK(vt_fields_file_open(&path, 1, "t", &opened));
    EXPECT(strstr(vt_fields_file_times(opened)->doubt, "'time' counts in months") != NULL);
    vt_fields_file_close(&opened);
}

/* ---- gaps and disorder ---- */

/* No sample reaches over a gap, in whatever way the set is read. */
TEST(netcdf_gaps)
{
    const double values[] = {0, 6, 12, 30, 36, 60, 66, 72, 78}; /* hours; stretches of 3, 2 and 4 times */
    const int64_t first[] = {0, 1, 3, 5, 6, 7};                 /* of the samples */
    write_times("x_2013.nc", 9, values, "hours since 2013-01-01");
    write_even("x_2014.nc", 3, 0, 6, "hours since 2014-01-01");
    for (int kept = 0; kept < 2; kept++) {
        vt_dataset *dataset = NULL;
        vt_dataset_options options = options_of("t");
        float input[POINTS], target[POINTS];
        EXPECT_OK(vt_dataset_open(&options, &dataset));
        if (dataset == NULL) return;
        EXPECT(vt_dataset_sample_count(dataset) == 8, "%lld", (long long)vt_dataset_sample_count(dataset));
        EXPECT(vt_dataset_frame_count(dataset) == 12);
        if (kept) EXPECT_OK(vt_dataset_keep_frames(dataset));
        for (int round = 0; round < 2; round++)
            for (int64_t i = 0; i < 8; i++) {
                const int64_t time = i < 6 ? first[i] : i - 6;
                EXPECT_OK(vt_dataset_read(dataset, i, input, target));
                EXPECT(input[1] == (float)(100 * time + 1) && target[1] == (float)(100 * time + 101),
                       "sample %lld: %g, %g", (long long)i, (double)input[1], (double)target[1]);
                EXPECT(vt_dataset_reaches(dataset, i, 1));
                EXPECT(vt_dataset_reaches(dataset, i, 2) == (i == 0 || i == 3 || i == 4 || i == 6));
            }
        for (int64_t i = 0; i < vt_dataset_frame_count(dataset); i++) {
            EXPECT_OK(vt_dataset_read_frame(dataset, i, input));
            EXPECT(input[0] == (float)(100 * (i < 9 ? i : i - 9)), "frame %lld: %g", (long long)i, (double)input[0]);
        }
        int64_t frames[2];
        vt_dataset_frames(dataset, 2, frames);
        EXPECT(frames[0] == 3 && frames[1] == 4);
        EXPECT_DATE(dataset, 2, "2013-01-02 06:00");
        EXPECT_DATE(dataset, 3, "2013-01-03 12:00");
        EXPECT_DATE(dataset, 6, "2014-01-01 00:00");
        EXPECT_OK(vt_dataset_read_later(dataset, 3, 3, target));
        EXPECT(target[0] == 800);
        vt_dataset_close(&dataset);
    }
    vt_dataset *dataset = NULL;
    vt_dataset_options options = options_of("t");
    options.dt = 2; /* the stretch of two has no sample */
    float input[2 * POINTS], target[POINTS];
    EXPECT_OK(vt_dataset_open(&options, &dataset));
    EXPECT(vt_dataset_sample_count(dataset) == 4);
    EXPECT_OK(vt_dataset_read(dataset, 1, input, target));
    EXPECT(input[0] == 500 && target[0] == 700);
    vt_dataset_close(&dataset);
    options.dt = 1;
    options.history = 2; /* 4 times a sample: one */
    options.in_channels = 3;
    float inputs[3 * POINTS];
    EXPECT_OK(vt_dataset_open(&options, &dataset));
    EXPECT(vt_dataset_sample_count(dataset) == 1);
    EXPECT_OK(vt_dataset_read(dataset, 0, inputs, target));
    EXPECT(inputs[0] == 700 && inputs[POINTS] == 600 && inputs[2 * POINTS] == 500 && target[0] == 800);
    vt_dataset_close(&dataset);
    options = options_of("t");
    options.sample_limit = 4;
    EXPECT_OK(vt_dataset_open(&options, &dataset));
    EXPECT(vt_dataset_sample_count(dataset) == 4 && vt_dataset_frame_count(dataset) == 3 + 2 + 2);
    vt_dataset_close(&dataset);
}

static void expect_error(const char *variables, const char *message)
{
    vt_dataset *dataset = NULL;
    vt_dataset_options options = options_of(variables);
    EXPECT_ERROR(vt_dataset_open(&options, &dataset), message);
    vt_dataset_close(&dataset);
}

TEST(netcdf_times_out_of_order)
{
    const double twice[] = {0, 6, 6, 12}, back[] = {0, 6, 12, 9};
    write_times("x_2013.nc", 4, twice, "hours since 2013-01-01");
    expect_error("t", "x_2013.nc: 'time' is 2013-01-01 06:00 at both 1 and 2 (counted from 0)");
    write_times("x_2013.nc", 4, back, "hours since 2013-01-01");
    expect_error("t", "x_2013.nc: 'time' goes backwards, from 2013-01-01 12:00 at 2 to 2013-01-01 09:00 at 3");
    write_even("x_2013.nc", 4, 0, 6, "hours since 2013-01-01");
    write_even("x_2014.nc", 4, 0, 1, "hours since 2014-01-01");
    expect_error("t", "x_2014.nc: its times are 1 h apart, those of the files before it 6 h; all files need the same");
    hid_t file = create("x_2014.nc");
    const double values[4] = {0, 6, 12, 18};
    H5Dclose(put_variable(file, "t", 4, H5T_IEEE_F32LE));
    hid_t times = put_times(file, "time", H5T_STD_I32LE, 4, values, "hours since 2014-01-01");
    put_text(times, "calendar", "noleap");
    H5Dclose(times);
    H5Fclose(file);
    expect_error("t", "x_2014.nc: its calendar is 'noleap', that of the files before it 'standard'");
    write_even("x_2014.nc", 4, 0, 12, "hours since 2014-01-01");
    rename(test_path("x_2014.nc"), test_path("valid/x_2014.nc"));
    vt_dataset *training = NULL, *validation = NULL;
    vt_dataset_options options = options_of("t"), others = options;
    others.directory = test_path("valid");
    EXPECT_OK(vt_dataset_open(&options, &training));
    EXPECT_OK(vt_dataset_open(&others, &validation));
    EXPECT_ERROR(vt_dataset_check_same_channels(training, validation), " are 6 h apart, but those in ");
    vt_dataset_close(&training);
    vt_dataset_close(&validation);
    file = create("y_2013.nc"); /* of one date with x_2013.nc */
    H5Dclose(put_variable(file, "u", 4, H5T_IEEE_F32LE));
    H5Dclose(put_times(file, "time", H5T_STD_I32LE, 4, values, "hours since 2013-01-02"));
    H5Fclose(file);
    expect_error("[t,u]", "y_2013.nc has other times (from 2013-01-02 00:00, 6 h apart) than ");
}

/* What vt_dataset_log_times says of a set of one file whose times are `step` hours apart. */
static void expect_told(double step, int64_t dt, const char *told, const char *not_told)
{
    static char text[4096];
    vt_dataset *dataset = NULL;
    vt_dataset_options options = options_of("t");
    options.dt = dt;
    write_even("x_2013.nc", 20, 0, step, step > 0 ? "hours since 2013-01-01" : "years since 2013-01-01");
    EXPECT_OK(vt_dataset_open(&options, &dataset));
    if (dataset == NULL) return;
    EXPECT_OK(vt_log_open(test_path("out.log"), false));
    vt_dataset_log_times(dataset);
    EXPECT_OK(vt_log_close());
    FILE *file = fopen(test_path("out.log"), "r");
    const size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    EXPECT(strstr(text, told) != NULL, "'%s' lacks '%s'", text, told);
    EXPECT(not_told == NULL || strstr(text, not_told) == NULL, "'%s' has '%s'", text, not_told);
    vt_dataset_close(&dataset);
}

TEST(netcdf_steps_are_told)
{
    expect_told(6, 1, "times: 2013-01-01 00:00 to 2013-01-05 18:00, every 6 h", "WARNING");
    expect_told(1, 6, "times: 2013-01-01 00:00 to 2013-01-01 19:00, every 1 h", "WARNING");
    expect_told(1, 1,
                "WARNING - the files have a time every 1 h, not every 6 h: with dt 1 a forecast reaches 1 h ahead; 6 "
                "hours would be --dt=6",
                NULL);
    expect_told(24, 2, "a time every 24 h, not every 6 h: with dt 2 a forecast reaches 48 h ahead", "would be");
    expect_told(0.5, 12, "every 30 min", "WARNING");
    expect_told(0, 1, "'time' has the units 'years since 2013-01-01'", "times: ");
}

/* ---- variables and values ---- */

TEST(netcdf_variables_once)
{
    write_even("x_2013.nc", 4, 0, 6, "hours since 2013-01-01");
    expect_error("[t, t]", "variables: channel 1 (t) is channel 0 (t) once more; name each one once");
    expect_error("[u10, t]", "no variable 'u10'; found: t");
    expect_error("[]", "variables: '[]' names none");
    expect_error("t@", "variables: 't@' is no variable with a level");
    expect_error("time", "'time' has 1 dimensions");
    const hsize_t extent[4] = {4, 2, ROWS, COLUMNS}, two = 2;
    const double levels[2] = {500, 850};
    hid_t file = create("x_2013.nc"), space = H5Screate_simple(4, extent, NULL);
    H5Dclose(H5Dcreate2(file, "z", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
    space = H5Screate_simple(1, &two, NULL);
    hid_t level = H5Dcreate2(file, "level", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(level, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, levels);
    H5Dclose(level);
    H5Sclose(space);
    H5Dclose(put_variable(file, "z500", 4, H5T_IEEE_F32LE));
    H5Fclose(file);
    expect_error("[z@500, z@850, z@500.0]", "variables: channel 2 (z500.0) is channel 0 (z500) once more");
    expect_error("[z@500, z500]", "variables: channels 0 and 1 would both be called 'z500'");
    expect_error("[z@600]", "'z' has no level 600; there are 500, 850");
}

/* The numbers of `t` are 0 … 5, 100 … 105, …; which of a time are valid, of the first six. */
TEST(netcdf_valid_values)
{
    static const struct {
        const char *name;
        int stored, kind, count; /* of type[]: the variable's, the attribute's */
        double values[3];
        const char *valid;
    } known[] = {{"valid_range", 0, 0, 2, {1, 3}, "-+++--"},
                 {"valid_min", 0, 0, 1, {2}, "--++++"},
                 {"valid_max", 0, 0, 1, {2}, "+++---"},
                 {"valid_range", 0, 2, 2, {10.5, 11.5}, "-+++--"}, /* unpacked: 10 + stored / 2 */
                 {"valid_range", 0, 1, 2, {10.50001, 11.49999}, "-+++--"},
                 {"valid_range", 0, 2, 2, {10.8, 11.2}, "--+---"},
                 {"valid_max", 0, 2, 1, {11}, "+++---"},
                 {"missing_value", 0, 0, 3, {1, 4, 5}, "+-++--"},
                 {"_FillValue", 0, 0, 1, {2}, "++-+++"},
                 {"valid_range", 1, 1, 2, {0.5, 4}, "-++++-"},
                 {"valid_min", 1, 2, 1, {1.5}, "--++++"},
                 {"missing_value", 1, 2, 2, {3, 0}, "-++-++"},
                 {"valid_range", 0, 0, 2, {NAN, NAN}, "++++++"},
                 {"valid_range", 2, 2, 2, {0, 0}, "+-----"}};
    const hid_t types[] = {H5T_STD_I16BE, H5T_IEEE_F32LE, H5T_IEEE_F64LE};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        hid_t file = create("x_2013.nc"), t = put_variable(file, "t", 2, types[known[i].stored]);
        const bool packed = known[i].stored == 0;
        if (packed) put_number(t, "scale_factor", H5T_IEEE_F64LE, 0.5);
        if (packed) put_number(t, "add_offset", H5T_IEEE_F64LE, 10);
        if (isnan(known[i].values[0]))
            put_numbers(t, known[i].name, H5T_IEEE_F32LE, known[i].count, known[i].values);
        else
            put_numbers(t, known[i].name, types[known[i].kind], known[i].count, known[i].values);
        H5Dclose(t);
        H5Fclose(file);
        for (int form = 0; form < 2; form++)
            for (int64_t row = 0; row < ROWS; row++)
                for (int64_t width = 1; width <= COLUMNS; width++) { /* the first columns of a row */
                    vt_dataset *dataset = NULL;
                    vt_dataset_options options = options_of("t");
                    options.direct = form == 1;
                    options.first_row = row;
                    options.rows = 1;
                    options.width = width;
                    float input[COLUMNS], target[COLUMNS];
                    EXPECT_OK(vt_dataset_open(&options, &dataset));
                    if (dataset == NULL) continue;
                    vt_fields_file *opened = NULL;
                    const char *path = test_path("x_2013.nc");
                    EXPECT_OK(vt_fields_file_open(&path, 1, "t", &opened));
                    const bool good =
                        vt_fields_file_read(opened, 0, 1, row, 1, width, input) == VT_OK; /* time 1 is all beyond */
                    vt_error_clear();
                    bool expected = true;
                    for (int64_t c = 0; c < width; c++) expected = expected && known[i].valid[row * COLUMNS + c] == '+';
                    EXPECT(good == expected, "%s, form %zu, row %lld, width %lld", known[i].name, i, (long long)row,
                           (long long)width);
                    const bool read = vt_dataset_read(dataset, 0, input, target) == VT_OK;
                    EXPECT(!read || expected);
                    if (!read && !expected && strncmp(known[i].name, "valid", 5) == 0)
                        EXPECT(strstr(vt_error_text(), "outside its valid_range") != NULL, "%s", vt_error_text());
                    vt_error_clear();
                    vt_fields_file_close(&opened);
                    vt_dataset_close(&dataset);
                }
    }
    const double turned[2] = {3, 1};
    hid_t file = create("x_2013.nc"), t = put_variable(file, "t", 2, H5T_STD_I16LE);
    put_numbers(t, "valid_range", H5T_STD_I16LE, 2, turned);
    H5Dclose(t);
    H5Fclose(file);
    expect_error("t", "by its valid_range, valid_min or valid_max no value of 't' is valid");
    file = create("x_2013.nc");
    t = put_variable(file, "t", 2, H5T_STD_I16LE);
    put_text(t, "valid_min", "0");
    H5Dclose(t);
    H5Fclose(file);
    expect_error("t", "the attribute 'valid_min' of 't' is not a single number");
}
