/* Coordinates as the CF conventions let files name them, and forms of files that give the same data. */
#include <hdf5_hl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "source/fields/fields_file.h"
#include "source/fields/read_plan.h"
#include "source/fields/statistics.h"
#include "storage/decode.h"
#include "test.h"
#include "unit/data_files.h"
#include "unit/netcdf_files.h"

/* ---- what is recognised ---- */

/* A coordinate of a file: 1-D, of `count` numbers from `first` on. */
typedef struct {
    const char *name, *units, *standard_name, *axis;
    int attached; /* attached as the scale of this dimension of `t`; -1: not attached */
    double first, step;
} coordinate;

static void write_one(hid_t file, hid_t variable, const coordinate *one, int count)
{
    double values[TEST_NC_MOST];
    for (int i = 0; i < count; i++) values[i] = one->first + i * one->step;
    hid_t dataset = test_nc_times(file, one->name, H5T_IEEE_F64LE, count, values, one->units);
    if (one->standard_name != NULL) test_nc_text(dataset, "standard_name", one->standard_name);
    if (one->axis != NULL) test_nc_text(dataset, "axis", one->axis);
    if (one->attached >= 0) VT_ASSERT(H5DSset_scale(dataset, one->name) >= 0);
    if (one->attached >= 0) VT_ASSERT(H5DSattach_scale(variable, dataset, (unsigned)one->attached) >= 0);
}

enum { SOUTH = 0, NORTH = 1, NONE = 2 };

TEST(latitudes_are_recognised)
{
    static const struct {
        coordinate rows;
        int found;         /* SOUTH: from -10 to 10, so rows are reversed; NORTH: from 10 to -10 */
        const char *doubt; /* a part of it */
    } known[] = {{{"lat", NULL, NULL, NULL, -1, -10, 20}, SOUTH, NULL},
                 {{"LATITUDE", NULL, NULL, NULL, -1, 10, -20}, NORTH, NULL},
                 {{"FNOCY", "degrees_north", NULL, NULL, -1, -10, 20}, SOUTH, NULL},
                 {{"a", "degree_N", NULL, NULL, -1, -10, 20}, SOUTH, NULL},
                 {{"a", "degreesN", NULL, NULL, -1, -10, 20}, SOUTH, NULL},
                 {{"a", "Degrees North", NULL, NULL, -1, -10, 20}, SOUTH, NULL},
                 {{"a", "degrees", "latitude", NULL, -1, -10, 20}, SOUTH, NULL},
                 {{"a", "degrees", NULL, "Y", -1, -10, 20}, SOUTH, NULL},
                 {{"a", "degrees", "grid_latitude", NULL, -1, -10, 20}, SOUTH, NULL},
                 {{"a", "radians", "latitude", NULL, -1, -10 * M_PI / 180, 20 * M_PI / 180}, SOUTH, NULL},
                 {{"y", NULL, NULL, NULL, -1, -10, 20}, SOUTH, NULL},
                 {{"a", NULL, NULL, NULL, 1, -10, 20}, SOUTH, NULL}, /* a scale of any name */
                 {{"a", NULL, NULL, NULL, -1, -10, 20}, NONE, NULL},
                 {{"y", NULL, NULL, NULL, 1, 0, 1}, NONE, "'y' has no units (degrees_north"},
                 {{"y", NULL, NULL, NULL, 1, -200, 400}, NONE, "holds no such degrees"},
                 {{"y", "m", "projection_y_coordinate", NULL, 1, -10, 20}, NONE, "is in 'm'"},
                 {{"lat", "K", NULL, NULL, -1, -10, 20}, NONE, NULL},
                 {{"a", "degrees_east", NULL, NULL, -1, -10, 20}, NONE, NULL}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const double *values = NULL;
        float first[TEST_NC_POINTS];
        hid_t file = test_nc_create("x_2013.nc"), t = test_nc_variable(file, "t", 2, H5T_IEEE_F32LE);
        write_one(file, t, &known[i].rows, TEST_NC_ROWS);
        H5Fclose(file);
        SCOPED(vt_fields_file) *opened = test_nc_open("x_2013.nc", NULL);
        values = opened->about->latitudes;
        EXPECT((values != NULL) == (known[i].found != NONE), "form %zu", i);
        EXPECT(opened->about->turned == (known[i].found == SOUTH), "form %zu", i);
        if (values != NULL) EXPECT_NEAR(values[0], 10, 1e-9);
        if (values != NULL) EXPECT_NEAR(values[1], -10, 1e-9);
        EXPECT_OK(vt_fields_file_read(opened, 1, 1, &(vt_frame_window){.rows = TEST_NC_ROWS, .width = TEST_NC_COLUMNS},
                                      true, first));
        EXPECT(first[0] == (known[i].found == SOUTH ? 103 : 100), "form %zu: %g", i, (double)first[0]);
        const char *doubt = opened->doubts[0];
        EXPECT((doubt != NULL) == (known[i].doubt != NULL), "form %zu: '%s'", i, doubt);
        if (doubt != NULL && known[i].doubt != NULL) EXPECT_PART(doubt, known[i].doubt);
    }
}

