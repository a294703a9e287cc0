#include "data/statistics.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/fields_file.h"
#include "data/file_list.h"
#include "data/npy.h"
#include "data/output_file.h"
#include "report/log.h"

struct vt_statistics {
    int64_t channels, points, height, width;
    int64_t times;
    double *mean;      /* [channels] */
    double *deviation; /* [channels]: sum of (x - mean)^2 */
    double *point_sum; /* [channels, height, width]: sum over the times; float64 is exact enough for 1e6 of them */
    char **names;      /* [channels], or NULL */
};

vt_status vt_statistics_open(int64_t channels, int64_t height, int64_t width, vt_statistics **result)
{
    vt_status status = VT_OK;
    vt_statistics *statistics = calloc(1, sizeof *statistics);
    *result = NULL;
    VT_CHECK(statistics != NULL, "out of memory");
    *statistics =
        (vt_statistics){.channels = channels, .points = height * width, .height = height, .width = width, .times = 0};
    statistics->mean = calloc((size_t)channels, sizeof(double));
    statistics->deviation = calloc((size_t)channels, sizeof(double));
    statistics->point_sum = calloc((size_t)(channels * height * width), sizeof(double));
    VT_CHECK(statistics->mean != NULL && statistics->deviation != NULL && statistics->point_sum != NULL,
             "out of memory for the statistics of [%lld, %lld, %lld]", (long long)channels, (long long)height,
             (long long)width);
    *result = statistics;
    statistics = NULL;
done:
    vt_statistics_close(&statistics);
    return status;
}

void vt_statistics_close(vt_statistics **pointer)
{
    vt_statistics *statistics = *pointer;
    if (statistics == NULL) return;
    *pointer = NULL;
    for (int64_t c = 0; statistics->names != NULL && c < statistics->channels; c++) free(statistics->names[c]);
    free(statistics->names);
    free(statistics->mean);
    free(statistics->deviation);
    free(statistics->point_sum);
    free(statistics);
}

/* Mean and squared deviation of the field in two passes, then merged with what came before. */
static void add_channel(vt_statistics *statistics, int64_t channel, const float *field)
{
    const int64_t points = statistics->points;
    double *point_sum = statistics->point_sum + channel * points;
    double sum = 0, deviation = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < points; i++) {
        sum += (double)field[i];
        point_sum[i] += (double)field[i];
    }
    const double mean = sum / (double)points;
#pragma omp simd reduction(+ : deviation)
    for (int64_t i = 0; i < points; i++) deviation += ((double)field[i] - mean) * ((double)field[i] - mean);
    const double before = (double)statistics->times, all = before + 1; /* in units of `points` */
    const double difference = mean - statistics->mean[channel];
    statistics->deviation[channel] += deviation + difference * difference * (double)points * before / all;
    statistics->mean[channel] += difference / all;
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

double vt_statistics_mean(const vt_statistics *statistics, int64_t channel)
{
    return statistics->mean[channel];
}

double vt_statistics_std(const vt_statistics *statistics, int64_t channel)
{
    return sqrt(statistics->deviation[channel] / ((double)statistics->times * (double)statistics->points));
}

const char *vt_statistics_channel_name(const vt_statistics *statistics, int64_t channel)
{
    return statistics->names != NULL ? statistics->names[channel] : "";
}

static vt_status take_names(vt_statistics *statistics, const char *const *names)
{
    vt_status status = VT_OK;
    if (names == NULL) goto done;
    statistics->names = calloc((size_t)statistics->channels, sizeof *statistics->names);
    VT_CHECK(statistics->names != NULL, "out of memory for channel names");
    for (int64_t c = 0; c < statistics->channels; c++) statistics->names[c] = vt_text_copy(names[c]);
done:
    return status;
}

