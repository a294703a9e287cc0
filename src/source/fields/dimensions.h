/* What the dimensions of a dataset are called, to say what is wrong with their order. */
#ifndef VT_SOURCE_FIELDS_DIMENSIONS_H
#define VT_SOURCE_FIELDS_DIMENSIONS_H

#include "base/status.h"
#include "source/fields/fields_inside.h"

/* " (time, number, lat, lon)" by the dimension scales of netCDF-4, malloc'd; "" where it has none. */
char *vt_dimension_names(const vt_array *array);

/* Why a dataset of too many dimensions can't be read, and what to do: "; …", or "". */
const char *vt_dimension_advice(const vt_array *array);

/* Fails where the file says that a source of rank 3 or 4 is an ensemble, or has its channels last. */
vt_status vt_dimensions_check(const vt_field_source *source);

#endif
