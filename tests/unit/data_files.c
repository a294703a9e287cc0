#include "unit/data_files.h"

#include <sys/stat.h>

#include "config/config.h"
#include "test.h"

double test_value(const test_fields *fields, int64_t time, int64_t channel, int64_t row, int64_t column)
{
    int64_t index = ((time * fields->channels + channel) * fields->height + row) * fields->width + column;
    return (double)(fields->offset + index);
}

double test_latitude(int64_t row)
{
    return 60.0 - 2.5 * (double)row;
}

vt_dataset_options test_fields_options(const test_fields *fields)
{
    return TEST_OPTIONS(.height = fields->height, .width = fields->width, .in_channels = fields->channels,
                        .out_channels = fields->channels);
}

vt_dataset *test_open(const vt_dataset_options *options)
{
    vt_dataset *dataset = NULL;
    EXPECT_OK(vt_dataset_open(options, &dataset));
    VT_ASSERT(dataset != NULL);
    return dataset;
}

void test_expect_open_error(const vt_dataset_options *options, const char *message)
{
    vt_dataset *dataset = NULL;
    EXPECT_ERROR(vt_dataset_open(options, &dataset), message);
    EXPECT(dataset == NULL);
}

const char *test_path(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", vt_test_directory(), name);
    for (char *slash = path + strlen(vt_test_directory()) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    return path;
}

static void write_names(hid_t dataset, const test_fields *fields)
{
    hsize_t count = (hsize_t)(fields->name_count > 0 ? fields->name_count : fields->channels);
    size_t size = 12;
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &count, NULL);
    H5Tset_size(type, fields->variable_names ? H5T_VARIABLE : size);
    if (!fields->variable_names) H5Tset_strpad(type, fields->padding);
    hid_t attribute = H5Acreate2(dataset, "channels", type, space, H5P_DEFAULT, H5P_DEFAULT);
    char *fixed = vt_test_owned(malloc(count * size));
    memset(fixed, fields->padding == H5T_STR_SPACEPAD ? ' ' : '\0', count * size);
    for (size_t c = 0; c < count; c++) memcpy(fixed + c * size, fields->names[c], strlen(fields->names[c]));
    VT_ASSERT(H5Awrite(attribute, type, fields->variable_names ? (const void *)fields->names : fixed) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

hid_t test_create(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    VT_ASSERT(file >= 0);
    H5Pclose(access);
    return file;
}

hid_t test_dataset_with(hid_t properties, hid_t file, const char *name, hid_t type, int rank, const hsize_t *extent,
                        hid_t memory_type, const void *values)
{
    hid_t space = H5Screate_simple(rank, extent, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    VT_ASSERT(dataset >= 0);
    VT_ASSERT(values == NULL || H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Sclose(space);
    if (properties != H5P_DEFAULT) H5Pclose(properties);
    return dataset;
}

hid_t test_dataset(hid_t file, const char *name, hid_t type, int rank, const hsize_t *extent, hid_t memory_type,
                   const void *values)
{
    return test_dataset_with(H5P_DEFAULT, file, name, type, rank, extent, memory_type, values);
}

static void write_coordinate(hid_t file, const char *name, int64_t count)
{
    hsize_t extent = (hsize_t)count;
    double *values = vt_test_owned(malloc(extent * sizeof *values));
    for (int64_t i = 0; i < count; i++) values[i] = test_latitude(i);
    H5Dclose(test_dataset(file, name, H5T_IEEE_F32LE, 1, &extent, H5T_NATIVE_DOUBLE, values));
}

static float *make_values(const test_fields *fields)
{
    float *values =
        malloc((size_t)(fields->times * fields->channels * fields->height * fields->width + 1) * sizeof *values);
    float *next = values;
    for (int64_t t = 0; t < fields->times; t++)
        for (int64_t c = 0; c < fields->channels; c++)
            for (int64_t row = 0; row < fields->height; row++)
                for (int64_t column = 0; column < fields->width; column++)
                    *next++ = (float)test_value(fields, t, c, row, column);
    if (fields->poison_index > 0) values[fields->poison_index] = fields->poison;
    return values;
}

void test_fields_write(const char *path, const test_fields *fields)
{
    const hsize_t extent[4] = {(hsize_t)fields->times, (hsize_t)fields->channels, (hsize_t)fields->height,
                               (hsize_t)fields->width};
    hid_t file = test_create(path), properties = H5Pcreate(H5P_DATASET_CREATE);
    if (fields->chunk[0] > 0) H5Pset_chunk(properties, 4, fields->chunk);
    if (fields->shuffle) H5Pset_shuffle(properties);
    if (fields->deflate > 0) H5Pset_deflate(properties, (unsigned)fields->deflate);
    if (fields->fletcher) H5Pset_fletcher32(properties);
    hid_t type = fields->type > 0 ? fields->type : H5T_IEEE_F32LE;
    float *values = make_values(fields);
    hid_t dataset = test_dataset_with(properties, file, "fields", type, 4, extent, H5T_NATIVE_FLOAT, values);
    free(values);
    if (fields->names != NULL) write_names(dataset, fields);
    if (fields->latitudes > 0) write_coordinate(file, "lat", fields->latitudes);
    if (fields->longitudes > 0) write_coordinate(file, "lon", fields->longitudes);
    VT_ASSERT(H5Fclose(file) >= 0);
}
