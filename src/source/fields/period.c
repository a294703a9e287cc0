/* Which times of a file are used: those of a period, and every n-th, without those that the file calls missing. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/fields/fields_inside.h"

/* ---- a period ---- */

typedef struct {
    int64_t from, to; /* minutes of dates, both included */
} period;

/* The first and the last minute of "1979", "1979-03", "1979-03-05" or "1979-03-05T06:00". */
static bool parse_end(const char *text, vt_calendar calendar, int64_t *first, int64_t *last)
{
    static const char rest[] = "YYYY-01-01"; /* what makes a date of a year or a month */
    vt_date begin;
    const size_t length = strlen(text);
    const bool is_year = length == 4, is_month = length == 7 && text[4] == '-';
    char *whole = vt_text_format("%s%s", text, is_year || is_month ? rest + length : "");
    const bool is_date = vt_date_parse(whole, calendar, &begin);
    free(whole);
    if (!is_date) return false;
    const int64_t extent = is_year ? 12 * VT_A_MONTH : is_month ? VT_A_MONTH : length > 10 ? 1 : 24 * 60;
    *first = begin.minutes;
    *last = vt_date_after(begin, extent).minutes - 1;
    return true;
}

/* "1979..2015", or one end alone, or "2016" for all of it. */
static vt_status parse_period(const vt_fields_form *form, vt_calendar calendar, period *result)
{
    vt_status status = VT_OK;
    int64_t other;
    const char *text = form->period, *dots = strstr(text, "..");
    char *begin = vt_text_format("%.*s", (int)(dots != NULL ? dots - text : (ptrdiff_t)strlen(text)), text);
    const char *end = dots != NULL ? dots + 2 : begin;
    *result = (period){INT64_MIN, INT64_MAX};
    const bool known = (begin[0] == '\0' || parse_end(begin, calendar, &result->from, &other)) &&
                       (end[0] == '\0' || parse_end(end, calendar, &other, &result->to)) && strlen(text) > 2;
    VT_CHECK(known,
             "%s: '%s' is no period; expected one like 1979..2015 or 2016-01-01..2017-12-31, both ends included%s%s",
             form->period_option, text, calendar > VT_CALENDAR_PROLEPTIC ? ", in the calendar " : "",
             calendar > VT_CALENDAR_PROLEPTIC ? vt_calendar_name(calendar) : "");
    VT_CHECK(result->from <= result->to, "%s: '%s' ends before it begins", form->period_option, text);
done:
    free(begin);
    return status;
}

/* ---- the choice ---- */

/* Does `length` lead from a time to the n-th after it, n > 1? */
static bool is_multiple(int64_t length, int64_t step)
{
    const bool months = step >= VT_A_MONTH;
    return step > 0 && length > step && months == (length >= VT_A_MONTH) && length % step == 0;
}

/* Is it one of those that are multiples of `length` after the beginning of the calendar? Where the times of the file
 * lie between such multiples of its own step, so do they: of the times 3, 9, 15 and 21 h every 12 h those at 3 and 15.
 */
static bool is_due(vt_date date, vt_date first, int64_t step, int64_t length)
{
    int64_t day;
    if (length >= VT_A_MONTH) return vt_date_month(date, &day) % (length / VT_A_MONTH) == 0;
    return (date.minutes - first.minutes % step) % length == 0;
}

/* A file whose name alone says a date is used as a whole, or not at all. */
static vt_status choose_by_name(vt_fields_file *file, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    period wanted;
    const vt_date begin = file->times.begin;
    const int64_t length = file->times.named;
    VT_CHECK(length > 0 || file->times.doubt == NULL, "%s can't choose its times: %s", form->period_option,
             file->times.doubt);
    VT_CHECK(length > 0, "%s: it has no time coordinate, and its name ends in no date, so %s can't choose its times",
             file->path, form->period_option);
    VT_TRY(parse_period(form, begin.calendar, &wanted));
    const int64_t last = vt_date_after(begin, length).minutes - 1;
    const bool outside = last < wanted.from || begin.minutes > wanted.to;
    VT_CHECK(outside || (begin.minutes >= wanted.from && last <= wanted.to),
             "%s: it has no time coordinate, so %s can only choose all of it or nothing, but '%s' ends within it",
             file->path, form->period_option, form->period);
    if (outside) file->about->times = 0;
done:
    return status;
}

vt_status vt_fields_choose_times(vt_fields_file *file, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    vt_time_axis *axis = &file->times;
    const int64_t step = axis->minutes;
    int64_t length = 0;
    period wanted = {INT64_MIN, INT64_MAX};
    if (form->time_step == NULL || !vt_length_parse(form->time_step, &length) || !is_multiple(length, step))
        length = step;
    if (!axis->known && form->period != NULL && file->about->times > 0) return choose_by_name(file, form);
    if (!axis->known || (form->period == NULL && length == step && axis->missing_count == 0)) return VT_OK;
    const vt_date first = axis->begin;
    if (form->period != NULL) VT_TRY(parse_period(form, first.calendar, &wanted));
    file->places = vt_allocate((size_t)file->about->times, sizeof *file->places, "the times of a file");
    int64_t count = 0, missing = 0;
    for (int64_t i = 0; i < file->about->times; i++) {
        const vt_date date = vt_time_axis_date(axis, i);
        while (missing < axis->missing_count && axis->missing[missing].minutes < date.minutes) missing++;
        if (missing < axis->missing_count && axis->missing[missing].minutes == date.minutes) continue;
        if (date.minutes < wanted.from || date.minutes > wanted.to) continue;
        if (length != step && !is_due(date, first, step, length)) continue;
        file->places[count] = i;
        axis->dates[count++] = date.minutes; /* count <= i */
    }
    file->about->times = count;
    axis->minutes = length;
    axis->known = count > 0;
    axis->begin.minutes = axis->dates[0];
done:
    return status;
}