/* All times of one file; the first file determines the shape. */
static vt_status gather_file(const vt_file_list *list, int64_t group, const vt_fields_form *form,
                             const vt_window_range *range, vt_statistics **statistics)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    float *fields = NULL;
    vt_frame_window window;
    const char *const *paths = (const char *const *)list->paths + list->first[group], *path = paths[0];
    VT_TRY(vt_fields_file_open(paths, list->first[group + 1] - list->first[group], form, &file));
    VT_TRY(vt_fields_file_check_written(file));
    vt_fields_shape shape = vt_fields_file_shape(file);
    const vt_window_grid grid = {path, shape.height, shape.width, vt_fields_file_latitudes(file),
                                 vt_fields_file_longitudes(file)};
    VT_TRY(vt_window_find(range, &grid, &window));
    shape.height = window.rows;
    shape.width = window.width;
    if (*statistics == NULL) {
        VT_TRY(vt_statistics_open(shape.channels, shape.height, shape.width, statistics));
        VT_ASSERT(*statistics != NULL);
        VT_TRY(take_names(*statistics, vt_fields_file_channel_names(file)));
    }
    VT_ASSERT(*statistics != NULL);
    VT_CHECK(shape.channels == (*statistics)->channels && shape.height == (*statistics)->height &&
                 shape.width == (*statistics)->width,
             "%s: 'fields' is [%lld, %lld, %lld, %lld] (time, channel, lat, lon), but the files before it have [%lld, "
             "%lld, %lld] per time; all files need the same grid and channels",
             path, (long long)shape.times, (long long)shape.channels, (long long)shape.height, (long long)shape.width,
             (long long)(*statistics)->channels, (long long)(*statistics)->height, (long long)(*statistics)->width);
    fields = malloc((size_t)(shape.channels * shape.height * shape.width) * sizeof *fields);
    VT_CHECK(fields != NULL, "out of memory for the fields of one time of %s", path);
    for (int64_t time = 0; time < shape.times; time++) {
        VT_TRY(vt_fields_file_read_window(file, time, shape.channels, &window, fields));
        vt_statistics_add(*statistics, fields);
    }
done:
    free(fields);
    vt_fields_file_close(&file);
    return status;
}

vt_status vt_statistics_gather(const char *directory, const char *option_name, const vt_fields_form *form,
                               const vt_window_range *range, vt_statistics **result)
{
    vt_status status = VT_OK;
    vt_statistics *statistics = NULL;
    vt_file_list list = {0};
    *result = NULL;
    VT_TRY(vt_file_list_open(directory, option_name, form != NULL && form->variables != NULL, &list));
    VT_TRY(vt_file_list_check(&list));
    for (int64_t i = 0; i < list.groups; i++) VT_TRY(gather_file(&list, i, form, range, &statistics));
    VT_ASSERT(statistics != NULL);
    VT_CHECK(statistics->times > 0, "%s '%s': its files hold no time at all", option_name, directory);
    for (int64_t c = 0; c < statistics->channels; c++) {
        if (vt_statistics_std(statistics, c) > 0) continue;
        const char *name = vt_statistics_channel_name(statistics, c);
        vt_log_warning("channel %lld%s%s%s is %g everywhere: its standard deviation is 0, so it can't be normalised; "
                       "leave it out",
                       (long long)c, name[0] != '\0' ? " (" : "", name, name[0] != '\0' ? ")" : "",
                       statistics->mean[c]);
    }
    *result = statistics;
    statistics = NULL;
done:
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
    float *memory = malloc((size_t)values * sizeof *memory);
    VT_CHECK(memory != NULL, "out of memory for the statistics");
    VT_TRY(vt_output_make_directory(directory));
    for (int64_t i = 0; i < values; i++) memory[i] = (float)(statistics->point_sum[i] / (double)statistics->times);
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
    shape = vt_npy_shape_text(&array);
    bool fits = array.dimensions == 4 && array.shape[0] == 1 && array.shape[2] == 1 && array.shape[3] == 1;
    VT_CHECK(fits && array.shape[1] >= channels,
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
        /* also what float32 rounds to 0: fields divided by it would be infinite */
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
