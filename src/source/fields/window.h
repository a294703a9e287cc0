/* The part of a grid that is used: rows from the north, and columns that may go round past the last one. */
#ifndef VT_SOURCE_FIELDS_WINDOW_H
#define VT_SOURCE_FIELDS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    int64_t first_row, rows;
    int64_t first_column, width;
    int64_t period; /* column `period` is column 0 again; 0: the columns don't go round */
} vt_frame_window;

/* Columns that are side by side in the file and in the window. */
typedef struct {
    int64_t first, count; /* in the file */
    int64_t at;           /* in the window */
} vt_column_span;

/* After how many columns the longitudes [width] repeat; 0: they don't go round the globe. It is width - 1 where the
 * grid holds its first meridian twice. */
int64_t vt_window_period(const double *longitudes, int64_t width);

/* The first column that lies on the same meridian as column 0, as the last of 0, 90 ... 360 does; 0: there is none. */
int64_t vt_window_repeats(const double *longitudes, int64_t width);

/* One or two: how many. */
int vt_window_spans(const vt_frame_window *window, vt_column_span spans[2]);

/* The file's column that is column `column` of the window. */
int64_t vt_window_column(const vt_frame_window *window, int64_t column);

/* In degrees, as a user gives it; zeroed: no range. */
typedef struct {
    bool by_rows, by_columns;
    double south, north;
    double west, east; /* between -360 and 360; the range goes from west eastwards to east */
} vt_window_range;

/* From the options lat_range and lon_range, NAN if they are not set. */
vt_window_range vt_window_range_of(const double lat_range[2], const double lon_range[2]);

struct vt_fields_about; /* about.h: `grid` below is its grid, whose columns may begin at any meridian */

/* The points of the grid within the range, both ends included; all rows, or columns, if it doesn't limit them. Fails if
 * the file `path` says no coordinates, if no point is within the range, or if the points don't lie side by side. */
vt_status vt_window_find(const vt_window_range *range, const struct vt_fields_about *grid, const char *path,
                         vt_frame_window *window);

/* The nearest smaller and larger window of whole patches, ends and sizes in the range's own terms: "lat_range [30, 60]
 * would be 12 rows, …", malloc'd; NULL if the window consists of whole patches. */
char *vt_window_advice(const vt_window_range *range, const struct vt_fields_about *grid, const vt_frame_window *window,
                       int64_t patch);

#endif
