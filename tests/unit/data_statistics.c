/* The .npy files and the statistics in them: against two passes, and every malformed header. */
#include "source/fields/statistics.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "storage/npy.h"
#include "test.h"
#include "unit/data_files.h"

/* A .npy file of the given version, header text and bytes. */
static const char *write_npy(int major, const char *header, const void *bytes, size_t size)
{
    const char *path = test_path("array.npy");
    size_t length = strlen(header);
    unsigned char start[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)major, 0};
    start[8] = (unsigned char)length;
    start[9] = (unsigned char)(length >> 8);
    FILE *file = fopen(path, "wb");
    fwrite(start, 1, major == 1 ? 10 : 12, file);
    fwrite(header, 1, length, file);
    fwrite(bytes, 1, size, file);
    fclose(file);
    return path;
}

TEST(npy_round_trip)
{
    const int64_t shape[3] = {2, 1, 3};
    const float values[6] = {1.5f, -2.0f, 3e-30f, 4e30f, 0.1f, 6.0f};
    const char *path = test_path("array.npy");
    vt_npy array;
    EXPECT_OK(vt_npy_write(path, values, shape, 3));
    EXPECT_OK(vt_npy_open(path, &array));
    EXPECT(array.shape.dimensions == 3 && vt_tensor_count(&array.shape) == 6 &&
           memcmp(array.shape.shape, shape, sizeof shape) == 0);
    for (int i = 0; array.values != NULL && i < 6; i++) EXPECT_NEAR(array.values[i], (double)values[i], 0);
    char text[128];
    vt_tensor_shape_text(&array.shape, text);
    EXPECT_TEXT(text, "[2, 1, 3]");
    vt_npy_close(&array);
    struct stat info;
    EXPECT(stat(path, &info) == 0);
    const int64_t unaligned = (info.st_size - (int64_t)sizeof values) % 64; /* NumPy maps the values into memory */
    EXPECT(unaligned == 0, "the values start %ld bytes past a multiple of 64", unaligned);
    EXPECT(access(test_path(".array.npy.partial"), F_OK) != 0);
}

TEST(npy_versions_and_types)
{
    const double wide[2] = {0.1, -7};
    const float narrow[2] = {0.1f, -7};
    float values[2];
    const char *header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 1, 1), }      \n";
    for (int major = 1; major <= 3; major++)
        EXPECT_OK(test_read_statistics(write_npy(major, header, wide, sizeof wide), VT_FILE_OF_MEANS, 2, values));
    EXPECT_NEAR((double)values[0], (double)0.1f, 0);
    header = "{\"shape\": (1,2,1,1,), \"descr\":\"<f4\",\"fortran_order\":False}\n";
    EXPECT_OK(test_read_statistics(write_npy(1, header, narrow, sizeof narrow), VT_FILE_OF_MEANS, 2, values));
    EXPECT_NEAR((double)values[1], -7, 0);
    EXPECT_OK(test_read_statistics(test_path("array.npy"), VT_FILE_OF_MEANS, 1, values));
}

