/* The times of netCDF files, and samples across gaps between them. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "settings.h"
#include "source/fields/fields_file.h"
#include "source/fields/time_axis.h"
#include "test.h"
#include "unit/data_files.h"
#include "unit/netcdf_files.h"

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
                 {"months since 1960-01-01", 637, "2013-02-01 00:00"},
                 {"months since 1960-01-01", 637.5, "2013-02-15 00:00"},
                 {"month since 2013-01-16 12:00", -1, "2012-12-16 12:00"},
                 {"years since 1900-01-01", 113, "2013-01-01 00:00"},
                 {"fortnights since 2013-01-01", 0, NULL},
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
        vt_time_units units;
        const bool readable = vt_time_units_parse(known[i].units, VT_CALENDAR_STANDARD, &units);
        EXPECT(readable == (known[i].date != NULL), "'%s'", known[i].units);
        if (!readable || known[i].date == NULL) continue;
        const double minutes = vt_time_units_minutes(&units, known[i].value);
        vt_date_format(vt_date_after(units.zero, llrint(minutes)), text);
        EXPECT(strcmp(text, known[i].date) == 0, "'%s': %s, expected %s", known[i].units, text, known[i].date);
    }
}

/* ---- dates ---- */

/* The same date, stored in every way: 2013-03-01 06:00, six hours apart. The file's name says another date. */
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
        hid_t file = test_nc_create("x_1999.nc");
        test_nc_variable(file, "t", 9, H5T_IEEE_F32LE);
        hid_t times = test_nc_times(file, forms[i].name, types[forms[i].type], 9, values, forms[i].units);
        if (forms[i].scale != 1) test_nc_number(times, "scale_factor", H5T_IEEE_F64LE, forms[i].scale);
        if (forms[i].offset != 0) test_nc_number(times, "add_offset", H5T_IEEE_F64LE, forms[i].offset);
        test_nc_number(times, "_FillValue", types[forms[i].type], -32767);
        H5Fclose(file);
        SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
        EXPECT(dataset->source.sample_count == 8 && vt_index_minutes(&dataset->index) == 360);
        EXPECT_DATE(dataset, 0, "2013-03-01 06:00");
        EXPECT_DATE(dataset, 7, "2013-03-03 00:00");
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
        hid_t file = test_nc_create("x_2012.nc");
        test_nc_variable(file, "t", 4, H5T_IEEE_F32LE);
        hid_t times = test_nc_times(file, "time", H5T_STD_I32LE, 4, values, "hours since 2012-02-28");
        if (known[i].calendar != NULL) test_nc_text(times, "calendar", known[i].calendar);
        H5Fclose(file);
        SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
        EXPECT_DATE(dataset, 1, "2012-02-28 18:00");
        EXPECT_DATE(dataset, 2, known[i].next);
    }
}

/* White space around CF's words means nothing. */
TEST(netcdf_words_with_blanks)
{
    const double values[4] = {12, 18, 24, 30}, latitudes[TEST_NC_ROWS] = {10, 20};
    hid_t file = test_nc_create("x_2012.nc");
    test_nc_text(test_nc_variable(file, "t", 4, H5T_IEEE_F32LE), "units", " K\n");
    hid_t times = test_nc_times(file, "T", H5T_STD_I32LE, 4, values, "\nhours since 2012-02-28 \r\n");
    test_nc_text(times, "calendar", " noleap\t\n");
    test_nc_text(times, "standard_name", "time\n");
    hid_t rows = test_nc_times(file, "FNOCY", H5T_IEEE_F32LE, TEST_NC_ROWS, latitudes, "degrees_north ");
    test_nc_text(rows, "axis", "\nY");
    H5Fclose(file);
    vt_dataset *dataset = test_nc_open_set("t");
    EXPECT_DATE(dataset, 2, "2012-03-01 00:00");
    EXPECT_TEXT(vt_fields_about_meaning(dataset->about, 0)->units, "K");
    vt_dataset_close(&dataset);
    SCOPED(vt_fields_file) *opened = test_nc_open("x_2012.nc", NULL);
    EXPECT(opened->about->turned && opened->about->latitudes != NULL && opened->about->latitudes[0] == 20);
}

