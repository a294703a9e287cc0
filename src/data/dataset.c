#include "data/dataset_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "config/config.h"
#include "data/fields_file.h"
#include "data/file_list.h"
#include "report/log.h"

/* Files kept open, for opening one costs a few round trips to a parallel file system; a set of ERA5 has 26. Their
 * caches of decoded chunks together stay below CACHE_BUDGET, or there is one file. */
#define OPEN_FILES 32
#define CACHE_BUDGET (INT64_C(1) << 30)

/* Decoded chunks of several times that the own reader keeps. */
#define CHUNK_BUDGET (INT64_C(512) << 20)

enum { SYNTHETIC_SAMPLES = 1459 }; /* a year */

static void close_file(vt_dataset *dataset, vt_yearly_file *file)
{
    if (file->file == NULL) return;
    vt_fields_file_forget(file->file, &dataset->cache);
    vt_fields_file_close(&file->file);
    dataset->open_files--;
}

vt_status vt_dataset_use_file(vt_dataset *dataset, int64_t index, vt_fields_file **result)
{
    vt_status status = VT_OK;
    vt_yearly_file *file = &dataset->files[index];
    file->last_use = ++dataset->use_clock;
    if (file->file == NULL) {
        while (dataset->open_files >= dataset->open_limit) {
            vt_yearly_file *oldest = NULL;
            for (int64_t i = 0; i < dataset->list.groups; i++) {
                vt_yearly_file *other = &dataset->files[i];
                if (other->file == NULL || other->users > 0) continue;
                if (oldest == NULL || other->last_use < oldest->last_use) oldest = other;
            }
            if (oldest == NULL) break; /* all are in use: one more than wished for */
            close_file(dataset, oldest);
        }
        const int64_t first = dataset->list.first[index], end = dataset->list.first[index + 1];
        const char *const *paths = (const char *const *)dataset->list.paths + first;
        VT_TRY((file->tried ? vt_fields_file_open_again
                            : vt_fields_file_open)(paths, end - first, dataset->options.variables, &file->file));
        file->tried = true;
        dataset->open_files++;
    }
    *result = file->file;
done:
    return status;
}

static vt_status check_window(const vt_dataset_options *options, const char *path, const vt_fields_shape *shape)
{
    vt_status status = VT_OK;
    const int64_t channels = vt_dataset_window_channels(options);
    const long long found[4] = {shape->times, shape->channels, shape->height, shape->width};
    VT_CHECK(options->height <= shape->height && options->width <= shape->width,
             "%s: 'fields' is [%lld, %lld, %lld, %lld] (time, channel, lat, lon), too small for img_size [%lld, %lld]; "
             "set --img_size=[%lld,%lld], or less",
             path, found[0], found[1], found[2], found[3], (long long)options->height, (long long)options->width,
             found[2], found[3]);
    VT_CHECK(channels <= shape->channels,
             "%s: 'fields' has %lld channels, but n_in_channels %lld with n_history %lld needs %lld; set "
             "--n_in_channels=%lld, or less",
             path, found[1], (long long)options->in_channels, (long long)options->history, (long long)channels,
             found[1] * (long long)(options->history + 1));
    VT_CHECK(options->out_channels <= shape->channels,
             "%s: 'fields' has %lld channels, but n_out_channels is %lld; set --n_out_channels=%lld, or less", path,
             found[1], (long long)options->out_channels, found[1]);
done:
    return status;
}

static vt_status take_names(vt_dataset *dataset, const vt_fields_file *file)
{
    vt_status status = VT_OK;
    const char *const *names = vt_fields_file_channel_names(file);
    if (names == NULL) goto done;
    dataset->channel_names = calloc((size_t)dataset->shape.channels, sizeof *dataset->channel_names);
    VT_CHECK(dataset->channel_names != NULL, "out of memory for channel names");
    for (int64_t c = 0; c < dataset->shape.channels; c++) dataset->channel_names[c] = vt_text_copy(names[c]);
done:
    return status;
}

/* The grid of the window, as the first file that has coordinates says it; that of the others is the same. */
static vt_status agree_on_grid(vt_dataset *dataset, const vt_fields_file *file)
{
    static const char *const names[2] = {"latitudes", "longitudes"};
    vt_status status = VT_OK;
    const double *const values[2] = {vt_fields_file_latitudes(file), vt_fields_file_longitudes(file)};
    const int64_t counts[2] = {dataset->options.height, dataset->options.width};
    for (int k = 0; k < 2; k++) {
        if (values[k] == NULL) continue;
        const bool first = dataset->stored[k] == NULL;
        if (first) dataset->stored[k] = vt_allocate((size_t)counts[k], sizeof(double), "the grid of a data set");
        for (int64_t i = 0; i < counts[k]; i++) {
            if (first) dataset->stored[k][i] = values[k][i];
            VT_CHECK(
                fabs(dataset->stored[k][i] - values[k][i]) < 1e-3,
                "%s: its %s are not those of the files before it (%g at %lld, not %g); all files need the same grid",
                vt_fields_file_path(file), names[k], values[k][i], (long long)i, dataset->stored[k][i]);
        }
    }
done:
    return status;
}

