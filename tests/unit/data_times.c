/* Sets cut into consecutive files, and times that occur twice. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "config/config.h"
#include "data/loader.h"
#include "settings.h"
#include "test.h"
#include "unit/data_files.h"
#include "unit/netcdf_files.h"

/* A file with times first … first + count - 1 of one long series, 6 hours apart from 2013-01-01 on; without a
 * coordinate if `dated` is false. */
static void write_part(const char *name, int first, int count, bool dated)
{
    const hsize_t extent[3] = {(hsize_t)count, TEST_NC_ROWS, TEST_NC_COLUMNS};
    float values[TEST_NC_MOST * TEST_NC_POINTS];
    double times[TEST_NC_MOST];
    for (int i = 0; i < count * TEST_NC_POINTS; i++)
        values[i] = (float)(100 * (first + i / TEST_NC_POINTS) + i % TEST_NC_POINTS);
    for (int i = 0; i < count; i++) times[i] = 6 * (first + i);
    hid_t file = test_nc_create(name);
    VT_ASSERT(count <= TEST_NC_MOST);
    test_dataset(file, "t", H5T_IEEE_F32LE, 3, extent, H5T_NATIVE_FLOAT, values);
    if (dated) test_nc_times(file, "time", H5T_IEEE_F64LE, count, times, "hours since 2013-01-01");
    H5Fclose(file);
}

static vt_dataset *open_in(const char *directory, const vt_dataset_options *options)
{
    vt_dataset_options own = *options;
    own.directory = test_path(directory);
    return test_open(&own);
}

/* The set in the directory must have so many samples, of which so many cross files. */
static void expect_counts(const char *directory, const vt_dataset_options *options, int64_t samples, int64_t crossing)
{
    SCOPED(vt_dataset) *dataset = open_in(directory, options);
    const vt_source *source = &dataset->source;
    EXPECT(source->sample_count == samples && source->crossing_samples == crossing, "%s: %ld, %ld", directory,
           source->sample_count, source->crossing_samples);
}

enum { MOST_FLOATS = 3 * TEST_NC_POINTS };

/* Checks that the two sets have the same samples, to the bit, however they are read. */
static void expect_same_samples(vt_dataset *whole, vt_dataset *cut, int64_t rollout)
{
    float inputs[2][MOST_FLOATS] = {{0}}, targets[2][MOST_FLOATS] = {{0}};
    const int64_t count = whole->source.sample_count;
    const vt_dataset_options *options = &whole->options;
    EXPECT(cut->source.sample_count == count, "%ld, not %ld", cut->source.sample_count, count);
    EXPECT(cut->source.frame_count == whole->source.frame_count);
    for (int64_t i = 0; i < count; i++) {
        int64_t frames[2][5];
        vt_date dates[2];
        EXPECT_OK(vt_dataset_read(whole, i, inputs[0], targets[0]));
        EXPECT_OK(vt_dataset_read(cut, i, inputs[1], targets[1]));
        EXPECT(memcmp(inputs[0], inputs[1], sizeof inputs[0]) == 0, "input of sample %ld", i);
        EXPECT(memcmp(targets[0], targets[1], sizeof targets[0]) == 0, "target of sample %ld", i);
        test_frames(whole, i, frames[0]);
        test_frames(cut, i, frames[1]);
        EXPECT(memcmp(frames[0], frames[1], (size_t)(options->history + 2) * sizeof(int64_t)) == 0);
        EXPECT(vt_dataset_date(whole, i, 0, &dates[0]) && vt_dataset_date(cut, i, 0, &dates[1]) &&
               dates[0].minutes == dates[1].minutes);
        EXPECT(vt_dataset_reaches(whole, i, rollout) == vt_dataset_reaches(cut, i, rollout));
        if (!vt_dataset_reaches(whole, i, rollout)) continue;
        EXPECT_OK(vt_dataset_read_later(whole, i, rollout, targets[0]));
        EXPECT_OK(vt_dataset_read_later(cut, i, rollout, targets[1]));
        EXPECT(memcmp(targets[0], targets[1], sizeof targets[0]) == 0, "rollout of sample %ld", i);
    }
    for (int64_t i = 0; i < whole->source.frame_count; i++) {
        EXPECT_OK(test_read_frame(whole, i, inputs[0]));
        EXPECT_OK(test_read_frame(cut, i, inputs[1]));
        EXPECT(memcmp(inputs[0], inputs[1], sizeof inputs[0]) == 0, "frame %ld", i);
    }
}

