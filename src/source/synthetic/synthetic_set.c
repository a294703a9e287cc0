#include "source/synthetic/sets.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/dataset.h"
#include "source/fields/fields_writer.h"
#include "source/fields/file_list.h"
#include "source/fields/statistics.h"
#include "source/synthetic/atmosphere.h"
#include "storage/output_file.h"

void vt_synthetic_report(const vt_synthetic_output *output, const char *path, int64_t count, const char *what,
                         double bytes, double begin)
{
    if (output->report != NULL) output->report(path, count, what, bytes, vt_clock_seconds() - begin);
}

/* One file to be made. */
typedef struct {
    const char *part; /* "train" */
    int64_t year, first_step, steps;
} year_plan;

typedef struct {
    const vt_synthetic_set_options *options;
    vt_synthetic *synthetic;
    vt_statistics *statistics;
    double *latitudes, *longitudes;
    float *fields; /* [channels, height, width] */
    const char *names[VT_CLIMATE_CHANNELS];
    year_plan *plans;
    int64_t plan_count;
} synthetic_set;

static const char *const parts[] = {"train", "valid", "test"};

static char *plan_path(const synthetic_set *set, const year_plan *plan)
{
    return vt_text_format("%s/%s/%lld.h5", set->options->output.directory, plan->part, (long long)plan->year);
}

static void make_plans(synthetic_set *set)
{
    const vt_synthetic_set_options *options = set->options;
    const int64_t steps[2] = {options->valid_steps, options->test_steps};
    for (int64_t i = 0; i < options->years; i++)
        set->plans[set->plan_count++] =
            (year_plan){parts[0], VT_SYNTHETIC_FIRST_YEAR + i, i * options->steps_per_year, options->steps_per_year};
    for (int64_t i = 0; i < 2; i++) {
        int64_t year = options->years + i;
        if (steps[i] > 0)
            set->plans[set->plan_count++] =
                (year_plan){parts[1 + i], VT_SYNTHETIC_FIRST_YEAR + year, year * options->steps_per_year, steps[i]};
    }
}

