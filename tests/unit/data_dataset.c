/* Files in every form of storage give the same samples; every sample once, within its file; errors say what is wrong.
 */
#include "source/fields/dataset.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "settings.h"
#include "test.h"
#include "unit/data_files.h"

/* Opens, reads every sample and compares each value with what was written; files[] in the order of their names. */
static void expect_samples_of(const vt_dataset_options *options, const test_fields *files, int64_t file_count)
{
    SCOPED(vt_dataset) *dataset = test_open(options);
    const int64_t count = dataset->source.sample_count, points = options->height * options->width;
    float *input = vt_test_owned(malloc((size_t)(options->in_channels * points) * sizeof *input));
    float *target = vt_test_owned(malloc((size_t)(options->out_channels * points) * sizeof *target));
    int64_t sample = 0, wrong = 0;
    for (int64_t f = 0; f < file_count; f++)
        for (int64_t t = options->history * options->dt; t + options->dt < files[f].times; t++, sample++) {
            if (sample >= count) continue;
            EXPECT_OK(vt_dataset_read(dataset, sample, input, target));
            wrong += test_wrong_values(&files[f], options, t, input, target);
        }
    int64_t expected =
        options->sample_limit != VT_UNSET_INTEGER && options->sample_limit < sample ? options->sample_limit : sample;
    EXPECT(count == expected, "%ld, expected %ld", count, expected);
    EXPECT(wrong == 0, "%ld values differ", wrong);
}

/* By both readers. */
static void expect_samples(const vt_dataset_options *options, const test_fields *files, int64_t file_count)
{
    vt_dataset_options again = *options;
    for (int direct = 0; direct < 2; direct++) {
        again.direct = direct;
        expect_samples_of(&again, files, file_count);
    }
}

TEST(storage_forms)
{
    const test_fields base = {.times = 7, .channels = 3, .height = 5, .width = 9};
    hid_t half = H5Tcopy(H5T_IEEE_F32LE); /* IEEE binary16: sign, 5 bits of exponent, 10 of mantissa */
    H5Tset_fields(half, 15, 10, 5, 0, 10);
    H5Tset_ebias(half, 15);
    H5Tset_precision(half, 16);
    H5Tset_size(half, 2);
    enum { FORMS = 11 };
    test_fields forms[FORMS];
    for (int i = 0; i < FORMS; i++) forms[i] = base;
    for (int i = 1; i < 6; i++) memcpy(forms[i].chunk, (hsize_t[4]){(hsize_t)i, 2, 4, 5}, sizeof forms[i].chunk);
    forms[2].deflate = 6;
    forms[3].deflate = 1, forms[3].shuffle = true;
    forms[4].deflate = 1, forms[4].shuffle = forms[4].fletcher = true;
    forms[5].type = H5T_IEEE_F64LE;
    forms[6].type = H5T_IEEE_F32BE;
    forms[7].type = half;
    for (int i = 8; i < FORMS; i++) { /* HDF5's option for chunks at the edges */
        memcpy(forms[i].chunk, (hsize_t[4]){2, 2, 4, 5}, sizeof forms[i].chunk);
        forms[i].plain_edges = true;
        forms[i].shuffle = i != 9;
        forms[i].deflate = i > 8;
        forms[i].fletcher = i == 10;
    }
    for (int i = 0; i < FORMS; i++) {
        test_fields_write(test_path("a_2001.h5"), &forms[i]);
        vt_dataset_options options = test_fields_options(&base);
        expect_samples(&options, &base, 1);
    }
    H5Tclose(half);
}

TEST(files_of_unequal_length)
{
    const test_fields base = {.times = 9, .channels = 4, .height = 4, .width = 6};
    test_fields files[4] = {base, base, base, base};
    files[1].times = 4, files[1].offset = 10000; /* too short for history 2 and dt 2 */
    files[2].times = 8, files[2].offset = 20000;
    files[3].times = 7, files[3].offset = 30000;
    test_fields_write(test_path("2001.h5"), &files[0]);
    test_fields_write(test_path("2002.h5"), &files[1]);
    test_fields_write(test_path("2003.h5"), &files[2]);
    test_fields_write(test_path("x2003.h5"), &files[3]);
    /* none of these is read */
    test_fields other = {.times = 2, .channels = 1, .height = 2, .width = 2};
    test_fields_write(test_path(".x2004.h5"), &other);
    test_fields_write(test_path("2005.h5.tmp"), &other);
    test_fields_write(test_path("205.h5"), &other);
    test_fields_write(test_path("means.h5"), &other);
    vt_dataset_options options = test_fields_options(&base);
    expect_samples(&options, files, 4);
    options.dt = 2;
    expect_samples(&options, files, 4);
    options.history = 2;
    options.in_channels = 3 * 3;
    options.out_channels = 2;
    options.height = 3;
    options.width = 5;
    expect_samples(&options, files, 4);
    options.sample_limit = 5;
    expect_samples(&options, files, 4);
    options.sample_limit = 1000;
    expect_samples(&options, files, 4);
}

