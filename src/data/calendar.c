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

int64_t vt_calendar_year_of(const char *path)
{
    size_t length = strlen(path);
    int64_t year = 0;
    if (length < 7 || strcmp(path + length - 3, ".h5") != 0) return -1;
    for (size_t i = length - 7; i < length - 3; i++) {
        if (!isdigit((unsigned char)path[i])) return -1;
        year = 10 * year + (path[i] - '0');
    }
    return year;
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
    if (*rest != '\0' || month < 1 || month > 12 || day < 1 || day > days_of_month(year, month - 1)) return false;
    if (hour < 0 || hour > 23 || minute != 0) return false;
    *hours = 24 * (day - 1) + hour;
    for (int64_t m = 0; m < month - 1; m++) *hours += 24 * days_of_month(year, m);
    *result_year = year;
    return true;
}

const char *vt_calendar_format(int64_t year, int64_t hours, char buffer[VT_DATE_SIZE])
{
    int64_t month = 0;
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
