/* Messages about files whose dimensions are different, or in a different order. */
#include <hdf5.h>
#include <hdf5_hl.h>

#include "base/text.h"
#include "test.h"
#include "unit/data_files.h"
#include "unit/netcdf_files.h"

/* A variable with named dimensions, as netCDF-4 has them; names end with NULL. Zeros. */
static void write_named(const char *file_name, const char *variable, const char *const *names, const int *sizes)
{
    hsize_t extent[8], length = 1;
    int rank = 0;
    for (; names[rank] != NULL; rank++) length *= extent[rank] = (hsize_t)sizes[rank];
    float *zeros = vt_test_owned(calloc(length, sizeof *zeros));
    hid_t file = test_nc_create(file_name);
    hid_t dataset = test_dataset(file, variable, H5T_IEEE_F32LE, rank, extent, H5T_NATIVE_FLOAT, zeros);
    for (int i = 0; i < rank; i++) {
        test_nc_axis(file, names[i], sizes[i], 0, 1);
        hid_t scale = H5Dopen2(file, names[i], H5P_DEFAULT);
        VT_ASSERT(H5DSset_scale(scale, names[i]) >= 0 && H5DSattach_scale(dataset, scale, (unsigned)i) >= 0);
        H5Dclose(scale);
    }
    H5Fclose(file);
}

TEST(other_dimensions_are_named)
{
    static const char *const ensemble[] = {"time", "number", "lat", "lon", NULL};
    static const char *const with_levels[] = {"time", "number", "level", "lat", "lon", NULL};
    static const char *const last[] = {"time", "lat", "lon", "level", NULL};
    static const char *const no_times[] = {"member", "lat", "lon", NULL};
    static const int sizes[] = {4, 3, 2, 3, 4};
    write_named("x_2013.nc", "t", ensemble, (int[]){4, 5, 2, 3});
    test_nc_expect_error("t", "x_2013.nc: 't' is an ensemble (time, number, lat, lon) of 5 members, of which one");
    write_named("x_2013.nc", "t", with_levels, sizes);
    test_nc_expect_error("t",
                         "'t' has 5 dimensions (time, number, level, lat, lon), expected 4: [time, channel, lat, "
                         "lon], or in netCDF 3: [time, lat, lon]; it is an ensemble, of which one member can be read");
    write_named("x_2013.nc", "t", last, (int[]){4, 2, 3, 5});
    test_nc_expect_error("t@2", "'t' is [4, 2, 3, 5] (time, lat, lon, level), with its channels or levels last");
    write_named("x_2013.nc", "t", no_times, (int[]){4, 2, 3});
    test_nc_expect_error("t", "'t' is an ensemble (member, lat, lon) without times");
    static const char *const orders[][4] = {{"lat", "lon", "time", NULL},
                                            {"time", "lon", "lat", NULL},
                                            {"lat", "time", "lon", NULL},
                                            {"x", "time", "y", NULL}};
    for (int i = 0; i < 4; i++) {
        write_named("x_2013.nc", "t", orders[i], (int[]){3, 3, 3});
        char *names =
            vt_test_owned(vt_text_format("'t' is (%s, %s, %s): the first dimension of a variable is to be the time, "
                                         "and the last two dimensions of a variable are to be latitudes and longitudes",
                                         orders[i][0], orders[i][1], orders[i][2]));
        test_nc_expect_error("t", names);
    }
    vt_dataset_options options = test_nc_options("t");
    write_named("x_2013.nc", "t", ensemble, (int[]){4, 1, 2, 3}); /* one member is no ensemble */
    SCOPED(vt_dataset) *dataset = test_open(&options);
}

/* By the lengths of `lat` and `lon`, where dimensions have no names. */
TEST(channels_last_of_fields)
{
    const test_fields fields = {.times = 3, .channels = 5, .height = 7, .width = 2};
    vt_dataset_options options = test_fields_options(&fields);
    test_fields_write(test_path("2013.h5"), &fields);
    hid_t file = H5Fopen(test_path("2013.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    test_nc_axis(file, "lat", 5, 10, 1);
    test_nc_axis(file, "lon", 7, 10, 1);
    H5Fclose(file);
    test_expect_open_error(&options,
                           "2013.h5: 'fields' is [3, 5, 7, 2], with its channels or levels last, but expected is "
                           "[time, channel, lat, lon]: numpy.moveaxis(values, -1, 1)");
}

TEST(groups_are_named)
{
    hid_t file = test_nc_create("x_2013.nc");
    hid_t group = H5Gcreate2(file, "analysis", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    test_nc_variable(group, "t", 4, H5T_IEEE_F32LE);
    test_nc_variable(file, "u", 4, H5T_IEEE_F32LE);
    H5Fclose(file);
    test_nc_expect_error("t", "x_2013.nc: no variable 't'; found: analysis/t, u");
    test_nc_expect_error("analysis/v", "x_2013.nc: no variable 'analysis/v'; found: analysis/t, u");
}

TEST(messages_say_what_has_the_channels)
{
    vt_dataset_options options = test_nc_options("t");
    test_nc_write_even("x_2013.nc", 4, 0, 6, "hours since 2013-01-01");
    options.out_channels = 2;
    test_expect_open_error(&options, "x_2013.nc: --variables names 1 channels, but n_out_channels is 2");
    options.out_channels = 1;
    options.height = 10;
    test_expect_open_error(&options,
                           "x_2013.nc: its variables are [4, 1, 2, 3] (time, channel, lat, lon), too small for");
}
