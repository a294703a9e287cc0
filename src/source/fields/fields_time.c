/* Reads when the times of a file are from its time coordinate. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/fields/coordinates.h"
#include "storage/cf_attributes.h"

/* How far neighbouring numbers of the array's type are apart near `largest`; 0 of whole numbers, which are exact. */
static double precision_at(const vt_array *array, double largest)
{
    const int bits = array->element_size == 8 ? 53 : array->element_size == 4 ? 24 : 11;
    return vt_element_is_float(array->element) && largest > 0 ? ldexp(1, ilogb(largest) + 1 - bits) : 0;
}

/* The values in minutes after the units' date, and how precise they are; NULL, with a doubt in *axis, if they can't be
 * understood. */
static vt_status read_minutes(const vt_array *array, int64_t times, double **minutes, double *precision,
                              vt_time_axis *axis)
{
    vt_status status = VT_OK;
    char units[128], calendar_name[32];
    vt_calendar calendar = VT_CALENDAR_STANDARD;
    vt_packing packing = {.element = VT_ELEMENT_FLOAT64, .scale = 1};
    double *values = vt_allocate((size_t)times, sizeof *values, "the times of a file");
    const vt_store *store = array->store;
    const char *name = array->name;
    double largest = 0;
    const int64_t start[VT_ARRAY_RANK] = {0};
    vt_cf_text(array, "units", units, sizeof units);
    vt_cf_text(array, "calendar", calendar_name, sizeof calendar_name);
    if (calendar_name[0] != '\0' && !vt_calendar_of_name(calendar_name, &calendar)) {
        axis->doubt =
            vt_text_format("%s: '%s' has the calendar '%s'; standard, gregorian, proleptic_gregorian, noleap, "
                           "365_day, all_leap, 366_day and 360_day are known",
                           store->path, name, calendar_name);
    } else if (units[0] == '\0') {
        axis->doubt = vt_text_format("%s: '%s' has no units, like 'hours since 1900-01-01'", store->path, name);
    } else if (!vt_time_units_parse(units, calendar, &axis->meaning)) {
        axis->doubt =
            vt_text_format("%s: '%s' has the units '%s', expected some like 'hours since 1900-01-01 00:00:00'",
                           store->path, name, units);
    } else if (array->element == VT_ELEMENT_NONE) {
        axis->doubt = vt_text_format("%s: '%s' holds no numbers", store->path, name);
    }
    if (axis->doubt != NULL) goto done;
    VT_TRY(vt_cf_packing(array, &packing));
    if (store->kind->read(array, start, array->extent, true, values) != VT_OK) {
        status = vt_error_context("%s: can't read '%s'", store->path, name);
        goto done;
    }
    for (int64_t i = 0; i < times && axis->doubt == NULL; i++) {
        const double stored = values[i], value = vt_unpack_number(&packing, stored);
        largest = fmax(largest, fabs(stored));
        values[i] = vt_time_units_minutes(&axis->meaning, value);
        if (!vt_date_is_within(axis->meaning.zero, values[i]))
            axis->doubt = vt_text_format("%s: '%s' is %g at %ld (counted from 0), %s", store->path, name, stored, i,
                                         isnan(value) && !isnan(stored) ? "which is missing"
                                                                        : "beyond the year 9999 or no number");
    }
    if (axis->doubt != NULL) goto done;
    const double unit = axis->meaning.months > 0 ? 30 * 1440 * (double)axis->meaning.months : axis->meaning.minutes;
    *precision = precision_at(array, largest) * fabs(packing.scale) * unit;
    axis->units = vt_text_copy(units);
    axis->calendar_name = vt_text_copy(calendar_name);
    *minutes = values;
    values = NULL;
done:
    free(values);
    return status;
}

static int by_date(const void *a, const void *b)
{
    const int64_t one = ((const vt_date *)a)->minutes, other = ((const vt_date *)b)->minutes;
    return one < other ? -1 : one > other;
}

/* anemoi's attribute missing_dates: the values of these times mean nothing. */
static vt_status read_missing(const vt_array *array, vt_time_axis *axis)
{
    vt_status status = VT_OK;
    vt_names texts = {0};
    const char *path = array->store->path;
    VT_CHECK(array->store->kind->attribute_texts(array, "missing_dates", &texts),
             "%s: the attribute 'missing_dates' is no list of dates like 2001-01-01T06:00:00", path);
    VT_CHECK(texts.count == 0 || axis->known,
             "%s: the attribute 'missing_dates' names times, but it isn't known when its times are%s%s", path,
             axis->doubt != NULL ? ": " : "", axis->doubt != NULL ? axis->doubt : "");
    axis->missing = vt_allocate((size_t)texts.count, sizeof *axis->missing, "the missing times of a file");
    for (; axis->missing_count < texts.count; axis->missing_count++) {
        char *text = texts.names[axis->missing_count], *fraction = strchr(text, '.'); /* of a second */
        if (fraction != NULL) *fraction = '\0';
        VT_CHECK(vt_date_parse(text, axis->meaning.zero.calendar, &axis->missing[axis->missing_count]),
                 "%s: the attribute 'missing_dates' holds '%s', which is no date like 2001-01-01T06:00:00", path, text);
    }
    qsort(axis->missing, (size_t)texts.count, sizeof *axis->missing, by_date);
done:
    vt_names_close(&texts);
    return status;
}