/* Without a readable coordinate, the file's name says when it begins. */
TEST(netcdf_times_by_name)
{
    static const struct {
        const char *units, *doubt; /* NULL: none */
        double last;
    } known[] = {{"", "'time' has no units, like 'hours since 1900-01-01'", 18},
                 {"fortnights since 1900-01-01", "'time' has the units 'fortnights since 1900-01-01'", 18},
                 {"hours since 2000-01-01", "'time' is nan at 3", NAN},
                 {"hours since 2000-01-01", "'time' is -99 at 3 (counted from 0), which is missing", -99},
                 {"days since 2000-01-01", "'time' is 1e+09 at 3 (counted from 0), beyond the year 9999", 1e9},
                 {NULL, NULL, 0}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const double values[4] = {0, 6, 12, known[i].last};
        hid_t file = test_nc_create("x_2013-02.nc");
        test_nc_variable(file, "t", 4, H5T_IEEE_F32LE);
        if (known[i].units != NULL) {
            hid_t times = test_nc_times(file, "time", H5T_IEEE_F64LE, 4, values, known[i].units);
            test_nc_number(times, "_FillValue", H5T_IEEE_F64LE, -99);
        }
        H5Fclose(file);
        vt_fields_file *opened = test_nc_open("x_2013-02.nc", NULL);
        const vt_time_axis *axis = &opened->times;
        EXPECT(axis->named > 0 && (axis->doubt != NULL) == (known[i].doubt != NULL));
        EXPECT(axis->doubt == NULL || strstr(axis->doubt, known[i].doubt) != NULL, "'%s' lacks '%s'", axis->doubt,
               known[i].doubt);
        vt_fields_file_close(&opened);
        SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
        EXPECT_DATE(dataset, 2, "2013-02-01 12:00");
    }
}

/* Months of the calendar, in whatever unit: their dates, the time between them, and gaps. */
TEST(netcdf_months)
{
    static const struct {
        const char *units;
        double values[4];
        int64_t months;
        const char *dates[4];
    } known[] = {
        {"days since 2013-01-01", {0, 31, 59, 90}, 1, {"2013-01-01", "2013-02-01", "2013-03-01", "2013-04-01"}},
        {"days since 2013-01-01", {15.5, 45, 74.5, 105}, 1, {"2013-01-16", "2013-02-15", "2013-03-16", "2013-04-16"}},
        {"hours since 2013-01-31", {0, 672, 1416, 2136}, 1, {"2013-01-31", "2013-02-28", "2013-03-31", "2013-04-30"}},
        {"months since 1960-01-01", {636, 637, 638, 640}, 1, {"2013-01-01", "2013-02-01", "2013-03-01", "2013-05-01"}},
        {"years since 2000-01-01", {0, 1, 2, 3}, 12, {"2000-01-01", "2001-01-01", "2002-01-01", "2003-01-01"}},
        {"days since 2000-01-01", {0, 366, 731, 1096}, 12, {"2000-01-01", "2001-01-01", "2002-01-01", "2003-01-01"}}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        test_nc_write("x_1999.nc", 4, known[i].values, known[i].units);
        SCOPED(vt_fields_file) *opened = test_nc_open("x_1999.nc", NULL);
        const vt_time_axis *axis = &opened->times;
        EXPECT(axis->minutes == known[i].months * VT_A_MONTH, "%zu: %ld", i, axis->minutes);
        for (int64_t t = 0; t < 4; t++) {
            char text[VT_DATE_SIZE];
            vt_date_format(vt_time_axis_date(axis, t), text);
            EXPECT(strncmp(text, known[i].dates[t], 10) == 0, "%zu: %s, expected %s", i, text, known[i].dates[t]);
        }
    }
    const double days[4] = {0, 30, 60, 90}; /* are none */
    test_nc_write("x_1999.nc", 4, days, "days since 2013-01-01");
    SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
    EXPECT(vt_index_minutes(&dataset->index) == 30 * 1440);
}