TEST(npy_malformed)
{
    vt_npy array;
    const float one = 1;
    FILE *file = fopen(test_path("array.npy"), "wb");
    fputs("PK\003\004, a zip of arrays", file);
    fclose(file);
    EXPECT_ERROR(vt_npy_open(test_path("array.npy"), &array), "is not a .npy file: it doesn't start with");
    EXPECT_ERROR(vt_npy_open(write_npy(9, "{}", "", 0), &array), ".npy format version 9.0 is not known");
    EXPECT_ERROR(vt_npy_open(test_path("none.npy"), &array), "none.npy: No such file or directory");
    EXPECT_ERROR(vt_npy_open(vt_test_directory(), &array), "is no regular file");
    const struct {
        const char *header, *message;
    } cases[] = {
        {"{'fortran_order': False, 'shape': (1,)}", "damaged .npy header: no 'descr' in"},
        {"{'descr': ", "the array's type is , expected"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", "the array's type is '<i8', expected '<f4' or"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", "the array's type is '>f4'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
         "each element of the array has several parts"},
        {"{'descr': '<f4', 'shape': (1,)}", "no 'fortran_order'"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", "the array is in Fortran order"},
        {"{'descr': '<f4', 'fortran_order': False}", "no 'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1}", "no 'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", "cut short"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "bad 'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (x,)}", "bad 'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "more than 8 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,99999999999)}", "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "promises 2 values, but 1 are there"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = write_npy(1, cases[i].header, &one, sizeof one);
        if (strstr(cases[i].message, "cut short") != NULL) EXPECT(truncate(path, 30) == 0);
        EXPECT_ERROR(vt_npy_open(path, &array), cases[i].message);
    }
    EXPECT_ERROR(vt_npy_open(write_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1", &one, 0), &array),
                 "bad 'shape'");
}

TEST(npy_write_errors)
{
    const int64_t shape[1] = {1};
    const float value = 1;
    EXPECT_ERROR(vt_npy_write("/no/such/directory/a.npy", &value, shape, 1),
                 "can't write /no/such/directory/a.npy: No such file or directory");
    mkdir(test_path("a.npy"), 0777);
    EXPECT_ERROR(vt_npy_write(test_path("a.npy"), &value, shape, 1), "a directory or a device has it");
    EXPECT(access(test_path(".a.npy.partial"), F_OK) != 0);
}

/* A pair of files with the given values of three channels. */
static void write_pair(const float means[3], const float stds[3])
{
    const int64_t shape[4] = {1, 3, 1, 1};
    EXPECT_OK(vt_npy_write(test_path("means.npy"), means, shape, 4));
    EXPECT_OK(vt_npy_write(test_path("stds.npy"), stds, shape, 4));
}

TEST(pair_checks)
{
    float means[4], stds[4];
    const char *const m = test_path("means.npy"), *const s = test_path("stds.npy");
    write_pair((float[3]){1, 2, 3}, (float[3]){1, 0.5f, 0});
    EXPECT_OK(test_read_pair(m, s, 2, means, stds));
    EXPECT(means[1] == 2 && stds[1] == 0.5f);
    EXPECT_ERROR(test_read_pair(m, s, 3, means, stds), "a standard deviation of 0 for channel 2");
    EXPECT_ERROR(test_read_pair(m, s, 4, means, stds), "global_means_path: ");
    EXPECT_ERROR(test_read_pair(m, s, 4, means, stds),
                 "has shape [1, 3, 1, 1], expected [1, C, 1, 1] with C at least 4");
    write_pair((float[3]){1, 2, 3}, (float[3]){1, -1, 1});
    EXPECT_ERROR(test_read_pair(m, s, 3, means, stds), "stds.npy holds -1 for channel 1");
    write_pair((float[3]){1, 2, 3}, (float[3]){1, 1, NAN});
    EXPECT_ERROR(test_read_pair(m, s, 3, means, stds), "stds.npy holds nan for channel 2");
    write_pair((float[3]){INFINITY, 2, 3}, (float[3]){1, 1, 1});
    EXPECT_ERROR(test_read_pair(m, s, 3, means, stds), "means.npy holds inf for channel 0");
    EXPECT_ERROR(test_read_pair(test_path("none.npy"), s, 3, means, stds),
                 "global_means_path (`vitrain stats` makes such a file): can't open");
    const int64_t flat[1] = {3};
    EXPECT_OK(vt_npy_write(m, means, flat, 1));
    EXPECT_ERROR(test_read_pair(m, s, 3, means, stds), "has shape [3], expected [1, C, 1, 1]");
}

enum { CHANNELS = 3, HEIGHT = 7, WIDTH = 11, POINTS = HEIGHT * WIDTH };

/* Statistics of fields [times, CHANNELS, POINTS], and the files of them, against two passes in long double. */
static void expect_two_passes(int times, float (*fields)[CHANNELS][POINTS])
{
    SCOPED(vt_statistics) *statistics = vt_statistics_open(CHANNELS, HEIGHT, WIDTH);
    SCOPED(vt_npy) time_means;
    float means[CHANNELS], stds[CHANNELS];
    for (int t = 0; t < times; t++) vt_statistics_add(statistics, &fields[t][0][0]);
    EXPECT_OK(vt_statistics_write(statistics, test_path("new/stats")));
    EXPECT_OK(vt_npy_open(test_path("new/stats/time_means.npy"), &time_means));
    EXPECT(time_means.shape.dimensions == 4 && time_means.shape.shape[2] == HEIGHT &&
           time_means.shape.shape[3] == WIDTH);
    EXPECT_OK(test_read_pair(test_path("new/stats/global_means.npy"), test_path("new/stats/global_stds.npy"), CHANNELS,
                             means, stds));
    for (int c = 0; c < CHANNELS; c++) {
        long double sum = 0, squares = 0;
        int count = 0;
        for (int i = 0; i < POINTS; i++) {
            const double found = time_means.values[c * POINTS + i];
            double of_point = 0;
            int there = 0;
            for (int t = 0; t < times; t++) {
                if (isnan(fields[t][c][i])) continue;
                of_point += (double)fields[t][c][i];
                there++;
            }
            sum += of_point;
            count += there;
            EXPECT(there == 0 ? isnan(found) : fabs(found - of_point / there) <= 6e-8 * fabs(found), "%d: %g", i,
                   found);
        }
        const double mean = (double)(sum / count);
        for (int i = 0; i < times * POINTS; i++) {
            const float value = fields[i / POINTS][c][i % POINTS];
            if (!isnan(value)) squares += ((long double)value - mean) * ((long double)value - mean);
        }
        const double std = sqrt((double)(squares / count));
        /* float64 sums of n terms: relative error below n eps, here 23100 * 1.1e-16 = 3e-12 */
        EXPECT_NEAR(vt_statistics_mean(statistics, c), mean, 3e-12 * fabs(mean) + 1e-14);
        EXPECT_NEAR(vt_statistics_std(statistics, c), std, 1e-11 * std);
        EXPECT_NEAR((double)means[c], mean, 6e-8 * fabs(mean));
        EXPECT_NEAR((double)stds[c], std, 6e-8 * std);
    }
}

/* Geopotential-like numbers: a mean of 5.4e4 with a spread of 5, which float32 sums of squares lose entirely. */
TEST(against_two_passes)
{
    enum { TIMES = 300 };
    static float fields[TIMES][CHANNELS][POINTS];
    for (int i = 0; i < TIMES * CHANNELS * POINTS; i++) {
        const int t = i / (CHANNELS * POINTS), c = i / POINTS % CHANNELS;
        const double normal = vt_random_normal_quantile(vt_random_element(1, 2, (uint64_t)i));
        fields[t][c][i % POINTS] = (float)(c == 0 ? 54000 + 5 * normal : 3 * normal + t * 0.01);
    }
    expect_two_passes(TIMES, fields);
}

/* A fifth of the points is missing: all of one time of channel 1, and one point at all times. */
TEST(statistics_of_present_values)
{
    enum { TIMES = 40, NEVER = 11 };
    static float fields[TIMES][CHANNELS][POINTS];
    for (int i = 0; i < TIMES * CHANNELS * POINTS; i++) {
        const int t = i / (CHANNELS * POINTS), c = i / POINTS % CHANNELS, point = i % POINTS;
        const double uniform = vt_random_element(3, 4, (uint64_t)i);
        const bool missing = uniform < 0.2 || point == NEVER || (t == 9 && c == 1);
        fields[t][c][point] = missing ? NAN : (float)(54000 + uniform * point);
    }
    expect_two_passes(TIMES, fields);
}

static vt_status gather(const char *directory, vt_statistics **statistics)
{
    const vt_statistics_source source = {.directory = directory, .option_name = "data directory"};
    return vt_statistics_gather(&source, statistics);
}

TEST(over_files)
{
    test_fields first = {.times = 3, .channels = 2, .height = 2, .width = 3};
    test_fields second = first;
    second.times = 5;
    second.offset = 100;
    test_fields_write(test_path("2001.h5"), &first);
    test_fields_write(test_path("2002.h5"), &second);
    vt_statistics *statistics = NULL;
    EXPECT_OK(gather(vt_test_directory(), &statistics));
    EXPECT_OK(vt_statistics_write(statistics, test_path("stats")));
    vt_statistics_close(&statistics);
    float mean[2];
    EXPECT_OK(test_read_statistics(test_path("stats/global_means.npy"), VT_FILE_OF_MEANS, 2, mean));
    double expected = 0;
    for (int64_t t = 0; t < 8; t++)
        for (int64_t i = 0; i < 6; i++)
            expected += test_value(t < 3 ? &first : &second, t < 3 ? t : t - 3, 1, i / 3, i % 3) / 48;
    EXPECT_NEAR((double)mean[1], expected, 1e-5);
    second.width = 4;
    test_fields_write(test_path("2002.h5"), &second);
    EXPECT_ERROR(gather(vt_test_directory(), &statistics),
                 "2002.h5 has a grid of [2, 4], the files before it one of [2, 3]");
    second.width = 3;
    test_fields_write(test_path("2002.h5"), &second);
    first.poison = NAN;
    first.poison_index = 1 * 12 + 6 + 2;
    test_fields_write(test_path("2001.h5"), &first);
    EXPECT_ERROR(gather(vt_test_directory(), &statistics),
                 "2001.h5: 'fields' is NaN at time 1, channel 1, row 0, column 2");
    EXPECT_ERROR(gather("/no/such", &statistics), "no such directory");
}
