#include "data/time_axis.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"

/* ---- units ---- */

/* UDUNITS' names for them. A month or a year is no fixed time there, and none here. */
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

bool vt_time_units(const char *text, vt_calendar calendar, double *minutes, vt_date *zero, double *seconds)
{
    long long year = 0, month = 1, day = 1, hour = 0, minute = 0;
    int end = 0;
    int64_t zone = 0;
    *seconds = 0;
    text += strspn(text, " ");
    const size_t unit = strcspn(text, " ");
    *minutes = minutes_of_unit(text, unit);
    text += unit + strspn(text + unit, " ");
    if (*minutes == 0 || strncasecmp(text, "since ", 6) != 0) return false;
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
            *seconds = strtod(text + 1, &after);
            text = after;
        }
    }
    if (!parse_zone(text, &zone) || hour < 0 || hour > 24 || minute < 0 || minute > 59 || !(*seconds < 61))
        return false;
    if (!vt_date_make(calendar, year, month, day, zero)) return false;
    *zero = vt_date_after(*zero, 60 * hour + minute - zone);
    return true;
}

/* ---- times ---- */

const char *vt_time_interval(int64_t minutes, char buffer[VT_DATE_SIZE])
{
    const bool hours = minutes % 60 == 0;
    snprintf(buffer, VT_DATE_SIZE, "%lld %s", (long long)(hours ? minutes / 60 : minutes), hours ? "h" : "min");
    return buffer;
}

/* The least difference, if they all go forward. */
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

vt_status vt_time_axis_take(const double *minutes, int64_t times, vt_date zero, const char *path, const char *name,
                            vt_time_axis *axis)
{
    vt_status status = VT_OK;
    int64_t stretches = 1, widest = 0;
    VT_TRY(find_interval(minutes, times, zero, path, name, &axis->minutes));
    for (int64_t i = 1; i < times; i++) {
        const int64_t difference = llrint(minutes[i]) - llrint(minutes[i - 1]);
        stretches += difference != axis->minutes;
        if (difference > widest) widest = difference;
    }
    if (axis->minutes >= 28 * 1440 && widest <= 31 * 1440 && widest != axis->minutes) {
        axis->minutes = 0;
        axis->doubt = vt_text_format("%s: '%s' counts in months", path, name);
        goto done;
    }
    axis->stretches = vt_allocate((size_t)stretches, sizeof *axis->stretches, "the times of a file");
    for (int64_t i = 0; i < times; i++) {
        const int64_t now = llrint(minutes[i]);
        if (i == 0 || now - llrint(minutes[i - 1]) != axis->minutes)
            axis->stretches[axis->count++] = (vt_stretch){i, 0, vt_date_after(zero, now)};
        axis->stretches[axis->count - 1].count++;
    }
done:
    return status;
}

void vt_time_axis_close(vt_time_axis *axis)
{
    free(axis->doubt);
    free(axis->stretches);
    *axis = (vt_time_axis){0};
}
