#include "task/weather/calendar.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

enum { MINUTES_A_DAY = 1440, LAST_YEAR = 9999 };

/* ---- calendars ---- */

static const char *const names[][3] = {[VT_CALENDAR_STANDARD] = {"standard", "gregorian"},
                                       [VT_CALENDAR_PROLEPTIC] = {"proleptic_gregorian"},
                                       [VT_CALENDAR_NO_LEAP] = {"noleap", "365_day"},
                                       [VT_CALENDAR_ALL_LEAP] = {"all_leap", "366_day"},
                                       [VT_CALENDAR_360_DAY] = {"360_day"}};

bool vt_calendar_of_name(const char *name, vt_calendar *calendar)
{
    for (vt_calendar i = VT_CALENDAR_STANDARD; i <= VT_CALENDAR_360_DAY; i++) {
        if (vt_text_place(name, strlen(name), names[i]) < 0) continue;
        *calendar = i;
        return true;
    }
    return false;
}

const char *vt_calendar_name(vt_calendar calendar)
{
    return names[calendar][0];
}

/* ---- days ---- */

static int64_t floor_quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* How a calendar counts its days. Its years begin in March here, so that a leap day is the last one. */
typedef struct {
    int64_t days;   /* of a year without a leap day */
    bool leaps;     /* every fourth year has one, … */
    bool gregorian; /* … but for three of four centuries' first years */
    int64_t origin; /* the number of the first of March in the year 0 */
} rule;

/* Julian day numbers (Explanatory Supplement to the Astronomical Almanac 1992, section 12.92), or from 0 on. */
static const rule julian = {365, true, false, 1721118};
static const rule rules[] = {[VT_CALENDAR_STANDARD] = {365, true, true, 1721120},
                             [VT_CALENDAR_PROLEPTIC] = {365, true, true, 1721120},
                             [VT_CALENDAR_NO_LEAP] = {365, false, false, 59},
                             [VT_CALENDAR_ALL_LEAP] = {366, false, false, 60},
                             [VT_CALENDAR_360_DAY] = {360, false, false, 60}};
enum { FIRST_GREGORIAN = 2299161 }; /* 1582-10-15 */

static const rule *rule_of(vt_calendar calendar, int64_t number)
{
    return calendar == VT_CALENDAR_STANDARD && number < FIRST_GREGORIAN ? &julian : &rules[calendar];
}

/* The number of a year's first day, and how many days come before its month 0 (March), 1, … 11. */
static int64_t year_begin(const rule *r, int64_t year)
{
    const int64_t left_out = r->gregorian ? floor_quotient(year, 100) - floor_quotient(year, 400) : 0;
    return r->origin + r->days * year + (r->leaps ? floor_quotient(year, 4) - left_out : 0);
}

static int64_t month_begin(const rule *r, int64_t month)
{
    return r->days == 360 ? 30 * month : (153 * month + 2) / 5;
}

static int64_t day_number(const rule *r, int64_t year, int64_t month, int64_t day)
{
    const int64_t early = month <= 2;
    return year_begin(r, year - early) + month_begin(r, month + 12 * early - 3) + day - 1;
}

static void date_of_day(vt_calendar calendar, int64_t number, int64_t *year, int64_t *month, int64_t *day)
{
    const rule *r = rule_of(calendar, number);
    /* by a year's mean length, which may be one year off */
    int64_t y = floor_quotient(400 * (number - r->origin), year_begin(r, 400) - r->origin);
    y += year_begin(r, y + 1) <= number;
    y -= year_begin(r, y) > number;
    number -= year_begin(r, y);
    const int64_t m = r->days == 360 ? number / 30 : (5 * number + 2) / 153;
    *day = number - month_begin(r, m) + 1;
    *month = m < 10 ? m + 3 : m - 9;
    *year = m < 10 ? y : y + 1;
}

bool vt_date_make(vt_calendar calendar, int64_t year, int64_t month, int64_t day, vt_date *date)
{
    int64_t found[3];
    if (year < 0 || year > LAST_YEAR || month < 1 || month > 12 || day < 1 || day > 31) return false;
    int64_t number = day_number(&rules[calendar], year, month, day);
    number = day_number(rule_of(calendar, number), year, month, day);
    *date = (vt_date){calendar, number * MINUTES_A_DAY};
    date_of_day(calendar, number, &found[0], &found[1], &found[2]);
    return found[0] == year && found[1] == month && found[2] == day; /* not a 30th of February */
}

