/* Files that HDF5 must not be trusted with: links and storage that point into other files, crashes, endless work. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "config/config.h"
#include "settings.h"
#include "source/fields/dataset.h"
#include "source/fields/fields_file.h"
#include "storage/hdf5_access.h"
#include "storage/trial.h"
#include "test.h"
#include "unit/data_files.h"

/* ---- the trial itself ---- */

static int touched, descriptors[2];

/* A copy of 64 GB, which are not there: only for want of memory HDF5 fails before it reads beyond the end. */
static void copy_too_much(void)
{
    const unsigned value = 0;
    vt_hdf5_enter();
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_filter(properties, H5Z_FILTER_SHUFFLE, H5Z_FLAG_OPTIONAL, (size_t)1 << 34, &value);
    H5Pclose(properties);
    vt_hdf5_leave();
}

/* Does what the first word says. */
static void act(const char *const *words, int64_t count)
{
    const char *what = words[0];
    if (strcmp(what, "touch") == 0) touched = 1; /* in the copy */
    if (strcmp(what, "crash") == 0) raise(SIGSEGV);
    if (strcmp(what, "be killed") == 0) raise(SIGKILL);
    if (strcmp(what, "end") == 0) _exit(3);
    if (strcmp(what, "run out of time") == 0) raise(SIGXCPU);
    if (strcmp(what, "lack memory") == 0) vt_memory_exhausted(1, "a test");
    if (strcmp(what, "write") == 0) {
        if (write(descriptors[1], what, 1) == 1) _exit(1);
        printf("this is not to be seen\n");
        fflush(stdout);
    }
    for (int i = 0; i < 9 && strcmp(what, "take memory") == 0; i++) /* not malloc, which may have that much already */
        if (mmap(NULL, (size_t)1 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) _exit(7);
    if (strcmp(what, "copy too much") == 0) copy_too_much();
    if (strcmp(what, "end the helper") == 0) kill(getppid(), SIGKILL);
    if (strcmp(what, "read") != 0) return;
    VT_ASSERT(count == 4 && words[1] == NULL && words[2][0] == '\0' && strlen(words[3]) == (size_t)4 << 20);
}

static vt_status try_to(const char *what)
{
    return vt_trial("a.h5", 0, act, &what, 1);
}

TEST(a_trial_touches_nothing_here)
{
    EXPECT_OK(try_to("touch"));
    EXPECT(touched == 0);
    EXPECT(pipe(descriptors) == 0);
    EXPECT_OK(try_to("write"));
    close(descriptors[0]);
    close(descriptors[1]);
}

/* That the system killed a process for taking too much memory says nothing about the file. */
TEST(a_trial_without_memory_does_not_blame_the_file)
{
    EXPECT_ERROR(try_to("be killed"),
                 "a.h5: not enough memory to look at it in a process of its own, which was killed");
    EXPECT_ERROR(try_to("lack memory"), "a.h5: not enough memory to look at it");
}

TEST(a_crash_in_a_trial_is_an_error)
{
    EXPECT_ERROR(try_to("crash"), "a.h5: HDF5 crashed (Segmentation fault) when it was tried");
    EXPECT_ERROR(try_to("end"), "ended the process that tried it (exit status 3)");
    EXPECT_ERROR(try_to("run out of time"), "computed for more than 20 s");
}

TEST(a_trial_has_limits_of_memory)
{
#ifdef __SANITIZE_ADDRESS__
    vt_test_skip("AddressSanitizer takes memory of its own");
    return;
#endif
    if (getenv("VITRAIN_TEST_EMULATED") != NULL) { /* tests/arm/run */
        vt_test_skip("qemu's processes have no limits of memory");
        return;
    }
    EXPECT_ERROR(try_to("take memory"), "exit status 7");
    EXPECT_ERROR(try_to("copy too much"), "a.h5: not enough memory to look at it");
}

/* In a process that has one: its trials' words arrive. If the helper has ended, files are read without a trial. */
static bool try_with_helper(void)
{
    char *text = vt_test_owned(vt_allocate(((size_t)4 << 20) + 1, 1, "a test"));
    memset(text, 'x', (size_t)4 << 20);
    vt_log_filter.muted = true;
    vt_trial_start_helper();
    const bool reads = vt_trial("a.h5", 0, act, (const char *[]){"read", NULL, "", text}, 4) == VT_OK;
    const bool crashes = try_to("crash") == VT_ERROR;
    const bool is_named = strstr(vt_error_text(), "a.h5: HDF5 crashed (Segmentation fault) when it was tried") != NULL;
    const bool unguarded = try_to("end the helper") == VT_OK && try_to("crash") == VT_OK;
    return reads && crashes && is_named && unguarded;
}

TEST(a_helper_tries_files)
{
    int ended = -1;
    const pid_t child = fork();
    if (child == 0) _exit(try_with_helper() ? 0 : 1);
    EXPECT(waitpid(child, &ended, 0) == child && ended == 0);
}

/* Found by tests/fuzz: H5Pget_fill_value of HDF5 1.10.8 follows a null pointer over it. */
TEST(a_file_over_which_hdf5_crashes)
{
    const char *path = "tests/fuzz/corpus/fields/fill_value_crash";
    vt_fields_file *file = NULL;
    EXPECT_ERROR(vt_fields_file_open(&path, 1, &(vt_fields_form){0}, &file), path);
    EXPECT(file == NULL);
}

/* Many files are tried together; the one that crashes HDF5 is still named. */
TEST(a_file_among_many_over_which_hdf5_crashes)
{
    enum { FILES = 40, BAD = 21 };
    const test_fields fields = {.times = 3, .channels = 1, .height = 2, .width = 2};
    unsigned char bytes[65536];
    FILE *file = fopen("tests/fuzz/corpus/fields/fill_value_crash", "r");
    const size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (int i = 0; i < FILES; i++) test_fields_write(test_path(SETTINGS("%d.h5", 2001 + i)), &fields);
    vt_dataset_options options = TEST_OPTIONS(.height = 2, .width = 2, .in_channels = 1, .out_channels = 1);
    vt_dataset *dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == 2 * FILES);
    vt_dataset_close(&dataset);
    test_write(SETTINGS("%d.h5", 2001 + BAD), bytes, count);
    EXPECT_ERROR(vt_dataset_open(&options, &dataset), "/2022.h5: HDF5 crashed (Segmentation fault) when it was tried");
    EXPECT(dataset == NULL);
}

