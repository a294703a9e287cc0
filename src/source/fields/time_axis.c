#include "source/fields/time_axis.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/median.h"
#include "base/memory.h"
#include "base/text.h"

/* ---- units ---- */

/* By UDUNITS' names, as a length (calendar.h): months and years are the calendar's, as files that count in them mean,
 * not UDUNITS' mean months and years. 0: it is none of them. */
static double length_of_unit(const char *name, size_t length)
{
    static const struct {
        double length;
        const char *const names[4];
    } units[] = {{1 / 60., {"second", "sec", "s"}},
                 {1, {"minute", "min"}},
                 {60, {"hour", "hr", "h"}},
                 {1440, {"day", "d"}},
                 {7 * 1440, {"week"}},
                 {VT_A_MONTH, {"month"}},
                 {12 * VT_A_MONTH, {"year"}},
                 {1e-3 / 60, {"millisecond", "msec", "ms"}},
                 {1e-6 / 60, {"microsecond", "us"}},
                 {1e-9 / 60, {"nanosecond", "ns"}}};
    const size_t singular = length - (length > 1 && tolower((unsigned char)name[length - 1]) == 's');
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (vt_text_place(name, length, units[i].names) >= 0 || vt_text_place(name, singular, units[i].names) >= 0)
            return units[i].length;
    return 0;
}

/* "", "Z", "UTC", "+1", "-06:00", "+0530": minutes east of Greenwich. */
static bool parse_zone(const char *text, int64_t *minutes)
{
    int64_t hours = 0, rest = 0;
    int end = 0, more = 0;
    *minutes = 0;
    text += strspn(text, " ");
    if (*text == '\0' || strcasecmp(text, "Z") == 0 || strcasecmp(text, "UTC") == 0 || strcasecmp(text, "GMT") == 0)
        return true;
    if ((*text != '+' && *text != '-') || !isdigit((unsigned char)text[1])) return false;
    sscanf(text + 1, "%2ld%n", &hours, &end);
    const char *at = text + 1 + end;
    if (*at == ':') at++;
    if (isdigit((unsigned char)*at) && sscanf(at, "%2ld%n", &rest, &more) == 1) at += more;
    *minutes = (*text == '-' ? -1 : 1) * (60 * hours + rest);
    return at[strspn(at, " ")] == '\0' && hours <= 14 && rest < 60;
}

bool vt_time_units_parse(const char *text, vt_calendar calendar, vt_time_units *units)
{
    int64_t year = 0, month = 1, day = 1, hour = 0, minute = 0;
    int end = 0;
    int64_t zone = 0;
    *units = (vt_time_units){0};
    text += strspn(text, " ");
    const size_t unit = strcspn(text, " ");
    const double length = length_of_unit(text, unit);
    units->months = (int64_t)length / VT_A_MONTH;
    units->minutes = units->months > 0 ? 0 : length;
    text += unit + strspn(text + unit, " ");
    if (length == 0 || strncasecmp(text, "since ", 6) != 0) return false;
    text += 6 + strspn(text + 6, " ");
    if (sscanf(text, "%4ld-%2ld-%2ld%n", &year, &month, &day, &end) != 3 || end == 0) return false;
    text += end;
    const char *time = text + (*text == 'T' ? 1 : strspn(text, " _"));
    if (isdigit((unsigned char)*time) && time > text) {
        sscanf(time, "%2ld%n", &hour, &end);
        text = time + end;
        if (*text == ':' && sscanf(text + 1, "%2ld%n", &minute, &end) == 1) text += 1 + end;
        if (*text == ':' && isdigit((unsigned char)text[1])) {
            char *after = NULL;
            units->seconds = strtod(text + 1, &after);
            text = after;
        }
    }
    if (!parse_zone(text, &zone) || hour < 0 || hour > 24 || minute < 0 || minute > 59 || !(units->seconds < 61))
        return false;
    if (!vt_date_make(calendar, year, month, day, &units->zero)) return false;
    units->zero = vt_date_after(units->zero, 60 * hour + minute - zone);
    return true;
}

double vt_time_units_minutes(const vt_time_units *units, double value)
{
    if (units->months == 0) return value * units->minutes + units->seconds / 60;
    const double months = value * (double)units->months, whole = floor(months);
    if (!(fabs(months) < 12 * 10000)) return NAN;
    const vt_date begin = vt_date_after(units->zero, (int64_t)whole * VT_A_MONTH),
                  end = vt_date_after(begin, VT_A_MONTH);
    return (double)(begin.minutes - units->zero.minutes) + (months - whole) * (double)(end.minutes - begin.minutes) +
           units->seconds / 60;
}

double vt_time_units_value(const vt_time_units *units, vt_date date)
{
    return ((double)(date.minutes - units->zero.minutes) - units->seconds / 60) / units->minutes;
}

/* ---- the step ---- */

/* Minutes by which a time may lie beside the one that it stands for. Between two times it is twice as much, and a bit
 * for rounding. */
