#include "source/fields/statistics.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/dataset_inside.h"
#include "source/fields/seasonal.h"
#include "storage/npy.h"
#include "storage/output_file.h"

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
    vt_fields_about_close(&statistics->about);
    vt_statistics_close(&statistics->values);
    vt_time_statistics_close(&statistics->by_time);
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

double vt_statistics_mean(const vt_statistics *statistics, int64_t channel)
{
    return statistics->count[channel] > 0 ? statistics->mean[channel] : (double)NAN;
}

double vt_statistics_std(const vt_statistics *statistics, int64_t channel)
{
    return sqrt(statistics->deviation[channel] / statistics->count[channel]); /* NaN if there is none */
}

/* Takes in a time, in the units of the data, which is transformed in place. */
static vt_status add_time(const vt_dataset *dataset, const vt_date *date, int64_t step, bool begins, float *fields,
                          vt_statistics *statistics)
{
    vt_status status = VT_OK;
    vt_time_statistics *by_time = statistics->by_time;
    if (statistics->values != NULL) {
        vt_statistics_add(statistics->values, fields);
        if (by_time != NULL) VT_TRY(vt_time_statistics_add_values(by_time, date, fields));
        vt_transforms_apply(dataset->transforms, statistics->channels, statistics->points, fields);
    }
    vt_statistics_add(statistics, fields);
    if (by_time != NULL) VT_TRY(vt_time_statistics_add(by_time, date, step, begins, fields));
done:
    return status;
}

/* The times of a piece; those that can't be read are only warned of if the source is tolerant. */
static vt_status gather_piece(const vt_statistics_source *source, vt_dataset *dataset, const vt_set_piece *piece,
                              float *fields, vt_statistics *statistics)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    bool begins = true;
    const bool assumes = dataset->about->step == 0 && !piece->proven;
    const int64_t step = assumes ? 60 * VT_HOURS_A_TIME : dataset->about->step;
    VT_TRY(vt_fields_reading_use(&dataset->reading, piece->file, &file));
    for (int64_t i = 0; i < piece->times; i++) {
        const int64_t time = piece->first_time + i;
        const vt_date date = vt_index_date_in(&dataset->index, piece, i);
        const vt_status read =
            vt_fields_file_read(file, time, statistics->channels, &dataset->about->window, true, fields);
        if (read == VT_OK) {
            VT_TRY(add_time(dataset, piece->dated ? &date : NULL, step, begins, fields, statistics));
        } else {
            if (!source->tolerant) return read;
            vt_log_warning("time %ld of %s is left out: %s", time, file->path, vt_error_text());
            vt_error_clear();
            statistics->left_out++;
        }
        begins = read != VT_OK;
    }
done:
    return status;
}

static void warn_of_channel(const vt_statistics *statistics, int64_t channel)
{
    const char *name = statistics->about->names != NULL ? statistics->about->names[channel] : "";
    char *text =
        name[0] != '\0' ? vt_text_format("channel %ld (%s)", channel, name) : vt_text_format("channel %ld", channel);
    if (statistics->count[channel] == 0)
        vt_log_warning("%s has no value anywhere, so it can't be normalised; leave it out", text);
    else
        vt_log_warning("%s is %g everywhere: its standard deviation is 0, so it can't be normalised; leave it out",
                       text, statistics->mean[channel]);
    free(text);
}

/* Of the window, and what is known of its times. */
static vt_time_statistics *open_by_time(const vt_statistics_source *source, const vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    const vt_seasonal_fit_options shape = {.channels = options->in_channels,
                                           .height = options->height,
                                           .width = options->width,
                                           .harmonics = source->harmonics,
                                           .masked = options->form.masked};
    const char *undated = NULL;
    bool assumes = false;
    for (int64_t i = 0; i < dataset->index.piece_count; i++) {
        const vt_set_piece *piece = &dataset->index.pieces[i];
        assumes = assumes || (!piece->proven && dataset->about->step == 0);
        if (!piece->dated && undated == NULL) undated = vt_file_list_path(&dataset->reading.list, piece->file);
    }
    return vt_time_statistics_open(source->dt, &shape, assumes, undated);
}

