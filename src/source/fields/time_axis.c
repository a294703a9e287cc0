#include "source/fields/time_axis.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

/* ---- units ---- */

/* By UDUNITS' names; 0: it is none of them. */
static double minutes_of_unit(const char *name, size_t length)
{
    static const struct {
        const char *name;
        double minutes;
    } units[] = {{"second", 1 / 60.}, {"sec", 1 / 60.},   {"s", 1 / 60.},
                 {"minute", 1},       {"min", 1},         {"hour", 60},
                 {"hr", 60},          {"h", 60},          {"day", 1440},
                 {"d", 1440},         {"week", 7 * 1440}, {"millisecond", 1e-3 / 60},
                 {"msec", 1e-3 / 60}, {"ms", 1e-3 / 60},  {"microsecond", 1e-6 / 60},
                 {"us", 1e-6 / 60},   {"ns", 1e-9 / 60},  {"nanosecond", 1e-9 / 60}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const size_t own = strlen(units[i].name);
        const bool plural = length == own + 1 && tolower((unsigned char)name[own]) == 's';
        if ((length == own || plural) && strncasecmp(name, units[i].name, own) == 0) return units[i].minutes;
    }
    return 0;
}

/* Months and years are the calendar's, as files that count in them mean, not UDUNITS' mean months and years. */
static int64_t months_of_unit(const char *name, size_t length)
{
    const int64_t plural = length > 0 && tolower((unsigned char)name[length - 1]) == 's';
    const size_t own = length - (size_t)plural;
    if (own == 5 && strncasecmp(name, "month", 5) == 0) return 1;
    return own == 4 && strncasecmp(name, "year", 4) == 0 ? 12 : 0;
}

/* "", "Z", "UTC", "+1", "-06:00", "+0530": minutes east of Greenwich. */
static bool parse_zone(const char *text, int64_t *minutes)
{
    long long hours = 0, rest = 0;
    int end = 0, more = 0;
    *minutes = 0;
    text += strspn(text, " ");
    if (*text == '\0' || strcasecmp(text, "Z") == 0 || strcasecmp(text, "UTC") == 0 || strcasecmp(text, "GMT") == 0)
        return true;
    if ((*text != '+' && *text != '-') || !isdigit((unsigned char)text[1])) return false;
    sscanf(text + 1, "%2lld%n", &hours, &end);
    const char *at = text + 1 + end;
    if (*at == ':') at++;
    if (isdigit((unsigned char)*at) && sscanf(at, "%2lld%n", &rest, &more) == 1) at += more;
    *minutes = (*text == '-' ? -1 : 1) * (60 * hours + rest);
    return at[strspn(at, " ")] == '\0' && hours <= 14 && rest < 60;
}

bool vt_time_units_parse(const char *text, vt_calendar calendar, vt_time_units *units)
{
    long long year = 0, month = 1, day = 1, hour = 0, minute = 0;
    int end = 0;
    int64_t zone = 0;
    *units = (vt_time_units){0};
    text += strspn(text, " ");
    const size_t unit = strcspn(text, " ");
    units->minutes = minutes_of_unit(text, unit);
    units->months = months_of_unit(text, unit);
    text += unit + strspn(text + unit, " ");
    if ((units->minutes == 0 && units->months == 0) || strncasecmp(text, "since ", 6) != 0) return false;
    text += 6 + strspn(text + 6, " ");
    if (sscanf(text, "%4lld-%2lld-%2lld%n", &year, &month, &day, &end) != 3 || end == 0) return false;
    text += end;
    const char *time = text + (*text == 'T' ? 1 : strspn(text, " _"));
    if (isdigit((unsigned char)*time) && time > text) {
        sscanf(time, "%2lld%n", &hour, &end);
        text = time + end;
        if (*text == ':' && sscanf(text + 1, "%2lld%n", &minute, &end) == 1) text += 1 + end;
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

/* ---- times ---- */

/* The shortest difference, if all times go forward. */
static vt_status find_interval(const double *minutes, int64_t times, vt_date zero, const char *path, const char *name,
                               int64_t *interval)
{
    vt_status status = VT_OK;
    char before[VT_DATE_SIZE], after[VT_DATE_SIZE];
    *interval = 0;
    for (int64_t i = 1; i < times; i++) {
        const int64_t past = llrint(minutes[i - 1]), now = llrint(minutes[i]), difference = now - past;
        if (difference <= 0) {
            vt_date_format(vt_date_after(zero, past), before);
            vt_date_format(vt_date_after(zero, now), after);
        }
        VT_CHECK(
            difference != 0,
            "%s: '%s' is %s at both %lld and %lld (counted from 0); every time must come once, or a sample's target "
            "is not the time after its input",
            path, name, after, (long long)i - 1, (long long)i);
        VT_CHECK(difference > 0,
                 "%s: '%s' goes backwards, from %s at %lld to %s at %lld (counted from 0); put the times in order "
                 "(cdo -sorttimestep), or a sample's target is not the time after its input",
                 path, name, before, (long long)i - 1, after, (long long)i);
        if (*interval == 0 || difference < *interval) *interval = difference;
    }
done:
    return status;
}

/* How many calendar months the times are apart, 0 if they aren't whole months: the day of the month may differ by
 * `days`, as the middles and ends of months do. */
static int64_t months_apart(const double *minutes, int64_t times, vt_date zero, int64_t days)
{
    enum { SHORTEST = 28 * 1440 };
    int64_t least = 0, first_day = 0, before = 0, day;
    for (int64_t i = 0; i < times; i++) {
        const int64_t month = vt_date_month(vt_date_after(zero, llrint(minutes[i])), &day), apart = month - before;
        if (i == 0) first_day = day;
        if (i > 0 && (apart < 1 || minutes[i] - minutes[i - 1] < SHORTEST)) return 0;
        if (day > first_day + days || day < first_day - days) return 0;
        if (i > 0 && (least == 0 || apart < least)) least = apart;
        before = month;
    }
    return least;
}

/* Does each time follow the one before by this length? */
static bool follows(const double *minutes, int64_t i, vt_date zero, int64_t length)
{
    const vt_date before = vt_date_after(zero, llrint(minutes[i - 1])), now = vt_date_after(zero, llrint(minutes[i]));
    return vt_date_steps(before, now, length) == 1;
}

vt_status vt_time_axis_take(const double *minutes, int64_t times, vt_date zero, const char *path, const char *name,
                            vt_time_axis *axis)
{
    vt_status status = VT_OK;
    int64_t stretches = 1;
    bool even = true;
    VT_TRY(find_interval(minutes, times, zero, path, name, &axis->minutes));
    for (int64_t i = 1; i < times; i++) even = even && follows(minutes, i, zero, axis->minutes);
    const int64_t months = months_apart(minutes, times, zero, even && times > 2 ? 0 : 3);
    if (months > 0) axis->minutes = months * VT_A_MONTH;
    for (int64_t i = 1; i < times; i++) stretches += !follows(minutes, i, zero, axis->minutes);
    axis->stretches = vt_allocate((size_t)stretches, sizeof *axis->stretches, "the times of a file");
    for (int64_t i = 0; i < times; i++) {
        if (i == 0 || !follows(minutes, i, zero, axis->minutes))
            axis->stretches[axis->count++] = (vt_stretch){i, 0, vt_date_after(zero, llrint(minutes[i]))};
        axis->stretches[axis->count - 1].count++;
    }
done:
    return status;
}

void vt_time_axis_close(vt_time_axis *axis)
{
    free(axis->doubt);
    free(axis->stretches);
    free(axis->units);
    free(axis->calendar_name);
    *axis = (vt_time_axis){0};
}
