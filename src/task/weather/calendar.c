#include "task/weather/calendar.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"

enum { MINUTES_A_DAY = 1440, LAST_YEAR = 9999 };

/* ---- calendars ---- */

static const struct {
    const char *name;
    vt_calendar calendar;
} names[] = {{"standard", VT_CALENDAR_STANDARD},
             {"gregorian", VT_CALENDAR_STANDARD},
             {"proleptic_gregorian", VT_CALENDAR_PROLEPTIC},
             {"noleap", VT_CALENDAR_NO_LEAP},
             {"365_day", VT_CALENDAR_NO_LEAP},
             {"all_leap", VT_CALENDAR_ALL_LEAP},
             {"366_day", VT_CALENDAR_ALL_LEAP},
             {"360_day", VT_CALENDAR_360_DAY}};
enum { NAMES = sizeof names / sizeof names[0] };

bool vt_calendar_of_name(const char *name, vt_calendar *calendar)
{
    for (int i = 0; i < NAMES; i++) {
        if (strcasecmp(name, names[i].name) != 0) continue;
        *calendar = names[i].calendar;
        return true;
    }
    return false;
}

const char *vt_calendar_name(vt_calendar calendar)
{
    int i = 0;
    while (i + 1 < NAMES && names[i].calendar != calendar) i++;
    return names[i].name;
}

/* ---- days ---- */

static int64_t floor_quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Julian day numbers, by the formulas of the Explanatory Supplement to the Astronomical Almanac (1992), section 12.92.
 * Years begin in March for these, so that a leap day is the last one. */
enum { FIRST_GREGORIAN = 2299161 }; /* 1582-10-15 */

static int64_t day_number(bool gregorian, int64_t year, int64_t month, int64_t day)
{
    const int64_t early = month <= 2, y = year + 4800 - early, m = month + 12 * early - 3;
    const int64_t days = day + (153 * m + 2) / 5 + 365 * y + y / 4;
    return gregorian ? days - y / 100 + y / 400 - 32045 : days - 32083;
}

static void date_of_number(bool gregorian, int64_t number, int64_t *year, int64_t *month, int64_t *day)
{
    int64_t centuries = 0, c = number + 32082;
    if (gregorian) {
        const int64_t a = number + 32044;
        centuries = (4 * a + 3) / 146097;
        c = a - 146097 * centuries / 4;
    }
    const int64_t d = (4 * c + 3) / 1461, e = c - 1461 * d / 4, m = (5 * e + 2) / 153;
    *day = e - (153 * m + 2) / 5 + 1;
    *month = m + 3 - 12 * (m / 10);
    *year = 100 * centuries + d - 4800 + m / 10;
}

static bool is_gregorian(vt_calendar calendar, int64_t number)
{
    return calendar == VT_CALENDAR_PROLEPTIC || number >= FIRST_GREGORIAN;
}

/* Of the calendars whose years are all alike. */
static int64_t even_days(vt_calendar calendar, int64_t month)
{
    static const int days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return calendar == VT_CALENDAR_360_DAY ? 30 : days[month - 1] + (month == 2 && calendar == VT_CALENDAR_ALL_LEAP);
}

static int64_t even_year(vt_calendar calendar)
{
    return calendar == VT_CALENDAR_360_DAY ? 360 : calendar == VT_CALENDAR_ALL_LEAP ? 366 : 365;
}

static bool is_even(vt_calendar calendar)
{
    return calendar != VT_CALENDAR_STANDARD && calendar != VT_CALENDAR_PROLEPTIC;
}

static void date_of_day(vt_calendar calendar, int64_t number, int64_t *year, int64_t *month, int64_t *day)
{
    if (!is_even(calendar)) {
        date_of_number(is_gregorian(calendar, number), number, year, month, day);
        return;
    }
    *year = floor_quotient(number, even_year(calendar));
    number -= *year * even_year(calendar);
    for (*month = 1; number >= even_days(calendar, *month); ++*month) number -= even_days(calendar, *month);
    *day = number + 1;
}

bool vt_date_make(vt_calendar calendar, int64_t year, int64_t month, int64_t day, vt_date *date)
{
    if (year < 0 || year > LAST_YEAR || month < 1 || month > 12 || day < 1 || day > 31) return false;
    int64_t number = day - 1 + year * even_year(calendar);
    if (is_even(calendar)) {
        for (int64_t m = 1; m < month; m++) number += even_days(calendar, m);
    } else {
        number = day_number(true, year, month, day);
        if (!is_gregorian(calendar, number)) number = day_number(false, year, month, day);
    }
    *date = (vt_date){calendar, number * MINUTES_A_DAY};
    int64_t found[3];
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
    long long year, month, day, hour = 0, minute = 0;
    int end = 0, more = 0;
    if (sscanf(text, "%4lld-%2lld-%2lld%n", &year, &month, &day, &end) != 3 || end == 0) return false;
    const char *rest = text + end;
    if ((*rest == 'T' || *rest == ' ' || *rest == '_') && sscanf(rest + 1, "%2lld%n", &hour, &more) == 1) {
        rest += 1 + more;
        more = 0;
        if (*rest == ':' && sscanf(rest + 1, "%2lld%n", &minute, &more) == 1) rest += 1 + more;
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
        const char *name;
        int64_t length;
    } units[] = {{"min", 1},
                 {"minute", 1},
                 {"minutes", 1},
                 {"h", 60},
                 {"hour", 60},
                 {"hours", 60},
                 {"d", MINUTES_A_DAY},
                 {"day", MINUTES_A_DAY},
                 {"days", MINUTES_A_DAY},
                 {"month", VT_A_MONTH},
                 {"months", VT_A_MONTH},
                 {"year", 12 * VT_A_MONTH},
                 {"years", 12 * VT_A_MONTH}};
    enum { MOST = 100000 };
    char *unit = NULL;
    if (!isdigit((unsigned char)text[0])) return false;
    const long long count = strtoll(text, &unit, 10);
    unit += strspn(unit, " ");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(unit, units[i].name) != 0 || count < 1 || count > MOST) continue;
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
        snprintf(buffer, VT_DATE_SIZE, "%lld month%s", (long long)months, months == 1 ? "" : "s");
    else if (is_told_in_hours(length))
        snprintf(buffer, VT_DATE_SIZE, "%.9g h", (double)length / 60);
    else
        snprintf(buffer, VT_DATE_SIZE, "%lld min", (long long)length);
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
    snprintf(buffer, VT_DATE_SIZE, "%04lld-%02lld-%02lld %02lld:%02lld", (long long)month / 12,
             (long long)month % 12 + 1, (long long)day, (long long)minutes / 60, (long long)minutes % 60);
    return buffer;
}
