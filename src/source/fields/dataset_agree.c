/* Files of a set, and sets of a run, go together: they have the same channels, grid and time steps. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "config/config.h"
#include "source/fields/dataset_inside.h"

/* ---- files of a set ---- */

vt_status vt_dataset_agree_on_grid(vt_dataset *dataset, const vt_fields_file *file)
{
    static const char *const names[2] = {"latitudes", "longitudes"};
    vt_status status = VT_OK;
    const double *const values[2] = {file->latitudes, file->longitudes};
    const int64_t counts[2] = {dataset->options.height, dataset->options.width};
    for (int k = 0; k < 2; k++) {
        if (values[k] == NULL) continue;
        const bool first = dataset->stored[k] == NULL;
        if (first) dataset->stored[k] = vt_allocate((size_t)counts[k], sizeof(double), "the grid of a data set");
        for (int64_t i = 0; i < counts[k]; i++) {
            const double value =
                values[k][k == 0 ? dataset->window.first_row + i : vt_window_column(&dataset->window, i)];
            if (first) dataset->stored[k][i] = value;
            VT_CHECK(
                fabs(dataset->stored[k][i] - value) < 1e-3,
                "%s: its %s are not those of the files before it (%g at %lld, not %g); all files need the same grid",
                file->path, names[k], value, (long long)i, dataset->stored[k][i]);
        }
    }
done:
    return status;
}

vt_status vt_dataset_compare_with_first(const vt_dataset *dataset, const vt_fields_file *file)
{
    vt_status status = VT_OK;
    const char *path = file->path, *first_path = vt_dataset_group_path(dataset, 0);
    const char *const *names = file->channel_names;
    const vt_fields_shape shape = file->shape, *first = &dataset->shape;
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
    for (int64_t c = 0; c < shape.channels; c++) {
        const char *units = file->meanings[c].units, *before = dataset->meanings[c].units;
        VT_CHECK(units[0] == '\0' || before[0] == '\0' || strcmp(units, before) == 0,
                 "%s: channel %lld is in '%s', but in %s in '%s'; all files need the same units", path, (long long)c,
                 units, first_path, before);
    }
done:
    return status;
}

vt_status vt_dataset_compare_times(vt_dataset *dataset, const char *path, const vt_time_axis *axis)
{
    vt_status status = VT_OK;
    char steps[2][VT_DATE_SIZE];
    const vt_set_piece *before = NULL;
    for (int64_t i = 0; i < dataset->piece_count; i++)
        if (dataset->pieces[i].dated) before = &dataset->pieces[i];
    if (dataset->minutes_a_time == 0) dataset->minutes_a_time = axis->minutes;
    VT_CHECK(axis->minutes == 0 || axis->minutes == dataset->minutes_a_time,
             "%s: its times are %s apart, those of the files before it %s; all files need the same", path,
             vt_length_format(axis->minutes, steps[0]), vt_length_format(dataset->minutes_a_time, steps[1]));
    VT_CHECK(before == NULL || before->date.calendar == axis->stretches[0].date.calendar,
             "%s: its calendar is '%s', that of the files before it '%s'; all files need the same", path,
             vt_calendar_name(axis->stretches[0].date.calendar), vt_calendar_name(before->date.calendar));
done:
    return status;
}

/* ---- two sets ---- */

vt_status vt_dataset_compare_rows(const vt_dataset *one, const vt_dataset *other)
{
    vt_status status = VT_OK;
    const char *turned = one->turned != NULL ? one->turned : other->turned;
    const char *unknown = one->turned != NULL ? other->unknown : one->unknown;
    VT_CHECK(turned == NULL || unknown == NULL,
             "the rows of %s run from south to north, by its latitudes, but %s says no latitudes, so its rows can't be "
             "matched; write them into all files, or name them by --coordinates=[lat=NAME]",
             turned, unknown);
done:
    return status;
}

vt_status vt_dataset_agree(const vt_source *source, const vt_source *other_source)
{
    vt_status status = VT_OK;
    const vt_dataset *training = (const vt_dataset *)source, *validation = (const vt_dataset *)other_source;
    const char *path = source->path, *other_path = other_source->path;
    const vt_dataset_options *options = &training->options;
    const int64_t used = vt_dataset_frame_channels(training);
    char steps[2][VT_DATE_SIZE];
    const int64_t minutes = training->minutes_a_time, others = validation->minutes_a_time;
    VT_CHECK(minutes == 0 || others == 0 || minutes == others,
             "the times in %s are %s apart, but those in %s %s; all sets need the same", path,
             vt_length_format(minutes, steps[0]), other_path, vt_length_format(others, steps[1]));
    for (int k = 0; k < 2; k++) {
        const double *own = training->stored[k], *other = validation->stored[k];
        const int64_t count = k == 0 ? options->height : options->width;
        for (int64_t i = 0; own != NULL && other != NULL && i < count; i++)
            VT_CHECK(fabs(k == 0 ? own[i] - other[i] : remainder(own[i] - other[i], 360)) < 1e-3,
                     "%s %lld is %g degrees in %s, but %g in %s; all sets need the same grid",
                     k == 0 ? "latitude" : "longitude", (long long)i, own[i], path, other[i], other_path);
    }
    for (int64_t c = 0; training->meanings != NULL && validation->meanings != NULL && c < used; c++) {
        const char *own = training->meanings[c].units, *other = validation->meanings[c].units;
        VT_CHECK(own[0] == '\0' || other[0] == '\0' || strcmp(own, other) == 0,
                 "channel %lld is in '%s' in %s, but in '%s' in %s; all sets need the same units", (long long)c, own,
                 path, other, other_path);
    }
    VT_TRY(vt_dataset_compare_rows(training, validation));
    if (training->channel_names == NULL || validation->channel_names == NULL) goto done;
    for (int64_t c = 0; c < used; c++)
        VT_CHECK(strcmp(training->channel_names[c], validation->channel_names[c]) == 0,
                 "channel %lld is '%s' in %s, but '%s' in %s; all sets need the same channels in the same order",
                 (long long)c, training->channel_names[c], path, validation->channel_names[c], other_path);
done:
    return status;
}
