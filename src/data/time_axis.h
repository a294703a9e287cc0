/* When the times of a netCDF file are: its coordinate `time` or `valid_time`, by the CF conventions ("Time
 * Coordinate"). */
#ifndef VT_DATA_TIME_AXIS_H
#define VT_DATA_TIME_AXIS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/calendar.h"

/* Times that follow one another without a gap. */
typedef struct {
    int64_t first, count;
    vt_date date; /* of the first */
} vt_stretch;

typedef struct {
    char *doubt;           /* why there are no dates though there is such a coordinate, or NULL */
    int64_t minutes;       /* between two times: the least that there is; 0: one time only */
    int64_t count;         /* of the stretches; 0: the file doesn't say when its times are */
    vt_stretch *stretches; /* in their order, all times of the file */
} vt_time_axis;

/* "hours since 1900-01-01 00:00:00.0": minutes a unit, and the date that is 0 with its seconds left over (as a time
 * zone or a time of day may have). False when it is something else. */
bool vt_time_units(const char *text, vt_calendar calendar, double *minutes, vt_date *zero, double *seconds);

/* From the values of the coordinate, in minutes after `zero`, to the nearest minute. Fails where a time comes twice or
 * the times go backwards, and names it with `path` and `name`. */
vt_status vt_time_axis_take(const double *minutes, int64_t times, vt_date zero, const char *path, const char *name,
                            vt_time_axis *axis);

void vt_time_axis_close(vt_time_axis *axis);

/* "6 h", "30 min" */
const char *vt_time_interval(int64_t minutes, char buffer[VT_DATE_SIZE]);

#endif