/* Windows of rows, at the top, the middle and the end, in every kind of storage and with history. */
TEST(rows_of_one_rank)
{
    static const int64_t windows[][2] = {{0, 0}, {0, 7}, {0, 1}, {2, 3}, {3, 4}, {6, 1}};
    test_fields form = {.times = 6, .channels = 3, .height = 8, .width = 5};
    for (int chunked = 0; chunked < 2; chunked++) {
        if (chunked) memcpy(form.chunk, (hsize_t[4]){2, 2, 3, 4}, sizeof form.chunk), form.deflate = 1;
        test_fields_write(test_path("2001.h5"), &form);
        vt_dataset_options options = test_fields_options(&form);
        options.height = 7;
        options.width = 4;
        options.history = 1;
        options.in_channels = 4;
        for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
            options.first_row = windows[i][0];
            options.rows = windows[i][1];
            expect_samples(&options, &form, 1);
            SCOPED(vt_dataset) *dataset = test_open(&options);
            EXPECT_NEAR(dataset->latitudes[0], 90, 0);
            EXPECT_NEAR(dataset->latitudes[6], 90 - 6 * 180.0 / 7, 1e-12);
            EXPECT(dataset->options.rows == (windows[i][1] > 0 ? windows[i][1] : 7));
        }
    }
}

/* Each rank checks what it reads, and counts rows from the top of the file. */
TEST(other_ranks_rows_are_not_looked_at)
{
    test_fields form = {.times = 3, .channels = 2, .height = 4, .width = 5};
    float input[40], target[40];
    form.poison = NAN;
    form.poison_index = 1 * 40 + 20 + 2 * 5 + 3;
    test_fields_write(test_path("2001.h5"), &form);
    vt_dataset_options options = test_fields_options(&form);
    for (int64_t i = 0; i < 8; i++) {
        const int64_t row = i / 2;
        options.direct = i % 2 == 1;
        options.first_row = row;
        options.rows = 1;
        SCOPED(vt_dataset) *dataset = test_open(&options);
        if (row == 2)
            EXPECT_ERROR(vt_dataset_read(dataset, 1, input, target), "NaN at time 1, channel 1, row 2, column 3");
        else
            EXPECT_OK(vt_dataset_read(dataset, 1, input, target));
    }
}

TEST(a_sample_is_the_whole_file)
{
    const test_fields file = {.times = 4, .channels = 1, .height = 2, .width = 2};
    test_fields_write(test_path("2001.h5"), &file);
    vt_dataset_options options = test_fields_options(&file);
    options.history = 2;
    options.in_channels = 3;
    expect_samples(&options, &file, 1);
    options.history = 3;
    options.in_channels = 4;
    test_expect_open_error(&options, "no file is long enough for one sample, which spans 5 times");
}

TEST(more_files_than_stay_open)
{
    enum { COUNT = 40 };
    test_fields files[COUNT];
    for (int i = 0; i < COUNT; i++) {
        files[i] = (test_fields){.times = 3, .channels = 1, .height = 2, .width = 2, .offset = 1000 * i};
        test_fields_write(test_path(SETTINGS("%d.h5", 1980 + i)), &files[i]);
    }
    vt_dataset_options options = test_fields_options(&files[0]);
    expect_samples(&options, files, COUNT);
}

static void expect_names(const test_fields *fields)
{
    vt_dataset_options options = test_fields_options(fields);
    test_fields_write(test_path("2001.h5"), fields);
    SCOPED(vt_dataset) *dataset = test_open(&options);
    const char *const *names = vt_dataset_channel_names(dataset);
    EXPECT(names != NULL);
    for (int64_t c = 0; names != NULL && c < fields->channels; c++) EXPECT_TEXT(names[c], fields->names[c]);
}