#define BESIDE 1.0
#define BETWEEN (2 * BESIDE + 1e-3)

/* Of the whole minutes from `low` to `high` one that writers mean: a multiple of `step`, else of the longest of these
 * lengths. None there: the whole minute in the middle. */
static int64_t roundest(double low, double high, int64_t step)
{
    const int64_t lengths[] = {step, 1440, 720, 360, 180, 120, 60, 30, 15, 10, 5};
    const double middle = (low + high) / 2;
    for (size_t i = step > 0 ? 0 : 1; i < sizeof lengths / sizeof lengths[0]; i++) {
        const double near = rint(middle / (double)lengths[i]) * (double)lengths[i];
        if (near > 0 && near >= low && near <= high) return (int64_t)near;
    }
    return llrint(middle);
}

/* The mean of the most numerous differences that are alike within `apart`, or the smaller ones of two such groups; how
 * many they are. Sorts them. */
static int64_t most_common(double *differences, int64_t count, double apart, double *mean)
{
    int64_t most = 0, end = 0;
    qsort(differences, (size_t)count, sizeof *differences, vt_by_value);
    for (int64_t first = 0; first < count; first++) {
        while (end < count && differences[end] - differences[first] <= fmin(apart, differences[first] / 2)) end++;
        if (end - first <= most) continue;
        most = end - first;
        *mean = 0;
        for (int64_t i = first; i < end; i++) *mean += differences[i] / (double)most;
    }
    return most;
}

int64_t vt_time_step(const double *minutes, int64_t times, double precision, int64_t *alike)
{
    double mean = 0, *differences = vt_allocate((size_t)times, sizeof *differences, "the times of a file");
    int64_t count = 0;
    for (int64_t i = 1; i < times; i++)
        if (minutes[i] > minutes[i - 1]) differences[count++] = minutes[i] - minutes[i - 1];
    *alike = count > 0 ? most_common(differences, count, 2 * (precision + BETWEEN), &mean) : 0;
    free(differences);
    if (*alike == 0) return 0;
    const double error = precision / (double)*alike + 0.5; /* those of the times in between cancel */
    const int64_t step = roundest(mean - error, mean + error, 0);
    return step > 0 ? step : 1;
}

bool vt_time_follows(vt_date before, vt_date now, int64_t times, int64_t step)
{
    if (step >= VT_A_MONTH) return vt_date_steps(before, now, step) == times;
    return fabs((double)(now.minutes - before.minutes - times * step)) <= fmin(BETWEEN, (double)step / 3);
}

/* How many calendar months the times are apart, 0 if they aren't whole months: the day of the month may differ by
 * `days`, as the middles and ends of months do. */
static int64_t months_apart(const double *minutes, int64_t times, vt_date zero, int64_t days)
{
    enum { SHORTEST = 28 * 1440 };
    int64_t first_day = 0, before = 0, day, count = 0;
    double months = 0, *differences = vt_allocate((size_t)times, sizeof *differences, "the times of a file");
    for (int64_t i = 0; i < times; i++) {
        const int64_t month = vt_date_month(vt_date_after(zero, llrint(minutes[i])), &day);
        if (i == 0) first_day = day;
        if (day > first_day + days || day < first_day - days) break;
        if (i > 0 && (month <= before || minutes[i] - minutes[i - 1] < SHORTEST)) break;
        if (i > 0) differences[count++] = (double)(month - before);
        before = month;
    }
    if (count > 0 && count == times - 1) most_common(differences, count, 0, &months);
    free(differences);
    return llrint(months);
}

/* ---- times ---- */

static vt_status check_order(const double *minutes, int64_t times, vt_date zero, const char *path, const char *name)
{
    vt_status status = VT_OK;
    char before[VT_DATE_SIZE], after[VT_DATE_SIZE];
    for (int64_t i = 1; i < times; i++) {
        const int64_t past = llrint(minutes[i - 1]), now = llrint(minutes[i]), difference = now - past;
        if (difference <= 0) {
            vt_date_format(vt_date_after(zero, past), before);
            vt_date_format(vt_date_after(zero, now), after);
        }
        VT_CHECK(difference != 0,
                 "%s: '%s' is %s at both %ld and %ld (counted from 0); every time must come once, or a sample's target "
                 "is not the time after its input",
                 path, name, after, i - 1, i);
        VT_CHECK(difference > 0,
                 "%s: '%s' goes backwards, from %s at %ld to %s at %ld (counted from 0); put the times in order "
                 "(cdo -sorttimestep), or a sample's target is not the time after its input",
                 path, name, before, i - 1, after, i);
    }
done:
    return status;
}

/* How far the time lies beside its place in a stretch that begins with time `first`. */
static double beside(const double *minutes, int64_t first, int64_t i, int64_t step)
{
    return minutes[i] - minutes[first] - (double)((i - first) * step);
}

/* Times a step apart from a date. */
typedef struct {
    int64_t first, count;
    vt_date date; /* of the first */
} stretch;