static vt_status read_axis(const vt_field_source *source, vt_time_axis *axis)
{
    vt_status status = VT_OK;
    double *minutes = NULL, precision = 0;
    vt_array *array = NULL;
    VT_TRY(vt_coordinates_find(source->coordinates, VT_COORDINATE_TIME, &array, &axis->doubt));
    if (array != NULL) VT_TRY(read_minutes(array, source->extent[0], &minutes, &precision, axis));
    if (minutes != NULL)
        VT_TRY(vt_time_axis_take(minutes, source->extent[0], axis->meaning.zero, precision, source->store->path,
                                 array->name, axis));
    VT_TRY(read_missing(source->array, axis));
done:
    vt_array_close(&array);
    free(minutes);
    return status;
}

static bool are_alike(const vt_time_axis *a, const vt_time_axis *b, int64_t times)
{
    return a->minutes == b->minutes && a->begin.calendar == b->begin.calendar &&
           memcmp(a->dates, b->dates, (size_t)times * sizeof *a->dates) == 0;
}

/* The times of a source, which must be those of the file's sources before it. */
static vt_status take_axis(vt_fields_file *file, const vt_field_source *source)
{
    vt_status status = VT_OK;
    vt_time_axis axis = {0};
    char dates[2][VT_DATE_SIZE], steps[2][VT_DATE_SIZE];
    VT_TRY(read_axis(source, &axis));
    if (file->times.known && axis.known) {
        VT_CHECK(are_alike(&file->times, &axis, source->extent[0]),
                 "%s has other times (from %s, %s apart) than %s (from %s, %s apart); files of one date are one, and "
                 "need the same times",
                 source->store->path, vt_date_format(axis.begin, dates[0]), vt_length_format(axis.minutes, steps[0]),
                 file->times_store->path, vt_date_format(file->times.begin, dates[1]),
                 vt_length_format(file->times.minutes, steps[1]));
    } else if (!file->times.known && (axis.known || file->times.doubt == NULL)) {
        vt_time_axis_close(&file->times);
        file->times = axis;
        file->times_store = source->store;
        axis = (vt_time_axis){0};
    }
done:
    vt_time_axis_close(&axis);
    return status;
}

/* How far apart `times` times are if they fill the year, month or day that the file's name gives: a whole part of a
 * day, or a month. 0: they fill it in no such way. *most: how many times it may hold that are 6 hours apart, with both
 * ends; -1: the name gives none. A year may have a 29th of February or not, as models' years do. */
static int64_t step_of_period(const vt_time_axis *axis, int64_t times, int64_t *most)
{
    const vt_date begin = axis->begin;
    const int64_t length = axis->named;
    const int64_t own = (vt_date_after(begin, length).minutes - begin.minutes) / 1440;
    const int64_t days[2] = {own, own > 100 ? 365 + 366 - own : own == 28 || own == 29 ? 28 + 29 - own : own};
    *most = length > 0 ? (days[0] > days[1] ? days[0] : days[1]) * (24 / VT_HOURS_A_TIME) + 1 : -1;
    if (length == 0 || times < 2) return 0;
    if (length == 12 * VT_A_MONTH && times == 12) return VT_A_MONTH;
    for (int i = 0; i < 2; i++) {
        const int64_t a_day = times % days[i] == 0 ? times / days[i] : 0, minutes = a_day > 0 ? 1440 / a_day : 0;
        if (minutes > 0 && 1440 % a_day == 0 && (minutes % 60 == 0 || 60 % minutes == 0)) return minutes;
    }
    return 0;
}

/* If the file has no times, the attribute `time_step` of `fields` may say how far apart they are, or their number. */
static vt_status find_step(vt_fields_file *file, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    char text[32] = "";
    int64_t most = -1;
    if (file->times.known || file->about->times == 0) goto done;
    if (form->variables == NULL) vt_cf_text(file->sources[0].array, "time_step", text, sizeof text);
    if (text[0] != '\0') {
        VT_CHECK(vt_length_parse(text, &file->times.minutes),
                 "%s: the attribute 'time_step' of 'fields' is '%s', which is no length of time; expected one like 6h",
                 file->path, text);
        goto done;
    }
    file->times.minutes = step_of_period(&file->times, file->about->times, &most);
    VT_CHECK(file->times.minutes > 0 || most < 0 || file->about->times <= most,
             "%s: it has %ld times and no time coordinate, and the period that its name gives holds only %ld times "
             "%d hours apart; say how far apart they are: --time_step=1h",
             file->path, file->about->times, most - 1, VT_HOURS_A_TIME);
done:
    return status;
}

/* The option says how far apart times are if the file doesn't, because it has no times or a single one. It must not
 * contradict a file of whose times every n-th was chosen. */
static vt_status take_step(vt_fields_file *file, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    int64_t length = 0;
    char step[VT_DATE_SIZE];
    if (form->time_step == NULL) return find_step(file, form);
    VT_CHECK(vt_length_parse(form->time_step, &length),
             "time_step: '%s' is no length of time; expected one like 24h, 6h, "
             "30min, 1d or 1month",
             form->time_step);
    VT_CHECK(file->times.minutes == 0 || file->times.minutes == length,
             "%s: its times are %s apart, and %s, as time_step says, is no multiple of that; leave time_step out, or, "
             "where the file is wrong, add --coordinates=[time=none]",
             file->path, vt_length_format(file->times.minutes, step), form->time_step);
    file->times.minutes = length;
done:
    return status;
}

vt_status vt_fields_open_times(vt_fields_file *file, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    vt_time_axis *axis = &file->times;
    const int64_t times = file->about->times;
    for (int s = 0; s < file->source_count && times >= 1; s++) VT_TRY(take_axis(file, &file->sources[s]));
    if (!axis->known) axis->named = vt_date_of_file_name(file->path, &axis->begin);
    VT_TRY(vt_fields_choose_times(file, form));
    VT_TRY(take_step(file, form));
    axis->known = axis->known || (axis->named > 0 && file->about->times > 0);
done:
    return status;
}
