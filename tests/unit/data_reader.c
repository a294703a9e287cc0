/* The own reader: filters against HDF5's, netCDF variables, batches by many threads, faults that are skipped. */
#include <math.h>

#include "data/loader.h"
#include "storage/decode.h"
#include "storage/unpack.h"
#include "test.h"
#include "unit/data_files.h"
#include "unit/netcdf_files.h"

/* ---- filters ---- */

TEST(unshuffle_is_the_transpose)
{
    static const size_t sizes[] = {1, 2, 3, 4, 8, 12}, counts[] = {0, 1, 7, 15, 16, 17, 97, 1013};
    for (size_t s = 0; s < 6; s++)
        for (size_t n = 0; n < 8; n++)
            for (size_t rest = 0; rest < sizes[s]; rest++) {
                size_t bytes = counts[n] * sizes[s] + rest;
                unsigned char *shuffled = malloc(bytes + 1), *elements = malloc(bytes + 1),
                              *expected = malloc(bytes + 1);
                for (size_t i = 0; i < bytes; i++) expected[i] = (unsigned char)(i * 37 + i / 256);
                for (size_t i = 0; i < counts[n]; i++)
                    for (size_t b = 0; b < sizes[s]; b++) shuffled[b * counts[n] + i] = expected[i * sizes[s] + b];
                for (size_t i = counts[n] * sizes[s]; i < bytes; i++) shuffled[i] = expected[i];
                elements[bytes] = 0x5a;
                vt_unshuffle(shuffled, bytes, sizes[s], elements);
                EXPECT(memcmp(elements, expected, bytes) == 0, "size %zu, count %zu, rest %zu", sizes[s], counts[n],
                       rest);
                EXPECT(elements[bytes] == 0x5a);
                free(shuffled);
                free(elements);
                free(expected);
            }
}

/* The examples that are published with the algorithm, in words of which the first byte is the high one. */
TEST(fletcher32_of_short_texts)
{
    EXPECT(vt_fletcher32((const unsigned char *)"", 0) == 0);
    EXPECT(vt_fletcher32((const unsigned char *)"\x01\x02\x03\x04", 4) == ((0x0102u + 0x0102 + 0x0304) << 16 | 0x0406));
    EXPECT(vt_fletcher32((const unsigned char *)"\x01\x02\x03", 3) == ((0x0102u + 0x0102 + 0x0300) << 16 | 0x0402));
}

TEST(all_finite_sees_every_place)
{
    enum { MOST = 300 }; /* beyond two rounds of the widest vectors */
    float values[MOST];
    for (int count = 0; count <= MOST; count += count < 40 ? 1 : 20) {
        for (int i = 0; i < MOST; i++) values[i] = i % 2 == 0 ? 1e30f : -1e-45f;
        EXPECT(vt_all_finite(values, count));
        for (int i = 0; i < MOST; i++) {
            float before = values[i];
            values[i] = i % 4 == 0 ? NAN : i % 4 == 1 ? INFINITY : i % 4 == 2 ? -INFINITY : -1.0000001e30f;
            EXPECT(vt_all_finite(values, count) == (i >= count), "%d of %d", i, count);
            values[i] = before;
        }
    }
}

/* ---- netCDF ---- */

enum { TIMES = 6, LEVELS = 3, ROWS = 5, COLUMNS = 7 };

static int stored_value(int variable, int time, int level, int row, int column)
{
    return variable * 5000 + ((time * LEVELS + level) * ROWS + row) * COLUMNS + column - 2000;
}