/* Of several candidates, the most certain one is taken; netCDF's scales say which dimension they belong to. */
TEST(the_surest_coordinate_is_taken)
{
    static const struct {
        coordinate rows[2];
        const char *given; /* the option */
        double first;      /* latitude, NAN: none */
        const char *doubt;
    } known[] = {
        {{{"lat", NULL, NULL, NULL, -1, 30, -5}, {"b", "degrees_north", NULL, NULL, -1, 50, -5}}, NULL, 50, NULL},
        {{{"a", "degrees_north", NULL, NULL, -1, 30, -5}, {"b", "degrees_north", NULL, NULL, 1, 50, -5}},
         NULL,
         50,
         NULL},
        {{{"a", "degrees_north", NULL, NULL, -1, 30, -5}, {"b", "degrees_north", NULL, NULL, -1, 50, -5}},
         NULL,
         NAN,
         "'a' and 'b' could both be the coordinate of 't'"},
        {{{"a", "degrees_north", NULL, NULL, -1, 30, -5}, {"b", "degrees_north", NULL, NULL, -1, 50, -5}},
         "[lat=a]",
         30,
         NULL},
        {{{"lat", NULL, NULL, NULL, -1, 30, -5}, {"latitude", NULL, NULL, NULL, -1, 50, -5}}, NULL, 30, NULL},
        {{{"lat", NULL, NULL, NULL, -1, 30, -5}, {"b", NULL, NULL, NULL, -1, 50, -5}}, "[lat=b]", 50, NULL},
        {{{"lat", NULL, NULL, NULL, -1, 30, -5}, {"b", NULL, NULL, NULL, -1, 50, -5}}, "lat=none", NAN, NULL}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        hid_t file = test_nc_create("x_2013.nc"), t = test_nc_variable(file, "t", 2, H5T_IEEE_F32LE);
        for (int k = 0; k < 2; k++) write_one(file, t, &known[i].rows[k], TEST_NC_ROWS);
        H5Fclose(file);
        SCOPED(vt_fields_file) *opened = test_nc_open("x_2013.nc", known[i].given);
        const double *values = opened->about->latitudes;
        EXPECT((values != NULL) == !isnan(known[i].first), "form %zu", i);
        if (values != NULL) EXPECT(values[0] == known[i].first, "form %zu: %g", i, values[0]);
        const char *doubt = opened->doubts[0];
        EXPECT((doubt != NULL) == (known[i].doubt != NULL), "form %zu: '%s'", i, doubt);
        if (doubt != NULL && known[i].doubt != NULL) EXPECT_PART(doubt, known[i].doubt);
    }
    vt_dataset_options options = test_nc_options("t");
    options.form.coordinates = "[lat=c]";
    test_expect_open_error(&options,
                           "x_2013.nc has no dataset of numbers 'c', which is to be the coordinate 'lat' of 't'");
    options.form.coordinates = "[lon=b]";
    test_expect_open_error(&options, "'b' of ");
    options.form.coordinates = "[b]";
    test_expect_open_error(&options, "coordinates: 'b' is not understood; expected names of datasets, like [lat=FNOCY");
    options.form.coordinates = "[row=b]";
    test_expect_open_error(&options, "coordinates: 'row=b' is not understood");
}