TEST(channel_names)
{
    static const char *const names[3] = {"u10", "t2m", "twelveletter"};
    test_fields fields = {.times = 2, .channels = 3, .height = 2, .width = 2, .names = names};
    fields.padding = H5T_STR_NULLPAD;
    expect_names(&fields);
    fields.padding = H5T_STR_SPACEPAD;
    expect_names(&fields);
    fields.variable_names = true;
    expect_names(&fields);
    static const char *const shorter[3] = {"u", "t2m", "msl"};
    fields.names = shorter;
    fields.variable_names = false;
    fields.padding = H5T_STR_NULLTERM;
    expect_names(&fields);
}

TEST(no_names_and_even_latitudes)
{
    const test_fields fields = {.times = 2, .channels = 1, .height = 5, .width = 4};
    vt_dataset_options options = test_fields_options(&fields);
    options.height = 3;
    test_fields_write(test_path("2001.h5"), &fields);
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT(vt_dataset_channel_names(dataset) == NULL);
    for (int row = 0; row < 3; row++) EXPECT_NEAR(dataset->latitudes[row], 90.0 - 45.0 * row, 1e-12);
}

TEST(stored_latitudes)
{
    const test_fields fields = {.times = 2, .channels = 1, .height = 5, .width = 4, .latitudes = 5, .longitudes = 4};
    vt_dataset_options options = test_fields_options(&fields);
    options.height = 3;
    test_fields_write(test_path("2001.h5"), &fields);
    SCOPED(vt_dataset) *dataset = test_open(&options);
    for (int row = 0; row < 3; row++) EXPECT_NEAR(dataset->latitudes[row], test_latitude(row), 1e-5);
    EXPECT(vt_dataset_is_of_earth(dataset));
    char text[256];
    dataset->source.kind->describe(&dataset->source, 0, text, sizeof text);
    EXPECT_PART(text, "/2001.h5, time 0");
}

TEST(errors_of_directories)
{
    const test_fields fields = {.times = 2, .channels = 1, .height = 2, .width = 2};
    vt_dataset_options options = test_fields_options(&fields);
    test_expect_open_error(&options, "no files *YYYY.h5");
    options.directory = "/no/such/directory";
    test_expect_open_error(
        &options, "train_data_path '/no/such/directory': no such directory. --data_dir=DIR says where all data "
                  "are. Make a synthetic set with `vitrain synth`, or see docs/data.md");
    options.directory = test_path("2001.h5");
    test_fields_write(options.directory, &fields);
    test_expect_open_error(&options, "is a file, but should be a directory");
    options.directory = vt_test_directory();
    test_fields_write(test_path("2002_final.h5"), &fields);
    test_expect_open_error(&options,
                           "2002_final.h5 would not be read, for a name of data ends in its date, like 2013.h5; "
                           "rename it, or move it elsewhere. The files that would be read: 2001.h5");
    rename(test_path("2002_final.h5"), test_path("final.h5"));
    rename(test_path("2001.h5"), test_path("2001.txt"));
    test_expect_open_error(&options, "like 2013.h5) in it; it holds final.h5, 2001.txt. Make a synthetic set");
    rename(test_path("2001.txt"), test_path("2001.h5"));
    unlink(test_path("final.h5"));
    fclose(fopen(test_path(".zgroup"), "w"));
    test_expect_open_error(&options, "/.zgroup is not JSON (damaged or cut short?)");
    unlink(test_path(".zgroup"));
    mkdir(test_path("train"), 0777); /* stores beside one another */
    mkdir(test_path("train/2001.zarr"), 0777);
    fclose(fopen(test_path("train/2001.zarr/zarr.json"), "w"));
    options.directory = test_path("train");
    test_expect_open_error(&options, "train/2001.zarr/zarr.json is not JSON (damaged or cut short?)");
    options.directory = vt_test_directory();
    mkdir(test_path("2002.h5"), 0777);
    test_expect_open_error(&options, "2002.h5 is a directory, but should be an HDF5 file");
    rmdir(test_path("2002.h5"));
    chmod(test_path("2001.h5"), 0);
    if (access(test_path("2001.h5"), R_OK) != 0) test_expect_open_error(&options, "2001.h5: Permission denied");
    chmod(test_path("2001.h5"), 0600);
    EXPECT(symlink("nowhere", test_path("2000.h5")) == 0);
    test_expect_open_error(&options, "2000.h5: No such file or directory");
}