/* ---- text ---- */

int64_t vt_date_of_file_name(const char *path, vt_date *date)
{
    static const char all[] = "0123456789", also[] = "0123456789-_";
    char digits[16] = "";
    int count = 0;
    const char *name = vt_file_name(path), *dot = strrchr(name, '.');
    if (dot == NULL) return 0;
    const char *begin = dot;
    while (begin > name && strchr(also, begin[-1]) != NULL) begin--;
    while (begin < dot && strspn(begin, all) < 4) begin++; /* the date begins with a year of four digits */
    for (; begin < dot && count < 15; begin++)
        if (isdigit((unsigned char)*begin)) digits[count++] = *begin;
    if (begin < dot) return 0;
    for (int length = count < 8 ? count - count % 2 : 8; length >= 4; length -= 2) { /* the last of them */
        int year = 0, month = 1, day = 1;
        sscanf(digits + count - length, "%4d%2d%2d", &year, &month, &day);
        if (year >= 1000 && year < 3000 && vt_date_make(VT_CALENDAR_STANDARD, year, month, day, date))
            return length == 4 ? 12 * VT_A_MONTH : length == 6 ? VT_A_MONTH : MINUTES_A_DAY;
    }
    return 0;
}

bool vt_date_parse(const char *text, vt_calendar calendar, vt_date *date)
{
    int64_t year, month, day, hour = 0, minute = 0;
    int end = 0, more = 0;
    if (sscanf(text, "%4ld-%2ld-%2ld%n", &year, &month, &day, &end) != 3 || end == 0) return false;
    const char *rest = text + end;
    if ((*rest == 'T' || *rest == ' ' || *rest == '_') && sscanf(rest + 1, "%2ld%n", &hour, &more) == 1) {
        rest += 1 + more;
        more = 0;
        if (*rest == ':' && sscanf(rest + 1, "%2ld%n", &minute, &more) == 1) rest += 1 + more;
        if (strncmp(rest, ":00", 3) == 0) rest += 3;
    }
    if (*rest == 'Z') rest++;
    if (*rest != '\0' || hour < 0 || hour > 23 || minute < 0 || minute > 59) return false;
    if (!vt_date_make(calendar, year, month, day, date)) return false;
    date->minutes += 60 * hour + minute;
    return true;
}

int64_t vt_date_month(vt_date date, int64_t *day)
{
    int64_t year, month;
    date_of_day(date.calendar, floor_quotient(date.minutes, MINUTES_A_DAY), &year, &month, day);
    return 12 * year + month - 1;
}

int64_t vt_date_of_day(vt_date date)
{
    return date.minutes - floor_quotient(date.minutes, MINUTES_A_DAY) * MINUTES_A_DAY;
}

double vt_date_of_year(vt_date date)
{
    int64_t day;
    const int64_t year = vt_date_month(date, &day) / 12;
    vt_date begin = date, end;
    vt_date_make(date.calendar, year, 1, 1, &begin);
    if (!vt_date_make(date.calendar, year + 1, 1, 1, &end)) end.minutes = begin.minutes + 365 * MINUTES_A_DAY;
    return (double)(date.minutes - begin.minutes) / (double)(end.minutes - begin.minutes);
}

/* ---- lengths of time ---- */

static int64_t months_of(int64_t length)
{
    return floor_quotient(length + VT_A_MONTH / 2, VT_A_MONTH);
}

vt_date vt_date_after(vt_date date, int64_t length)
{
    const int64_t months = months_of(length);
    if (months != 0) {
        int64_t day;
        const int64_t of_day = vt_date_of_day(date);
        const int64_t month = vt_date_month(date, &day) + months, year = floor_quotient(month, 12);
        vt_date later = date;
        while (day > 1 && !vt_date_make(date.calendar, year, month - 12 * year + 1, day, &later)) day--;
        if (day == 1) vt_date_make(date.calendar, year, month - 12 * year + 1, day, &later);
        date.minutes = later.minutes + of_day;
    }
    date.minutes += length - months * VT_A_MONTH;
    return date;
}