/* A variable of whole numbers, [time, lat, lon] or [time, level, lat, lon]; rows as they lie in the file. */
static void write_variable(hid_t file, const char *name, int variable, int levels, hid_t type, bool chunked, int hole)
{
    const hsize_t flat[3] = {TIMES, ROWS, COLUMNS}, deep[4] = {TIMES, (hsize_t)levels, ROWS, COLUMNS};
    const hsize_t flat_chunk[3] = {4, 3, 4}, deep_chunk[4] = {2, 2, 3, 4};
    int rank = levels == 1 ? 3 : 4, values[TIMES * LEVELS * ROWS * COLUMNS], *next = values;
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    if (chunked) {
        H5Pset_chunk(properties, rank, rank == 3 ? flat_chunk : deep_chunk);
        H5Pset_shuffle(properties);
        H5Pset_deflate(properties, 2);
        H5Pset_fletcher32(properties);
    }
    for (int t = 0; t < TIMES; t++)
        for (int l = 0; l < levels; l++)
            for (int r = 0; r < ROWS; r++)
                for (int c = 0; c < COLUMNS; c++) *next++ = stored_value(variable, t, l, r, c);
    if (hole >= 0) values[hole] = -32767;
    hid_t dataset =
        test_dataset_with(properties, file, name, type, rank, rank == 3 ? flat : deep, H5T_NATIVE_INT, values);
    if (H5Tget_class(type) == H5T_INTEGER) {
        test_nc_number(dataset, "scale_factor", H5T_IEEE_F64LE, 0.25);
        test_nc_number(dataset, "add_offset", H5T_IEEE_F64LE, 273.5);
        test_nc_number(dataset, "_FillValue", H5T_STD_I16LE, -32767);
    }
}

/* Two files of one date: t2m (packed, big endian) with z (packed, levels), and u10 (floats, contiguous). */
static void write_year(bool chunked, bool south_first, int hole)
{
    const char *paths[2] = {test_path("air.2013.nc"), test_path("era5_2013.nc")};
    for (int i = 0; i < 2; i++) {
        hid_t file = test_create(paths[i]);
        test_nc_axis(file, i == 0 ? "latitude" : "lat", ROWS, south_first ? -40 : 40, south_first ? 20 : -20);
        if (i == 0) {
            test_nc_axis(file, "level", LEVELS, 500, 200);
            write_variable(file, "t2m", 0, 1, H5T_STD_I16BE, chunked, hole);
            write_variable(file, "z", 1, LEVELS, H5T_STD_I16LE, chunked, -1);
        } else {
            write_variable(file, "u10", 2, 1, H5T_IEEE_F32LE, chunked, -1);
        }
        H5Fclose(file);
    }
}

static vt_dataset_options netcdf_options(bool direct)
{
    return TEST_OPTIONS(.height = ROWS, .width = 6, .first_row = 1, .rows = 3, .in_channels = 8, .out_channels = 3,
                        .history = 1, .form.variables = "[u10, z@900, t2m, z@500]", .direct = direct);
}

static double netcdf_value(int channel, int64_t time, int64_t row, int64_t column, bool south_first)
{
    static const int variable[] = {2, 1, 0, 1}, level[] = {0, 2, 0, 0};
    int r = (int)(south_first ? ROWS - 1 - row : row);
    double stored = stored_value(variable[channel], (int)time, level[channel], r, (int)column);
    return channel == 0 ? stored : stored * 0.25 + 273.5;
}

static void expect_netcdf(bool direct, bool south_first)
{
    vt_dataset_options options = netcdf_options(direct);
    float input[8 * 18], target[3 * 18];
    int64_t wrong = 0;
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == TIMES - 2);
    EXPECT(dataset->source.obstacle == NULL, "%s", dataset->source.obstacle);
    static const char *const names[] = {"u10", "z900", "t2m", "z500"};
    for (int c = 0; c < 4; c++) EXPECT_TEXT(vt_dataset_channel_names(dataset)[c], names[c]);
    for (int row = 0; row < ROWS; row++) EXPECT_NEAR(dataset->latitudes[row], 40 - 20 * row, 1e-4);
    for (int64_t t = 1; t + 1 < TIMES; t++) {
        EXPECT_OK(vt_dataset_read(dataset, t - 1, input, target));
        for (int c = 0; c < 8; c++)
            for (int i = 0; i < 18; i++)
                wrong += (double)input[c * 18 + i] != netcdf_value(c % 4, t - c / 4, 1 + i / 6, i % 6, south_first);
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < 18; i++)
                wrong += (double)target[c * 18 + i] != netcdf_value(c, t + 1, 1 + i / 6, i % 6, south_first);
    }
    EXPECT(wrong == 0, "%ld values differ (direct %d, south first %d)", wrong, direct, south_first);
}