TEST(lengths_of_time)
{
    static const struct {
        const char *text;
        int64_t length; /* 0: none */
        const char *format;
    } known[] = {{"24h", 1440, "24 h"},
                 {"30min", 30, "30 min"},
                 {"1d", 1440, "24 h"},
                 {"6 hours", 360, "6 h"},
                 {"1month", VT_A_MONTH, "1 month"},
                 {"2 years", 24 * VT_A_MONTH, "24 months"},
                 {"0h", 0, NULL},
                 {"-6h", 0, NULL},
                 {"6", 0, NULL},
                 {"h", 0, NULL},
                 {"6.5h", 0, NULL},
                 {"999999999999999999999h", 0, NULL}};
    char text[VT_DATE_SIZE];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int64_t length = 0;
        EXPECT(vt_length_parse(known[i].text, &length) == (known[i].length > 0), "'%s'", known[i].text);
        EXPECT(length == known[i].length, "'%s': %ld", known[i].text, length);
        if (length > 0) EXPECT_TEXT(vt_length_format(length, text), known[i].format);
    }
    vt_date date;
    EXPECT(vt_date_parse("2012-01-31T12", VT_CALENDAR_STANDARD, &date));
    EXPECT_TEXT(vt_date_format(vt_date_after(date, VT_A_MONTH), text), "2012-02-29 12:00");
    EXPECT_TEXT(vt_date_format(vt_date_after(date, -2 * VT_A_MONTH), text), "2011-11-30 12:00");
    EXPECT_TEXT(vt_date_format(vt_date_after(date, 12 * VT_A_MONTH - 60), text), "2013-01-31 11:00");
    EXPECT(vt_date_steps(date, vt_date_after(date, 7 * VT_A_MONTH), VT_A_MONTH) == 7);
    EXPECT(vt_date_steps(date, vt_date_after(date, 7 * VT_A_MONTH), 2 * VT_A_MONTH) == -1);
    EXPECT(vt_date_steps(date, vt_date_after(date, 90), 60) == -1 &&
           vt_date_steps(date, vt_date_after(date, -60), 60) == -1);
}

/* ---- gaps and disorder ---- */

