#include "source/fields/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/dataset_inside.h"
#include "storage/npy.h"
#include "storage/output_file.h"

struct vt_statistics {
    int64_t channels, points, height, width;
    int64_t times, left_out;
    double *count;        /* [channels]: values that were there */
    double *mean;         /* [channels] */
    double *deviation;    /* [channels]: sum of (x - mean)^2 */
    double *point_sum;    /* [channels, height, width]: sum over the times; float64 is exact enough for 1e6 of them */
    int32_t *point_count; /* [channels, height, width] */
    char **names;         /* [channels], or NULL */
};

vt_statistics *vt_statistics_open(int64_t channels, int64_t height, int64_t width)
{
    static const char purpose[] = "the statistics";
    const size_t count = (size_t)channels, values = (size_t)(channels * height * width);
    vt_statistics *statistics = vt_allocate(1, sizeof *statistics, purpose);
    *statistics = (vt_statistics){.channels = channels, .points = height * width, .height = height, .width = width};
    statistics->count = vt_allocate(count, sizeof(double), purpose);
    statistics->mean = vt_allocate(count, sizeof(double), purpose);
    statistics->deviation = vt_allocate(count, sizeof(double), purpose);
    statistics->point_sum = vt_allocate(values, sizeof(double), purpose);
    statistics->point_count = vt_allocate(values, sizeof(int32_t), purpose);
    return statistics;
}

void vt_statistics_close(vt_statistics **pointer)
{
    vt_statistics *statistics = *pointer;
    if (statistics == NULL) return;
    *pointer = NULL;
    vt_text_free_list(statistics->names, statistics->channels);
    free(statistics->count);
    free(statistics->mean);
    free(statistics->deviation);
    free(statistics->point_sum);
    free(statistics->point_count);
    free(statistics);
}

/* Mean and squared deviation of the field in two passes, then merged with what came before. */
static void add_channel(vt_statistics *statistics, int64_t channel, const float *field)
{
    const int64_t points = statistics->points;
    double *point_sum = statistics->point_sum + channel * points;
    int32_t *point_count = statistics->point_count + channel * points;
    double sum = 0, deviation = 0;
    int64_t there = 0;
#pragma omp simd reduction(+ : sum, there)
    for (int64_t i = 0; i < points; i++) {
        const double value = isnan(field[i]) ? 0 : (double)field[i];
        sum += value;
        point_sum[i] += value;
        there += !isnan(field[i]);
        point_count[i] += !isnan(field[i]);
    }
    if (there == 0) return;
    const double mean = sum / (double)there;
#pragma omp simd reduction(+ : deviation)
    for (int64_t i = 0; i < points; i++) {
        const double difference = isnan(field[i]) ? 0 : (double)field[i] - mean;
        deviation += difference * difference;
    }
    const double before = statistics->count[channel] / (double)there, all = before + 1; /* in units of `there` */
    const double difference = mean - statistics->mean[channel];
    statistics->deviation[channel] += deviation + difference * difference * (double)there * before / all;
    statistics->mean[channel] += difference / all;
    statistics->count[channel] += (double)there;
}

void vt_statistics_add(vt_statistics *statistics, const float *fields)
{
#pragma omp parallel for schedule(static) if (statistics->channels * statistics->points > 1 << 16)
    for (int64_t c = 0; c < statistics->channels; c++) add_channel(statistics, c, fields + c * statistics->points);
    statistics->times++;
}

int64_t vt_statistics_channels(const vt_statistics *statistics)
{
    return statistics->channels;
}

int64_t vt_statistics_times(const vt_statistics *statistics)
{
    return statistics->times;
}

int64_t vt_statistics_left_out(const vt_statistics *statistics)
{
    return statistics->left_out;
}

double vt_statistics_mean(const vt_statistics *statistics, int64_t channel)
{
    return statistics->count[channel] > 0 ? statistics->mean[channel] : (double)NAN;
}

double vt_statistics_std(const vt_statistics *statistics, int64_t channel)
{
    return sqrt(statistics->deviation[channel] / statistics->count[channel]); /* NaN if there is none */
}

const char *vt_statistics_channel_name(const vt_statistics *statistics, int64_t channel)
{
    return statistics->names != NULL ? statistics->names[channel] : "";
}

static void take_names(vt_statistics *statistics, const char *const *names)
{
    if (names == NULL) return;
    statistics->names = vt_allocate((size_t)statistics->channels, sizeof *statistics->names, "the statistics");
    for (int64_t c = 0; c < statistics->channels; c++) statistics->names[c] = vt_text_copy(names[c]);
}