/* [time, lon, lat] is recognised by the dimension that a scale belongs to, even if both have the same length. */
TEST(turned_dimensions_are_refused)
{
    const coordinate lat = {"a", "degrees_north", NULL, NULL, 2, 50, -5};
    hid_t file = test_nc_create("x_2013.nc"), t = test_nc_variable(file, "t", 2, H5T_IEEE_F32LE);
    write_one(file, t, &lat, TEST_NC_COLUMNS);
    H5Fclose(file);
    test_nc_expect_error("t",
                         "'a' has 3 values, but 't' is [.., 2, 3]: the last two dimensions of a variable are to be");
    const double bent[TEST_NC_COLUMNS] = {10, 40, 20};
    file = test_nc_create("x_2013.nc");
    test_nc_variable(file, "t", 2, H5T_IEEE_F32LE);
    test_nc_times(file, "lon", H5T_IEEE_F64LE, TEST_NC_COLUMNS, bent, NULL);
    H5Fclose(file);
    test_nc_expect_error("t", "'lon' goes up and down; the columns of a grid run one way");
}

TEST(longitudes_run_on)
{
    static const struct {
        double stored[TEST_NC_COLUMNS], expected[TEST_NC_COLUMNS];
    } known[] = {{{340, 350, 0}, {340, 350, 360}},
                 {{175, 180, -175}, {175, 180, 185}},
                 {{350, 430, 510}, {350, 430, 510}},
                 {{10, 0, 350}, {10, 0, -10}}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        hid_t file = test_nc_create("x_2013.nc");
        test_nc_variable(file, "t", 2, H5T_IEEE_F32LE);
        test_nc_times(file, "x", H5T_IEEE_F64LE, TEST_NC_COLUMNS, known[i].stored, "degrees_east");
        H5Fclose(file);
        SCOPED(vt_fields_file) *opened = test_nc_open("x_2013.nc", NULL);
        const double *values = opened->about->longitudes;
        for (int x = 0; x < TEST_NC_COLUMNS && values != NULL; x++)
            EXPECT(values[x] == known[i].expected[x], "form %zu: %g at %d", i, values[x], x);
        EXPECT(values != NULL);
    }
}

static void write_plane(hid_t file, const char *name, const char *units, const double *values)
{
    const hsize_t extent[2] = {TEST_NC_ROWS, TEST_NC_COLUMNS};
    hid_t dataset = test_dataset(file, name, H5T_IEEE_F64LE, 2, extent, H5T_NATIVE_DOUBLE, values);
    test_nc_text(dataset, "units", units);
}