/* Cuts the times into stretches, where one is not a step after the one before. A stretch begins at a date from which
 * all its times, a step apart, lie at most `allowed` away. Returns how many. */
static int64_t cut(const double *minutes, int64_t times, vt_date zero, double precision, double allowed, int64_t step,
                   stretch *stretches)
{
    const bool months = step >= VT_A_MONTH;
    int64_t count = 0;
    for (int64_t first = 0, end; first < times; first = end) {
        double least = 0, most = 0;
        for (end = first + 1; end < times; end++) {
            const double own = months ? 0 : beside(minutes, first, end, step);
            const vt_date before = vt_date_after(zero, llrint(minutes[end - 1]));
            if (months && vt_date_steps(before, vt_date_after(zero, llrint(minutes[end])), step) != 1) break;
            if (fabs(own) > allowed) break;
            least = fmin(least, own);
            most = fmax(most, own);
        }
        const double from = most - precision / 2,
                     to = least + precision / 2; /* it may also be less precise than that */
        const double begin = (double)zero.minutes + minutes[first];
        const int64_t date = roundest(begin + fmin(from, to), begin + fmax(from, to), months ? 0 : step);
        stretches[count++] = (stretch){first, end - first, {zero.calendar, date}};
    }
    return count;
}

/* Moves stretches that lie almost on the grid of the longest one onto it, and names times that don't lie on it. */
static void compare_stretches(vt_time_axis *axis, stretch *stretches, int64_t stretch_count, double allowed,
                              const char *path, const char *name)
{
    const stretch *longest = stretches, *odd = NULL;
    const int64_t step = axis->minutes;
    int64_t count = 0, times = 0;
    char date[VT_DATE_SIZE], length[VT_DATE_SIZE];
    for (int64_t i = 1; i < stretch_count; i++)
        if (stretches[i].count > longest->count) longest = &stretches[i];
    for (stretch *own = stretches; own < stretches + stretch_count; own++) {
        times += own->count;
        if (step == 0 || step >= VT_A_MONTH) continue; /* months: all have the same day */
        const double off = remainder((double)(own->date.minutes - longest->date.minutes), (double)step);
        if (fabs(off) <= allowed) {
            own->date.minutes -= (int64_t)off;
            continue;
        }
        count += own->count;
        if (odd == NULL) odd = own;
    }
    if (odd != NULL)
        axis->oddity = vt_text_format(
            "%s: %ld of the %ld times of '%s' lie beside the others, which are %s apart; the first is %s at %ld "
            "(counted from 0). No sample reaches across them; if they are wrong, correct them in the file",
            path, count, times, name, vt_length_format(step, length), vt_date_format(odd->date, date), odd->first);
}

vt_status vt_time_axis_take(const double *minutes, int64_t times, vt_date zero, double precision, const char *path,
                            const char *name, vt_time_axis *axis)
{
    vt_status status = VT_OK;
    int64_t alike = 0;
    stretch *stretches = NULL;
    VT_TRY(check_order(minutes, times, zero, path, name));
    axis->minutes = vt_time_step(minutes, times, precision, &alike);
    double allowed = fmin(precision + BETWEEN, (double)axis->minutes / 3);
    bool even = times > 2;
    for (int64_t i = 1; i < times; i++) even = even && fabs(beside(minutes, i - 1, i, axis->minutes)) <= allowed;
    const int64_t months = months_apart(minutes, times, zero, even ? 0 : 3);
    if (months > 0) axis->minutes = months * VT_A_MONTH;
    stretches = vt_allocate((size_t)times, sizeof *stretches, "the times of a file");
    const int64_t count = cut(minutes, times, zero, precision, allowed, axis->minutes, stretches);
    compare_stretches(axis, stretches, count, allowed, path, name);
    axis->dates = vt_allocate((size_t)times, sizeof *axis->dates, "the times of a file");
    for (const stretch *own = stretches; own < stretches + count; own++)
        for (int64_t i = 0; i < own->count; i++)
            axis->dates[own->first + i] =
                months > 0 ? zero.minutes + llrint(minutes[own->first + i]) : own->date.minutes + i * axis->minutes;
    axis->begin = (vt_date){zero.calendar, axis->dates[0]};
    axis->known = true;
done:
    free(stretches);
    return status;
}

vt_date vt_time_axis_date(const vt_time_axis *axis, int64_t index)
{
    const int64_t step = axis->minutes > 0 ? axis->minutes : 60 * VT_HOURS_A_TIME;
    if (axis->dates != NULL) return (vt_date){axis->begin.calendar, axis->dates[index]};
    return vt_date_after(axis->begin, index * step);
}

void vt_time_axis_close(vt_time_axis *axis)
{
    free(axis->dates);
    free(axis->doubt);
    free(axis->oddity);
    free(axis->missing);
    free(axis->units);
    free(axis->calendar_name);
    *axis = (vt_time_axis){0};
}
