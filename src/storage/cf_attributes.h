/* Attributes of a netCDF variable, and how they say its values are packed: the CF conventions, "Packed Data" and
 * "Missing Data". */
#ifndef VT_STORAGE_CF_ATTRIBUTES_H
#define VT_STORAGE_CF_ATTRIBUTES_H

#include <stddef.h>

#include "base/status.h"
#include "storage/store.h"
#include "storage/unpack.h"

/* The first characters of an attribute that is a text, without white space around it; "" if there is no such text. */
void vt_cf_text(const vt_array *array, const char *name, char *text, size_t size);

/* scale_factor, add_offset, _Unsigned, _FillValue, missing_value, valid_range, valid_min and valid_max of a variable
 * whose packing says its element already. */
vt_status vt_cf_packing(const vt_array *array, vt_packing *packing);

#endif
