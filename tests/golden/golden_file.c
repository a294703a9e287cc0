#include "golden/golden_file.h"

#include <stdarg.h>

#include "settings.h"

hid_t golden_open(const char *name)
{
    static struct {
        const char *name;
        hid_t file;
    } opened[16];
    int i = 0;
    while (opened[i].name != NULL && strcmp(opened[i].name, name) != 0) VT_ASSERT(++i < 16);
    if (opened[i].name != NULL) return opened[i].file;
    opened[i].name = name;
    opened[i].file = H5Fopen(SETTINGS("tests/golden/%s", name), H5F_ACC_RDONLY, H5P_DEFAULT);
    VT_ASSERT(opened[i].file >= 0);
    return opened[i].file;
}

static void *read_as(hid_t file, hid_t type, size_t size, int64_t *count, const char *path, va_list arguments)
{
    char whole[256];
    vsnprintf(whole, sizeof whole, path, arguments);
    hid_t dataset = H5Dopen2(file, whole, H5P_DEFAULT), space = H5Dget_space(dataset);
    const int64_t all = (int64_t)H5Sget_simple_extent_npoints(space);
    VT_ASSERT(dataset >= 0 && all >= 0);
    void *values = vt_test_owned(malloc((size_t)all * size));
    VT_ASSERT(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Sclose(space);
    H5Dclose(dataset);
    if (count != NULL) *count = all;
    return values;
}

double *golden_read(hid_t file, int64_t *count, const char *path, ...)
{
    va_list arguments;
    va_start(arguments, path);
    double *values = read_as(file, H5T_NATIVE_DOUBLE, sizeof *values, count, path, arguments);
    va_end(arguments);
    return values;
}

float *golden_read_float(hid_t file, int64_t *count, const char *path, ...)
{
    va_list arguments;
    va_start(arguments, path);
    float *values = read_as(file, H5T_NATIVE_FLOAT, sizeof *values, count, path, arguments);
    va_end(arguments);
    return values;
}

void golden_load(hid_t file, vt_backend *backend, vt_parameters *parameters)
{
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        int64_t count;
        const float *values = golden_read_float(file, &count, "parameters/%s", parameter->name);
        EXPECT(count == parameter->count, "%s has %ld elements, expected %ld", parameter->name, parameter->count,
               count);
        backend->copy_from_host(backend, parameter->value, values, (size_t)count * sizeof *values);
    }
    vt_parameters_refresh(parameters);
}

double golden_attribute(hid_t file, const char *path, const char *name)
{
    double value = 0;
    hid_t attribute = H5Aopen_by_name(file, path, name, H5P_DEFAULT, H5P_DEFAULT);
    VT_ASSERT(attribute >= 0);
    VT_ASSERT(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) >= 0);
    H5Aclose(attribute);
    return value;
}

double golden_difference(const float *actual, const double *expected, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)actual[i] - expected[i]) * ((double)actual[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return sqrt(difference / norm);
}