/* No sample spans a gap, however the set is read. */
TEST(netcdf_gaps)
{
    const double values[] = {0, 6, 12, 30, 36, 60, 66, 72, 78}; /* hours; stretches of 3, 2 and 4 times */
    const int64_t first[] = {0, 1, 3, 5, 6, 7};                 /* of the samples */
    test_nc_write("x_2013.nc", 9, values, "hours since 2013-01-01");
    test_nc_write_even("x_2014.nc", 3, 0, 6, "hours since 2014-01-01");
    for (int kept = 0; kept < 2; kept++) {
        vt_dataset_options options = test_nc_options("t");
        float input[TEST_NC_POINTS], target[TEST_NC_POINTS];
        SCOPED(vt_dataset) *dataset = test_open(&options);
        EXPECT(dataset->source.sample_count == 8, "%ld", dataset->source.sample_count);
        EXPECT(dataset->source.frame_count == 12);
        if (kept) EXPECT_OK(test_keep_frames(dataset));
        for (int round = 0; round < 2; round++)
            for (int64_t i = 0; i < 8; i++) {
                const int64_t time = i < 6 ? first[i] : i - 6;
                EXPECT_OK(vt_dataset_read(dataset, i, input, target));
                EXPECT(input[1] == (float)(100 * time + 1) && target[1] == (float)(100 * time + 101),
                       "sample %ld: %g, %g", i, (double)input[1], (double)target[1]);
                EXPECT(vt_dataset_reaches(dataset, i, 1));
                EXPECT(vt_dataset_reaches(dataset, i, 2) == (i == 0 || i == 3 || i == 4 || i == 6));
            }
        for (int64_t i = 0; i < dataset->source.frame_count; i++) {
            EXPECT_OK(test_read_frame(dataset, i, input));
            EXPECT(input[0] == (float)(100 * (i < 9 ? i : i - 9)), "frame %ld: %g", i, (double)input[0]);
        }
        int64_t frames[2];
        test_frames(dataset, 2, frames);
        EXPECT(frames[0] == 3 && frames[1] == 4);
        EXPECT_DATE(dataset, 2, "2013-01-02 06:00");
        EXPECT_DATE(dataset, 3, "2013-01-03 12:00");
        EXPECT_DATE(dataset, 6, "2014-01-01 00:00");
        EXPECT_OK(vt_dataset_read_later(dataset, 3, 3, target));
        EXPECT(target[0] == 800);
    }
    vt_dataset_options options = test_nc_options("t");
    options.dt = 2; /* the stretch of two has no sample */
    float input[2 * TEST_NC_POINTS], target[TEST_NC_POINTS];
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == 4);
    EXPECT_OK(vt_dataset_read(dataset, 1, input, target));
    EXPECT(input[0] == 500 && target[0] == 700);
    vt_dataset_close(&dataset);
    options.dt = 1;
    options.history = 2; /* 4 times a sample: one */
    options.in_channels = 3;
    float inputs[3 * TEST_NC_POINTS];
    dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == 1);
    EXPECT_OK(vt_dataset_read(dataset, 0, inputs, target));
    EXPECT(inputs[0] == 700 && inputs[TEST_NC_POINTS] == 600 && inputs[2 * TEST_NC_POINTS] == 500 && target[0] == 800);
    vt_dataset_close(&dataset);
    options = test_nc_options("t");
    options.sample_limit = 4;
    dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == 4 && dataset->source.frame_count == 3 + 2 + 2);
}

TEST(netcdf_times_out_of_order)
{
    const double twice[] = {0, 6, 6, 12}, back[] = {0, 6, 12, 9};
    test_nc_write("x_2013.nc", 4, twice, "hours since 2013-01-01");
    test_nc_expect_error("t", "x_2013.nc: 'time' is 2013-01-01 06:00 at both 1 and 2 (counted from 0)");
    test_nc_write("x_2013.nc", 4, back, "hours since 2013-01-01");
    test_nc_expect_error("t", "x_2013.nc: 'time' goes backwards, from 2013-01-01 12:00 at 2 to 2013-01-01 09:00 at 3");
    test_nc_write_even("x_2013.nc", 4, 0, 6, "hours since 2013-01-01");
    test_nc_write_even("x_2014.nc", 4, 0, 1, "hours since 2014-01-01");
    test_nc_expect_error_of_both("t", "x_2014.nc, but 6 h in the files before it; they can't be used together");
    hid_t file = test_nc_create("x_2014.nc");
    const double values[4] = {0, 6, 12, 18};
    test_nc_variable(file, "t", 4, H5T_IEEE_F32LE);
    hid_t times = test_nc_times(file, "time", H5T_STD_I32LE, 4, values, "hours since 2014-01-01");
    test_nc_text(times, "calendar", "noleap");
    H5Fclose(file);
    test_nc_expect_error_of_both(
        "t", "x_2014.nc is noleap, that of the files before it standard; they can't be used together");
    test_nc_write_even("x_2014.nc", 4, 0, 12, "hours since 2014-01-01");
    rename(test_path("x_2014.nc"), test_path("valid/x_2014.nc"));
    test_nc_expect_unlike("t", "valid", "times are 12 h apart in ");
    file = test_nc_create("y_2013.nc"); /* of one date with x_2013.nc */
    test_nc_variable(file, "u", 4, H5T_IEEE_F32LE);
    test_nc_times(file, "time", H5T_STD_I32LE, 4, values, "hours since 2013-01-02");
    H5Fclose(file);
    test_nc_expect_error("[t,u]", "y_2013.nc has other times (from 2013-01-02 00:00, 6 h apart) than ");
}

