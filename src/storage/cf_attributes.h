/* Attributes of a netCDF variable, and how they say its values are packed: the CF conventions, "Packed Data" and
 * "Missing Data". All with HDF5 entered. */
#ifndef VT_STORAGE_CF_ATTRIBUTES_H
#define VT_STORAGE_CF_ATTRIBUTES_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "storage/unpack.h"

/* Up to `most` numbers of an attribute; *count 0: it isn't there. One that is something else would be a wrong scale,
 * were it passed over, so that is an error, with `path` and `variable`. *is_float may be NULL. */
vt_status vt_cf_numbers(hid_t dataset, const char *path, const char *variable, const char *name, int most,
                        double *values, int *count, bool *is_float);

/* The first characters of an attribute that is a text; "" where it is none. */
void vt_cf_text(hid_t dataset, const char *name, char *text, size_t size);

/* scale_factor, add_offset, _Unsigned, _FillValue, missing_value, valid_range, valid_min and valid_max of a variable
 * whose packing says its element already. */
vt_status vt_cf_packing(hid_t dataset, const char *path, const char *variable, vt_packing *packing);

#endif