/* Files of 7, 1, 2 and 10 times give the same samples as one of 20, with any history and dt, with and without HDF5's
 * reader and the cache, also if only the first ones are used. */
TEST(samples_cross_files)
{
    char text[512];
    write_part("whole/x_2013.nc", 0, 20, true);
    write_part("cut/x_2013-01.nc", 0, 7, true);
    write_part("cut/x_2013-02.nc", 7, 1, true);
    write_part("cut/x_2013-03.nc", 8, 2, true);
    write_part("cut/x_2013-04.nc", 10, 10, true);
    for (int round = 0; round < 2 * 2 * 3 * 3; round++) {
        vt_dataset_options options = test_nc_options("t");
        options.direct = round % 2 == 0;
        options.history = round / 4 % 3;
        options.dt = 1 + round / 12;
        options.in_channels = options.history + 1;
        SCOPED(vt_dataset) *whole = open_in("whole", &options), *cut = open_in("cut", &options);
        if (round / 2 % 2 == 1) {
            EXPECT_OK(test_keep_frames(whole));
            EXPECT_OK(test_keep_frames(cut));
        }
        expect_same_samples(whole, cut, 3);
        expect_same_samples(whole, cut, 2);
        EXPECT(whole->source.crossing_samples == 0);
        int64_t apart = 0, span = options.dt * (options.history + 1);
        const int64_t times[4] = {7, 1, 2, 10};
        for (int f = 0; f < 4; f++) apart += times[f] > span ? times[f] - span : 0;
        EXPECT(cut->source.crossing_samples == cut->source.sample_count - apart);
        vt_dataset_close(&whole);
        vt_dataset_close(&cut);
        options.sample_limit = 8;
        whole = open_in("whole", &options);
        cut = open_in("cut", &options);
        expect_same_samples(whole, cut, 2);
    }
    vt_dataset_options options = test_nc_options("t");
    SCOPED(vt_dataset) *cut = open_in("cut", &options);
    const vt_source *source = &cut->source;
    source->kind->describe(source, 6, text, sizeof text);
    EXPECT_PART(text, "x_2013-01.nc, time 6");
    source->kind->describe(source, 9, text, sizeof text);
    EXPECT_PART(text, "x_2013-03.nc, time 1");
    options.files_apart = true;
    expect_counts("cut", &options, 6 + 0 + 1 + 9, 0);
}

/* The same holds for the batches that the steps get, shuffled and read ahead. */
TEST(batches_cross_files)
{
    vt_dataset *sets[2];
    vt_loader *loaders[2] = {NULL};
    const vt_dataset_options options = test_nc_options("t");
    write_part("whole/x_2013.nc", 0, 20, true);
    write_part("cut/x_2013-01.nc", 0, 7, true);
    write_part("cut/x_2013-02.nc", 7, 3, true);
    write_part("cut/x_2013-03.nc", 10, 10, true);
    for (int i = 0; i < 2; i++) {
        sets[i] = open_in(i == 0 ? "whole" : "cut", &options);
        loaders[i] = TEST_LOADER(sets[i], .global_batch_size = 4, .shuffle = true, .seed = 3, .workers = 2);
    }
    EXPECT(vt_loader_batch_count(loaders[0]) == 5 && vt_loader_batch_count(loaders[1]) == 5);
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int i = 0; i < 2; i++) vt_loader_begin(loaders[i], epoch, 0);
        for (int b = 0; b < 5; b++) {
            const vt_batch *batches[2] = {NULL};
            for (int i = 0; i < 2; i++) batches[i] = test_next(loaders[i]);
            if (batches[0] == NULL || batches[1] == NULL) return;
            EXPECT(batches[0]->sample_count == batches[1]->sample_count);
            const size_t bytes = (size_t)batches[0]->sample_count * TEST_NC_POINTS * sizeof(float);
            EXPECT(memcmp(test_input(batches[0]), test_input(batches[1]), bytes) == 0, "batch %d of epoch %d", b,
                   epoch);
            EXPECT(memcmp(test_target(batches[0]), test_target(batches[1]), bytes) == 0, "batch %d of epoch %d", b,
                   epoch);
        }
    }
    for (int i = 0; i < 2; i++) {
        vt_loader_close(&loaders[i]);
        vt_dataset_close(&sets[i]);
    }
}

