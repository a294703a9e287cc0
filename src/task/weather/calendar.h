/* Dates in the calendars of the CF conventions ("Calendar"), to the minute. */
#ifndef VT_TASK_WEATHER_CALENDAR_H
#define VT_TASK_WEATHER_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_HOURS_A_TIME = 6, VT_DATE_SIZE = 72 }; /* hours between two times of a file that has no dates itself */

/* A length of time is a number of minutes, with VT_A_MONTH added for every month of the calendar, as months have no
 * fixed number of them. So lengths add and multiply as numbers do. */
#define VT_A_MONTH (INT64_C(1) << 40)

typedef enum {
    VT_CALENDAR_STANDARD,  /* Gregorian from 1582-10-15 on, Julian before */
    VT_CALENDAR_PROLEPTIC, /* Gregorian always */
    VT_CALENDAR_NO_LEAP,   /* years of 365 days */
    VT_CALENDAR_ALL_LEAP,  /* of 366 */
    VT_CALENDAR_360_DAY    /* months of 30 */
} vt_calendar;

typedef struct {
    vt_calendar calendar;
    int64_t minutes; /* since a day long ago, which differs between calendars */
} vt_date;

/* By its name in the CF conventions, any case: "gregorian" and "standard" are one, so are "noleap" and "365_day". False
 * when it is none of these. */
bool vt_calendar_of_name(const char *name, vt_calendar *calendar);
const char *vt_calendar_name(vt_calendar calendar);

/* False when there is no such day in that calendar; years from 0 to 9999. */
bool vt_date_make(vt_calendar calendar, int64_t year, int64_t month, int64_t day, vt_date *date);

/* When a file begins, by its name: YYYY, YYYYMM or YYYYMMDD, with or without - or _ between, at 00 UTC (*2013.h5 on the
 * first of January, *2013-02.nc on the first of February). Returns the length that is named: of a year, a month or a
 * day; 0 if the name doesn't end in a date. */
int64_t vt_date_of_file_name(const char *path, vt_date *date);

/* "2003-01-05T06:30" (also "2003-01-05", "2003-01-05 06", with "Z" behind it); false when it is no date. */
bool vt_date_parse(const char *text, vt_calendar calendar, vt_date *date);

/* `length` later, or earlier; after months it is the same day of the month, or the last one of a shorter month. */
vt_date vt_date_after(vt_date date, int64_t length);

/* How many steps lead from one date to the other; -1: no number of them does. With a step of months the day of the
 * month doesn't matter: averages of months are dated by their beginning, middle or end. */
int64_t vt_date_steps(vt_date from, vt_date to, int64_t step);

/* The length from one date to a later one: a month if it is in the next month and at least 28 days later; 0 if it is
 * none. */
int64_t vt_date_apart(vt_date from, vt_date to);

/* Where in its year the date lies: 0 at its beginning, near 1 at its end, by the days that this year has. */
double vt_date_of_year(vt_date date);

/* Minutes since midnight. */
int64_t vt_date_of_day(vt_date date);

/* Months since the year 0, and the day of the month, from 1 on. */
int64_t vt_date_month(vt_date date, int64_t *day);

/* The length in hours, where a month counts 730: its mean length. */
double vt_length_hours(int64_t length);

/* "6h", "30min", "1d", "1 month", "2 years"; false if it is something else, or not above 0. */
bool vt_length_parse(const char *text, int64_t *length);

/* "6 h", "30 min", "1 month", "730.5 h" */
const char *vt_length_format(int64_t length, char buffer[VT_DATE_SIZE]);

/* The unit of leads that are steps of one length: months, days if a step is a whole number of them, or the unit in
 * which vt_length_format tells a step. */
typedef struct {
    const char *name;   /* "month", "d", "h", "min" */
    const char *column; /* of .csv files that count these units beside hours: "months", "minutes"; NULL: hours do */
    double a_step;      /* units of a step */
} vt_lead_unit;
vt_lead_unit vt_lead_unit_of(int64_t step);

/* "12 h", "3 months": the lead after `count` steps, in their unit. */
const char *vt_lead_format(int64_t step, double count, char buffer[VT_DATE_SIZE]);

/* Do `minutes` lead from the date to one in the years 0 to 9999? */
bool vt_date_is_within(vt_date date, double minutes);

/* "2003-01-05 06:00" */
const char *vt_date_format(vt_date date, char buffer[VT_DATE_SIZE]);

#endif
