/* Files that are undamaged, but useless for training. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "source/fields/dataset.h"
#include "test.h"
#include "unit/data_files.h"

/* `fields` [3, 1, 4, 5] of which the first times are written; in chunks of a time each, or contiguous. */
static void write_partly(const char *path, bool chunked, hsize_t times)
{
    const hsize_t extent[4] = {3, 1, 4, 5}, chunk[4] = {1, 1, 4, 5}, start[4] = {0}, count[4] = {times, 1, 4, 5};
    const float values[60] = {1};
    hid_t file = test_create(path);
    hid_t space = H5Screate_simple(4, extent, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
    if (chunked) H5Pset_chunk(properties, 4, chunk);
    hid_t dataset = H5Dcreate2(file, "fields", H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    if (times > 0) {
        hid_t memory = H5Screate_simple(4, count, NULL);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        VT_ASSERT(H5Dwrite(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values) >= 0);
        H5Sclose(memory);
    }
    H5Pclose(properties);
    H5Sclose(space);
    H5Fclose(file);
}

TEST(never_written_values)
{
    const test_fields fields = {.times = 3, .channels = 1, .height = 4, .width = 5};
    vt_dataset_options options = test_fields_options(&fields);
    const char *path = test_path("2001.h5");
    for (int chunked = 0; chunked < 2; chunked++) {
        write_partly(path, chunked, 0);
        test_expect_open_error(&options, "2001.h5: 'fields' has a shape, but no value of it was ever written");
    }
    write_partly(path, true, 2);
    test_log_begin();
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT_PART(test_log_end(), "2001.h5: only 2 of the 3 chunks of 'fields' were ever written");
}

TEST(errors_of_other_kinds)
{
    static const char *const known[][2] = {{"CDF\1\0\0\0\4", "it is netCDF-3, of which `nccopy -k nc4 in.nc out.nc`"},
                                           {"CDF\5....", "it is netCDF-3"},
                                           {"GRIB\0\0\0\2", "it is GRIB: fetch it as netCDF-4"},
                                           {"PK\3\4....", "it is a zip archive: unzip it"},
                                           {"\x1f\x8b......", "gunzip it"},
                                           {"<!DOCTYP", "it is a web page"},
                                           {"CDX.....", "file signature not found"}};
    const test_fields fields = {.times = 3, .channels = 1, .height = 4, .width = 5};
    vt_dataset_options options = test_fields_options(&fields);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        FILE *file = fopen(test_path("2001.h5"), "w");
        EXPECT(fwrite(known[i][0], 1, 8, file) == 8);
        fclose(file);
        test_expect_open_error(&options, known[i][1]);
    }
}

/* The layout message says its version, 3 in these files: as if a later library had written it. */
TEST(errors_of_newer_files)
{
    const test_fields fields = {.times = 3, .channels = 1, .height = 4, .width = 5};
    vt_dataset_options options = test_fields_options(&fields);
    const char *path = test_path("2001.h5");
    const uint64_t size = 3 * 20 * sizeof(float);
    unsigned char bytes[65536];
    test_fields_write(path, &fields);
    int file = open(path, O_RDWR), changed = 0;
    const ssize_t count = read(file, bytes, sizeof bytes);
    for (ssize_t i = 0; i + 18 <= count; i++)
        if (bytes[i] == 3 && bytes[i + 1] == 1 && memcmp(bytes + i + 10, &size, 8) == 0)
            changed += pwrite(file, "\5", 1, i) == 1;
    close(file);
    EXPECT(changed == 1, "%d", changed);
    test_expect_open_error(&options,
                           "bad version number for layout message; if the file is whole, a newer HDF5 wrote it");
}

TEST(errors_of_filters_and_pipes)
{
    enum { UNKNOWN_FILTER = 511 };
    const hsize_t extent[4] = {3, 1, 4, 5};
    test_fields fields = {.times = 3, .channels = 1, .height = 4, .width = 5};
    vt_dataset_options options = test_fields_options(&fields);
    hid_t file = test_create(test_path("2001.h5"));
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, 4, extent);
    H5Pset_filter(properties, UNKNOWN_FILTER, H5Z_FLAG_OPTIONAL, 0, NULL);
    test_dataset_with(properties, file, "fields", H5T_IEEE_F32LE, 4, extent, 0, NULL);
    H5Fclose(file);
    test_expect_open_error(&options, "(HDF5 filter 511), which this HDF5 library can't decode");
    EXPECT(unlink(test_path("2001.h5")) == 0 && mkfifo(test_path("2001.h5"), 0600) == 0);
    test_expect_open_error(&options, "2001.h5 is a pipe or a device, but should be an HDF5 file");
}