/* Coordinates of every grid point: used if they depend on row or column only, otherwise reported. */
TEST(coordinates_of_points)
{
    const double rows[] = {-10, -10, -10, 10, 10, 10}, columns[] = {0, 5, 10, 0, 5, 10}, bent[] = {0, 1, 2, 10, 11, 12};
    for (int curved = 0; curved < 2; curved++) {
        hid_t file = test_nc_create("x_2013.nc");
        hid_t t = test_nc_variable(file, "t", 2, H5T_IEEE_F32LE);
        test_nc_text(t, "coordinates", "nav_lat nav_lon");
        write_plane(file, "nav_lat", "degrees_north", curved ? bent : rows);
        write_plane(file, "nav_lon", "degrees_east", columns);
        H5Fclose(file);
        SCOPED(vt_fields_file) *opened = test_nc_open("x_2013.nc", NULL);
        const double *latitudes = opened->about->latitudes, *longitudes = opened->about->longitudes;
        EXPECT((latitudes == NULL) == curved && longitudes != NULL && longitudes[2] == 10);
        EXPECT(opened->about->turned == !curved);
        EXPECT(opened->about->no_latitudes == curved);
        const char *doubt = opened->doubts[0];
        EXPECT((doubt != NULL) == curved);
        if (doubt != NULL) EXPECT_PART(doubt, "'nav_lat' is another one at every grid point (a curvilinear grid)");
    }
    SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
    for (int row = 0; row < TEST_NC_ROWS; row++) EXPECT(dataset->latitudes[row] == 0);
    EXPECT_PART(vt_dataset_assumed_weights(dataset), "all rows alike");
}

/* Files whose rows run from the south can't be mixed with files that don't say. */
TEST(rows_of_unknown_direction)
{
    const coordinate south = {"lat", NULL, NULL, NULL, -1, -10, 20};
    for (int first = 0; first < 2; first++) {
        for (int i = 0; i < 2; i++) {
            hid_t file = test_nc_create(i == 0 ? "x_2013.nc" : "x_2014.nc");
            hid_t t = test_nc_variable(file, "t", 2, H5T_IEEE_F32LE);
            if (i == first) write_one(file, t, &south, TEST_NC_ROWS);
            H5Fclose(file);
        }
        test_nc_expect_error("t", "run from south to north, by its latitudes, but ");
        rename(test_path("x_2014.nc"), test_path("valid/x_2014.nc"));
        test_nc_expect_unlike("t", "valid", "run from south to north, by its latitudes, but ");
    }
}

/* CF's time is recognised by its units; other times may be present. */
TEST(times_are_recognised)
{
    static const struct {
        const char *name, *standard_name;
        int attached;
    } known[] = {{"TIME", NULL, -1}, {"T", NULL, -1}, {"a", "time", -1}, {"a", NULL, 0}, {"valid_time", NULL, -1}};
    const double days[3] = {0, 1, 2}, leads[3] = {5, 6, 7};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        hid_t file = test_nc_create("x_1999.nc"), t = test_nc_variable(file, "t", 3, H5T_IEEE_F32LE);
        const coordinate time = {
            known[i].name, "days since 2013-01-01", known[i].standard_name, NULL, known[i].attached, 0, 1};
        write_one(file, t, &time, 3);
        hid_t other = test_nc_times(file, "reference", H5T_IEEE_F64LE, 3, leads, "days since 2000-01-01");
        test_nc_text(other, "standard_name", "forecast_reference_time");
        test_nc_times(file, "lead", H5T_IEEE_F64LE, 3, days, "days");
        H5Fclose(file);
        SCOPED(vt_dataset) *dataset = test_nc_open_set("t");
        EXPECT(vt_index_minutes(&dataset->index) == 1440 && dataset->about->step > 0, "form %zu", i);
        EXPECT_DATE(dataset, 1, "2013-01-02 00:00");
    }
}

/* ---- `fields` ---- */

/* The form of a file of `fields` [TIMES, CHANNELS, ROWS, COLUMNS]. */
typedef struct {
    bool south_first, packed, netcdf;
    const char *latitudes; /* their name */
    const char *attribute; /* an attribute that changes nothing */
    hid_t type;            /* 0: float32 */
} form;

enum { TIMES = 5, CHANNELS = 2, ROWS = 6, COLUMNS = 8, PLANE = ROWS * COLUMNS };

static int number_at(int time, int channel, int row, int column)
{
    return (time * 37 + channel * 101 + row * 13 + column * 7) % 211 - 90;
}

