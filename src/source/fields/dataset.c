#include "source/fields/dataset_inside.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/fields_file.h"
#include "source/fields/file_list.h"

enum { SYNTHETIC_SAMPLES = 1459 }; /* a year */

/* Where the window is in the first file, by its coordinates. */
static vt_status find_window(const vt_dataset_options *options, const vt_fields_file *file, vt_frame_window *window)
{
    vt_status status = VT_OK;
    const vt_window_range *range = &options->range;
    VT_TRY(vt_window_find(range, file->about, file->path, window));
    const int64_t found[2] = {window->rows, range->by_columns ? window->width : options->width};
    const int64_t said[2] = {options->height, options->width};
    for (int k = 0; k < 2; k++)
        VT_CHECK(!(k == 0 ? range->by_rows : range->by_columns) || found[k] == said[k],
                 "%s: %s [%g, %g] holds %ld %s, but img_size says %ld; set --img_size=[%ld,%ld], or leave it to "
                 "the ranges",
                 file->path, k == 0 ? "lat_range" : "lon_range", k == 0 ? range->south : range->west,
                 k == 0 ? range->north : range->east, found[k], k == 0 ? "rows" : "columns", said[k], found[0],
                 found[1]);
    window->rows = options->height;
    window->width = options->width;
done:
    return status;
}

static vt_status check_window(const vt_dataset_options *options, const vt_fields_file *file)
{
    vt_status status = VT_OK;
    const int64_t channels = vt_dataset_window_channels(options);
    const bool of_variables = options->form.variables != NULL;
    const char *has = of_variables ? "--variables names" : "'fields' has", *path = file->path;
    const vt_fields_about *about = file->about;
    const int64_t found[4] = {about->times, about->channels, about->rows, about->columns};
    VT_CHECK(options->height <= about->rows && options->width <= about->columns,
             "%s: %s [%ld, %ld, %ld, %ld] (time, channel, lat, lon), too small for img_size [%ld, %ld]; set "
             "--img_size=[%ld,%ld], or less",
             path, of_variables ? "its variables are" : "'fields' is", found[0], found[1], found[2], found[3],
             options->height, options->width, found[2], found[3]);
    VT_CHECK(channels <= about->channels,
             "%s: %s %ld channels, but n_in_channels %ld with n_history %ld needs %ld; set --n_in_channels=%ld, or "
             "less",
             path, has, found[1], options->in_channels, options->history, channels, found[1] * (options->history + 1));
    VT_CHECK(options->out_channels <= about->channels,
             "%s: %s %ld channels, but n_out_channels is %ld; set --n_out_channels=%ld, or less", path, has, found[1],
             options->out_channels, found[1]);
    VT_ASSERT(vt_dataset_first_forcing(options) + options->forcing_channels <= about->channels); /* of `variables` */
done:
    return status;
}

/* The part of a file that is used: in a whole set all of the range, and the first file's sizes are the set's. */
static vt_status find_part(vt_dataset *dataset, const vt_fields_file *file, vt_frame_window *window)
{
    vt_status status = VT_OK;
    vt_dataset_options *options = &dataset->options;
    const bool is_first = dataset->about == NULL;
    if (!options->whole) {
        VT_TRY(check_window(options, file));
        if (is_first) VT_TRY(find_window(options, file, window));
        if (!is_first) *window = dataset->about->window;
        goto done;
    }
    VT_TRY(vt_window_find(&options->range, file->about, file->path, window));
    if (!is_first) goto done;
    options->height = options->rows = window->rows;
    options->width = window->width;
    options->in_channels = options->out_channels = file->about->channels;
done:
    return status;
}

/* ---- times ---- */