static vt_status take_latitudes(vt_dataset *dataset, const vt_fields_file *file)
{
    vt_status status = VT_OK;
    const double *stored = file != NULL ? vt_fields_file_latitudes(file) : NULL;
    const int64_t rows = dataset->shape.height;
    dataset->latitudes = malloc((size_t)dataset->options.height * sizeof *dataset->latitudes);
    VT_CHECK(dataset->latitudes != NULL, "out of memory for latitudes");
    for (int64_t row = 0; row < dataset->options.height; row++) {
        double even = rows > 1 ? 90.0 - 180.0 * (double)row / (double)(rows - 1) : 0.0;
        dataset->latitudes[row] = stored != NULL ? stored[row] : even;
    }
done:
    return status;
}

/* All files of a directory have the first one's grid and channels. */
static vt_status compare_with_first(const vt_dataset *dataset, const vt_fields_file *file)
{
    vt_status status = VT_OK;
    const char *path = vt_fields_file_path(file), *first_path = vt_dataset_group_path(dataset, 0);
    const char *const *names = vt_fields_file_channel_names(file);
    const vt_fields_shape shape = vt_fields_file_shape(file), *first = &dataset->shape;
    VT_CHECK(shape.channels == first->channels, "%s has %lld channels, but %s has %lld; all files need the same ones",
             path, (long long)shape.channels, first_path, (long long)first->channels);
    VT_CHECK(shape.height == first->height && shape.width == first->width,
             "%s has a grid of [%lld, %lld], but %s has [%lld, %lld]; all files need the same one", path,
             (long long)shape.height, (long long)shape.width, first_path, (long long)first->height,
             (long long)first->width);
    for (int64_t c = 0; names != NULL && dataset->channel_names != NULL && c < shape.channels; c++)
        VT_CHECK(strcmp(names[c], dataset->channel_names[c]) == 0,
                 "%s: channel %lld is '%s', but in %s it is '%s'; all files need the same channels in the same order",
                 path, (long long)c, names[c], first_path, dataset->channel_names[c]);
done:
    return status;
}

/* ---- times ---- */

static void add_stretch(vt_dataset *dataset, const vt_set_stretch *stretch)
{
    const vt_dataset_options *options = &dataset->options;
    const int64_t count = dataset->stretch_count, span = options->dt * (options->history + 1);
    int64_t samples = stretch->times - span, within = samples;
    if ((count & (count - 1)) == 0) /* grows at every power of two */
        dataset->stretches = vt_reallocate(dataset->stretches, count == 0 ? 1 : 2 * (size_t)count,
                                           sizeof *dataset->stretches, "the times of data files");
    vt_set_stretch *own = &dataset->stretches[dataset->stretch_count++];
    *own = *stretch;
    own->first_sample = dataset->sample_count;
    own->first_frame = dataset->frame_count;
    if (options->sample_limit != VT_UNSET_INTEGER && options->sample_limit - dataset->sample_count < within)
        within = options->sample_limit - dataset->sample_count;
    dataset->sample_count += samples > 0 ? samples : 0;
    dataset->frame_count += within > 0 ? within + span : 0;
}

/* All files have their times as far apart, in the same calendar; one that begins before the end of another's is told.
 */
