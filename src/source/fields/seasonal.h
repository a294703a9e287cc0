/* The seasonal climatology: for each time of day, channel and grid point a mean and H harmonics of the year, as
 * `vitrain stats` fits them (seasonal_fit.h) and the file climatology.h5 holds them:
 *
 *   /coefficients    float32 [S, 1 + 2 H, C, rows, columns]; NaN where a point never has a value
 *   /value_coefficients  the same in the units of the data; only where /coefficients is of what transforms make of them
 *   /departure_stds  float32 [C]: root mean square over times and points of what the climatology leaves
 *   /departure_change_stds  float32 [C]: the same of the departures' changes over dt; only where there are such times
 *   /lat, /lon       float32 [rows], [columns], degrees; only where the files say them
 *   attributes       format "vitrain climatology 1"; harmonics H; minutes_of_day [S], the times of day in minutes after
 *                    midnight, a single -1 where the climatology is one for any time of day; times: how many it was
 *                    fitted to; first, last: their dates; channels: their names, one a line (only where there are
 *                    some); crc32c of the coefficients; about: the data that it is of (only where they are known)
 *
 * Its value at a date is the sum over k of basis[k] * coefficients[s, k], where s is the date's time of day and
 *   basis = 1, cos a, sin a, cos 2a, sin 2a, …      a = 2 pi (fraction of the date's year that has passed) */
#ifndef VT_SOURCE_FIELDS_SEASONAL_H
#define VT_SOURCE_FIELDS_SEASONAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "parallel/layout.h"
#include "source/fields/about.h"

#define VT_SEASONAL_FORMAT "vitrain climatology 1"
enum { VT_SEASONAL_HARMONICS = 4, VT_SEASONAL_BASIS = 1 + 2 * VT_SEASONAL_HARMONICS };
enum { VT_SEASONAL_ANY_TIME = -1 }; /* for all times of day */
enum { VT_SEASONAL_SLOTS = 1440 };  /* times of day, at most */

/* basis [1 + 2 * harmonics] */
void vt_seasonal_basis(vt_date date, int64_t harmonics, double *basis);

/* To be read only. */
typedef struct {
    char *path;
    char *description; /* "a mean and 1 harmonic of the year for each of 4 times of day, fitted to 1460 times, …" */
    int64_t checksum;  /* the CRC-32C of the coefficients; -1: the file doesn't say */
    char *about;       /* its data as JSON; NULL: the file doesn't say */
    float *departure_stds, *change_stds; /* [channels], change_stds: NULL where the file has none */
    int64_t channels, points;            /* that are in use; points: of the rows that were read */
    int64_t harmonics, slots;
    int64_t minutes[VT_SEASONAL_SLOTS]; /* [slots]: their times of day */
    float *coefficients;                /* [slots, 1 + 2 * harmonics, channels, points] */
} vt_seasonal;

/* Reads the rows `rows` of the data's window, of their first `channels` channels, into memory: 4 S (1 + 2 H) bytes for
 * each channel and point. of_values: in the units of the data, whatever transforms made of them. The file, which
 * climatology_path names, holds either the grid or the window. Errors: no such file, no climatology or a damaged one,
 * another grid or other channels. The file is first tried in a process of its own (storage/trial.h, whose conditions
 * hold). */
vt_status vt_seasonal_open(const char *path, const vt_fields_about *data, int64_t channels, vt_span rows,
                           bool of_values, vt_seasonal **seasonal);
void vt_seasonal_close(vt_seasonal **seasonal);

/* The checksum of a file; -1: it is an older one. */
vt_status vt_seasonal_checksum(const char *path, int64_t *checksum);

/* Does it have this date's time of day? */
bool vt_seasonal_has(const vt_seasonal *seasonal, vt_date date);

/* values [channels, rows, width]: the climatology at that date, in the units of the data. The error names the time
 * of day that the file lacks. Any thread. */
vt_status vt_seasonal_at(const vt_seasonal *seasonal, vt_date date, float *values);

/* Fails where it lacks the date's time of day. */
vt_status vt_seasonal_check(const vt_seasonal *seasonal, vt_date date);

/* values [channels, rows, width] of its channels first, first + 1, … += factor times the climatology at a date that
 * passed the check, rounded once. Any thread. */
void vt_seasonal_add(const vt_seasonal *seasonal, vt_date date, double factor, int64_t first, int64_t channels,
                     float *values);

/* stds [channels] = the standard deviations of the departures. Fails where one is not above 0, so that departures can't
 * be divided by it. */
vt_status vt_seasonal_stds(const vt_seasonal *seasonal, float *stds);

/* Bytes that a climatology of this file takes for so many channels and points; where there is no such file yet, of one
 * harmonic for each of 4 times of day. */
size_t vt_seasonal_bytes(const char *path, int64_t channels, int64_t points);

/* "a mean and 1 harmonic of the year for each of 4 times of day"; malloc'd. minutes: the first of its times of day. */
char *vt_seasonal_terms(int64_t harmonics, int64_t times_of_day, int64_t minutes);

#endif
