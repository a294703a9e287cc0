/* When the times of a file are: its time coordinate, by the CF conventions ("Time Coordinate"). */
#ifndef VT_SOURCE_FIELDS_TIME_AXIS_H
#define VT_SOURCE_FIELDS_TIME_AXIS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "task/weather/calendar.h"

/* Times that follow one another without a gap. */
typedef struct {
    int64_t first, count;
    vt_date date; /* of the first */
} vt_stretch;

/* Units like "hours since 1900-01-01 00:00:00.0". */
typedef struct {
    double minutes; /* a unit; 0 where it is months */
    int64_t months; /* a unit: 1 or 12, or 0 */
    vt_date zero;   /* that is 0, but for … */
    double seconds; /* … those left over, as a time zone or a time of day may have */
} vt_time_units;

typedef struct {
    char *doubt;                 /* why there are no dates though there is such a coordinate, or NULL */
    int64_t minutes;             /* between two times: the least length that there is, a calendar's length; 0: one time
                                    only, or not known */
    int64_t count;               /* of the stretches; 0: the file doesn't say when its times are */
    vt_stretch *stretches;       /* in their order, all times of the file */
    char *units, *calendar_name; /* as the file writes them, NULL where there are no dates; calendar_name "": none */
    vt_time_units meaning;       /* of `units` */
} vt_time_axis;

/* False when it is something else. */
bool vt_time_units_parse(const char *text, vt_calendar calendar, vt_time_units *units);

/* The date of a value in these units, in minutes after units->zero. Months are the calendar's, their fractions those of
 * a month's length. */
double vt_time_units_minutes(const vt_time_units *units, double value);

/* The value of a date in these units, which are no months. */
double vt_time_units_value(const vt_time_units *units, vt_date date);

/* From the values of the coordinate, in minutes after `zero`, to the nearest minute. Times that are whole months apart
 * of the calendar, to a few days, are that. Fails where a time comes twice or the times go backwards, and names it with
 * `path` and `name`. */
vt_status vt_time_axis_take(const double *minutes, int64_t times, vt_date zero, const char *path, const char *name,
                            vt_time_axis *axis);

void vt_time_axis_close(vt_time_axis *axis);

#endif
