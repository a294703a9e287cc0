/* Which dimensions an array has, as far as their names tell. */
#ifndef VT_SOURCE_FIELDS_DIMENSIONS_H
#define VT_SOURCE_FIELDS_DIMENSIONS_H

#include "base/status.h"
#include "storage/store.h"

/* Fails if the array hasn't 3 or 4 dimensions, or if the file says that it is an ensemble or has its channels last. */
vt_status vt_dimensions_check(const vt_array *array);

#endif