TEST(netcdf_variables)
{
    for (int form = 0; form < 4; form++) {
        write_year(form & 1, form & 2, -1);
        for (int direct = 0; direct < 2; direct++) expect_netcdf(direct, form & 2);
    }
}

TEST(netcdf_missing_values_and_wrong_names)
{
    float input[8 * 18], target[3 * 18];
    write_year(true, false, (2 * ROWS + 2) * COLUMNS + 3);
    for (int direct = 0; direct < 2; direct++) {
        vt_dataset_options options = netcdf_options(direct);
        options.unchecked = true; /* of values that are only copied */
        SCOPED(vt_dataset) *dataset = test_open(&options);
        vt_loader *loader = TEST_LOADER(dataset, .global_batch_size = 1);
        vt_loader_begin(loader, 0, 0);
        test_expect_bad_batch(loader, "'t2m' is NaN or missing (_FillValue) at time 2");
        vt_loader_close(&loader);
        EXPECT_ERROR(vt_dataset_read(dataset, 0, input, target),
                     "air.2013.nc: 't2m' is NaN or missing (_FillValue) at time 2, channel 2 (t2m), row 2, column 3");
    }
    static const char *const wrong[][2] = {{"z", "'z' has levels: choose one, as z@500 (there are 500, 700, 900)"},
                                           {"t2m@500", "'t2m' has no levels"},
                                           {NULL, "netCDF files: say which of their variables are the channels"}};
    for (int i = 0; i < 3; i++) test_nc_expect_error(wrong[i][0], wrong[i][1]);
    hid_t file = test_create(test_path("era5_2013.nc"));
    test_nc_axis(file, "lat", COLUMNS, 30, -10); /* as if the rows were longitudes */
    write_variable(file, "u10", 2, 1, H5T_IEEE_F32LE, false, -1);
    H5Fclose(file);
    test_nc_expect_error("u10", "era5_2013.nc: 'lat' has 7 values, but 'u10' is [.., 5, 7]");
}

/* Files of one variable 't', [TIMES, ROWS, COLUMNS], whose stored numbers count from -30 on. */
static hid_t write_counting(hid_t file, hid_t type)
{
    const hsize_t extent[3] = {TIMES, ROWS, COLUMNS};
    int values[TIMES * ROWS * COLUMNS];
    for (int i = 0; i < TIMES * ROWS * COLUMNS; i++) values[i] = i % 100 - 30;
    return test_dataset(file, "t", type, 3, extent, H5T_NATIVE_INT, values);
}

static void write_string(hid_t dataset, const char *name, const char *text)
{
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    hid_t attribute = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    VT_ASSERT(H5Awrite(attribute, type, &text) >= 0);
    H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
}

static vt_dataset_options counting_options(bool direct)
{
    return TEST_OPTIONS(.height = ROWS, .width = COLUMNS, .in_channels = 1, .out_channels = 1, .form.variables = "t",
                        .direct = direct);
}

TEST(netcdf_numbers_without_a_sign)
{
    const hid_t types[] = {H5T_STD_I8LE, H5T_STD_I16BE, H5T_STD_I16LE, H5T_STD_I32LE};
    const double beyond[] = {256, 65536, 65536, 4294967296.0};
    for (int form = 0; form < 8; form++) {
        hid_t file = test_create(test_path("t_2013.nc"));
        hid_t dataset = write_counting(file, types[form / 2]);
        if (form % 2 == 0)
            write_string(dataset, "_Unsigned", "true");
        else
            test_nc_text(dataset, "_Unsigned", "True");
        test_nc_number(dataset, "_FillValue", H5T_STD_I8LE, -31); /* none of the values */
        test_nc_number(dataset, "missing_value", H5T_STD_I8LE, -1);
        H5Fclose(file);
        for (int direct = 0; direct < 2; direct++) {
            vt_dataset_options options = counting_options(direct);
            float input[ROWS * COLUMNS], target[ROWS * COLUMNS];
            SCOPED(vt_dataset) *set = test_open(&options);
            /* the one that is missing is the 30th of 35 */
            EXPECT_ERROR(vt_dataset_read(set, 0, input, target),
                         "t_2013.nc: 't' is NaN or missing (_FillValue) at time 0, channel 0 (t), row 4, column 1");
            EXPECT_OK(vt_dataset_read(set, 1, input, target));
            for (int i = 0; i < ROWS * COLUMNS; i++) EXPECT((double)input[i] == ROWS * COLUMNS + i - 30);
            EXPECT_ERROR(vt_dataset_read(set, 2, input, target), "at time 3");
        }
        vt_dataset_options options = counting_options(true);
        options.rows = 4; /* without the row of the missing one */
        float input[4 * COLUMNS], target[4 * COLUMNS];
        SCOPED(vt_dataset) *set = test_open(&options);
        EXPECT_OK(vt_dataset_read(set, 0, input, target));
        for (int i = 0; i < 4 * COLUMNS; i++)
            EXPECT(input[i] == (float)(beyond[form / 2] + i - 30), "form %d: %g at %d", form, (double)input[i], i);
    }
}

