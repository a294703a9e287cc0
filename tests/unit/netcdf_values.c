/* netCDF files: which variables are channels, on which grid, and which of their values are valid. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "source/fields/fields_file.h"
#include "test.h"
#include "unit/data_files.h"
#include "unit/netcdf_files.h"

TEST(netcdf_variables_once)
{
    test_nc_write_even("x_2013.nc", 4, 0, 6, "hours since 2013-01-01");
    test_nc_expect_error("[t, t]", "variables: channel 1 (t) is channel 0 (t) once more; name each one once");
    test_nc_expect_error("[u10, t]", "no variable 'u10'; found: t");
    test_nc_expect_error("[]", "variables: '[]' names none");
    test_nc_expect_error("t@", "variables: 't@' is no variable with a level");
    test_nc_expect_error("time", "'time' has 1 dimensions");
    const hsize_t extent[4] = {4, 2, TEST_NC_ROWS, TEST_NC_COLUMNS};
    hid_t file = test_nc_create("x_2013.nc");
    test_dataset(file, "z", H5T_IEEE_F32LE, 4, extent, 0, NULL);
    test_nc_axis(file, "level", 2, 500, 350);
    test_nc_variable(file, "z500", 4, H5T_IEEE_F32LE);
    H5Fclose(file);
    test_nc_expect_error("[z@500, z@850, z@500.0]", "variables: channel 2 (z500.0) is channel 0 (z500) once more");
    test_nc_expect_error("[z@500, z500]", "variables: channels 0 and 1 would both be called 'z500'");
    test_nc_expect_error("[z@600]", "'z' has no level 600; there are 500, 850");
    file = test_nc_create("x_2013.nc");
    test_dataset(file, "z", H5T_IEEE_F32LE, 4, (const hsize_t[]){4, 3, TEST_NC_ROWS, TEST_NC_COLUMNS}, 0, NULL);
    H5Dclose(test_nc_times(file, "level", H5T_IEEE_F32LE, 3, (const double[]){500, 850, 500}, "hPa"));
    H5Fclose(file);
    test_nc_expect_error("[z@850, z@500]",
                         "'z' has level 500 twice, at indices 0 and 2 of 'level' (there are 500, 850, "
                         "500), so 'z@500' may be either");
    test_nc_expect_error("[z@850]", "no value of it was ever written"); /* the levels of others don't matter */
}

/* Of variables `t` and, in another file of that date, `u`. */
static void write_grids(double west_of_t, double west_of_u)
{
    hid_t file = test_nc_create("x_2013.nc");
    test_nc_variable(file, "t", 4, H5T_IEEE_F32LE);
    test_nc_axis(file, "lat", TEST_NC_ROWS, 10, -20);
    test_nc_axis(file, "lon", TEST_NC_COLUMNS, west_of_t, 120);
    H5Fclose(file);
    file = test_nc_create("y_2013.nc");
    test_nc_variable(file, "u", 4, H5T_IEEE_F32LE);
    test_nc_axis(file, "latitude", TEST_NC_ROWS, 10, -20);
    test_nc_axis(file, "longitude", TEST_NC_COLUMNS, west_of_u, 120);
    H5Fclose(file);
}

TEST(netcdf_grids_agree)
{
    write_grids(-180, -180);
    vt_fields_file *opened = NULL;
    const char *paths[2] = {test_path("x_2013.nc"), test_path("y_2013.nc")};
    EXPECT_OK(vt_fields_file_open(paths, 2, &(vt_fields_form){.variables = "[t, u]"}, &opened));
    const double *longitudes = opened->about->longitudes;
    EXPECT(longitudes != NULL && longitudes[0] == -180 && longitudes[1] == -60 && longitudes[2] == 60);
    vt_fields_file_close(&opened);
    write_grids(-180, 0);
    test_nc_expect_error("[t, u]",
                         "y_2013.nc: the longitudes of 'u' are not those of 't'; all variables need the same grid");
    write_grids(800, 0);
    test_nc_expect_error("t", "x_2013.nc: 'lon' holds 800 at index 0, expected degrees from -720 to 720");
    write_grids(0, 0);
    unlink(test_path("y_2013.nc"));
    rename(test_path("x_2013.nc"), test_path("x_2014.nc"));
    write_grids(-180, -180);
    unlink(test_path("y_2013.nc"));
    test_nc_expect_error_of_both(
        "t", "x_2014.nc go from 0 to 240, those of the files before it from -180 to 60; --accept=grid");
    rename(test_path("x_2014.nc"), test_path("valid/x_2014.nc"));
    test_nc_expect_unlike("t", "valid", "longitudes differ: those of ");
}

