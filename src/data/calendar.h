/* Dates of the data files: a file begins with the date that its name ends in, at 00 UTC (*2013.h5 on the first of
 * January, *2013-02.nc on the first of February), and has a time every 6 hours. */
#ifndef VT_DATA_CALENDAR_H
#define VT_DATA_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_HOURS_A_TIME = 6, VT_DATE_SIZE = 72 };

/* When the file begins, by its name: YYYY, YYYYMM or YYYYMMDD, with or without - or _ between. Hours are since the
 * first of January. False when the name ends in no date. */
bool vt_calendar_start_of(const char *path, int64_t *year, int64_t *hours);

/* "2003-01-05T06:00" (also "2003-01-05", "2003-01-05 06", with "Z" behind it) as year and hours since its first of
 * January; false when it is no date. */
bool vt_calendar_parse(const char *text, int64_t *year, int64_t *hours);

/* Hours from one date to another, each a year and hours since its first of January; negative when it is earlier. */
int64_t vt_calendar_hours_between(int64_t from_year, int64_t from_hours, int64_t to_year, int64_t to_hours);

/* "2003-01-05 06:00"; hours may reach into other years. */
const char *vt_calendar_format(int64_t year, int64_t hours, char buffer[VT_DATE_SIZE]);

#endif