/* Nothing is joined if a time is missing, if a file has no coordinate, or if the order of names differs from that of
 * the times. */
TEST(files_that_do_not_follow)
{
    vt_dataset_options options = test_nc_options("t");
    write_part("gap/x_2013-01.nc", 0, 4, true);
    write_part("gap/x_2013-02.nc", 5, 4, true);
    write_part("gap/x_2013-03.nc", 9, 4, false);
    write_part("gap/x_2013-04.nc", 13, 4, true);
    expect_counts("gap", &options, 4 * 3, 0);
    write_part("turned/a_2014.nc", 0, 4, true);
    write_part("turned/b_2013.nc", 4, 4, true);
    expect_counts("turned", &options, 2 * 3, 0);
    write_part("named/x_2013.nc", 0, 4, false);
    write_part("named/x_20130102.nc", 4, 4, false);
    expect_counts("named", &options, 2 * 3, 0);
}

/* A file for each time: the dates tell the time between them. */
TEST(files_of_one_time_each)
{
    vt_dataset_options options = test_nc_options("t");
    for (int i = 0; i < 6; i++) {
        const char *name = SETTINGS("days/x_2013-01-%02d.nc", i + 1);
        write_part(name, i < 4 ? i : i + 3, 1, true);
    }
    SCOPED(vt_dataset) *dataset = open_in("days", &options);
    EXPECT(dataset->source.sample_count == 3 + 1 && dataset->source.crossing_samples == 4);
    EXPECT(vt_index_minutes(&dataset->index) == 360);
}

/* One of them is an hour early: the others still say how far apart they are. */
TEST(files_of_one_time_each_and_one_early)
{
    const vt_dataset_options options = test_nc_options("t");
    for (int i = 0; i < 8; i++) {
        const double hour = 24 * i - (i == 3), minute = hour + (i % 2) / 60.;
        test_nc_write(SETTINGS("days/x_2013-01-%02d.nc", i + 1), 1, &minute, "hours since 2013-01-01");
    }
    SCOPED(vt_dataset) *dataset = open_in("days", &options);
    EXPECT(dataset->source.sample_count == 2 + 3 && vt_index_minutes(&dataset->index) == 1440);
}

/* The middles of months, a file each: the dates alone say a month apart, and so may time_step. */
TEST(files_of_one_month_each)
{
    static const int middles[] = {62, 180, 298, 420}; /* January 16 12:00, February 15, March 16 12:00, April 16 */
    static const char *const said[] = {NULL, "1month"};
    vt_dataset_options options = test_nc_options("t");
    vt_date date = {0};
    char text[VT_DATE_SIZE] = "";
    for (int i = 0; i < 4; i++) write_part(SETTINGS("months/x_2013-%02d.nc", i + 1), middles[i], 1, true);
    for (int i = 0; i < 2; i++) {
        options.form.time_step = said[i];
        SCOPED(vt_dataset) *dataset = open_in("months", &options);
        EXPECT(dataset->source.sample_count == 3 && dataset->source.crossing_samples == 3);
        EXPECT(vt_index_minutes(&dataset->index) == VT_A_MONTH && dataset->about->step > 0);
        EXPECT(vt_dataset_date(dataset, 2, 0, &date));
        EXPECT_TEXT(vt_date_format(date, text), "2013-03-16 12:00");
    }
    vt_dataset *dataset = NULL;
    options.form.time_step = "6h"; /* the dates contradict it */
    options.directory = test_path("months");
    EXPECT_ERROR(vt_dataset_open(&options, &dataset),
                 "hold the times 2013-01-16 12:00 and 2013-02-15 00:00, which are not 6h apart, as time_step says");
}

/* ---- files without times ---- */