/* The times of a file that samples come from. The first file with gaps is warned of. */
static void take_times(vt_dataset *dataset, const vt_fields_file *file)
{
    vt_fields_index *index = &dataset->index;
    const vt_time_axis *axis = &file->times;
    char from[VT_DATE_SIZE], to[VT_DATE_SIZE], step[VT_DATE_SIZE];
    if (axis->doubt != NULL && dataset->time_doubt == NULL) dataset->time_doubt = vt_text_copy(axis->doubt);
    const int64_t pieces = vt_index_add_file(index, file->about->times, file->places, axis);
    if (pieces < 2 || dataset->gaps++ > 0 || dataset->options.quiet || dataset->options.whole) return;
    const vt_set_piece *second = index->pieces + index->piece_count - pieces + 1, *first = second - 1;
    if (axis->oddity != NULL)
        vt_log_warning("%s", axis->oddity);
    else
        vt_log_warning("%s has no times between %s and %s%s, where others are %s apart: no sample reaches across",
                       file->path, vt_date_format(vt_index_date_in(index, first, first->times - 1), from),
                       vt_date_format(second->date, to), pieces > 2 ? ", and more such gaps" : "",
                       vt_length_format(axis->minutes, step));
}

/* ---- files ---- */

/* *used: some of its times are chosen. */
static vt_status look_at_file(vt_dataset *dataset, int64_t index, bool *used)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    const vt_dataset_options *options = &dataset->options;
    vt_frame_window window;
    VT_TRY(vt_fields_reading_use(&dataset->reading, index, &file));
    *used = file->about->times > 0 || options->form.period == NULL;
    if (!*used) goto done;
    VT_TRY(vt_fields_file_check_written(file));
    VT_TRY(find_part(dataset, file, &window));
    VT_TRY(vt_fields_about_add_file(&dataset->about, file, &options->form, &window, &dataset->remarks));
    if (dataset->grid_doubt == NULL && file->doubts[0] != NULL) dataset->grid_doubt = vt_text_copy(file->doubts[0]);
    vt_fields_reading_expect(&dataset->reading, file, options->direct);
    take_times(dataset, file);
done:
    return status;
}

static vt_status check_options(const vt_dataset_options *options)
{
    vt_status status = VT_OK;
    VT_ASSERT(options->history >= 0 && options->dt > 0);
    if (options->whole) return VT_OK;
    VT_ASSERT(options->height > 0 && options->width > 0 && options->in_channels > 0 && options->out_channels > 0);
    VT_ASSERT(options->first_row >= 0 && options->rows >= 0 && options->first_row + options->rows <= options->height);
    VT_ASSERT(options->rows > 0 || options->first_row == 0);
    VT_CHECK(options->in_channels % (options->history + 1) == 0,
             "n_in_channels %ld is no multiple of n_history + 1 = %ld; it counts the channels of the file once for "
             "each time of the input",
             options->in_channels, options->history + 1);
done:
    return status;
}

/* Files of one time each give no sample if time_step is not the time between them. */
static vt_status check_time_step(const vt_dataset *dataset)
{
    vt_status status = VT_OK;
    const vt_set_piece *first = dataset->index.pieces, *second = first + 1;
    char dates[2][VT_DATE_SIZE];
    if (dataset->source.sample_count > 0 || dataset->options.form.time_step == NULL || dataset->index.piece_count < 2)
        return VT_OK;
    if (!first->proven || !second->proven || first->times > 1 || first->file == second->file) return VT_OK;
    VT_CHECK(vt_date_after(first->date, dataset->about->step).minutes == second->date.minutes,
             "%s '%s': its first two files hold the times %s and %s, which are not %s apart, as time_step says; "
             "leave time_step out",
             dataset->options.option_name, dataset->options.directory, vt_date_format(first->date, dates[0]),
             vt_date_format(second->date, dates[1]), dataset->options.form.time_step);
done:
    return status;
}

vt_status vt_dataset_check_dates(const vt_dataset *dataset, const char *option)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; i < dataset->index.piece_count; i++)
        VT_CHECK(dataset->index.pieces[i].dated,
                 "%s: %s says no dates, neither by a time coordinate nor by its name; --coordinates=[time=NAME] names "
                 "a coordinate, and a name like era5_2013.h5 a date",
                 option, vt_file_list_path(&dataset->reading.list, dataset->index.pieces[i].file));
done:
    return status;
}

/* It has to have all times of day of the set. */
static vt_status check_climatology(const vt_dataset *dataset)
{
    vt_status status = VT_OK;
    vt_date date;
    for (int64_t s = 0; s < dataset->index.stretch_count; s++)
        for (int64_t time = 0; time < dataset->index.stretches[s].used; time++) {
            vt_index_date(&dataset->index, &dataset->index.stretches[s], time, &date);
            VT_TRY(vt_seasonal_check(dataset->seasonal, date));
        }
done:
    return status;
}

