/* Small HDF5 files for the tests of the data room. */
#ifndef VT_TESTS_UNIT_DATA_FILES_H
#define VT_TESTS_UNIT_DATA_FILES_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "data/loader.h"
#include "source/fields/dataset.h"
#include "source/fields/statistics.h"
#include "test.h"

/* Zeroed members: contiguous float32 without names and coordinates, values test_value. */
typedef struct {
    int64_t times, channels, height, width;
    int64_t offset;                /* added to every value, to tell files apart */
    hsize_t chunk[4];              /* [0] > 0: chunked */
    bool shuffle, fletcher;        /* filters of chunks */
    bool plain_edges;              /* chunks that reach beyond the array have none */
    int deflate;                   /* gzip level */
    hid_t type;                    /* stored type; 0: float32 */
    const char *const *names;      /* attribute `channels`, [channels] */
    int64_t name_count;            /* how many of them; 0: all */
    bool variable_names;           /* strings of variable length */
    H5T_str_t padding;             /* of fixed ones */
    int64_t latitudes, longitudes; /* lengths of `lat`, `lon`; 0: not there */
    float poison;                  /* stored at poison_index when that is above 0 */
    int64_t poison_index;
} test_fields;

/* A new file; when it is closed, so is what was opened in it. */
hid_t test_create(const char *path);

/* A dataset [extent], stored as `type`, of values of `memory_type` (NULL: unwritten); the second one with these
 * properties, which it closes. */
hid_t test_dataset(hid_t file, const char *name, hid_t type, int rank, const hsize_t *extent, hid_t memory_type,
                   const void *values);
hid_t test_dataset_with(hid_t properties, hid_t file, const char *name, hid_t type, int rank, const hsize_t *extent,
                        hid_t memory_type, const void *values);

/* The value at (time, channel, row, column): different everywhere, and exact in float32 for small files. */
double test_value(const test_fields *fields, int64_t time, int64_t channel, int64_t row, int64_t column);

/* `lat` of row `row`, if present. */
double test_latitude(int64_t row);

void test_fields_write(const char *path, const test_fields *fields);

/* Options for a set of files in the test's directory: members of vt_dataset_options. */
#define TEST_OPTIONS(...)                                                                                              \
    ((vt_dataset_options){.directory = vt_test_directory(),                                                            \
                          .option_name = "train_data_path",                                                            \
                          .dt = 1,                                                                                     \
                          .sample_limit = VT_UNSET_INTEGER,                                                            \
                          __VA_ARGS__})

/* Those for a set of such files. */
vt_dataset_options test_fields_options(const test_fields *fields);

/* The set, which must open. */
vt_dataset *test_open(const vt_dataset_options *options);

/* Opening the set must fail with the message. */
void test_expect_open_error(const vt_dataset_options *options, const char *message);

/* How many values of a sample of such a file differ, if `time` is the newest of its input. */
int64_t test_wrong_values(const test_fields *fields, const vt_dataset_options *options, int64_t time,
                          const float *input, const float *target);

/* See data/source.h. `frames` [history + 2]: those of the input, from the newest time to the oldest, then the target's.
 */
vt_status test_keep_frames(vt_dataset *dataset);
vt_status test_read_frame(vt_dataset *dataset, int64_t frame, float *values);
void test_frames(const vt_dataset *dataset, int64_t sample, int64_t *frames);

/* A loader of the set, or of a source, with these members of vt_loader_options, which must open; and its next batch,
 * which must be read. */
#define TEST_LOADER(dataset, ...) TEST_LOADER_OF(&dataset->source, __VA_ARGS__)
#define TEST_LOADER_OF(from, ...) test_loader((vt_loader_options){.source = from, __VA_ARGS__})
vt_loader *test_loader(vt_loader_options options);
const vt_batch *test_next(vt_loader *loader);

/* Its next batch must fail with the message. */
void test_expect_bad_batch(vt_loader *loader, const char *message);

/* What the loader read, as floats. */
static inline const float *test_input(const vt_batch *batch)
{
    return batch->tensors[VT_TENSOR_INPUT];
}

static inline const float *test_target(const vt_batch *batch)
{
    return batch->tensors[VT_TENSOR_TARGET];
}

/* From here on the log is written to a file; and what it holds, after which the file is gone. */
void test_log_begin(void);
const char *test_log_end(void);

/* The numbers of a file of statistics for the first `channels` channels, whose names nothing says; of both. */
static inline vt_status test_read_statistics(const char *path, vt_normalising_file kind, int64_t channels,
                                             float *values)
{
    vt_fields_about about = {.channels = channels};
    const vt_fields_rules rules = {.use = VT_STATISTICS_AND_DATA};
    const vt_fields_side data = {&about, "the data"};
    vt_text remarks = {0};
    int64_t checksum;
    const vt_status status = vt_statistics_read(path, kind, &rules, &data, values, &checksum, &remarks);
    vt_text_close(&remarks);
    return status;
}

static inline vt_status test_read_pair(const char *means_path, const char *stds_path, int64_t channels, float *means,
                                       float *stds)
{
    const vt_status status = test_read_statistics(means_path, VT_FILE_OF_MEANS, channels, means);
    return status == VT_OK ? test_read_statistics(stds_path, VT_FILE_OF_STDS, channels, stds) : status;
}

#endif