/* One time of a file; if it can't be read and the source is tolerant, that is only a warning. */
static vt_status gather_time(const vt_statistics_source *source, vt_fields_file *file, int64_t time,
                             const vt_frame_window *window, float *fields, vt_statistics *statistics)
{
    vt_status status = vt_fields_file_read(file, time, statistics->channels, window, true, fields);
    if (status == VT_OK) {
        vt_statistics_add(statistics, fields);
        if (source->times != NULL) status = vt_time_statistics_add_of_file(source->times, file, time, fields);
    } else if (source->tolerant) {
        vt_log_warning("time %lld of %s is left out: %s", (long long)time, file->path, vt_error_text());
        vt_error_clear();
        statistics->left_out++;
        status = VT_OK;
    }
    return status;
}

/* Checks that the file goes together with those before it, which `common` describes; the first one begins it. */
static vt_status agree(vt_dataset *common, const vt_file_list *list, int64_t group, const vt_fields_file *file,
                       const vt_frame_window *window)
{
    vt_status status = VT_OK;
    const bool is_first = common->meanings == NULL;
    if (is_first) {
        common->list = (vt_file_list){.paths = list->paths, .first = list->first + group, .groups = 1};
        common->shape = file->shape;
        common->window = *window;
        common->options.height = window->rows;
        common->options.width = window->width;
        vt_dataset_take_channels(common, file);
    }
    VT_TRY(vt_dataset_compare_with_first(common, file));
    VT_TRY(vt_dataset_agree_on_grid(common, file));
    VT_TRY(vt_dataset_agree_on_rows(common, file));
    if (file->times.count == 0) goto done;
    VT_TRY(vt_dataset_compare_times(common, file->path, &file->times));
    if (common->piece_count > 0) goto done;
    common->pieces = vt_allocate(1, sizeof *common->pieces, "the statistics");
    common->pieces[common->piece_count++] = (vt_set_piece){.dated = true, .date = file->times.stretches[0].date};
done:
    return status;
}

static void close_common(vt_dataset *common)
{
    vt_text_free_list(common->channel_names, common->shape.channels);
    for (int k = 0; k < 2; k++) free(common->stored[k]);
    free(common->meanings);
    free(common->pieces);
    free(common->turned);
    free(common->unknown);
    free(common->grid_doubt);
}

/* All times of one file; the first file determines the shape. */
static vt_status gather_file(const vt_statistics_source *source, const vt_file_list *list, int64_t group,
                             vt_dataset *common, vt_statistics **statistics)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    float *fields = NULL;
    vt_frame_window window;
    const char *const *paths = (const char *const *)list->paths + list->first[group];
    VT_TRY(vt_fields_file_open(paths, list->first[group + 1] - list->first[group], &source->form, &file));
    if (file->shape.times == 0 && source->form.period != NULL) goto done;
    VT_TRY(vt_fields_file_check_written(file));
    const int64_t channels = file->shape.channels;
    const vt_window_grid grid = vt_fields_file_grid(file);
    VT_TRY(vt_window_find(&source->range, &grid, &window));
    VT_TRY(agree(common, list, group, file, &window));
    if (*statistics == NULL) {
        *statistics = vt_statistics_open(channels, window.rows, window.width);
        take_names(*statistics, file->channel_names);
    }
    fields = vt_allocate((size_t)(channels * window.rows * window.width), sizeof *fields, "the fields of one time");
    if (source->times != NULL) vt_time_statistics_begin_file(source->times, file, &window, source->form.masked);
    for (int64_t time = 0; time < file->shape.times; time++)
        VT_TRY(gather_time(source, file, time, &window, fields, *statistics));
done:
    free(fields);
    vt_fields_file_close(&file);
    return status;
}

static void warn_of_channel(const vt_statistics *statistics, int64_t channel)
{
    const char *name = vt_statistics_channel_name(statistics, channel);
    char *text = name[0] != '\0' ? vt_text_format("channel %lld (%s)", (long long)channel, name)
                                 : vt_text_format("channel %lld", (long long)channel);
    if (statistics->count[channel] == 0)
        vt_log_warning("%s has no value anywhere, so it can't be normalised; leave it out", text);
    else
        vt_log_warning("%s is %g everywhere: its standard deviation is 0, so it can't be normalised; leave it out",
                       text, statistics->mean[channel]);
    free(text);
}