/* What else the model sees, and what samples are departures from. */
static vt_status open_known(vt_dataset *dataset)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &dataset->options;
    const vt_known_options *known = &options->known;
    const vt_fields_side data = {dataset->about, options->directory};
    const vt_span rows = {options->first_row, options->rows};
    if (vt_known_fixed_count(known) < vt_known_count(known)) VT_TRY(vt_dataset_check_dates(dataset, "forcings"));
    if (vt_known_count(known) > 0) VT_TRY(vt_known_fields_open(known, &data, rows, &dataset->known));
    if (options->climatology == NULL) goto done;
    VT_TRY(vt_dataset_check_dates(dataset, "normalise: climatology"));
    VT_TRY(vt_seasonal_open(options->climatology, dataset->about, vt_dataset_frame_channels(dataset), rows, false,
                            &dataset->seasonal));
    VT_TRY(check_climatology(dataset));
done:
    return status;
}

/* By the names of all channels, of which samples may use the first ones alone. */
static vt_status take_transforms(vt_dataset *dataset)
{
    vt_status status = VT_OK;
    vt_fields_about *about = dataset->about;
    const vt_fields_form *form = &dataset->options.form;
    VT_TRY(vt_transforms_parse(form->transform, form->bounds, vt_dataset_channel_names(dataset), about->channels,
                               &dataset->transforms));
    for (int64_t c = 0; c < about->channels && dataset->transforms != NULL; c++)
        vt_transform_name(&dataset->transforms[c], about->meanings[c].transform);
done:
    return status;
}

static vt_status open_files(vt_dataset *dataset)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &dataset->options;
    char rollout[48] = "";
    if (options->reach > 1) snprintf(rollout, sizeof rollout, ", rollout %ld", options->reach);
    vt_fields_reading *reading = &dataset->reading;
    if (!options->quiet) VT_TRY(vt_file_list_check(&reading->list));
    for (int64_t i = 0; i < reading->list.group_count;) {
        bool used = false;
        VT_TRY(look_at_file(dataset, i, &used));
        if (used)
            i++;
        else
            vt_file_list_leave_out(&reading->list, i);
    }
    VT_CHECK(reading->list.group_count > 0, "%s '%s': none of its times lies in %s %s", options->option_name,
             options->directory, options->form.period_option, options->form.period);
    vt_dataset_take_coordinates(dataset);
    VT_TRY(vt_dataset_check_round(dataset));
    if (dataset->gaps > 1 && !options->quiet && !options->whole)
        vt_log_warning("%ld files of %s in all have gaps between their times", dataset->gaps, options->directory);
    VT_TRY(take_transforms(dataset));
    vt_dataset_join(dataset);
    vt_dataset_settle_about(dataset);
    if (options->whole) goto done;
    VT_TRY(check_time_step(dataset));
    VT_TRY(open_known(dataset));
    VT_CHECK(dataset->source.sample_count > 0,
             "%s '%s': no file is long enough for one sample, which spans %ld times (n_history %ld, dt %ld%s)%s%s",
             options->option_name, options->directory, vt_index_span(&dataset->index.rule) + 1, options->history,
             options->dt, rollout,
             dataset->time_doubt != NULL ? "; they can't be joined, as it isn't known when their times are: " : "",
             dataset->time_doubt != NULL ? dataset->time_doubt : "");
done:
    return status;
}

static void open_synthetic(vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    bool limited = options->sample_limit != VT_UNSET_INTEGER;
    dataset->source.sample_count = limited ? options->sample_limit : SYNTHETIC_SAMPLES;
    dataset->about = vt_fields_about_make();
    vt_dataset_take_coordinates(dataset);
}

int vt_fields_specs(int64_t in_channels, int64_t out_channels, int64_t forcings, int64_t targets, int64_t rows,
                    int64_t width, vt_tensor_spec *specs)
{
    specs[VT_TENSOR_INPUT] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 3, {in_channels, rows, width}};
    specs[VT_TENSOR_TARGET] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 4, {targets, out_channels, rows, width}};
    if (targets == 1) specs[VT_TENSOR_TARGET] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 3, {out_channels, rows, width}};
    if (forcings == 0) return 2;
    specs[VT_TENSOR_FORCINGS] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 4, {targets, forcings, rows, width}};
    if (targets == 1) specs[VT_TENSOR_FORCINGS] = (vt_tensor_spec){VT_TENSOR_FLOAT32, 3, {forcings, rows, width}};
    return 3;
}

