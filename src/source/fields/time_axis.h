/* When the times of a file are: its time coordinate, by the CF conventions ("Time Coordinate"). */
#ifndef VT_SOURCE_FIELDS_TIME_AXIS_H
#define VT_SOURCE_FIELDS_TIME_AXIS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "task/weather/calendar.h"

/* Units like "hours since 1900-01-01 00:00:00.0". */
typedef struct {
    double minutes; /* of a unit; 0: it is `months` */
    int64_t months; /* of a unit: 1 or 12, or 0 */
    vt_date zero;   /* the date of value 0, to the minute … */
    double seconds; /* … and the seconds beyond it */
} vt_time_units;

typedef struct {
    char *doubt;                 /* why there are no dates although there is a time coordinate, or NULL */
    char *oddity;                /* times that lie beside the grid of the others, in a sentence, or NULL */
    int64_t minutes;             /* the length between two times (calendar.h); 0: one time only, or unknown */
    bool known;                  /* when its times are */
    int64_t named;               /* no coordinate says it: the length that the file's name gives from `begin` on */
    vt_date begin;               /* of the first time; all have its calendar */
    int64_t *dates;              /* of each time, the minutes of its date, by the coordinate; NULL: none says it */
    int64_t missing_count;       /* times that the file holds, but calls missing */
    vt_date *missing;            /* [missing_count], in order */
    char *units, *calendar_name; /* as the file writes them, NULL without dates; calendar_name "": none */
    vt_time_units meaning;       /* of `units` */
} vt_time_axis;

/* False if the text is something else. */
bool vt_time_units_parse(const char *text, vt_calendar calendar, vt_time_units *units);

/* The date of a value in these units, in minutes after units->zero. Months are the calendar's, their fractions those of
 * a month's length. */
double vt_time_units_minutes(const vt_time_units *units, double value);

/* The value of a date in these units, which must not be months. */
double vt_time_units_value(const vt_time_units *units, vt_date date);

/* The most common difference between times and those before them, in whole minutes, 0 if there is none; *alike: how
 * many are like it. `times` minutes, each within `precision` / 2 and a minute of what it stands for: differences that
 * this explains are alike, and their mean counts. */
int64_t vt_time_step(const double *minutes, int64_t times, double precision, int64_t *alike);

/* Does `now` lie `times` steps after `before`, within two minutes? */
bool vt_time_follows(vt_date before, vt_date now, int64_t times, int64_t step);

/* Finds the step and the dates from the values of the coordinate: minutes after `zero`, where neighbouring numbers of
 * their stored type are `precision` minutes apart. The step is that of vt_time_step, or the most common number of
 * months if times are whole calendar months apart, to within a few days. Dates that lie almost a number of steps apart
 * become those that do; of months they are the stamps of the file. Fails if a time comes twice or times go backwards;
 * the message names `path` and `name`. */
vt_status vt_time_axis_take(const double *minutes, int64_t times, vt_date zero, double precision, const char *path,
                            const char *name, vt_time_axis *axis);

/* The date of time `index`: by the file's name times are a step apart, or 6 hours where that is unknown. */
vt_date vt_time_axis_date(const vt_time_axis *axis, int64_t index);

void vt_time_axis_close(vt_time_axis *axis);

#endif