TEST(netcdf_attributes_that_are_no_numbers)
{
    static const struct {
        const char *attribute, *text;
        double number;
        const char *message;
    } wrong[] = {{"scale_factor", "0.01", 0, "the attribute 'scale_factor' of 't' is not a single number"},
                 {"add_offset", "", 0, "the attribute 'add_offset' of 't' is not a single number"},
                 {"valid_min", "0", 0, "the attribute 'valid_min' of 't' is not a single number"},
                 {"_FillValue", "none", 0, "the attribute '_FillValue' of 't' is not a single number"},
                 {"scale_factor", NULL, 0, "'t' has scale_factor 0 and add_offset 0"},
                 {"scale_factor", NULL, NAN, "'t' has scale_factor nan and add_offset 0"},
                 {"add_offset", NULL, INFINITY, "'t' has scale_factor 1 and add_offset inf"}};
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
        hid_t file = test_create(test_path("t_2013.nc"));
        hid_t dataset = write_counting(file, H5T_STD_I16LE);
        if (wrong[w].text != NULL)
            write_string(dataset, wrong[w].attribute, wrong[w].text);
        else
            test_nc_number(dataset, wrong[w].attribute, H5T_IEEE_F64LE, wrong[w].number);
        H5Fclose(file);
        SCOPED(vt_dataset) *set = NULL;
        vt_dataset_options options = counting_options(true);
        EXPECT_ERROR(vt_dataset_open(&options, &set), wrong[w].message);
    }
}

/* ---- many threads ---- */

static const test_fields file = {.times = 60, .channels = 3, .height = 6, .width = 8};

static vt_dataset *open_fields(const test_fields *fields, bool direct, bool tolerant)
{
    vt_dataset_options options = TEST_OPTIONS(.height = 6, .width = 8, .in_channels = 6, .out_channels = 2,
                                              .history = 1, .direct = direct, .tolerant = tolerant);
    test_fields_write(test_path("2001.h5"), fields);
    return test_open(&options);
}

static int64_t wrong_values(const vt_dataset *dataset, const vt_batch *batch)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < batch->sample_count; i++)
        wrong += test_wrong_values(&file, &dataset->options, batch->samples[i] + 1, test_input(batch) + i * 288,
                                   test_target(batch) + i * 96);
    return wrong;
}

TEST(many_threads_give_the_sampler_s_batches)
{
    test_fields forms[5] = {file, file, file, file, file};
    memcpy(forms[1].chunk, (hsize_t[4]){7, 2, 4, 3}, sizeof forms[1].chunk), forms[1].deflate = 1;
    memcpy(forms[2].chunk, (hsize_t[4]){1, 1, 6, 8}, sizeof forms[2].chunk),
        forms[2].shuffle = forms[2].fletcher = true;
    /* these are decoded straight into their places if all of their levels are wanted */
    memcpy(forms[3].chunk, (hsize_t[4]){1, 3, 6, 8}, sizeof forms[3].chunk), forms[3].deflate = 1;
    forms[3].shuffle = true;
    memcpy(forms[4].chunk, (hsize_t[4]){1, 2, 6, 8}, sizeof forms[4].chunk), forms[4].deflate = 1;
    for (int form = 0; form < 10; form++)
        for (int64_t workers = 0; workers <= 7; workers += workers == 0 ? 1 : 3) {
            SCOPED(vt_dataset) *dataset = open_fields(&forms[form / 2], form % 2, false);
            const vt_batch *batch = NULL;
            int64_t wrong = 0, seen = 0;
            SCOPED(vt_loader) *loader =
                TEST_LOADER(dataset, .global_batch_size = 9, .shuffle = workers != 4, .workers = workers);
            for (int64_t epoch = 0; epoch < 4; epoch++) {
                vt_loader_begin(loader, epoch, epoch == 2 ? 3 : 0); /* the third from its midst */
                while ((batch = test_next(loader)) != NULL && (epoch < 3 || batch->first_sample <= 20)) {
                    wrong += wrong_values(dataset, batch);
                    seen += batch->sample_count;
                }
            }
            EXPECT(wrong == 0 && seen == 58 + 58 + 31 + 27, "form %d, %ld workers: %ld wrong, %ld samples", form,
                   workers, wrong, seen);
        }
}

