#define _GNU_SOURCE /* sync_file_range */
#include "source/synthetic/sets.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5_hl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/whole.h"
#include "source/fields/dataset.h"
#include "source/fields/file_list.h"
#include "source/fields/statistics.h"
#include "source/synthetic/atmosphere.h"
#include "storage/hdf5_access.h"
#include "storage/output_file.h"

void vt_synthetic_report(const vt_synthetic_output *output, const char *path, int64_t count, const char *what,
                         double bytes, double begin)
{
    if (output->report != NULL) output->report(path, count, what, bytes, vt_clock_seconds() - begin);
}

/* One file to be made. */
typedef struct {
    char *path;
    int64_t year, first_step, steps;
    bool trains;
} year_plan;

typedef struct {
    const vt_synthetic_set_options *options;
    vt_synthetic *synthetic;
    vt_statistics *statistics;
    float *fields; /* [channels, height, width] */
    year_plan *plans;
    int64_t plan_count;
} synthetic_set;

static const char *const parts[] = {"train", "valid", "test"};

/* The training years, then one each for validation and test. */
static void make_plans(synthetic_set *set)
{
    const vt_synthetic_set_options *options = set->options;
    for (int64_t i = 0; i < options->years + 2; i++) {
        const int64_t part = i < options->years ? 0 : 1 + i - options->years, year = VT_SYNTHETIC_FIRST_YEAR + i;
        const int64_t steps[] = {options->steps_per_year, options->valid_steps, options->test_steps};
        if (steps[part] == 0) continue;
        char *path = vt_text_format("%s/%s/%ld.h5", options->output.directory, parts[part], year);
        set->plans[set->plan_count++] = (year_plan){path, year, i * options->steps_per_year, steps[part], part == 0};
    }
}

static bool is_planned(const synthetic_set *set, const char *path)
{
    for (int64_t i = 0; i < set->plan_count; i++)
        if (strcmp(path, set->plans[i].path) == 0) return true;
    return false;
}

/* Files of another set in the same directory would become part of this one. */
static vt_status check_part(const synthetic_set *set, const char *part)
{
    vt_status status = VT_OK;
    vt_file_list list = {0};
    char *directory = vt_text_format("%s/%s", set->options->output.directory, part);
    if (vt_file_list_open(directory, "data directory", &(vt_fields_form){0}, &list) != VT_OK)
        vt_error_clear(); /* nothing there yet */
    for (int64_t i = 0; i < list.count; i++) {
        VT_TRY(vt_output_check_absent(list.paths[i], set->options->output.force));
        VT_CHECK(is_planned(set, list.paths[i]),
                 "%s exists already and isn't among the files to be made; move it away, or give another directory",
                 list.paths[i]);
    }
done:
    vt_file_list_close(&list);
    free(directory);
    return status;
}

static vt_status check_directory(const synthetic_set *set)
{
    vt_status status = VT_OK;
    char *statistics = vt_text_format("%s/stats/global_means.npy", set->options->output.directory);
    for (int i = 0; i < 3; i++) VT_TRY(check_part(set, parts[i]));
    VT_TRY(vt_output_check_absent(statistics, set->options->output.force));
done:
    free(statistics);
    return status;
}

/* Of the numbers of so many times. */
static double bytes_of(const vt_synthetic_set_options *options, double steps)
{
    return 4.0 * steps * (double)options->channels * (double)(options->height * options->width);
}

/* Before hours of work. How much compressed storage needs is unknown. partial: of a file; NULL: of the whole set. */
static vt_status check_space(const vt_synthetic_set_options *options, const char *path, const char *partial,
                             double steps)
{
    vt_status status = VT_OK;
    struct statvfs disk;
    char needed[VT_NUMBER_SIZE], there[VT_NUMBER_SIZE];
    if (options->compression > 0 || statvfs(partial != NULL ? partial : path, &disk) != 0) return VT_OK;
    const double bytes = bytes_of(options, steps), available = (double)disk.f_bavail * (double)disk.f_frsize;
    VT_CHECK(bytes <= available,
             partial != NULL ? "can't write %s: it needs %s, but only %s are free on that disk"
                             : "%s: the set needs %s, but only %s are free on that disk",
             path, vt_text_bytes(bytes, needed), vt_text_bytes(available, there));
done:
    return status;
}