/* ---- times that are not exact ---- */

/* Times every `step` minutes from `first` minutes after 2013-01-01 on, in units of which 2013-01-01 is the value
 * `zero`: numbers that float32 holds to minutes only. */
TEST(netcdf_times_of_few_digits)
{
    static const struct {
        const char *units;
        double zero, minutes; /* of a unit */
        int count;
        int64_t first, step;
        const char *date;
    } known[] = {{"days since 1900-01-01", 41273, 1440, 60, 0, 60, "2013-01-01 00:00"}, /* to 5.6 minutes */
                 {"days since 1900-01-01", 41273, 1440, 60, 60, 60, "2013-01-01 01:00"},
                 {"days since 1900-01-01", 41273, 1440, 2, 60, 60, "2013-01-01 01:00"},
                 {"days since 1900-01-01", 41273, 1440, 60, 30, 60, "2013-01-01 00:30"},
                 {"days since 1900-01-01", 41273, 1440, 60, 0, 180, "2013-01-01 00:00"},
                 {"days since 1900-01-01", 41273, 1440, 60, 45, 15, "2013-01-01 00:45"},
                 {"hours since 1900-01-01", 990552, 60, 60, 10, 20, "2013-01-01 00:10"},           /* to 3.75 minutes */
                 {"minutes since 1900-01-01", 59433120, 1, 60, 30, 30, "2013-01-01 00:30"},        /* to 4 */
                 {"seconds since 1970-01-01", 1356998400, 1 / 60., 60, 0, 60, "2013-01-01 00:00"}, /* to 2.1 */
                 {"hours since 1-1-1", 17636880, 60, 60, 720, 360, "2013-01-01 12:00"},            /* to 2 hours */
                 {"days since 1900-01-01", 41273, 1440, 12, 0, 44640, "2013-01-01 00:00"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        double values[TEST_NC_MOST];
        const int count = known[i].count;
        for (int t = 0; t < count; t++)
            values[t] = known[i].zero + (double)(known[i].first + t * known[i].step) / known[i].minutes;
        hid_t file = test_nc_create("x_2013.nc");
        test_nc_variable(file, "t", count, H5T_IEEE_F32LE);
        test_nc_times(file, "time", H5T_IEEE_F32LE, count, values, known[i].units);
        H5Fclose(file);
        test_log_begin();
        SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
        const char *text = test_log_end();
        EXPECT(strstr(text, "WARNING") == NULL, "%zu: %s", i, text);
        EXPECT(vt_index_minutes(&dataset->index) == known[i].step && dataset->source.sample_count == count - 1,
               "%zu: %ld samples, %ld min apart", i, dataset->source.sample_count, vt_index_minutes(&dataset->index));
        EXPECT_DATE(dataset, 0, known[i].date);
    }
}

/* Each within a minute of its hour: no gap, and the dates are those of the hours. An exact coordinate keeps its
 * minutes. */
TEST(netcdf_times_near_the_hour)
{
    double values[60];
    for (int t = 0; t < 60; t++) values[t] = 60 * t + (t * 37 % 121 - 60) / 60.; /* minutes: -1 to 1 */
    test_nc_write("x_2013.nc", 60, values, "minutes since 2013-01-01 01:00");
    SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
    EXPECT(dataset->source.sample_count == 59 && vt_index_minutes(&dataset->index) == 60);
    EXPECT_DATE(dataset, 0, "2013-01-01 01:00");
    EXPECT_DATE(dataset, 58, "2013-01-03 11:00");
    vt_dataset_close(&dataset);
    for (int t = 0; t < 60; t++) values[t] = 61 * t + 1;
    test_nc_write("x_2013.nc", 60, values, "minutes since 2013-01-01");
    dataset = test_nc_open_set("t");
    EXPECT(dataset->source.sample_count == 59 && vt_index_minutes(&dataset->index) == 61);
    EXPECT_DATE(dataset, 1, "2013-01-01 01:02");
}

/* Wrong times cost their own samples only, and are named. */
TEST(netcdf_times_beside_the_others)
{
    double values[60];
    for (int t = 0; t < 60; t++) values[t] = 6 * t;
    values[17]--;
    test_nc_write("x_2013.nc", 60, values, "hours since 2013-01-01");
    test_log_begin();
    SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
    EXPECT_PART(test_log_end(),
                "x_2013.nc: 1 of the 60 times of 'time' lie beside the others, which are 6 h apart; the first is "
                "2013-01-05 05:00 at 17 (counted from 0)");
    EXPECT(dataset->source.sample_count == 16 + 41 && vt_index_minutes(&dataset->index) == 360);
    EXPECT_DATE(dataset, 16, "2013-01-05 12:00");
    vt_dataset_close(&dataset);
    for (int t = 0; t < 60; t++) values[t] = 3 * t + (t > 40); /* the others are fewer, but go on */
    test_nc_write("x_2013.nc", 60, values, "hours since 2013-01-01");
    test_log_begin();
    dataset = test_nc_open_set("t");
    EXPECT_PART(test_log_end(),
                "19 of the 60 times of 'time' lie beside the others, which are 3 h apart; the first is 2013-01-06 "
                "04:00 at 41");
    EXPECT(dataset->source.sample_count == 40 + 18);
}

/* The message of vt_dataset_log_coordinates about a set of one file whose times are `step` hours apart. */
static void expect_told(double step, int64_t dt, const char *told, const char *not_told)
{
    vt_dataset_options options = test_nc_options("t");
    options.dt = dt;
    test_nc_write_even("x_2013.nc", 20, 0, step, step > 0 ? "hours since 2013-01-01" : "fortnights since 2013-01-01");
    SCOPED(vt_dataset) *dataset = test_open(&options);
    test_log_begin();
    vt_dataset_log_coordinates(dataset);
    const char *text = test_log_end();
    EXPECT_PART(text, told);
    EXPECT(not_told == NULL || strstr(text, not_told) == NULL, "'%s' has '%s'", text, not_told);
}

/* Files of one time each whose times can't be read are no set, and the message says why. */
TEST(netcdf_single_times_that_cannot_be_read)
{
    for (int day = 1; day <= 4; day++)
        test_nc_write_even(SETTINGS("x_2013-01-%02d.nc", day), 1, 0, 6, "fortnights since 2013-01-01");
    test_nc_expect_error("t", "they can't be joined, as it isn't known when their times are: ");
    test_nc_expect_error("t",
                         "x_2013-01-01.nc: 'time' has the units 'fortnights since 2013-01-01', expected some like");
}

TEST(netcdf_steps_are_reported)
{
    expect_told(6, 1, "times: 2013-01-01 00:00 to 2013-01-05 18:00, every 6 h", "WARNING");
    expect_told(1, 6, "times: 2013-01-01 00:00 to 2013-01-01 19:00, every 1 h", "WARNING");
    expect_told(1, 1,
                "WARNING - the files have a time every 1 h, not every 6 h: with dt 1 a forecast reaches 1 h ahead; 6 "
                "hours would be --dt=6",
                NULL);
    expect_told(24, 2, "a time every 24 h, not every 6 h: with dt 2 a forecast reaches 48 h ahead", "would be");
    expect_told(0.5, 12, "every 30 min", "WARNING");
    expect_told(0, 1, "'time' has the units 'fortnights since 2013-01-01'", "times: 2013");
    expect_told(0, 1, "times: every 6 h is assumed, as the files don't say it; --time_step=24h would say another",
                NULL);
    expect_told(0, 1, "grid: RMSE weighs rows as if they ran evenly from 90 to -90 degrees", NULL);
}