TEST(errors_of_shapes)
{
    const test_fields fields = {.times = 2, .channels = 3, .height = 4, .width = 6};
    test_fields_write(test_path("2001.h5"), &fields);
    vt_dataset_options options = test_fields_options(&fields);
    options.height = 5;
    test_expect_open_error(&options,
                           "'fields' is [2, 3, 4, 6] (time, channel, lat, lon), too small for img_size [5, 6]; "
                           "set --img_size=[4,6], or less");
    options = test_fields_options(&fields);
    options.in_channels = 4;
    test_expect_open_error(&options, "has 3 channels, but n_in_channels 4 with n_history 0 needs 4");
    options = test_fields_options(&fields);
    options.out_channels = 4;
    test_expect_open_error(&options, "has 3 channels, but n_out_channels is 4");
    options = test_fields_options(&fields);
    options.history = 1;
    test_expect_open_error(&options, "n_in_channels 3 is no multiple of n_history + 1 = 2");
    options = test_fields_options(&fields);
    test_fields other = fields;
    other.channels = 4;
    test_fields_write(test_path("2002.h5"), &other);
    test_expect_open_error(&options, "2002.h5 has 4 channels, the files before it 3; they can't be used together");
    other = fields;
    other.width = 8;
    test_fields_write(test_path("2002.h5"), &other);
    test_expect_open_error(&options,
                           "has a grid of [4, 8], the files before it one of [4, 6]; they can't be used together");
    other = fields;
    other.latitudes = 3;
    test_fields_write(test_path("2002.h5"), &other);
    test_expect_open_error(&options, "2002.h5: 'lat' has 3 values, but 'fields' has 4");
    other.latitudes = 4;
    other.longitudes = 7;
    test_fields_write(test_path("2002.h5"), &other);
    test_expect_open_error(&options, "2002.h5: 'lon' has 7 values, but 'fields' has 6");
}

TEST(errors_of_names)
{
    static const char *const names[3] = {"u10", "v10", "t2m"}, *const others[3] = {"u10", "t2m", "v10"};
    test_fields fields = {.times = 2, .channels = 3, .height = 2, .width = 2, .names = names};
    vt_dataset_options options = test_fields_options(&fields);
    test_fields_write(test_path("2001.h5"), &fields);
    fields.names = others;
    test_fields_write(test_path("2002.h5"), &fields);
    test_expect_open_error(&options,
                           "2002.h5, but 'v10' in the files before it; --accept=channels goes on all the same");
    static const char *const twice[3] = {"u10", "t2m", "u10"}, *const empty[3] = {"u10", "", "t2m"};
    fields.names = twice;
    test_fields_write(test_path("2001.h5"), &fields);
    test_expect_open_error(&options, "2001.h5: the attribute 'channels' of 'fields' names channels 0 and 2 both 'u10'");
    fields.names = empty;
    test_fields_write(test_path("2001.h5"), &fields);
    test_expect_open_error(&options, "2001.h5: the attribute 'channels' of 'fields' has an empty name for channel 1");
    fields.names = names;
    fields.name_count = 2;
    test_fields_write(test_path("2001.h5"), &fields);
    test_expect_open_error(&options, "2001.h5: the attribute 'channels' of 'fields' names 2 channels, but there are 3");
}

/* Suffixes in any case, and HDF5's longer one; other files there are reported. */
TEST(endings_of_files)
{
    const test_fields fields = {.times = 3, .channels = 1, .height = 2, .width = 2};
    static const char *const files[] = {"2001.h5", "2002.H5", "2003.hdf5", "x_2004.HDF5"};
    static const char *const others[] = {"2005.h5.part", "2006.grib", "2007.nc", "land.h5", "notes.txt", "x"};
    vt_dataset_options options = test_fields_options(&fields);
    for (int i = 0; i < 4; i++) test_fields_write(test_path(files[i]), &fields);
    for (int i = 0; i < 6; i++) fclose(fopen(test_path(others[i]), "w"));
    test_log_begin();
    SCOPED(vt_dataset) *dataset = test_open(&options);
    const char *text = test_log_end();
    EXPECT(dataset->source.sample_count == 4 * 2);
    EXPECT_PART(text, "WARNING - train_data_path '");
    EXPECT_PART(text, "': not read, though it may be data: 2005.h5.part, 2006.grib, 2007.nc, land.h5\n");
    EXPECT_PART(text, "': left alone: notes.txt, out.log, x\n");
}

/* A file with one dataset of the given name, type and rank. */
static void write_odd_file(const char *path, const char *name, hid_t type, int rank)
{
    const hsize_t extent[5] = {2, 2, 2, 2, 2};
    hid_t file = test_create(path);
    test_dataset(file, name, type, rank, extent, 0, NULL);
    H5Fclose(file);
}