static void write_form(const char *name, const form *f)
{
    static double values[TIMES * CHANNELS * PLANE];
    const hsize_t extent[4] = {TIMES, CHANNELS, ROWS, COLUMNS}, flat[3] = {TIMES, ROWS, COLUMNS};
    hid_t file = test_nc_create(name), type = f->packed ? H5T_STD_I16LE : f->type != 0 ? f->type : H5T_IEEE_F32LE;
    for (int c = 0; c < CHANNELS; c++) {
        if (!f->netcdf && c > 0) break;
        for (int i = 0; i < (f->netcdf ? TIMES * PLANE : TIMES * CHANNELS * PLANE); i++) {
            const int row = i / COLUMNS % ROWS, plane = i / PLANE;
            const int number = number_at(f->netcdf ? plane : plane / CHANNELS, f->netcdf ? c : plane % CHANNELS,
                                         f->south_first ? ROWS - 1 - row : row, i % COLUMNS);
            values[i] = f->packed ? number : 10 + 0.25 * number;
        }
        hid_t data = f->netcdf ? test_dataset(file, c == 0 ? "a" : "b", type, 3, flat, H5T_NATIVE_DOUBLE, values)
                               : test_dataset(file, "fields", type, 4, extent, H5T_NATIVE_DOUBLE, values);
        if (f->packed) test_nc_number(data, "scale_factor", H5T_IEEE_F64LE, 0.25);
        if (f->packed) test_nc_number(data, "add_offset", H5T_IEEE_F64LE, 10);
        if (f->attribute != NULL) test_nc_number(data, f->attribute, type, 1000);
    }
    if (f->latitudes != NULL) {
        double degrees[ROWS];
        for (int i = 0; i < ROWS; i++) degrees[i] = (f->south_first ? -1 : 1) * (50 - 20. * i);
        test_nc_times(file, f->latitudes, H5T_IEEE_F32LE, ROWS, degrees, "degree_N");
    }
    H5Fclose(file);
}

/* Packed, reversed, with other types and names: the same bits of samples and statistics as in the plain form. */
TEST(forms_of_fields_are_alike)
{
    const form forms[] = {{.latitudes = "lat"},
                          {.latitudes = "lat", .south_first = true},
                          {.latitudes = "FNOCY", .south_first = true},
                          {.latitudes = "lat", .packed = true},
                          {.latitudes = "y", .packed = true, .south_first = true},
                          {.latitudes = "lat", .attribute = "_FillValue"},
                          {.latitudes = "lat", .attribute = "missing_value", .south_first = true},
                          {.latitudes = "lat", .attribute = "valid_max"},
                          {.latitudes = "lat", .type = H5T_IEEE_F64BE},
                          {.latitudes = "lat", .type = H5T_IEEE_F32BE, .south_first = true},
                          {.latitudes = "Latitude", .netcdf = true, .south_first = true},
                          {.latitudes = "lat", .netcdf = true, .packed = true}};
    static float plain[2][CHANNELS * 4 * 5], other[2][CHANNELS * 4 * 5];
    double means[CHANNELS] = {0}, stds[CHANNELS] = {0};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        vt_statistics *statistics = NULL;
        const vt_statistics_source source = {.directory = vt_test_directory(),
                                             .option_name = "data directory",
                                             .form.variables = forms[i].netcdf ? "[a,b]" : NULL};
        write_form("x_2013.h5", &forms[i]);
        EXPECT_OK(vt_statistics_gather(&source, &statistics));
        for (int c = 0; c < CHANNELS && statistics != NULL; c++) {
            if (i == 0) means[c] = vt_statistics_mean(statistics, c);
            if (i == 0) stds[c] = vt_statistics_std(statistics, c);
            EXPECT(vt_statistics_mean(statistics, c) == means[c] && vt_statistics_std(statistics, c) == stds[c],
                   "form %zu, channel %d", i, c);
        }
        vt_statistics_close(&statistics);
        for (int direct = 0; direct < 2; direct++) {
            vt_dataset_options options = test_nc_options(source.form.variables);
            options.height = 4; /* the window's corner is the north-west, too */
            options.width = 5;
            options.in_channels = options.out_channels = CHANNELS;
            options.direct = direct;
            SCOPED(vt_dataset) *dataset = test_open(&options);
            for (int row = 0; row < 4; row++) EXPECT(dataset->latitudes[row] == 50 - 20 * row);
            EXPECT_OK(vt_dataset_read(dataset, 2, other[0], other[1]));
            if (i == 0 && direct == 0) memcpy(plain, other, sizeof plain);
            EXPECT(memcmp(plain, other, sizeof plain) == 0, "form %zu, direct %d", i, direct);
        }
    }
    EXPECT(plain[0][0] == 10 + 0.25f * (float)number_at(2, 0, 0, 0) &&
           plain[1][4 * 5 + 6] == 10 + 0.25f * (float)number_at(3, 1, 1, 1));
    const form whole = {.latitudes = "lat", .type = H5T_STD_I16LE};
    write_form("x_2013.h5", &whole);
    vt_dataset_options options = test_nc_options(NULL);
    test_expect_open_error(&options,
                           "'fields' must hold floating-point numbers (float32), but holds whole ones without an");
}

