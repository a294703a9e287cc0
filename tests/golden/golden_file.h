/* Reads datasets and attributes of the committed golden files; a missing one is a failed assertion. */
#ifndef VT_TESTS_GOLDEN_GOLDEN_FILE_H
#define VT_TESTS_GOLDEN_GOLDEN_FILE_H

#include <hdf5.h>
#include <stdint.h>

hid_t golden_open(const char *name);

/* malloc'd float64 values of a dataset (of any float type); *count gets how many. */
double *golden_read(hid_t file, const char *path, int64_t *count);
float *golden_read_float(hid_t file, const char *path, int64_t *count);
double golden_attribute(hid_t file, const char *path, const char *name);

/* ‖actual - expected‖ / ‖expected‖ */
double golden_difference(const float *actual, const double *expected, int64_t count);

#endif