vt_status vt_statistics_gather(const vt_statistics_source *source, vt_statistics **result)
{
    vt_status status = VT_OK;
    vt_statistics *statistics = NULL;
    vt_dataset *dataset = NULL;
    float *fields = NULL;
    const vt_dataset_options options = {.directory = source->directory,
                                        .option_name = source->option_name,
                                        .range = source->range,
                                        .sample_limit = VT_UNSET_INTEGER,
                                        .dt = 1,
                                        .form = source->form,
                                        .whole = true};
    *result = NULL;
    VT_TRY(vt_dataset_open(&options, &dataset));
    const vt_dataset_options *sizes = &dataset->options;
    statistics = vt_statistics_open(sizes->in_channels, sizes->height, sizes->width);
    if (dataset->transforms != NULL)
        statistics->values = vt_statistics_open(sizes->in_channels, sizes->height, sizes->width);
    fields = vt_allocate((size_t)(sizes->in_channels * sizes->height * sizes->width), sizeof *fields,
                         "the fields of one time");
    vt_log_lines(dataset->remarks.characters);
    if (source->dt > 0) statistics->by_time = open_by_time(source, dataset);
    for (int64_t i = 0; i < dataset->index.piece_count; i++)
        VT_TRY(gather_piece(source, dataset, &dataset->index.pieces[i], fields, statistics));
    VT_CHECK(statistics->times > 0, "%s '%s': its files hold no time %s", source->option_name, source->directory,
             statistics->left_out > 0 ? "that can be read" : "at all");
    statistics->about = dataset->about;
    dataset->about = NULL;
    if (source->dt > 0) statistics->about->dt = source->dt;
    for (int64_t c = 0; c < statistics->channels; c++)
        if (!(vt_statistics_std(statistics, c) > 0)) warn_of_channel(statistics, c);
    *result = statistics;
    statistics = NULL;
done:
    free(fields);
    vt_dataset_close(&dataset);
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
    const vt_statistics *own = statistics->values != NULL ? statistics->values : statistics;
    VT_TRY(vt_output_make_directory(directory));
    for (int64_t i = 0; i < values; i++)
        memory[i] = (float)(own->point_sum[i] / (double)own->point_count[i]); /* NaN: never there */
    VT_TRY(write_array(directory, "time_means.npy", memory, of_points));
    for (int64_t c = 0; c < channels; c++) memory[c] = (float)vt_statistics_mean(statistics, c);
    VT_TRY(write_array(directory, "global_means.npy", memory, of_channels));
    for (int64_t c = 0; c < channels; c++) memory[c] = (float)vt_statistics_std(statistics, c);
    VT_TRY(write_array(directory, "global_stds.npy", memory, of_channels));
done:
    free(memory);
    return status;
}

/* ---- what they are of ---- */

/* Of a file that is there; a climatology says its own. */
static vt_status find_checksum(const char *path, vt_normalising_file kind, int64_t *checksum)
{
    vt_status status = VT_OK;
    uint32_t found = 0;
    *checksum = -1;
    if (!vt_output_exists(path)) return VT_OK;
    if (kind == VT_FILE_OF_CLIMATOLOGY) return vt_seasonal_checksum(path, checksum);
    VT_TRY(vt_file_checksum(path, &found));
    *checksum = found;
done:
    return status;
}

vt_status vt_statistics_about(const char *path, vt_normalising_file kind, vt_fields_about **about)
{
    vt_status status = VT_OK;
    int64_t checksum;
    char *directory = vt_file_directory(path);
    VT_TRY(vt_fields_about_read(directory, about));
    VT_TRY(find_checksum(path, kind, &checksum));
    if (*about != NULL && (*about)->normalisation.checksums[kind] != checksum) vt_fields_about_close(about);
done:
    free(directory);
    return status;
}

