#include "unit/data_files.h"

#include "base/log.h"
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

int64_t test_wrong_values(const test_fields *fields, const vt_dataset_options *options, int64_t time,
                          const float *input, const float *target)
{
    const int64_t rows = options->rows > 0 ? options->rows : options->height, width = options->width;
    const int64_t points = rows * width, channels = options->in_channels / (options->history + 1);
    int64_t wrong = 0;
    for (int64_t i = 0; i < (options->in_channels + options->out_channels) * points; i++) {
        const bool is_input = i < options->in_channels * points;
        const int64_t k = is_input ? i : i - options->in_channels * points, c = k / points;
        const int64_t of = is_input ? time - c / channels * options->dt : time + options->dt;
        wrong += (double)(is_input ? input : target)[k] !=
                 test_value(fields, of, is_input ? c % channels : c, options->first_row + k / width % rows, k % width);
    }
    return wrong;
}

vt_status test_keep_frames(vt_dataset *dataset)
{
    vt_source *source = &dataset->source;
    return source->kind->keep_frames(source);
}

vt_status test_read_frame(vt_dataset *dataset, int64_t frame, float *values)
{
    vt_source *source = &dataset->source;
    return source->kind->read_frame(source, frame, values);
}

void test_frames(const vt_dataset *dataset, int64_t sample, int64_t *frames)
{
    const vt_source *source = &dataset->source;
    vt_sample_piece pieces[8];
    VT_ASSERT(source->pieces_per_sample <= 8);
    const int64_t count = source->kind->pieces(source, sample, 1, pieces);
    for (int64_t i = 0; i < count; i++) frames[i] = pieces[i].frame;
}

vt_loader *test_loader(vt_loader_options options)
{
    vt_loader *loader = NULL;
    if (options.prefetch == 0) options.prefetch = 3;
    EXPECT_OK(vt_loader_open(&options, &loader));
    VT_ASSERT(loader != NULL);
    return loader;
}

const vt_batch *test_next(vt_loader *loader)
{
    const vt_batch *batch = NULL;
    EXPECT_OK(vt_loader_next(loader, &batch));
    return batch;
}

void test_expect_bad_batch(vt_loader *loader, const char *message)
{
    const vt_batch *batch = NULL;
    EXPECT_ERROR(vt_loader_next(loader, &batch), message);
}

void test_log_begin(void)
{
    EXPECT_OK(vt_log_open(test_path("out.log"), false));
}

const char *test_log_end(void)
{
    enum { MOST = 8192 };
    char *text = vt_test_owned(calloc(1, MOST));
    EXPECT_OK(vt_log_close());
    FILE *file = fopen(test_path("out.log"), "r");
    (void)!fread(text, 1, MOST - 1, file);
    fclose(file);
    remove(test_path("out.log"));
    return text;
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
    if (fields->plain_edges) H5Pset_chunk_opts(properties, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    if (fields->shuffle) H5Pset_shuffle(properties);
    if (fields->deflate > 0) H5Pset_deflate(properties, (unsigned)fields->deflate);
    if (fields->fletcher) H5Pset_fletcher32(properties);
    hid_t type = fields->type > 0 ? fields->type : H5T_IEEE_F32LE;
    float *values = vt_test_owned(make_values(fields));
    hid_t dataset = test_dataset_with(properties, file, "fields", type, 4, extent, H5T_NATIVE_FLOAT, values);
    if (fields->names != NULL) write_names(dataset, fields);
    if (fields->latitudes > 0) write_coordinate(file, "lat", fields->latitudes);
    if (fields->longitudes > 0) write_coordinate(file, "lon", fields->longitudes);
    VT_ASSERT(H5Fclose(file) >= 0);
}