static vt_status compare_times(vt_dataset *dataset, const char *path, const vt_time_axis *axis)
{
    vt_status status = VT_OK;
    char steps[2][VT_DATE_SIZE], dates[2][VT_DATE_SIZE];
    const vt_set_stretch *before = NULL;
    for (int64_t i = 0; i < dataset->stretch_count; i++)
        if (dataset->stretches[i].dated) before = &dataset->stretches[i];
    if (dataset->minutes_a_time == 0) dataset->minutes_a_time = axis->minutes;
    VT_CHECK(axis->minutes == 0 || axis->minutes == dataset->minutes_a_time,
             "%s: its times are %s apart, those of the files before it %s; all files need the same", path,
             vt_time_interval(axis->minutes, steps[0]), vt_time_interval(dataset->minutes_a_time, steps[1]));
    if (before == NULL) goto done;
    VT_CHECK(before->date.calendar == axis->stretches[0].date.calendar,
             "%s: its calendar is '%s', that of the files before it '%s'; all files need the same", path,
             vt_calendar_name(axis->stretches[0].date.calendar), vt_calendar_name(before->date.calendar));
    const vt_date last = vt_date_after(before->date, (before->times - 1) * dataset->minutes_a_time);
    if (axis->stretches[0].date.minutes <= last.minutes && dataset->told.overlaps++ == 0)
        vt_log_warning("%s begins at %s, but %s reaches to %s: what both hold is used twice, and the file names don't "
                       "follow the time",
                       path, vt_date_format(axis->stretches[0].date, dates[0]),
                       vt_dataset_group_path(dataset, before->file), vt_date_format(last, dates[1]));
done:
    return status;
}

/* The samples of a file: within each stretch of its times. */
static vt_status take_times(vt_dataset *dataset, int64_t index, const vt_fields_file *file)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &dataset->options;
    const char *path = vt_fields_file_path(file);
    const vt_time_axis *axis = vt_fields_file_times(file);
    const int64_t times = vt_fields_file_shape(file).times, before = dataset->sample_count;
    char from[VT_DATE_SIZE], to[VT_DATE_SIZE], step[VT_DATE_SIZE];
    vt_set_stretch stretch = {.file = index, .times = times};
    if (axis->doubt != NULL && dataset->time_doubt == NULL) dataset->time_doubt = vt_text_copy(axis->doubt);
    if (axis->count == 0) {
        stretch.dated = vt_date_of_file_name(path, &stretch.date);
        add_stretch(dataset, &stretch);
    } else {
        VT_TRY(compare_times(dataset, path, axis));
    }
    for (int64_t i = 0; i < axis->count; i++) {
        const vt_stretch *own = &axis->stretches[i], *last = own - 1;
        stretch = (vt_set_stretch){
            .file = index, .first_time = own->first, .times = own->count, .dated = true, .date = own->date};
        add_stretch(dataset, &stretch);
        if (i == 1 && dataset->told.gaps++ == 0)
            vt_log_warning("%s has no times between %s and %s%s, where others are %s apart: no sample reaches across",
                           path, vt_date_format(vt_date_after(last->date, (last->count - 1) * axis->minutes), from),
                           vt_date_format(own->date, to), axis->count > 2 ? ", and more such gaps" : "",
                           vt_time_interval(axis->minutes, step));
    }
    if (dataset->sample_count == before && dataset->told.too_short++ == 0)
        vt_log_warning(
            "%s has %lld times%s, too few for a sample, which spans %lld (n_history %lld, dt %lld): not used", path,
            (long long)times, axis->count > 1 ? " with gaps between them" : "",
            (long long)(options->dt * (options->history + 1) + 1), (long long)options->history, (long long)options->dt);
done:
    return status;
}

static void tell_more(int64_t count, const char *what, const char *directory)
{
    if (count > 1) vt_log_warning("%lld files of %s in all %s", (long long)count, directory, what);
}

void vt_dataset_log_times(const vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    char dates[2][VT_DATE_SIZE], steps[2][VT_DATE_SIZE];
    if (dataset->time_doubt != NULL)
        vt_log_warning("%s; so dates follow from the names of the files, and whether times are missing isn't known",
                       dataset->time_doubt);
    if (dataset->minutes_a_time == 0) return;
    const vt_set_stretch *first = dataset->stretches, *last = first + dataset->stretch_count - 1;
    const int64_t minutes = dataset->minutes_a_time;
    if (first->dated && last->dated)
        vt_log_info("times: %s to %s, every %s", vt_date_format(first->date, dates[0]),
                    vt_date_format(vt_date_after(last->date, (last->times - 1) * minutes), dates[1]),
                    vt_time_interval(minutes, steps[0]));
    const int64_t usual = 60 * VT_HOURS_A_TIME;
    if (minutes == usual || options->dt * minutes == usual) return;
    char *advice = usual % minutes == 0
                       ? vt_text_format("; %d hours would be --dt=%lld", VT_HOURS_A_TIME, (long long)(usual / minutes))
                       : vt_text_copy("");
    vt_log_warning("the files have a time every %s, not every %d h: with dt %lld a forecast reaches %s ahead%s",
                   vt_time_interval(minutes, steps[0]), VT_HOURS_A_TIME, (long long)options->dt,
                   vt_time_interval(options->dt * minutes, steps[1]), advice);
    free(advice);
}