/* A file of `fields`, or a netCDF file of the variable `t`. */
static void write_times(const char *name, int64_t times)
{
    if (strstr(name, ".nc") != NULL) {
        hid_t file = test_nc_create(name);
        test_nc_variable(file, "t", (int)times, H5T_IEEE_F32LE);
        H5Fclose(file);
        return;
    }
    test_fields_write(test_path(name), &(test_fields){.times = times, .channels = 1, .height = 2, .width = 2});
}

/* How many times the year, month or day of its name holds says how far apart they are. */
TEST(times_by_their_number)
{
    static const struct {
        const char *name;
        int64_t times, minutes; /* 0: 6 hours are assumed; -1: an error */
    } known[] = {
        {"2001.h5", 8760, 60},    {"2004.h5", 8784, 60},       {"2004.h5", 8760, 60}, /* without its 29th of February */
        {"2001.h5", 1460, 360},   {"2000.h5", 1464, 360},      {"2001.h5", 365, 1440},  {"2001.h5", 2920, 180},
        {"2001.h5", 17520, 30},   {"2001.h5", 12, VT_A_MONTH}, {"2001-02.nc", 56, 720}, {"2004-02.nc", 56, 720},
        {"2001-03.nc", 31, 1440}, {"20010203.nc", 24, 60},     {"20010203.nc", 48, 30}, {"2001.h5", 1461, 0},
        {"2001.h5", 1000, 0},     {"2001.h5", 61, 0},          {"2001.h5", 13, 0},      {"2001-03.nc", 12, 0},
        {"2001.h5", 8759, -1},    {"2001.h5", 1466, -1},       {"20010203.nc", 7, -1}};
    const test_fields one = {.times = 1, .channels = 1, .height = 2, .width = 2};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const bool is_netcdf = strstr(known[i].name, ".nc") != NULL;
        vt_dataset_options options = is_netcdf ? test_nc_options("t") : test_fields_options(&one);
        char *directory = vt_test_owned(vt_text_format("%zu", i));
        char *path = vt_test_owned(vt_text_format("%s/%s", directory, known[i].name));
        write_times(path, known[i].times);
        options.directory = vt_test_owned(vt_text_copy(test_path(directory)));
        if (known[i].minutes < 0) {
            test_expect_open_error(&options, "no time coordinate, and the period that its name gives holds only ");
            options.form.time_step = "15min";
        }
        SCOPED(vt_dataset) *dataset = test_open(&options);
        const int64_t minutes = dataset->about->step == 0 ? 0 : vt_index_minutes(&dataset->index);
        EXPECT(minutes == (known[i].minutes < 0 ? 15 : known[i].minutes), "%s: %ld", path, minutes);
    }
    vt_dataset_options options = test_fields_options(&one);
    write_times("a/2001.h5", 8760);
    write_times("a/2002.h5", 100); /* like the others */
    vt_dataset *dataset = open_in("a", &options), *valid = NULL;
    EXPECT(vt_index_minutes(&dataset->index) == 60);
    write_times("b/2003.h5", 100);
    options.set = VT_SET_VALIDATION;
    valid = open_in("b", &options);
    const vt_source *source = &dataset->source;
    EXPECT_ERROR(source->kind->agree(source, &valid->source),
                 "(6 h are assumed where nothing says it, as --time_step=1h would)");
    vt_dataset_close(&dataset);
    vt_dataset_close(&valid);
    write_times("a/2003.h5", 1460);
    options.directory = test_path("a");
    test_expect_open_error(&options, "a/2003.h5, but 1 h in the files before it; they can't be used together");
}