/* The set's directory, if there is room for all files together; of files that replace others this is not known. */
static vt_status make_directory(const synthetic_set *set)
{
    vt_status status = VT_OK;
    const char *directory = set->options->output.directory;
    double steps = 0;
    const bool is_new = !vt_output_exists(directory);
    VT_TRY(vt_output_make_directory(directory));
    for (int64_t i = 0; i < set->plan_count; i++) steps += (double)set->plans[i].steps;
    if (!set->options->output.force) status = check_space(set->options, directory, NULL, steps);
    if (status != VT_OK && is_new) rmdir(directory);
done:
    return status;
}

static vt_status prepare(synthetic_set *set)
{
    vt_status status = VT_OK;
    const vt_synthetic_set_options *options = set->options;
    const int64_t height = options->height, width = options->width;
    set->fields = vt_allocate((size_t)(options->channels * height * width), sizeof *set->fields, "the synthetic set");
    set->plans = vt_allocate((size_t)(options->years + 2), sizeof *set->plans, "the synthetic set");
    make_plans(set);
    VT_TRY(check_directory(set));
    VT_TRY(make_directory(set));
    const vt_synthetic_options atmosphere = {.height = height,
                                             .width = width,
                                             .channels = options->channels,
                                             .seed = options->output.seed,
                                             .noise = options->noise};
    set->synthetic = vt_synthetic_open(&atmosphere);
    set->statistics = vt_statistics_open(options->channels, height, width);
    const vt_seasonal_fit_options shape = {
        .channels = options->channels, .height = height, .width = width, .harmonics = 1};
    set->statistics->by_time = vt_time_statistics_open(1, &shape, false, NULL);
done:
    return status;
}

/* Into the statistics, with the date that the file's name gives it. */
static vt_status add_statistics(synthetic_set *set, const year_plan *plan, int64_t step)
{
    vt_date date;
    const int64_t minutes = 60 * VT_HOURS_A_TIME;
    if (!plan->trains) return VT_OK;
    vt_statistics_add(set->statistics, set->fields);
    vt_date_make(VT_CALENDAR_STANDARD, plan->year, 1, 1, &date);
    date = vt_date_after(date, step * minutes);
    return vt_time_statistics_add(set->statistics->by_time, &date, minutes, step == 0, set->fields);
}

/* ---- a file, as source/fields/fields_file.h reads it ---- */

/* After so many bytes the kernel is asked to start writing them to the disk, instead of at the end. */
#define WRITE_BACK_BYTES (INT64_C(64) << 20)

/* One that is being written. */
typedef struct {
    const char *path;
    char *partial;
    int descriptor;        /* of the same file, besides HDF5's own */
    int64_t waiting_bytes; /* appended since the disk was last told to start */
    hid_t file, fields;
} year_file;

/* Small channels share a chunk, large ones have their own. */
static hid_t storage_properties(const vt_synthetic_set_options *options, int64_t steps)
{
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
    if (options->chunk_times == 0) return properties;
    const int64_t times = vt_smaller(options->chunk_times, steps);
    const int64_t channels = options->channels * options->height * options->width <= 1 << 18 ? options->channels : 1;
    const hsize_t chunk[4] = {(hsize_t)times, (hsize_t)channels, (hsize_t)options->height, (hsize_t)options->width};
    H5Pset_chunk(properties, 4, chunk);
    if (options->compression > 0) {
        H5Pset_shuffle(properties);
        H5Pset_deflate(properties, (unsigned)options->compression);
    }
    return properties;
}