/* ---- files ---- */

static vt_status look_at_file(vt_dataset *dataset, int64_t index)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    const vt_dataset_options *options = &dataset->options;
    const char *path = vt_dataset_group_path(dataset, index);
    VT_TRY(vt_dataset_use_file(dataset, index, &file));
    VT_TRY(vt_fields_file_check_written(file));
    vt_fields_shape shape = vt_fields_file_shape(file);
    VT_TRY(check_window(options, path, &shape));
    if (index == 0) {
        dataset->shape = shape;
        VT_TRY(take_names(dataset, file));
        VT_TRY(take_latitudes(dataset, file));
    }
    VT_TRY(compare_with_first(dataset, file));
    VT_TRY(agree_on_grid(dataset, file));
    const char *obstacle = vt_fields_file_obstacle(file);
    if (obstacle != NULL && dataset->obstacle == NULL) dataset->obstacle = vt_text_format("%s: %s", path, obstacle);
    int64_t cache = options->direct && obstacle == NULL ? 0 : vt_fields_file_cache_bytes(file);
    while (dataset->open_limit > 1 && cache * dataset->open_limit > CACHE_BUDGET) dataset->open_limit--;
    VT_TRY(take_times(dataset, index, file));
done:
    return status;
}

static vt_status check_options(const vt_dataset_options *options)
{
    vt_status status = VT_OK;
    VT_ASSERT(options->height > 0 && options->width > 0 && options->history >= 0 && options->dt > 0);
    VT_ASSERT(options->in_channels > 0 && options->out_channels > 0);
    VT_ASSERT(options->first_row >= 0 && options->rows >= 0 && options->first_row + options->rows <= options->height);
    VT_ASSERT(options->rows > 0 || options->first_row == 0);
    VT_CHECK(options->in_channels % (options->history + 1) == 0,
             "n_in_channels %lld is no multiple of n_history + 1 = %lld; it counts the channels of the file once for "
             "each time of the input",
             (long long)options->in_channels, (long long)(options->history + 1));
done:
    return status;
}

/* Of more than a few files those from `first` on, so many as are tried together. */
static void try_some(vt_dataset *dataset, int64_t first)
{
    const vt_file_list *list = &dataset->list;
    const int64_t left = list->groups - first, count = left < VT_TOGETHER ? left : VT_TOGETHER;
    if (list->groups < VT_TOGETHER) return;
    const bool survive = vt_fields_files_survive((const char *const *)list->paths, list->first + first, count,
                                                 dataset->options.variables);
    for (int64_t i = 0; i < count; i++) dataset->files[first + i].tried = survive;
}

static vt_status open_files(vt_dataset *dataset)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &dataset->options;
    VT_TRY(vt_file_list_open(options->directory, options->option_name, options->variables != NULL, &dataset->list));
    dataset->files = calloc((size_t)dataset->list.groups, sizeof *dataset->files);
    VT_CHECK(dataset->files != NULL, "out of memory for %lld files", (long long)dataset->list.groups);
    for (int64_t i = 0; i < dataset->list.groups; i++) {
        if (i % VT_TOGETHER == 0) try_some(dataset, i);
        VT_TRY(look_at_file(dataset, i));
    }
    tell_more(dataset->told.gaps, "have gaps between their times", options->directory);
    tell_more(dataset->told.overlaps, "begin before the one before them ends", options->directory);
    tell_more(dataset->told.too_short, "are too short for a sample", options->directory);
    VT_CHECK(dataset->sample_count > 0,
             "%s '%s': no file is long enough for one sample, which spans %lld times (n_history %lld, dt %lld)",
             options->option_name, options->directory, (long long)(options->dt * (options->history + 1) + 1),
             (long long)options->history, (long long)options->dt);
done:
    return status;
}

static vt_status open_synthetic(vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    bool limited = options->sample_limit != VT_UNSET_INTEGER;
    dataset->shape = (vt_fields_shape){0, vt_dataset_window_channels(options), options->height, options->width};
    dataset->sample_count = limited ? options->sample_limit : SYNTHETIC_SAMPLES;
    return take_latitudes(dataset, NULL);
}