/* Times of `fields`: from their coordinate, or by time_step. */
TEST(times_of_fields)
{
    const test_fields fields = {.times = 4, .channels = 1, .height = 4, .width = 5};
    vt_dataset_options options = test_fields_options(&fields);
    test_fields_write(test_path("2001.h5"), &fields);
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT(vt_index_minutes(&dataset->index) == 360 && dataset->about->step == 0);
    vt_dataset_close(&dataset);
    options.form.time_step = "1d";
    dataset = test_open(&options);
    EXPECT(vt_index_minutes(&dataset->index) == 1440 && dataset->about->step > 0);
    EXPECT_DATE(dataset, 2, "2001-01-03 00:00");
    vt_dataset_close(&dataset);
    options.form.time_step = "often";
    test_expect_open_error(&options,
                           "time_step: 'often' is no length of time; expected one like 24h, 6h, 30min, 1d or 1month");
    options.form.time_step = NULL;
    const double hours[4] = {0, 24, 48, 96};
    hid_t file = H5Fopen(test_path("2001.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Dclose(test_nc_times(file, "time", H5T_IEEE_F64LE, 4, hours, "hours since 1988-05-06"));
    H5Fclose(file);
    dataset = test_open(&options);
    EXPECT(vt_index_minutes(&dataset->index) == 1440 && dataset->source.sample_count == 2); /* none over the gap */
    EXPECT_DATE(dataset, 1, "1988-05-07 00:00");
    vt_dataset_close(&dataset);
    options.form.time_step = "6h";
    test_expect_open_error(&options,
                           "2001.h5: its times are 24 h apart, and 6h, as time_step says, is no multiple of that");
    options.form.coordinates = "time=none";
    dataset = test_open(&options);
    EXPECT(vt_index_minutes(&dataset->index) == 360);
}

/* Values that no field has, with and without attributes that declare them invalid. */
TEST(values_that_are_no_data)
{
    static const struct {
        double stored;
        const char *attribute;
        hid_t fill_type; /* of HDF5's fill value, as netCDF sets it; 0: none */
        const char *message;
    } known[] = {
        {9.96921e36, NULL, 0, "'fields' is 9.96921e+36, which is no data, at time 1, channel 0, row 0, column 2"},
        {-1e31, NULL, 0, "'fields' is -1e+31, which is no data,"},
        {9.9692099683868690e+36, NULL, 1, "'fields' is NaN or missing (_FillValue) at time 1"},
        {1e20, "_FillValue", 0, "'fields' is NaN or missing (_FillValue) at time 1"},
        {-999, "missing_value", 0, "'fields' is NaN or missing (_FillValue) at time 1"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const hsize_t extent[4] = {3, 1, 2, 4};
        float values[24] = {0};
        values[8 + 2] = (float)known[i].stored;
        hid_t file = test_nc_create("2001.h5"), properties = H5Pcreate(H5P_DATASET_CREATE);
        if (known[i].fill_type != 0) H5Pset_fill_value(properties, H5T_NATIVE_DOUBLE, &known[i].stored);
        hid_t data = test_dataset_with(properties, file, "fields", H5T_IEEE_F32LE, 4, extent, H5T_NATIVE_FLOAT, values);
        if (known[i].attribute != NULL) test_nc_number(data, known[i].attribute, H5T_IEEE_F64LE, known[i].stored);
        H5Fclose(file);
        for (int direct = 0; direct < 2; direct++) {
            vt_dataset_options options = test_nc_options(NULL);
            options.height = 2;
            options.width = 4;
            options.direct = direct;
            float input[8], target[8];
            SCOPED(vt_dataset) *dataset = test_open(&options);
            EXPECT_ERROR(vt_dataset_read(dataset, 0, input, target), known[i].message);
        }
        SCOPED(vt_fields_file) *opened = NULL;
        const char *path = test_path("2001.h5");
        float as_is[8];
        EXPECT_OK(vt_fields_file_open(&path, 1, &(vt_fields_form){0}, &opened));
        EXPECT_OK(vt_fields_file_read(opened, 1, 1, &(vt_frame_window){.rows = 2, .width = 4}, false, as_is));
        EXPECT(isnan(as_is[2]) == (strstr(known[i].message, "missing") != NULL) && as_is[1] == 0);
    }
}

/* If `fields` are only copied, only the first time that is read is checked: values that are always missing
 * are found; values that are missing later are left to the loss. */
TEST(values_that_are_always_missing_are_found)
{
    for (int always = 0; always < 2; always++)
        for (int chunked = 0; chunked < 2; chunked++) {
            const hsize_t extent[4] = {6, 2, 4, 4}, chunk[4] = {1, 1, 2, 2};
            float values[6 * 32] = {0};
            for (int t = 0; t < 6; t++)
                if (always || t == 4) values[t * 32 + 16 + 15] = 1e36f; /* the last point of the second channel */
            hid_t file = test_nc_create("2001.h5"), properties = H5Pcreate(H5P_DATASET_CREATE);
            if (chunked) H5Pset_chunk(properties, 4, chunk);
            test_dataset_with(properties, file, "fields", H5T_IEEE_F32LE, 4, extent, H5T_NATIVE_FLOAT, values);
            H5Fclose(file);
            vt_dataset_options options = test_nc_options(NULL);
            options.height = options.width = 4;
            options.in_channels = options.out_channels = 2;
            options.unchecked = true;
            float input[32], target[32];
            vt_decoder decoder = {0};
            SCOPED(vt_dataset) *dataset = test_open(&options);
            const vt_reading *reading = vt_source_reading(&dataset->source);
            vt_read_plan *plan = reading->open(&dataset->source);
            vt_status status = VT_OK;
            for (int64_t sample = 2; sample < 4 && status == VT_OK; sample++) {
                EXPECT_OK(reading->make(plan, &sample, 1, (void *const[]){input, target}));
                for (int64_t i = 0; i < plan->item_count && status == VT_OK; i++)
                    status = reading->run(plan, i, &decoder);
                reading->release(plan);
            }
            EXPECT((status == VT_ERROR) == always, "always %d, chunked %d", always, chunked);
            if (always)
                EXPECT_PART(vt_error_text(),
                            "'fields' is 1e+36, which is no data, at time 2, channel 1, row 3, column 3");
            vt_error_clear();
            EXPECT_ERROR(vt_source_check(&dataset->source, 3), "'fields' is 1e+36");
            vt_decoder_close(&decoder);
            reading->close(plan);
        }
}