static vt_status create_fields(const vt_synthetic_set_options *options, int64_t steps, year_file *out)
{
    const int64_t extent[] = {steps, options->channels, options->height, options->width};
    if (vt_hdf5_make_dataset(out->file, "fields", H5T_IEEE_F32LE, storage_properties(options, steps), 4, extent,
                             &out->fields) == VT_OK)
        return VT_OK;
    return vt_error_context("can't write %s: no dataset 'fields'", out->path);
}

static vt_status write_names(const year_file *out, int64_t channels)
{
    size_t size = 1;
    for (int64_t c = 0; c < channels; c++)
        if (strlen(vt_climate_channels[c].name) > size) size = strlen(vt_climate_channels[c].name);
    char *memory = vt_allocate((size_t)channels, size, "the synthetic set");
    for (int64_t c = 0; c < channels; c++)
        memcpy(memory + (size_t)c * size, vt_climate_channels[c].name, strlen(vt_climate_channels[c].name));
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, size);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    vt_status status = vt_hdf5_write_attribute(out->fields, "channels", type, type, channels, memory);
    if (status != VT_OK) vt_error_context("can't write %s: no attribute 'channels'", out->path);
    H5Tclose(type);
    free(memory);
    return status;
}

static vt_status write_coordinate(const year_file *out, const char *name, double (*degrees)(int64_t count, int64_t i),
                                  int64_t count)
{
    hid_t dataset;
    float *values = vt_allocate((size_t)count, sizeof *values, "the synthetic set");
    for (int64_t i = 0; i < count; i++) values[i] = (float)degrees(count, i);
    vt_status status =
        vt_hdf5_make_dataset(out->file, name, H5T_IEEE_F32LE, H5Pcreate(H5P_DATASET_CREATE), 1, &count, &dataset);
    if (status == VT_OK) status = vt_hdf5_write_box(dataset, 1, &(int64_t){0}, &count, values);
    if (status != VT_OK) vt_error_context("can't write %s: no dataset '%s'", out->path, name);
    if (dataset >= 0) H5Dclose(dataset);
    free(values);
    return status;
}

