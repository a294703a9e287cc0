/* Which datasets of a file are the coordinates of a variable, as the CF conventions (1.11, "Coordinate Types") have it:
 * by units, standard_name and axis, by netCDF's dimension scales and the attribute `coordinates`, then by name. */
#ifndef VT_SOURCE_FIELDS_COORDINATES_H
#define VT_SOURCE_FIELDS_COORDINATES_H

#include "source/fields/fields_inside.h"

typedef enum {
    VT_COORDINATE_TIME,
    VT_COORDINATE_LEVEL,
    VT_COORDINATE_LATITUDE,
    VT_COORDINATE_LONGITUDE
} vt_coordinate_kind;

/* Datasets that may be coordinates of one variable. */
typedef struct vt_coordinates vt_coordinates;

/* `given`: the option `coordinates`, "[lat=FNOCY, time=T]", or NULL. The source stays open as long as this. */
vt_status vt_coordinates_open(const vt_field_source *source, const char *given, vt_coordinates **coordinates);
void vt_coordinates_close(vt_coordinates **coordinates);

/* Opens the 1-D array that is the coordinate of times or levels; NULL: there is none. If a variable looks
 * like one but can't be used, *doubt says why (malloc'd, else NULL). */
vt_status vt_coordinates_find(const vt_coordinates *coordinates, vt_coordinate_kind kind, vt_array **array,
                              char **doubt);

/* The grid of a variable, into an `about` that is new: latitudes and longitudes in the order of the file's rows and
 * columns, `rotated` and `no_latitudes`. doubts (NULL before, malloc'd): why latitudes or longitudes are unknown
 * although there is something. Fails where a coordinate doesn't fit the variable or holds no degrees. */
vt_status vt_coordinates_grid(const vt_coordinates *coordinates, vt_fields_about *about, char *doubts[2]);

/* The levels of a coordinate, [count], malloc'd, and their units; pressures in Pa become hPa. */
vt_status vt_coordinate_levels(const vt_array *array, int64_t count, double **levels, char units[32]);

#endif
