/* Small netCDF files, written with HDF5's own calls. */
#ifndef VT_TESTS_UNIT_NETCDF_FILES_H
#define VT_TESTS_UNIT_NETCDF_FILES_H

#include <hdf5.h>

#include "source/fields/dataset.h"
#include "source/fields/fields_file.h"

enum {
    TEST_NC_ROWS = 2,
    TEST_NC_COLUMNS = 3,
    TEST_NC_POINTS = TEST_NC_ROWS * TEST_NC_COLUMNS,
    TEST_NC_MOST = 64 /* times of a file */
};

/* Attributes; numbers are stored as `type`. */
void test_nc_text(hid_t dataset, const char *name, const char *text);
void test_nc_numbers(hid_t dataset, const char *name, hid_t type, int count, const double *values);
void test_nc_number(hid_t dataset, const char *name, hid_t type, double value);

/* A file in the test's directory. */
hid_t test_nc_create(const char *name);

/* A variable [times, TEST_NC_ROWS, TEST_NC_COLUMNS] of whole numbers, 100 · time + place; to be closed. */
hid_t test_nc_variable(hid_t file, const char *name, int times, hid_t type);

/* A coordinate, with the attribute `units` unless that is NULL; to be closed. */
hid_t test_nc_times(hid_t file, const char *name, hid_t type, int times, const double *values, const char *units);

/* A coordinate of `count` numbers from `first` on, `step` apart. */
void test_nc_axis(hid_t file, const char *name, int count, double first, double step);

/* A file with the variable `t` and these times, or `times` of them from `first` on, `step` apart, in the units. */
void test_nc_write(const char *name, int times, const double *values, const char *units);
void test_nc_write_even(const char *name, int times, double first, double step, const char *units);

/* Options for a set of one channel in the test's directory. */
vt_dataset_options test_nc_options(const char *variables);

/* A file of the variable `t`, read with these `coordinates` (NULL: none are named); it must open. */
vt_fields_file *test_nc_open(const char *name, const char *coordinates);

/* The date of a sample must be this text. */
#define EXPECT_DATE(dataset, sample, text) EXPECT_TEXT(test_nc_date(dataset, sample), text)
const char *test_nc_date(const vt_dataset *dataset, int64_t sample);

/* That set, which must open. */
vt_dataset *test_nc_open_set(const char *variables);

/* Opening it must fail with the message. */
void test_nc_expect_error(const char *variables, const char *message);

/* So must its statistics. */
void test_nc_expect_error_of_both(const char *variables, const char *message);

/* Training on it with the validation set in the test's `directory` must fail with that message. */
void test_nc_expect_unlike(const char *variables, const char *directory, const char *message);

#endif