TEST(errors_of_contents)
{
    const test_fields fields = {.times = 2, .channels = 1, .height = 2, .width = 2};
    vt_dataset_options options = test_fields_options(&fields);
    write_odd_file(test_path("2001.h5"), "field", H5T_IEEE_F32LE, 4);
    test_expect_open_error(&options, "2001.h5 has no dataset 'fields'");
    write_odd_file(test_path("2001.h5"), "fields", H5T_STD_I16LE, 4);
    test_expect_open_error(&options, "'fields' must hold floating-point numbers");
    write_odd_file(test_path("2001.h5"), "fields", H5T_IEEE_F32LE, 3);
    test_expect_open_error(&options, "'fields' has 3 dimensions, expected 4: [time, channel, lat, lon]");
}

static void overwrite(const char *path, int64_t position, const char *bytes, size_t count)
{
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    EXPECT(pwrite(file, bytes, count, position) == (ssize_t)count);
    close(file);
}

TEST(errors_of_broken_files)
{
    test_fields fields = {.times = 3, .channels = 2, .height = 16, .width = 16};
    vt_dataset_options options = test_fields_options(&fields);
    const char *path = test_path("2001.h5");
    overwrite(path, 0, "this is not HDF5", 16);
    test_expect_open_error(&options,
                           "2001.h5 is not a readable HDF5 file (damaged or cut short?): file signature not found");
    EXPECT(truncate(path, 0) == 0);
    test_expect_open_error(&options, "2001.h5 is not a readable HDF5 file");
    test_fields_write(path, &fields);
    EXPECT(truncate(path, 4000) == 0);
    test_expect_open_error(&options, "2001.h5 is not a readable HDF5 file (damaged or cut short?): truncated file");
    /* a damaged chunk is found when it is read */
    memcpy(fields.chunk, (hsize_t[4]){1, 2, 16, 16}, sizeof fields.chunk);
    fields.deflate = 1;
    fields.fletcher = true;
    test_fields_write(path, &fields);
    struct stat info;
    EXPECT(stat(path, &info) == 0);
    overwrite(path, info.st_size - 200, "damage damage damage", 20);
    float input[512], target[512];
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT_OK(vt_dataset_read(dataset, 0, input, target));
    EXPECT_ERROR(vt_dataset_read(dataset, 1, input, target), "2001.h5: can't read 'fields' at time 2");
}

TEST(training_and_validation_have_the_same_channels)
{
    static const char *const names[2] = {"u10", "t2m"}, *const others[2] = {"u10", "sp"};
    test_fields fields = {.times = 3, .channels = 2, .height = 4, .width = 5, .names = names};
    vt_dataset_options options = test_fields_options(&fields), other_options = options;
    SCOPED(vt_dataset) *training = NULL, *validation = NULL;
    test_fields_write(test_path("2001.h5"), &fields);
    fields.names = others;
    test_fields_write(test_path("valid/2002.h5"), &fields);
    other_options.directory = test_path("valid");
    training = test_open(&options);
    EXPECT_OK(vt_source_agree(&training->source, &training->source));
    validation = test_open(&other_options);
    EXPECT_ERROR(vt_source_agree(&training->source, &validation->source), "channel 1 is 'sp' in ");
}

TEST(errors_of_values)
{
    static const char *const names[2] = {"u10", "t2m"};
    test_fields fields = {.times = 3, .channels = 2, .height = 4, .width = 5, .names = names};
    vt_dataset_options options = test_fields_options(&fields);
    float input[40], target[40];
    fields.poison_index = 2 * 40 + 20 + 2 * 5 + 3;
    fields.poison = NAN;
    test_fields_write(test_path("2001.h5"), &fields);
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT_OK(vt_dataset_read(dataset, 0, input, target));
    EXPECT_ERROR(vt_dataset_read(dataset, 1, input, target),
                 "2001.h5: 'fields' is NaN at time 2, channel 1 (t2m), row 2, column 3");
    vt_dataset_close(&dataset);
    fields.poison = -INFINITY;
    fields.names = NULL;
    test_fields_write(test_path("2001.h5"), &fields);
    dataset = test_open(&options);
    EXPECT_ERROR(vt_dataset_read(dataset, 1, input, target),
                 "2001.h5: 'fields' is infinite at time 2, channel 1, row 2, column 3");
}