TEST(netcdf_versions_of_era5)
{
    const hsize_t extent[4] = {4, 2, TEST_NC_ROWS, TEST_NC_COLUMNS};
    hid_t file = test_nc_create("x_2013.nc");
    test_dataset(file, "t", H5T_IEEE_F32LE, 4, extent, 0, NULL);
    test_nc_axis(file, "expver", 2, 1, 4);
    H5Fclose(file);
    test_nc_expect_error("t", "'t' comes in 2 versions of ERA5 (its second dimension is 'expver')");
}

/* The numbers of `t` are 0 … 5, 100 … 105, …; which of the first six of a time are valid. */
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
        hid_t file = test_nc_create("x_2013.nc"), t = test_nc_variable(file, "t", 2, types[known[i].stored]);
        const bool packed = known[i].stored == 0;
        if (packed) test_nc_number(t, "scale_factor", H5T_IEEE_F64LE, 0.5);
        if (packed) test_nc_number(t, "add_offset", H5T_IEEE_F64LE, 10);
        if (isnan(known[i].values[0]))
            test_nc_numbers(t, known[i].name, H5T_IEEE_F32LE, known[i].count, known[i].values);
        else
            test_nc_numbers(t, known[i].name, types[known[i].kind], known[i].count, known[i].values);
        H5Fclose(file);
        for (int form = 0; form < 2; form++)
            for (int64_t row = 0; row < TEST_NC_ROWS; row++)
                for (int64_t width = 1; width <= TEST_NC_COLUMNS; width++) { /* the first columns of a row */
                    vt_dataset_options options = test_nc_options("t");
                    options.direct = form == 1;
                    options.first_row = row;
                    options.rows = 1;
                    options.width = width;
                    float input[TEST_NC_COLUMNS], target[TEST_NC_COLUMNS];
                    SCOPED(vt_dataset) *dataset = test_open(&options);
                    SCOPED(vt_fields_file) *opened = NULL;
                    const char *path = test_path("x_2013.nc");
                    EXPECT_OK(vt_fields_file_open(&path, 1, &(vt_fields_form){.variables = "t"}, &opened));
                    const vt_frame_window part = {.first_row = row, .rows = 1, .width = width};
                    const bool good =
                        vt_fields_file_read(opened, 0, 1, &part, true, input) == VT_OK; /* time 1 is all beyond */
                    vt_error_clear();
                    bool expected = true;
                    for (int64_t c = 0; c < width; c++)
                        expected = expected && known[i].valid[row * TEST_NC_COLUMNS + c] == '+';
                    EXPECT(good == expected, "%s, form %zu, row %ld, width %ld", known[i].name, i, row, width);
                    const bool read = vt_dataset_read(dataset, 0, input, target) == VT_OK;
                    EXPECT(!read || expected);
                    if (!read && !expected && strncmp(known[i].name, "valid", 5) == 0)
                        EXPECT_PART(vt_error_text(), "outside its valid_range");
                    vt_error_clear();
                }
    }
    const double turned[2] = {3, 1};
    hid_t file = test_nc_create("x_2013.nc"), t = test_nc_variable(file, "t", 2, H5T_STD_I16LE);
    test_nc_numbers(t, "valid_range", H5T_STD_I16LE, 2, turned);
    H5Fclose(file);
    test_nc_expect_error("t", "by its valid_range, valid_min or valid_max no value of 't' is valid");
}
