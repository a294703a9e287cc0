/* Dates of the yearly files: file *YYYY.h5 begins on the first of January, 00 UTC, and has a time every 6 hours. */
#ifndef VT_DATA_CALENDAR_H
#define VT_DATA_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_HOURS_A_TIME = 6, VT_DATE_SIZE = 72 };

/* The year in a file's name; -1 when there is none. */
int64_t vt_calendar_year_of(const char *path);

/* "2003-01-05T06:00" (also "2003-01-05", "2003-01-05 06", with "Z" behind it) as year and hours since its first of
 * January; false when it is no date. */
bool vt_calendar_parse(const char *text, int64_t *year, int64_t *hours);

/* "2003-01-05 06:00"; hours may reach into other years. */
const char *vt_calendar_format(int64_t year, int64_t hours, char buffer[VT_DATE_SIZE]);

#endif