/* The attribute time_step of `fields` says it, too. */
TEST(times_by_an_attribute)
{
    const test_fields one = {.times = 1, .channels = 1, .height = 2, .width = 2};
    vt_dataset_options options = test_fields_options(&one);
    static const char *const said[] = {"3h", "soon"};
    for (int i = 0; i < 2; i++) {
        write_times("2001.h5", 365);
        hid_t file = H5Fopen(test_path("2001.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
        hid_t fields = H5Dopen2(file, "fields", H5P_DEFAULT);
        test_nc_text(fields, "time_step", said[i]);
        H5Dclose(fields);
        H5Fclose(file);
        if (i == 1)
            test_expect_open_error(&options, "the attribute 'time_step' of 'fields' is 'soon', which is no length");
        if (i == 1) break;
        SCOPED(vt_dataset) *dataset = test_open(&options);
        EXPECT(vt_index_minutes(&dataset->index) == 180);
    }
}

/* ---- times that occur twice ---- */

/* What the first `limit` samples of one set share with the other: a sentence with both parts, or nothing if they are
 * NULL. */
static void expect_shared(const char *one, int64_t limit, const char *other, const char *first, const char *second)
{
    vt_dataset_options options = test_nc_options("t"), others = options;
    options.sample_limit = limit;
    others.set = VT_SET_VALIDATION;
    SCOPED(vt_dataset) *a = open_in(one, &options), *b = open_in(other, &others);
    char *sentence = a->source.kind->shared(&a->source, &b->source);
    EXPECT((sentence == NULL) == (first == NULL), "%s", sentence != NULL ? sentence : "nothing is said");
    EXPECT(sentence == NULL || first == NULL || strstr(sentence, first) != NULL, "'%s' lacks '%s'", sentence, first);
    EXPECT(sentence == NULL || first == NULL || strstr(sentence, second) != NULL, "'%s' lacks '%s'", sentence, second);
    free(sentence);
}

TEST(training_and_validation_overlap)
{
    write_part("a/x_2013.nc", 0, 20, true);
    write_part("b/y_2014.nc", 20, 20, true); /* the name is wrong, the coordinate counts */
    write_part("c/z_2015.nc", 16, 8, true);
    expect_shared("a", VT_UNSET_INTEGER, "b", NULL, NULL);
    expect_shared("a", VT_UNSET_INTEGER, "c",
                  "training and validation overlap: the times from 2013-01-05 00:00 to 2013-01-05 18:00 are in both",
                  "a/x_2013.nc and ");
    expect_shared("c", VT_UNSET_INTEGER, "b", "the times from 2013-01-06 00:00 to 2013-01-06 18:00 are in both",
                  "b/y_2014.nc");
    expect_shared("a", VT_UNSET_INTEGER, "a", "from 2013-01-01 00:00 to 2013-01-05 18:00", "x_2013.nc");
    write_part("d/x_2013.nc", 0, 4, false); /* by its name */
    expect_shared("a", VT_UNSET_INTEGER, "d", "from 2013-01-01 00:00 to 2013-01-01 18:00", "d/x_2013.nc");
    write_part("e/x_2012.nc", 0, 4, false);
    expect_shared("a", VT_UNSET_INTEGER, "e", NULL, NULL);
    expect_shared("a", 15, "c", NULL, NULL); /* unused times are not shared */
    write_part("f/x_2013.nc", 0, 4, true);
    write_part("f/x_2014.nc", 4, 4, true);
    expect_shared("f", VT_UNSET_INTEGER, "a", "from 2013-01-01 00:00 to 2013-01-02 18:00 are in both", "f/x_2013.nc");
    write_part("g/x_2013.nc", 0, 4, true);
    write_part("g/x_2014.nc", 5, 4, true);
    expect_shared("g", VT_UNSET_INTEGER, "a", "from 2013-01-01 00:00 to 2013-01-03 00:00, with gaps, are in both",
                  "g/x_2013.nc");
}

/* Files whose names say no date are a group if they hold different variables, however many there are. */
TEST(many_variables_of_one_time)
{
    enum { VARIABLES = 66 };
    const double times[] = {0, 6, 12};
    SCOPED(vt_text) words = {0};
    hid_t files[2] = {test_nc_create("most.nc"), test_nc_create("others.nc")};
    for (int i = 0; i < VARIABLES; i++) {
        const char *name = SETTINGS("v%d", i);
        vt_text_append(&words, "%s ", name);
        H5Dclose(test_nc_variable(files[i >= 64], name, 3, H5T_IEEE_F32LE));
    }
    for (int i = 0; i < 2; i++) {
        H5Dclose(test_nc_times(files[i], "time", H5T_IEEE_F64LE, 3, times, "hours since 2013-01-01"));
        H5Fclose(files[i]);
    }
    vt_dataset_options options = test_nc_options(words.characters);
    options.in_channels = options.out_channels = VARIABLES;
    options.form.period = "2013";
    options.form.period_option = "train_period";
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == 2 && dataset->about->channels == VARIABLES);
}

TEST(times_twice_in_a_folder)
{
    const test_fields year = {.times = 1460, .channels = 1, .height = 2, .width = 2};
    vt_dataset_options options = test_nc_options("t"), of_fields = test_fields_options(&year);
    write_part("a/x_2013-01.nc", 0, 8, true);
    write_part("a/x_2013-02.nc", 6, 8, true);
    test_log_begin();
    expect_counts("a", &options, 7 + 7, 0);
    EXPECT_PART(test_log_end(), "the times from 2013-01-02 12:00 to 2013-01-02 18:00 come twice");
    test_fields_write(test_path("years/2013.h5"), &year);
    test_fields_write(test_path("years/2014.h5"), &year);
    test_fields_write(test_path("years/2015.h5"), &year);
    test_fields_write(test_path("hourly/2013.h5"),
                      &(test_fields){.times = 8760, .channels = 1, .height = 2, .width = 2});
    test_fields_write(test_path("hourly/2012.h5"),
                      &(test_fields){.times = 8784, .channels = 1, .height = 2, .width = 2});
    test_log_begin();
    expect_counts("years", &of_fields, 3 * 1459, 0); /* the tutorials' sets: no sample crosses files */
    expect_counts("hourly", &of_fields, 8783 + 8759, 0);
    const char *text = test_log_end();
    EXPECT(strstr(text, "WARNING") == NULL, "%s", text);
    test_fields_write(test_path("years/again_2014.h5"), &year);
    test_log_begin();
    expect_counts("years", &of_fields, 4 * 1459, 0);
    text = test_log_end();
    EXPECT_PART(text, "the times from 2014-01-01 00:00 to 2014-12-31 18:00 come twice: ");
    EXPECT_PART(text, "years/again_2014.h5");
}

/* The days of a year, each of which is the one after the day before. */
static int64_t count_days(vt_calendar calendar, int64_t year)
{
    int64_t count = 0, days = 0;
    vt_date date, last = {0};
    for (int64_t month = 0; month <= 13; month++)
        for (int64_t day = 0; day <= 32; day++) {
            int64_t day_found;
            if (!vt_date_make(calendar, year, month, day, &date)) continue;
            days += count == 0 || date.minutes == last.minutes + 1440;
            EXPECT(vt_date_month(date, &day_found) == 12 * year + month - 1 && day_found == day);
            last = date;
            count++;
        }
    EXPECT(days == count, "calendar %s: the days of %ld don't follow one another", vt_calendar_name(calendar), year);
    return count;
}

/* 1582 lacks ten days in the standard calendar, whose years before it are Julian. */
TEST(calendars_have_their_days)
{
    static const int64_t years[] = {0, 1500, 1582, 1583, 1900, 1999, 2000, 2004, 2100, 9999};
    static const struct {
        const char *name;
        int64_t days[10], first; /* the number of the first day of 2000 */
    } calendars[] = {{"standard", {366, 366, 355, 365, 365, 365, 366, 366, 365, 365}, 2451545},
                     {"Proleptic_Gregorian", {366, 365, 365, 365, 365, 365, 366, 366, 365, 365}, 2451545},
                     {"365_day", {365, 365, 365, 365, 365, 365, 365, 365, 365, 365}, 2000 * 365},
                     {"all_leap", {366, 366, 366, 366, 366, 366, 366, 366, 366, 366}, 2000 * 366},
                     {"360_day", {360, 360, 360, 360, 360, 360, 360, 360, 360, 360}, 2000 * 360}};
    for (size_t i = 0; i < sizeof calendars / sizeof *calendars; i++) {
        vt_calendar calendar = VT_CALENDAR_STANDARD;
        vt_date date = {0};
        EXPECT(vt_calendar_of_name(calendars[i].name, &calendar));
        for (int k = 0; k < 10; k++) {
            const int64_t days = count_days(calendar, years[k]);
            EXPECT(days == calendars[i].days[k], "calendar %s: %ld has %ld days", calendars[i].name, years[k], days);
        }
        EXPECT(vt_date_make(calendar, 2000, 1, 1, &date) && date.minutes == calendars[i].first * 1440);
    }
}