static vt_status create_all(const synthetic_set *set, int64_t steps, year_file *out)
{
    vt_status status = VT_OK;
    const vt_synthetic_set_options *options = set->options;
    char step[VT_DATE_SIZE];
    const char *const texts[][2] = {{"time_step", vt_length_format(60 * VT_HOURS_A_TIME, step)},
                                    {"planet", "imaginary"}};
    vt_hdf5_enter();
    hid_t access = vt_hdf5_file_access();
    /* the chunks that are being filled must stay in memory: each time adds a slice to all of them */
    if (options->chunk_times > 0)
        H5Pset_cache(access, 0, 12421, (size_t)bytes_of(options, (double)options->chunk_times) + (1 << 20), 1.0);
    out->file = H5Fcreate(out->partial, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    VT_CHECK(out->file >= 0, "can't write %s: %s", out->path, vt_hdf5_reason());
    VT_TRY(create_fields(options, steps, out));
    VT_TRY(write_names(out, options->channels));
    for (int i = 0; i < 2; i++)
        VT_CHECK(H5LTset_attribute_string(out->file, "fields", texts[i][0], texts[i][1]) >= 0,
                 "can't write %s: no attribute '%s': %s", out->path, texts[i][0], vt_hdf5_reason());
    VT_TRY(write_coordinate(out, "lat", vt_synthetic_latitude, options->height));
    VT_TRY(write_coordinate(out, "lon", vt_synthetic_longitude, options->width));
done:
    H5Pclose(access);
    vt_hdf5_leave();
    return status;
}

static vt_status append_time(const synthetic_set *set, int64_t step, year_file *out)
{
    const vt_synthetic_set_options *options = set->options;
    const int64_t start[] = {step, 0, 0, 0}, count[] = {1, options->channels, options->height, options->width};
    vt_hdf5_enter();
    vt_status status = vt_hdf5_write_box(out->fields, 4, start, count, set->fields);
    vt_hdf5_leave();
    if (status != VT_OK) return vt_error_context("can't write %s at time %ld", out->path, step);
    out->waiting_bytes += (int64_t)bytes_of(options, 1);
    if (out->waiting_bytes >= WRITE_BACK_BYTES) {
        sync_file_range(out->descriptor, 0, 0, SYNC_FILE_RANGE_WRITE);
        out->waiting_bytes = 0;
    }
    return VT_OK;
}

/* Closes what is open; if that fails, the file is incomplete. */
static vt_status close_file(year_file *out)
{
    vt_status status = VT_OK;
    herr_t result = 0;
    vt_hdf5_enter();
    errno = 0;
    if (out->fields >= 0) result |= H5Dclose(out->fields);
    if (out->file >= 0) result |= H5Fclose(out->file);
    const int error = errno;
    out->fields = out->file = H5I_INVALID_HID;
    VT_CHECK(result >= 0, "can't write %s: %s", out->path, error != 0 ? strerror(error) : vt_hdf5_reason());
done:
    vt_hdf5_leave();
    return status;
}

/* It has its name only when it is complete. */
static vt_status write_year(synthetic_set *set, const year_plan *plan)
{
    vt_status status = VT_OK;
    const double begin = vt_clock_seconds(), steps = (double)plan->steps;
    year_file out = {.path = plan->path,
                     .partial = vt_output_partial_path(plan->path),
                     .descriptor = -1,
                     .file = H5I_INVALID_HID,
                     .fields = H5I_INVALID_HID};
    char *directory = vt_file_directory(plan->path);
    VT_TRY(vt_output_make_directory(directory));
    out.descriptor = open(out.partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    VT_CHECK(out.descriptor >= 0, "can't write %s: %s", plan->path, strerror(errno));
    VT_TRY(check_space(set->options, plan->path, out.partial, steps));
    VT_TRY(create_all(set, plan->steps, &out));
    for (int64_t step = 0; step < plan->steps; step++) {
        vt_synthetic_fields(set->synthetic, plan->first_step + step, set->fields);
        VT_TRY(add_statistics(set, plan, step));
        VT_TRY(append_time(set, step, &out));
    }
    VT_TRY(close_file(&out));
    VT_TRY(vt_output_publish(out.partial, plan->path));
    vt_synthetic_report(&set->options->output, plan->path, plan->steps, "times", bytes_of(set->options, steps), begin);
done:
    if (status != VT_OK) close_file(&out); /* the cause has been noted before */
    if (status != VT_OK) unlink(out.partial);
    if (out.descriptor >= 0) close(out.descriptor);
    free(out.partial);
    free(directory);
    return status;
}

/* ---- the set ---- */

vt_status vt_synthetic_set_write(const vt_synthetic_set_options *options)
{
    vt_status status = VT_OK;
    synthetic_set set = {.options = options};
    char *directory = vt_text_format("%s/stats", options->output.directory), *notes = NULL;
    char *train = vt_text_format("%s/train", options->output.directory);
    VT_TRY(prepare(&set));
    for (int64_t i = 0; i < set.plan_count; i++) VT_TRY(write_year(&set, &set.plans[i]));
    VT_TRY(vt_statistics_write(set.statistics, directory));
    VT_TRY(vt_fields_about_of_set(train, "train", &(vt_fields_form){0}, &set.statistics->about));
    VT_TRY(vt_statistics_write_rest(set.statistics, "synth", true, directory, &notes));
done:
    free(train);
    free(directory);
    free(notes);
    vt_statistics_close(&set.statistics);
    vt_synthetic_close(&set.synthetic);
    free(set.fields);
    for (int64_t i = 0; i < set.plan_count; i++) free(set.plans[i].path);
    free(set.plans);
    return status;
}
