#include "source/synthetic/sets.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
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
    char *path;
    int64_t year, first_step, steps;
    bool trains;
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

/* The training years, then one each for validation and test. */
static void make_plans(synthetic_set *set)
{
    const vt_synthetic_set_options *options = set->options;
    for (int64_t i = 0; i < options->years + 2; i++) {
        const int64_t part = i < options->years ? 0 : 1 + i - options->years, year = VT_SYNTHETIC_FIRST_YEAR + i;
        const int64_t steps[] = {options->steps_per_year, options->valid_steps, options->test_steps};
        if (steps[part] == 0) continue;
        char *path = vt_text_format("%s/%s/%lld.h5", options->output.directory, parts[part], (long long)year);
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
    if (!plan->trains) return VT_OK;
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
    char step_text[VT_DATE_SIZE], *directory = vt_file_directory(plan->path);
    VT_TRY(vt_output_make_directory(directory));
    const vt_fields_writer_options file = {.shape = {plan->steps, options->channels, options->height, options->width},
                                           .channel_names = set->names,
                                           .latitudes = set->latitudes,
                                           .longitudes = set->longitudes,
                                           .time_step = vt_length_format(60 * VT_HOURS_A_TIME, step_text),
                                           .chunk_times = options->chunk_times,
                                           .compression = options->compression};
    VT_TRY(vt_fields_writer_open(plan->path, &file, &writer));
    for (int64_t step = 0; step < plan->steps; step++) {
        vt_synthetic_fields(set->synthetic, plan->first_step + step, set->fields);
        VT_TRY(add_statistics(set, plan, step));
        VT_TRY(vt_fields_writer_append(writer, set->fields));
    }
    VT_TRY(vt_fields_writer_finish(&writer));
    double bytes = 4.0 * (double)(plan->steps * options->channels) * (double)(options->height * options->width);
    vt_synthetic_report(&options->output, plan->path, plan->steps, "times", bytes, begin);
done:
    vt_fields_writer_close(&writer);
    free(directory);
    return status;
}

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
    free(set.latitudes);
    free(set.longitudes);
    free(set.fields);
    for (int64_t i = 0; i < set.plan_count; i++) free(set.plans[i].path);
    free(set.plans);
    return status;
}