int64_t vt_date_steps(vt_date from, vt_date to, int64_t step)
{
    int64_t day, length = to.minutes - from.minutes;
    if (months_of(step) != 0) {
        length = vt_date_month(to, &day) - vt_date_month(from, &day);
        step = months_of(step);
    }
    return length >= 0 && length % step == 0 ? length / step : -1;
}

int64_t vt_date_apart(vt_date from, vt_date to)
{
    enum { SHORTEST_MONTH = 28 * MINUTES_A_DAY };
    const int64_t apart = to.minutes - from.minutes;
    if (apart >= SHORTEST_MONTH && vt_date_steps(from, to, VT_A_MONTH) == 1) return VT_A_MONTH;
    return apart > 0 ? apart : 0;
}

double vt_length_hours(int64_t length)
{
    const int64_t months = months_of(length);
    return 730.0 * (double)months + (double)(length - months * VT_A_MONTH) / 60;
}

bool vt_length_parse(const char *text, int64_t *length)
{
    static const struct {
        const char *names[4];
        int64_t length;
    } units[] = {{{"min", "minute", "minutes"}, 1},
                 {{"h", "hour", "hours"}, 60},
                 {{"d", "day", "days"}, MINUTES_A_DAY},
                 {{"month", "months"}, VT_A_MONTH},
                 {{"year", "years"}, 12 * VT_A_MONTH}};
    enum { MOST = 100000 };
    char *unit = NULL;
    if (!isdigit((unsigned char)text[0])) return false;
    const int64_t count = strtoll(text, &unit, 10);
    unit += strspn(unit, " ");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (vt_text_place(unit, strlen(unit), units[i].names) < 0 || count < 1 || count > MOST) continue;
        *length = count * units[i].length;
        return true;
    }
    return false;
}

/* Above a day tenths of an hour are easier to read than minutes. */
static bool is_told_in_hours(int64_t length)
{
    return length % 60 == 0 || (length > MINUTES_A_DAY && length % 6 == 0);
}

const char *vt_length_format(int64_t length, char buffer[VT_DATE_SIZE])
{
    const int64_t months = months_of(length);
    if (months != 0)
        snprintf(buffer, VT_DATE_SIZE, "%ld month%s", months, months == 1 ? "" : "s");
    else if (is_told_in_hours(length))
        snprintf(buffer, VT_DATE_SIZE, "%.9g h", (double)length / 60);
    else
        snprintf(buffer, VT_DATE_SIZE, "%ld min", length);
    return buffer;
}

vt_lead_unit vt_lead_unit_of(int64_t step)
{
    const int64_t months = months_of(step);
    if (months != 0) return (vt_lead_unit){"month", "months", (double)months};
    if (step % MINUTES_A_DAY == 0) return (vt_lead_unit){"d", NULL, (double)(step / MINUTES_A_DAY)};
    if (is_told_in_hours(step)) return (vt_lead_unit){"h", NULL, (double)step / 60};
    return (vt_lead_unit){"min", "minutes", (double)step};
}

const char *vt_lead_format(int64_t step, double count, char buffer[VT_DATE_SIZE])
{
    const vt_lead_unit unit = vt_lead_unit_of(step);
    const double units = count * unit.a_step;
    snprintf(buffer, VT_DATE_SIZE, "%.9g %s%s", units, unit.name, months_of(step) != 0 && units != 1 ? "s" : "");
    return buffer;
}

bool vt_date_is_within(vt_date date, double minutes)
{
    vt_date first, last;
    vt_date_make(date.calendar, 0, 1, 1, &first);
    vt_date_make(date.calendar, LAST_YEAR, 12, 30, &last);
    return minutes >= (double)(first.minutes - date.minutes) && minutes <= (double)(last.minutes - date.minutes);
}

const char *vt_date_format(vt_date date, char buffer[VT_DATE_SIZE])
{
    int64_t day;
    const int64_t minutes = vt_date_of_day(date), month = vt_date_month(date, &day);
    snprintf(buffer, VT_DATE_SIZE, "%04ld-%02ld-%02ld %02ld:%02ld", month / 12, month % 12 + 1, day, minutes / 60,
             minutes % 60);
    return buffer;
}