static bool is_planned(const synthetic_set *set, const char *path)
{
    bool planned = false;
    for (int64_t i = 0; i < set->plan_count && !planned; i++) {
        char *other = plan_path(set, &set->plans[i]);
        planned = strcmp(path, other) == 0;
        free(other);
    }
    return planned;
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

/* All files together, before the first one. Unknown for compressed storage, and if files are replaced. */
static vt_status check_space(const synthetic_set *set)
{
    vt_status status = VT_OK;
    struct statvfs disk;
    char needed[VT_NUMBER_SIZE], there[VT_NUMBER_SIZE];
    const vt_synthetic_set_options *options = set->options;
    double steps = 0;
    const bool is_new = !vt_output_exists(options->output.directory);
    VT_TRY(vt_output_make_directory(options->output.directory));
    if (options->output.force || options->compression > 0 || statvfs(options->output.directory, &disk) != 0) goto done;
    for (int64_t i = 0; i < set->plan_count; i++) steps += (double)set->plans[i].steps;
    double bytes = 4.0 * steps * (double)options->channels * (double)(options->height * options->width);
    double available = (double)disk.f_bavail * (double)disk.f_frsize;
    if (bytes > available && is_new) rmdir(options->output.directory);
    VT_CHECK(bytes <= available, "%s: the set needs %s, but only %s are free on that disk", options->output.directory,
             vt_text_bytes(bytes, needed), vt_text_bytes(available, there));
done:
    return status;
}

static vt_status prepare(synthetic_set *set)
{
    vt_status status = VT_OK;
    const vt_synthetic_set_options *options = set->options;
    const int64_t height = options->height, width = options->width;
    set->latitudes = vt_allocate((size_t)height, sizeof *set->latitudes, "the synthetic set");
    set->longitudes = vt_allocate((size_t)width, sizeof *set->longitudes, "the synthetic set");
    set->fields = vt_allocate((size_t)(options->channels * height * width), sizeof *set->fields, "the synthetic set");
    set->plans = vt_allocate((size_t)(options->years + 2), sizeof *set->plans, "the synthetic set");
    for (int64_t j = 0; j < height; j++) set->latitudes[j] = vt_synthetic_latitude(height, j);
    for (int64_t i = 0; i < width; i++) set->longitudes[i] = vt_synthetic_longitude(width, i);
    make_plans(set);
    VT_TRY(check_directory(set));
    VT_TRY(check_space(set));
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
    for (int c = 0; c < VT_CLIMATE_CHANNELS; c++) set->names[c] = vt_climate_channels[c].name;
done:
    return status;
}

/* Into the statistics, with the date that the file's name gives it. */
static vt_status add_statistics(synthetic_set *set, const year_plan *plan, int64_t step)
{
    vt_date date;
    const int64_t minutes = 60 * VT_HOURS_A_TIME;
    if (strcmp(plan->part, "train") != 0) return VT_OK;
    vt_statistics_add(set->statistics, set->fields);
    vt_date_make(VT_CALENDAR_STANDARD, plan->year, 1, 1, &date);
    date = vt_date_after(date, step * minutes);
    return vt_time_statistics_add(set->statistics->by_time, &date, minutes, step == 0, set->fields);
}

static vt_status write_year(synthetic_set *set, const year_plan *plan)
{
    vt_status status = VT_OK;
    const vt_synthetic_set_options *options = set->options;
    vt_fields_writer *writer = NULL;
    const double begin = vt_clock_seconds();
    char step_text[VT_DATE_SIZE], *path = plan_path(set, plan);
    char *directory = vt_text_format("%s/%s", options->output.directory, plan->part);
    VT_TRY(vt_output_make_directory(directory));
    const vt_fields_writer_options file = {.shape = {plan->steps, options->channels, options->height, options->width},
                                           .channel_names = set->names,
                                           .latitudes = set->latitudes,
                                           .longitudes = set->longitudes,
                                           .time_step = vt_length_format(60 * VT_HOURS_A_TIME, step_text),
                                           .chunk_times = options->chunk_times,
                                           .compression = options->compression};
    VT_TRY(vt_fields_writer_open(path, &file, &writer));
    for (int64_t step = 0; step < plan->steps; step++) {
        vt_synthetic_fields(set->synthetic, plan->first_step + step, set->fields);
        VT_TRY(add_statistics(set, plan, step));
        VT_TRY(vt_fields_writer_append(writer, set->fields));
    }
    VT_TRY(vt_fields_writer_finish(&writer));
    double bytes = 4.0 * (double)(plan->steps * options->channels) * (double)(options->height * options->width);
    vt_synthetic_report(&options->output, path, plan->steps, "times", bytes, begin);
done:
    vt_fields_writer_close(&writer);
    free(directory);
    free(path);
    return status;
}

/* The statistics are of what the training files say. */
static vt_status describe(synthetic_set *set)
{
    char *directory = vt_text_format("%s/train", set->options->output.directory);
    const vt_status status = vt_fields_about_of_set(directory, "train", &(vt_fields_form){0}, &set->statistics->about);
    free(directory);
    return status;
}

vt_status vt_synthetic_set_write(const vt_synthetic_set_options *options)
{
    vt_status status = VT_OK;
    synthetic_set set = {.options = options};
    char *directory = vt_text_format("%s/stats", options->output.directory), *notes = NULL;
    VT_TRY(prepare(&set));
    for (int64_t i = 0; i < set.plan_count; i++) VT_TRY(write_year(&set, &set.plans[i]));
    VT_TRY(vt_statistics_write(set.statistics, directory));
    VT_TRY(describe(&set));
    VT_TRY(vt_statistics_write_rest(set.statistics, "synth", true, directory, &notes));
done:
    free(directory);
    free(notes);
    vt_statistics_close(&set.statistics);
    vt_synthetic_close(&set.synthetic);
    free(set.latitudes);
    free(set.longitudes);
    free(set.fields);
    free(set.plans);
    return status;
}