vt_status vt_dataset_open(const vt_dataset_options *options, vt_dataset **result)
{
    vt_status status = VT_OK;
    vt_dataset *dataset = calloc(1, sizeof *dataset);
    *result = NULL;
    VT_CHECK(dataset != NULL, "out of memory");
    pthread_mutex_init(&dataset->lock, NULL);
    vt_chunk_cache_open(&dataset->cache, CHUNK_BUDGET);
    VT_TRY(check_options(options));
    dataset->options = *options;
    if (options->rows == 0) dataset->options.rows = options->height;
    dataset->options.directory = dataset->directory = vt_text_copy(options->directory);
    dataset->options.option_name = dataset->option_name = vt_text_copy(options->option_name);
    if (options->variables != NULL) dataset->options.variables = dataset->variables = vt_text_copy(options->variables);
    dataset->open_limit = OPEN_FILES;
    VT_TRY(vt_read_plan_open(&dataset->plan));
    VT_TRY(options->synthetic ? open_synthetic(dataset) : open_files(dataset));
    dataset->whole_count = dataset->sample_count;
    if (options->sample_limit != VT_UNSET_INTEGER && options->sample_limit < dataset->sample_count)
        dataset->sample_count = options->sample_limit;
    *result = dataset;
    dataset = NULL;
done:
    vt_dataset_close(&dataset);
    return status;
}

void vt_dataset_close(vt_dataset **pointer)
{
    vt_dataset *dataset = *pointer;
    if (dataset == NULL) return;
    *pointer = NULL;
    for (int64_t i = 0; dataset->files != NULL && i < dataset->list.groups; i++)
        close_file(dataset, &dataset->files[i]);
    for (int64_t c = 0; dataset->channel_names != NULL && c < dataset->shape.channels; c++)
        free(dataset->channel_names[c]);
    free(dataset->channel_names);
    free(dataset->latitudes);
    free(dataset->files);
    free(dataset->stretches);
    for (int k = 0; k < 2; k++) free(dataset->stored[k]);
    free(dataset->time_doubt);
    vt_file_list_close(&dataset->list);
    vt_read_plan_close(&dataset->plan);
    vt_decoder_close(&dataset->decoder);
    vt_chunk_cache_close(&dataset->cache);
    vt_frame_cache_close(&dataset->kept);
    pthread_mutex_destroy(&dataset->lock);
    free(dataset->directory);
    free(dataset->option_name);
    free(dataset->variables);
    free(dataset->obstacle);
    free(dataset);
}

const char *vt_dataset_obstacle(const vt_dataset *dataset)
{
    return dataset->obstacle;
}

int64_t vt_dataset_sample_count(const vt_dataset *dataset)
{
    return dataset->sample_count;
}

int64_t vt_dataset_whole_count(const vt_dataset *dataset)
{
    return dataset->whole_count;
}

const vt_dataset_options *vt_dataset_options_of(const vt_dataset *dataset)
{
    return &dataset->options;
}

const char *const *vt_dataset_channel_names(const vt_dataset *dataset)
{
    return (const char *const *)dataset->channel_names;
}

vt_status vt_dataset_check_same_channels(const vt_dataset *training, const vt_dataset *validation)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &training->options;
    int64_t in = vt_dataset_window_channels(options), used = in > options->out_channels ? in : options->out_channels;
    char steps[2][VT_DATE_SIZE];
    const int64_t minutes = training->minutes_a_time, others = validation->minutes_a_time;
    VT_CHECK(minutes == 0 || others == 0 || minutes == others,
             "the times in %s are %s apart, but those in %s %s; training and validation need the same",
             training->directory, vt_time_interval(minutes, steps[0]), validation->directory,
             vt_time_interval(others, steps[1]));
    for (int k = 0; k < 2; k++) {
        const double *own = training->stored[k], *other = validation->stored[k];
        const int64_t count = k == 0 ? options->height : options->width;
        for (int64_t i = 0; own != NULL && other != NULL && i < count; i++)
            VT_CHECK(fabs(own[i] - other[i]) < 1e-3,
                     "%s %lld is %g degrees in %s, but %g in %s; training and validation need the same grid",
                     k == 0 ? "latitude" : "longitude", (long long)i, own[i], training->directory, other[i],
                     validation->directory);
    }
    if (training->channel_names == NULL || validation->channel_names == NULL) goto done;
    for (int64_t c = 0; c < used; c++)
        VT_CHECK(strcmp(training->channel_names[c], validation->channel_names[c]) == 0,
                 "channel %lld is '%s' in %s, but '%s' in %s; training and validation need the same channels in the "
                 "same order",
                 (long long)c, training->channel_names[c], training->directory, validation->channel_names[c],
                 validation->directory);
done:
    return status;
}

const double *vt_dataset_known_coordinate(const vt_dataset *dataset, bool longitudes)
{
    return dataset->stored[longitudes ? 1 : 0];
}

const double *vt_dataset_latitudes(const vt_dataset *dataset)
{
    return dataset->latitudes;
}