vt_status vt_statistics_write_rest(vt_statistics *statistics, const char *command, bool all, const char *directory,
                                   char **notes)
{
    vt_status status = VT_OK;
    vt_fields_about *about = statistics->about;
    vt_fields_normalisation *numbers = &about->normalisation;
    double **const lists[3] = {&numbers->means, &numbers->stds, &numbers->change_stds};
    VT_TRY(vt_time_statistics_write(statistics->by_time, directory, about, notes));
    vt_fields_about_sign(about, command);
    for (int i = 0; i < 3; i++)
        *lists[i] = vt_allocate((size_t)statistics->channels, sizeof **lists[i], "the statistics");
    for (int64_t c = 0; c < statistics->channels; c++) {
        numbers->means[c] = vt_statistics_mean(statistics, c);
        numbers->stds[c] = vt_statistics_std(statistics, c);
        numbers->change_stds[c] = vt_time_statistics_change_std(statistics->by_time, c);
    }
    for (int i = 0; i < VT_NORMALISING_FILES; i++) {
        vt_fields_about *before = NULL;
        char *path = vt_text_format("%s/%s", directory, vt_normalising_names[i]);
        const bool is_new = all || i == VT_FILE_OF_CHANGES || i == VT_FILE_OF_CLIMATOLOGY;
        if (!is_new) status = vt_statistics_about(path, (vt_normalising_file)i, &before);
        if (status == VT_OK && (is_new || before != NULL))
            status = find_checksum(path, (vt_normalising_file)i, &numbers->checksums[i]);
        vt_fields_about_close(&before);
        free(path);
        if (status != VT_OK) goto done;
    }
    VT_TRY(vt_fields_about_write(directory, about));
done:
    return status;
}

/* ---- reading ---- */

/* A float32 or float64 .npy of shape [1, C, 1, 1]. Value c is its entry order[c]; NULL: entry c. */
static vt_status read_in_order(const char *path, const char *option_name, int64_t channels, const int64_t *order,
                               float *values)
{
    vt_status status = VT_OK;
    vt_npy array = {0};
    char shape[128];
    int64_t needed = channels;
    for (int64_t c = 0; order != NULL && c < channels; c++)
        if (order[c] >= needed) needed = order[c] + 1;
    if (vt_npy_open(path, &array) != VT_OK) {
        status = vt_error_context("%s (`vitrain stats` makes such a file)", option_name);
        goto done;
    }
    vt_tensor_shape_text(&array.shape, shape);
    const int64_t *extent = array.shape.shape;
    const bool fits = array.shape.dimensions == 4 && extent[0] == 1 && extent[2] == 1 && extent[3] == 1;
    VT_CHECK(fits && extent[1] >= needed,
             "%s: %s has shape %s, expected [1, C, 1, 1] with C at least %ld, the channels in use", option_name, path,
             shape, needed);
    for (int64_t c = 0; c < channels; c++) {
        const double value = array.values[order != NULL ? order[c] : c];
        VT_CHECK(isfinite(value), "%s: %s holds %g for channel %ld; make it again with `vitrain stats`", option_name,
                 path, value, c);
        values[c] = (float)value;
    }
done:
    vt_npy_close(&array);
    return status;
}

static vt_status check_stds(const char *path, const float *stds, int64_t channels)
{
    vt_status status = VT_OK;
    for (int64_t c = 0; c < channels; c++) {
        /* 0 also if float32 rounds it to 0: fields divided by it would be infinite */
        VT_CHECK(stds[c] != 0,
                 "global_stds_path: %s holds a standard deviation of 0 for channel %ld: a constant channel can't be "
                 "normalised; leave it out of the files, or write 1 there",
                 path, c);
        VT_CHECK(stds[c] > 0,
                 "global_stds_path: %s holds %g for channel %ld, but a standard deviation is above 0 (are means and "
                 "stds swapped?)",
                 path, (double)stds[c], c);
    }
done:
    return status;
}

vt_status vt_statistics_read(const char *path, vt_normalising_file kind, const vt_fields_rules *rules,
                             const vt_fields_side *data, float *values, int64_t *checksum, vt_text *remarks)
{
    static const char *const options[] = {"global_means_path", "global_stds_path", "time_diff_stds_path"};
    vt_status status = VT_OK;
    const int64_t channels = data->about->channels;
    vt_fields_about *about = NULL;
    int64_t *order = NULL;
    VT_ASSERT(kind <= VT_FILE_OF_CHANGES);
    VT_TRY(vt_statistics_about(path, kind, &about));
    if (about != NULL) {
        const vt_fields_side own = {about, path};
        VT_TRY(vt_fields_compare(rules, data, &own, remarks));
        order = vt_fields_order(data->about, about);
    } else if (remarks->length == 0) {
        vt_text_append(remarks,
                       "%s doesn't say which data it was made from: its channels are taken to be those of %s, in "
                       "their order and units",
                       path, data->name);
    }
    VT_TRY(read_in_order(path, options[kind], channels, order, values));
    if (kind == VT_FILE_OF_STDS) VT_TRY(check_stds(path, values, channels));
    VT_TRY(find_checksum(path, kind, checksum));
done:
    free(order);
    vt_fields_about_close(&about);
    return status;
}
