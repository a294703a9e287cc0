/* Reads datasets and attributes of the committed golden files; a missing one is a failed assertion. */
#ifndef VT_TESTS_GOLDEN_GOLDEN_FILE_H
#define VT_TESTS_GOLDEN_GOLDEN_FILE_H

#include <hdf5.h>
#include <stdint.h>

#include "model/parameters.h"

/* Opened once: a file stays open until the program ends. */
hid_t golden_open(const char *name);

/* The values of a dataset (of any float type) until the test ends; *count (unless NULL) gets how many. */
double *golden_read(hid_t file, int64_t *count, const char *path, ...) __attribute__((format(printf, 3, 4)));
float *golden_read_float(hid_t file, int64_t *count, const char *path, ...) __attribute__((format(printf, 3, 4)));
/* The parameters of the file, each of which must be there. */
void golden_load(hid_t file, vt_backend *backend, vt_parameters *parameters);

double golden_attribute(hid_t file, const char *path, const char *name);

/* ‖actual - expected‖ / ‖expected‖ */
double golden_difference(const float *actual, const double *expected, int64_t count);

#endif