vt_status vt_statistics_gather(const vt_statistics_source *source, vt_statistics **result)
{
    vt_status status = VT_OK;
    vt_statistics *statistics = NULL;
    vt_file_list list = {0};
    vt_dataset common = {0};
    *result = NULL;
    VT_TRY(vt_file_list_open(source->directory, source->option_name, source->form.variables != NULL, &list));
    VT_TRY(vt_file_list_check(&list));
    for (int64_t i = 0; i < list.groups; i++) VT_TRY(gather_file(source, &list, i, &common, &statistics));
    VT_CHECK(statistics != NULL, "%s '%s': none of its times lies in %s %s", source->option_name, source->directory,
             source->form.period_option, source->form.period);
    VT_CHECK(statistics->times > 0, "%s '%s': its files hold no time %s", source->option_name, source->directory,
             statistics->left_out > 0 ? "that can be read" : "at all");
    for (int64_t c = 0; c < statistics->channels; c++)
        if (!(vt_statistics_std(statistics, c) > 0)) warn_of_channel(statistics, c);
    *result = statistics;
    statistics = NULL;
done:
    close_common(&common);
    vt_file_list_close(&list);
    vt_statistics_close(&statistics);
    return status;
}

static vt_status write_array(const char *directory, const char *name, const float *values, const int64_t shape[4])
{
    char *path = vt_text_format("%s/%s", directory, name);
    vt_status status = vt_npy_write(path, values, shape, 4);
    free(path);
    return status;
}

vt_status vt_statistics_write(const vt_statistics *statistics, const char *directory)
{
    vt_status status = VT_OK;
    const int64_t channels = statistics->channels, values = channels * statistics->points;
    const int64_t of_channels[4] = {1, channels, 1, 1};
    const int64_t of_points[4] = {1, channels, statistics->height, statistics->width};
    float *memory = vt_allocate((size_t)values, sizeof *memory, "the statistics");
    VT_TRY(vt_output_make_directory(directory));
    for (int64_t i = 0; i < values; i++)
        memory[i] = (float)(statistics->point_sum[i] / (double)statistics->point_count[i]); /* NaN: never there */
    VT_TRY(write_array(directory, "time_means.npy", memory, of_points));
    for (int64_t c = 0; c < channels; c++) memory[c] = (float)vt_statistics_mean(statistics, c);
    VT_TRY(write_array(directory, "global_means.npy", memory, of_channels));
    for (int64_t c = 0; c < channels; c++) memory[c] = (float)vt_statistics_std(statistics, c);
    VT_TRY(write_array(directory, "global_stds.npy", memory, of_channels));
done:
    free(memory);
    return status;
}

vt_status vt_statistics_read(const char *path, const char *option_name, int64_t channels, float *values)
{
    vt_status status = VT_OK;
    vt_npy array = {0};
    char *shape = NULL;
    if (vt_npy_open(path, &array) != VT_OK) {
        status = vt_error_context("%s (`vitrain stats` makes such a file)", option_name);
        goto done;
    }
    shape = vt_npy_shape_text(&array.form);
    bool fits =
        array.form.dimensions == 4 && array.form.shape[0] == 1 && array.form.shape[2] == 1 && array.form.shape[3] == 1;
    VT_CHECK(fits && array.form.shape[1] >= channels,
             "%s: %s has shape %s, expected [1, C, 1, 1] with C at least %lld, the channels in use", option_name, path,
             shape, (long long)channels);
    for (int64_t c = 0; c < channels; c++) {
        VT_CHECK(isfinite(array.values[c]), "%s: %s holds %g for channel %lld; make it again with `vitrain stats`",
                 option_name, path, array.values[c], (long long)c);
        values[c] = (float)array.values[c];
    }
done:
    free(shape);
    vt_npy_close(&array);
    return status;
}

vt_status vt_statistics_read_pair(const char *means_path, const char *stds_path, int64_t channels, float *means,
                                  float *stds)
{
    vt_status status = VT_OK;
    VT_TRY(vt_statistics_read(means_path, "global_means_path", channels, means));
    VT_TRY(vt_statistics_read(stds_path, "global_stds_path", channels, stds));
    for (int64_t c = 0; c < channels; c++) {
        /* 0 also if float32 rounds it to 0: fields divided by it would be infinite */
        VT_CHECK(stds[c] != 0,
                 "global_stds_path: %s holds a standard deviation of 0 for channel %lld: a constant channel can't be "
                 "normalised; leave it out of the files, or write 1 there",
                 stds_path, (long long)c);
        VT_CHECK(stds[c] > 0,
                 "global_stds_path: %s holds %g for channel %lld, but a standard deviation is above 0 (are means and "
                 "stds swapped?)",
                 stds_path, (double)stds[c], (long long)c);
    }
done:
    return status;
}
