#include "golden/golden_file.h"

#include "test.h"

hid_t golden_open(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "tests/golden/%s", name);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    VT_ASSERT(file >= 0);
    return file;
}

static void *read_as(hid_t file, const char *path, hid_t type, size_t size, int64_t *count)
{
    hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT);
    VT_ASSERT(dataset >= 0);
    hid_t space = H5Dget_space(dataset);
    *count = (int64_t)H5Sget_simple_extent_npoints(space);
    void *values = vt_test_owned(malloc((size_t)*count * size));
    VT_ASSERT(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Sclose(space);
    H5Dclose(dataset);
    return values;
}

double *golden_read(hid_t file, const char *path, int64_t *count)
{
    return read_as(file, path, H5T_NATIVE_DOUBLE, sizeof(double), count);
}

float *golden_read_float(hid_t file, const char *path, int64_t *count)
{
    return read_as(file, path, H5T_NATIVE_FLOAT, sizeof(float), count);
}

void golden_load(hid_t file, vt_backend *backend, vt_parameters *parameters)
{
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        char path[160];
        int64_t count;
        snprintf(path, sizeof path, "parameters/%s", parameter->name);
        const float *values = golden_read_float(file, path, &count);
        EXPECT(count == parameter->count, "%s has %lld elements, expected %lld", parameter->name,
               (long long)parameter->count, (long long)count);
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