/* A NaN at time 20 spoils the samples whose input or target has it; all others are as they should be. */
TEST(bad_samples_are_marked_and_replaced)
{
    test_fields poisoned = file;
    memcpy(poisoned.chunk, (hsize_t[4]){8, 3, 6, 8}, sizeof poisoned.chunk);
    poisoned.poison = NAN;
    poisoned.poison_index = 20 * 144 + 1;
    for (int form = 0; form < 4; form++) {
        SCOPED(vt_dataset) *dataset = open_fields(&poisoned, form & 1, true);
        const vt_batch *batch = NULL;
        SCOPED(vt_loader) *loader =
            TEST_LOADER(dataset, .global_batch_size = 4, .workers = form & 2 ? 3 : 0, .skip_bad = true);
        vt_loader_begin(loader, 0, 0);
        for (int64_t b = 0; b < 6; b++) {
            batch = test_next(loader);
            VT_ASSERT(batch != NULL);
            for (int64_t i = 0; i < 4; i++) {
                int64_t t = 4 * b + i + 1;
                EXPECT(batch->bad[i] == (t >= 19 && t <= 21), "time %ld", t);
            }
            EXPECT_OK(vt_loader_replace_bad(loader, batch, batch->bad));
            if (b == 4) EXPECT(memcmp(test_input(batch), test_input(batch) + 288, 288 * sizeof(float)) != 0);
            if (b == 4) EXPECT(memcmp(test_input(batch) + 2 * 288, test_input(batch), 288 * sizeof(float)) == 0);
            for (int64_t i = 0; i < 4 * 288; i++) EXPECT(isfinite(test_input(batch)[i]));
        }
        const bool all[4] = {true, true, true, true};
        batch = test_next(loader);
        EXPECT_OK(vt_loader_replace_bad(loader, batch, all));
        EXPECT(memcmp(test_input(batch), test_input(batch) + 288, 288 * sizeof(float)) == 0);
    }
}

TEST(synthetic_batches)
{
    vt_dataset_options options =
        TEST_OPTIONS(.height = 6, .width = 8, .in_channels = 2, .out_channels = 1, .synthetic = true);
    options.sample_limit = 10;
    float whole[4 * 96];
    for (int part = 0; part < 3; part++) { /* one rank; a half of the batch; a half of the rows */
        options.first_row = part == 2 ? 2 : 0;
        options.rows = part == 2 ? 3 : 6;
        SCOPED(vt_dataset) *dataset = test_open(&options);
        EXPECT(dataset->source.sample_count == 10);
        SCOPED(vt_loader) *loader = TEST_LOADER(dataset, .global_batch_size = 4, .drop_last = true, .workers = 2,
                                                .part = part == 1, .parts = part == 1 ? 2 : 1);
        vt_loader_begin(loader, 0, 0);
        const vt_batch *batch = test_next(loader);
        if (part == 0) memcpy(whole, test_input(batch), sizeof whole);
        if (part == 1) EXPECT(memcmp(test_input(batch), whole + 2 * 96, 2 * 96 * sizeof(float)) == 0);
        if (part == 2) EXPECT(memcmp(test_input(batch) + 24, whole + 48 + 16, 24 * sizeof(float)) == 0);
    }
}
