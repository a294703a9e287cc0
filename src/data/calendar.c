#include "data/calendar.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int64_t days_of_month(int64_t year, int64_t month)
{
    static const int days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month] + (month == 1 && is_leap(year));
}

/* Hours from the first of January to this day; -1 when there is none such. */
static int64_t hours_to(int64_t year, int64_t month, int64_t day)
{
    int64_t days = day - 1;
    if (month < 1 || month > 12 || day < 1 || day > days_of_month(year, month - 1)) return -1;
    for (int64_t m = 0; m + 1 < month; m++) days += days_of_month(year, m);
    return 24 * days;
}

bool vt_calendar_start_of(const char *path, int64_t *year, int64_t *hours)
{
    static const char all[] = "0123456789", also[] = "0123456789-_";
    char digits[16] = "";
    int count = 0;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path, *dot = strrchr(name, '.');
    if (dot == NULL) return false;
    const char *begin = dot;
    while (begin > name && strchr(also, begin[-1]) != NULL) begin--;
    while (begin < dot && strspn(begin, all) < 4) begin++; /* the date begins with a year of four digits */
    for (; begin < dot && count < 15; begin++)
        if (isdigit((unsigned char)*begin)) digits[count++] = *begin;
    if (begin < dot) return false;
    for (int length = count < 8 ? count - count % 2 : 8; length >= 4; length -= 2) { /* the last of them */
        int found_year = 0, month = 1, day = 1;
        sscanf(digits + count - length, "%4d%2d%2d", &found_year, &month, &day);
        *hours = hours_to(found_year, month, day);
        *year = found_year;
        if (*hours >= 0 && found_year >= 1000 && found_year < 3000) return true;
    }
    return false;
}

bool vt_calendar_parse(const char *text, int64_t *result_year, int64_t *hours)
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
    const int64_t day_hours = hours_to(year, month, day);
    if (*rest != '\0' || day_hours < 0 || hour < 0 || hour > 23 || minute != 0) return false;
    *hours = day_hours + hour;
    *result_year = year;
    return true;
}

int64_t vt_calendar_hours_between(int64_t from_year, int64_t from_hours, int64_t to_year, int64_t to_hours)
{
    int64_t hours = to_hours - from_hours;
    for (int64_t year = from_year; year < to_year; year++) hours += is_leap(year) ? 366 * 24 : 365 * 24;
    for (int64_t year = to_year; year < from_year; year++) hours -= is_leap(year) ? 366 * 24 : 365 * 24;
    return hours;
}

const char *vt_calendar_format(int64_t year, int64_t hours, char buffer[VT_DATE_SIZE])
{
    int64_t month = 0;
    while (hours < 0) hours += is_leap(--year) ? 366 * 24 : 365 * 24;
    for (;;) {
        int64_t in_month = 24 * days_of_month(year, month);
        if (hours < in_month) break;
        hours -= in_month;
        if (++month == 12) {
            month = 0;
            year++;
        }
    }
    snprintf(buffer, VT_DATE_SIZE, "%04lld-%02lld-%02lld %02lld:00", (long long)year, (long long)month + 1,
             (long long)(hours / 24) + 1, (long long)(hours % 24));
    return buffer;
}
