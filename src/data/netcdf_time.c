/* The time coordinate of netCDF files, read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/cf_attributes.h"
#include "data/fields_inside.h"
#include "data/hdf5_access.h"

#define MOST_TIMES (INT64_C(1) << 24) /* every 30 minutes for 900 years */

/* The 1-D dataset of `times` numbers, if it is there: *dataset stays negative else. */
static void open_coordinate(const vt_field_part *part, const char *name, int64_t times, hid_t *dataset)
{
    hsize_t extent = 0;
    *dataset = H5I_INVALID_HID;
    if (!vt_field_part_has(part, name)) return;
    if (vt_field_part_dataset(part, name, dataset) != VT_OK) vt_error_clear(); /* a link into another file */
    if (*dataset < 0) return;
    hid_t space = H5Dget_space(*dataset);
    if (H5Sget_simple_extent_ndims(space) == 1) H5Sget_simple_extent_dims(space, &extent, NULL);
    H5Sclose(space);
    if ((int64_t)extent == times) return;
    H5Dclose(*dataset);
    *dataset = H5I_INVALID_HID;
}

/* The values in minutes after *zero, the seconds of the units' date added; NULL, with the doubt said in *axis, where
 * they are no such. */
static vt_status read_minutes(const vt_field_part *part, const char *name, hid_t dataset, int64_t times, vt_date *zero,
                              double **minutes, vt_time_axis *axis)
{
    vt_status status = VT_OK;
    char units[128], calendar_name[32];
    vt_calendar calendar = VT_CALENDAR_STANDARD;
    vt_packing packing = {.element = VT_ELEMENT_FLOAT64, .scale = 1};
    double unit = 0, seconds = 0;
    double *values = malloc((size_t)times * sizeof *values);
    hid_t type = H5Dget_type(dataset);
    H5T_class_t class = H5Tget_class(type);
    vt_cf_text(dataset, "units", units, sizeof units);
    vt_cf_text(dataset, "calendar", calendar_name, sizeof calendar_name);
    VT_CHECK(values != NULL, "out of memory for the times of %s", part->path);
    if (calendar_name[0] != '\0' && !vt_calendar_of_name(calendar_name, &calendar)) {
        axis->doubt =
            vt_text_format("%s: '%s' has the calendar '%s'; standard, gregorian, proleptic_gregorian, noleap, "
                           "365_day, all_leap, 366_day and 360_day are known",
                           part->path, name, calendar_name);
    } else if (units[0] == '\0') {
        axis->doubt = vt_text_format("%s: '%s' has no units, like 'hours since 1900-01-01'", part->path, name);
    } else if (!vt_time_units(units, calendar, &unit, zero, &seconds)) {
        axis->doubt =
            vt_text_format("%s: '%s' has the units '%s', expected some like 'hours since 1900-01-01 00:00:00'",
                           part->path, name, units);
    } else if (class != H5T_INTEGER && class != H5T_FLOAT) {
        axis->doubt = vt_text_format("%s: '%s' holds no numbers", part->path, name);
    }
    if (axis->doubt != NULL) goto done;
    VT_TRY(vt_cf_packing(dataset, part->path, name, &packing));
    VT_CHECK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, "%s: can't read '%s': %s",
             part->path, name, vt_hdf5_reason());
    for (int64_t i = 0; i < times && axis->doubt == NULL; i++) {
        bool valid = !packing.has_limits || (values[i] >= packing.least && values[i] <= packing.most);
        for (int m = 0; m < packing.missing_count; m++) valid = valid && values[i] != packing.missing[m];
        const double stored = values[i];
        values[i] = (stored * packing.scale + packing.offset) * unit + seconds / 60;
        if (!valid || !vt_date_is_within(*zero, values[i]))
            axis->doubt =
                vt_text_format("%s: '%s' is %g at %lld (counted from 0), %s", part->path, name, stored, (long long)i,
                               valid ? "beyond the year 9999 or no number" : "which is missing");
    }
    if (axis->doubt != NULL) goto done;
    *minutes = values;
    values = NULL;
done:
    H5Tclose(type);
    free(values);
    return status;
}

static vt_status read_axis(const vt_field_part *part, int64_t times, vt_time_axis *axis)
{
    static const char *const names[] = {"time", "valid_time"};
    vt_status status = VT_OK;
    double *minutes = NULL;
    vt_date zero = {0};
    hid_t dataset = H5I_INVALID_HID;
    int i = 0;
    for (; i < 2 && dataset < 0; i++) open_coordinate(part, names[i], times, &dataset);
    if (dataset < 0) return VT_OK;
    const char *name = names[i - 1];
    VT_TRY(read_minutes(part, name, dataset, times, &zero, &minutes, axis));
    if (minutes != NULL) VT_TRY(vt_time_axis_take(minutes, times, zero, part->path, name, axis));
done:
    H5Dclose(dataset);
    free(minutes);
    return status;
}

static bool are_alike(const vt_time_axis *a, const vt_time_axis *b)
{
    bool alike = a->count == b->count && a->minutes == b->minutes;
    for (int64_t i = 0; i < a->count && alike; i++) {
        const vt_stretch *x = &a->stretches[i], *y = &b->stretches[i];
        alike = x->first == y->first && x->count == y->count && x->date.minutes == y->date.minutes &&
                x->date.calendar == y->date.calendar;
    }
    return alike;
}

vt_status vt_netcdf_open_times(vt_fields_file *file)
{
    vt_status status = VT_OK;
    vt_time_axis axis = {0};
    const vt_field_part *first = file->parts;
    const int64_t times = file->shape.times;
    if (times < 1 || times > MOST_TIMES) return VT_OK;
    for (int i = 0; i < file->part_count; i++) {
        bool used = false;
        for (int s = 0; s < file->source_count; s++) used = used || file->sources[s].part == &file->parts[i];
        if (!used) continue;
        VT_TRY(read_axis(&file->parts[i], times, &axis));
        if (file->times.count > 0 && axis.count > 0) {
            char dates[2][VT_DATE_SIZE], steps[2][VT_DATE_SIZE];
            VT_CHECK(are_alike(&file->times, &axis),
                     "%s has other times (from %s, %s apart) than %s (from %s, %s apart); files of one date are one, "
                     "and need the same times",
                     file->parts[i].path, vt_date_format(axis.stretches[0].date, dates[0]),
                     vt_time_interval(axis.minutes, steps[0]), first->path,
                     vt_date_format(file->times.stretches[0].date, dates[1]),
                     vt_time_interval(file->times.minutes, steps[1]));
        } else if (file->times.count == 0 && (axis.count > 0 || file->times.doubt == NULL)) {
            vt_time_axis_close(&file->times);
            file->times = axis;
            first = &file->parts[i];
            axis = (vt_time_axis){0};
        }
        vt_time_axis_close(&axis);
    }
done:
    vt_time_axis_close(&axis);
    return status;
}