/* ---- other files ---- */

static const test_fields small = {.times = 3, .channels = 2, .height = 4, .width = 6, .latitudes = 4};

static vt_status open_one(const char *path)
{
    SCOPED(vt_fields_file) *file = NULL;
    vt_status status = vt_fields_file_open((const char *const[]){path}, 1, &(vt_fields_form){0}, &file);
    return status;
}

/* The file `name` with a link `link` to the object of that name in secret.h5. */
static const char *write_link(const char *name, const char *link)
{
    const char *secret = test_path("secret.h5"), *path = test_path(name);
    test_fields_write(secret, &small);
    hid_t file = -1;
    if (strcmp(link, "fields") == 0) {
        file = test_create(path);
    } else {
        test_fields without = small;
        without.latitudes = 0;
        test_fields_write(path, &without);
        file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    }
    VT_ASSERT(H5Lcreate_external(secret, link, file, link, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Fclose(file);
    return path;
}

TEST(links_into_other_files_are_not_followed)
{
    EXPECT_ERROR(open_one(write_link("link/2001.h5", "fields")), "secret.h5', which is not followed");
    EXPECT_ERROR(open_one(write_link("lat/2001.h5", "lat")), "'lat' is a link into another file, '");
}

TEST(variables_that_are_links_are_not_followed)
{
    const char *path = write_link("netcdf/2001.h5", "fields");
    vt_fields_file *file = NULL;
    EXPECT_ERROR(vt_fields_file_open(&path, 1, &(vt_fields_form){.variables = "[fields]"}, &file),
                 "'fields' is a link into another file");
    EXPECT_ERROR(vt_fields_file_open(&path, 1, &(vt_fields_form){.variables = "[t2m]"}, &file),
                 "no variable 't2m'; found: none");
}

/* A dataset whose numbers come from another file: raw bytes, or a dataset there. */
static const char *write_elsewhere(const char *name, bool virtual)
{
    const hsize_t extent[4] = {3, 2, 4, 6};
    const char *path = test_path(name), *secret = test_path("secret.h5");
    test_fields_write(secret, &small);
    hid_t file = test_create(path), space = H5Screate_simple(4, extent, NULL);
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    if (virtual)
        VT_ASSERT(H5Pset_virtual(properties, space, secret, "fields", space) >= 0);
    else
        VT_ASSERT(H5Pset_external(properties, secret, 0, 3 * 2 * 4 * 6 * sizeof(float)) >= 0);
    test_dataset_with(properties, file, "fields", H5T_IEEE_F32LE, 4, extent, 0, NULL);
    H5Sclose(space);
    H5Fclose(file);
    return path;
}

TEST(numbers_in_other_files_are_not_read)
{
    EXPECT_ERROR(open_one(write_elsewhere("external/2001.h5", false)), "the numbers of 'fields' lie in other files");
    EXPECT_ERROR(open_one(write_elsewhere("virtual/2001.h5", true)), "the numbers of 'fields' lie in other files");
    EXPECT_OK(open_one(test_path("secret.h5")));
}

TEST(times_in_other_files_are_not_read)
{
    const hsize_t times = 3;
    const char *path = test_path("times/2001.h5");
    test_fields_write(path, &small);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), properties = H5Pcreate(H5P_DATASET_CREATE);
    VT_ASSERT(H5Pset_external(properties, test_path("secret"), 0, 3 * sizeof(float)) >= 0);
    H5Dclose(test_dataset_with(properties, file, "time", H5T_IEEE_F32LE, 1, &times, 0, NULL));
    H5Fclose(file);
    EXPECT_ERROR(open_one(path), "the numbers of 'time' lie in other files");
}

/* A virtual dataset of two years that lie in files of their own; `series`: of as many as there are, yearN.h5. */
static const char *write_years(const char *name, bool series)
{
    const hsize_t year[4] = {3, 2, 4, 6}, extent[4] = {6, 2, 4, 6}, most[4] = {H5S_UNLIMITED, 2, 4, 6};
    const hsize_t start[4] = {0}, every[4] = {3, 1, 1, 1}, count[4] = {H5S_UNLIMITED, 1, 1, 1};
    const char *path = test_path(name), *const files[] = {test_path("year0.h5"), test_path("year1.h5")};
    hid_t file = test_create(path), properties = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = H5Screate_simple(4, extent, series ? most : NULL), source = H5Screate_simple(4, year, NULL);
    for (hsize_t i = 0; i < (series ? 1 : 2); i++) {
        const hsize_t first[4] = {3 * i};
        if (series)
            H5Sselect_hyperslab(space, H5S_SELECT_SET, start, every, count, year);
        else
            H5Sselect_hyperslab(space, H5S_SELECT_SET, first, NULL, year, NULL);
        VT_ASSERT(H5Pset_virtual(properties, space, series ? test_path("year%b.h5") : files[i], "fields", source) >= 0);
    }
    hid_t dataset = H5Dcreate2(file, "fields", H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    VT_ASSERT(dataset >= 0);
    H5Dclose(dataset);
    H5Pclose(properties);
    H5Sclose(source);
    H5Sclose(space);
    H5Fclose(file);
    return path;
}

TEST(virtual_datasets_of_several_files_are_not_read)
{
    for (int series = 0; series < 2; series++) {
        const char *path = write_years(series ? "series.h5" : "years.h5", series);
        const char *const message = "the numbers of 'fields' lie in other files, which are not read; `h5repack -l "
                                    "fields:CONTI IN OUT` makes one file of them";
        vt_fields_file *file = NULL;
        EXPECT_ERROR(open_one(path), message);
        EXPECT_ERROR(vt_fields_file_open(&path, 1, &(vt_fields_form){.variables = "[fields]"}, &file), message);
    }
}

/* A list of the variables does not open the files either: a pipe would wait for its writer. */
TEST(virtual_datasets_are_listed_without_their_files)
{
    const char *path = write_years("series.h5", true);
    vt_fields_file *file = NULL;
    EXPECT(mkfifo(test_path("year0.h5"), 0600) == 0);
    EXPECT_ERROR(vt_fields_file_open(&path, 1, &(vt_fields_form){.variables = "[t2m]"}, &file),
                 "no variable 't2m'; found: fields");
}
