#include "unit/netcdf_files.h"

#include <hdf5_hl.h>

#include "source/fields/statistics.h"
#include "test.h"
#include "unit/data_files.h"

void test_nc_text(hid_t dataset, const char *name, const char *text)
{
    VT_ASSERT(H5LTset_attribute_string(dataset, ".", name, text) >= 0);
}

void test_nc_numbers(hid_t dataset, const char *name, hid_t type, int count, const double *values)
{
    hsize_t extent = (hsize_t)count;
    hid_t space = H5Screate_simple(1, &extent, NULL),
          attribute = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    VT_ASSERT(H5Awrite(attribute, H5T_NATIVE_DOUBLE, values) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
}

void test_nc_number(hid_t dataset, const char *name, hid_t type, double value)
{
    test_nc_numbers(dataset, name, type, 1, &value);
}

/* t [times, TEST_NC_ROWS, TEST_NC_COLUMNS] of whole numbers, 100 · time + place */
hid_t test_nc_variable(hid_t file, const char *name, int times, hid_t type)
{
    const hsize_t extent[3] = {(hsize_t)times, TEST_NC_ROWS, TEST_NC_COLUMNS};
    int values[TEST_NC_MOST * TEST_NC_POINTS];
    for (int i = 0; i < times * TEST_NC_POINTS; i++) values[i] = 100 * (i / TEST_NC_POINTS) + i % TEST_NC_POINTS;
    VT_ASSERT(times <= TEST_NC_MOST);
    return test_dataset(file, name, type, 3, extent, H5T_NATIVE_INT, values);
}

hid_t test_nc_times(hid_t file, const char *name, hid_t type, int times, const double *values, const char *units)
{
    hsize_t extent = (hsize_t)times;
    hid_t dataset = test_dataset(file, name, type, 1, &extent, H5T_NATIVE_DOUBLE, values);
    if (units != NULL) test_nc_text(dataset, "units", units);
    return dataset;
}

hid_t test_nc_create(const char *name)
{
    return test_create(test_path(name));
}

/* A file of the variable `t` with these times, in the units. */
void test_nc_write(const char *name, int times, const double *values, const char *units)
{
    hid_t file = test_nc_create(name);
    H5Dclose(test_nc_variable(file, "t", times, H5T_IEEE_F32LE));
    H5Dclose(test_nc_times(file, "time", H5T_IEEE_F64LE, times, values, units));
    H5Fclose(file);
}

/* … of `times` of them, from `first` on, `step` apart */
void test_nc_write_even(const char *name, int times, double first, double step, const char *units)
{
    double values[TEST_NC_MOST];
    for (int i = 0; i < times; i++) values[i] = first + i * step;
    test_nc_write(name, times, values, units);
}

vt_dataset_options test_nc_options(const char *variables)
{
    return TEST_OPTIONS(.height = TEST_NC_ROWS, .width = TEST_NC_COLUMNS, .in_channels = 1, .out_channels = 1,
                        .form.variables = variables, .direct = true);
}

void test_nc_axis(hid_t file, const char *name, int count, double first, double step)
{
    double values[TEST_NC_MOST];
    for (int i = 0; i < count; i++) values[i] = first + i * step;
    H5Dclose(test_nc_times(file, name, H5T_IEEE_F32LE, count, values, NULL));
}

vt_fields_file *test_nc_open(const char *name, const char *coordinates)
{
    vt_fields_file *file = NULL;
    const char *path = test_path(name);
    EXPECT_OK(vt_fields_file_open(&path, 1, &(vt_fields_form){.variables = "t", .coordinates = coordinates}, &file));
    VT_ASSERT(file != NULL);
    return file;
}

const char *test_nc_date(const vt_dataset *dataset, int64_t sample)
{
    static char text[VT_DATE_SIZE];
    vt_date date;
    return vt_dataset_date(dataset, sample, 0, &date) ? vt_date_format(date, text) : "none";
}

vt_dataset *test_nc_open_set(const char *variables)
{
    const vt_dataset_options options = test_nc_options(variables);
    return test_open(&options);
}

void test_nc_expect_error(const char *variables, const char *message)
{
    vt_dataset_options options = test_nc_options(variables);
    test_expect_open_error(&options, message);
}

void test_nc_expect_error_of_both(const char *variables, const char *message)
{
    vt_statistics *statistics = NULL;
    const vt_statistics_source source = {
        .directory = vt_test_directory(), .option_name = "data directory", .form.variables = variables};
    test_nc_expect_error(variables, message);
    EXPECT_ERROR(vt_statistics_gather(&source, &statistics), message);
}

void test_nc_expect_unlike(const char *variables, const char *directory, const char *message)
{
    vt_dataset_options options = test_nc_options(variables), others = options;
    others.directory = test_path(directory);
    SCOPED(vt_dataset) *training = test_open(&options), *validation = test_open(&others);
    EXPECT_ERROR(vt_source_agree(&training->source, &validation->source), message);
}