/* What the rest of the program sees of the dataset. */
static void take_source(vt_dataset *dataset)
{
    vt_source *source = &dataset->source;
    const vt_dataset_options *options = &dataset->options;
    const int64_t rows = options->rows, width = options->width;
    source->set = options->set;
    source->kind = options->synthetic ? &vt_source_noise : &vt_source_fields;
    source->is_constant = options->synthetic;
    source->option_name = options->option_name;
    source->path = options->directory;
    const int64_t known = vt_known_count(&options->known), fixed = vt_known_fixed_count(&options->known);
    int64_t frame_channels = vt_dataset_frame_channels(dataset);
    source->tensor_count = vt_fields_specs(options->in_channels, options->out_channels, vt_dataset_forcings(options),
                                           options->targets, rows, width, source->specs);
    if (options->known_in_frames && source->frame_count > 0) {
        frame_channels += known - fixed;
        frame_channels = fixed > frame_channels ? fixed : frame_channels;
        source->frame_count += fixed > 0;
    }
    source->frame_bytes = (size_t)(frame_channels * rows * width) * sizeof(float);
    source->chunks = dataset->reading.chunk_bytes[1] > 0 ? &dataset->reading.chunks : NULL;
    source->obstacle = dataset->reading.obstacle;
    source->pieces_per_sample = options->history + 1 + options->targets * (2 + known);
}

vt_status vt_dataset_open(const vt_dataset_options *options, vt_dataset **result)
{
    vt_status status = VT_OK;
    vt_dataset *dataset = vt_allocate(1, sizeof *dataset, "a data set");
    *result = NULL;
    dataset->options = *options;
    VT_TRY(vt_fields_reading_open(&dataset->reading, options->synthetic ? NULL : options->directory,
                                  options->option_name, &dataset->options.form, &dataset->source));
    VT_TRY(check_options(options));
    if (options->rows == 0) dataset->options.rows = options->height;
    if (options->targets == 0) dataset->options.targets = 1;
    if (options->reach == 0) dataset->options.reach = 1;
    if (options->reach == VT_REACH_INPUT) dataset->options.reach = 0;
    if (options->synthetic)
        open_synthetic(dataset);
    else
        VT_TRY(open_files(dataset));
    vt_chunk_cache_expect(&dataset->reading.chunks, dataset->reading.chunk_bytes[0], dataset->reading.chunk_bytes[1]);
    dataset->source.whole_count = dataset->source.sample_count;
    if (options->sample_limit != VT_UNSET_INTEGER && options->sample_limit < dataset->source.sample_count)
        dataset->source.sample_count = options->sample_limit;
    take_source(dataset);
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
    vt_fields_reading_close(&dataset->reading);
    vt_fields_about_close(&dataset->about);
    vt_text_close(&dataset->remarks);
    free(dataset->latitudes);
    vt_known_fields_close(&dataset->known);
    vt_seasonal_close(&dataset->seasonal);
    free(dataset->transforms);
    vt_index_close(&dataset->index);
    free(dataset->longitudes);
    free(dataset->time_doubt);
    free(dataset->grid_doubt);
    free(dataset);
}

vt_dataset *vt_dataset_of(const vt_source *source)
{
    const bool is_dataset = source != NULL && (source->kind == &vt_source_fields || source->kind == &vt_source_noise);
    return is_dataset ? (vt_dataset *)source : NULL;
}

const char *const *vt_dataset_channel_names(const vt_dataset *dataset)
{
    return (const char *const *)dataset->about->names;
}

const double *vt_dataset_known_coordinate(const vt_dataset *dataset, bool longitudes)
{
    if (longitudes) return dataset->longitudes;
    return dataset->about->latitudes != NULL ? dataset->latitudes : NULL;
}

bool vt_dataset_is_of_earth(const vt_dataset *dataset)
{
    return !dataset->about->rotated && !dataset->about->imaginary;
}
