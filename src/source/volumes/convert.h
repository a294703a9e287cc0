/* Boxes from HDF5 files to .npy files with the channels last, which dali-lowmem reads. */
#ifndef VT_SOURCE_VOLUMES_CONVERT_H
#define VT_SOURCE_VOLUMES_CONVERT_H

#include "base/status.h"

/* Dataset `name` [channels, L, L, L] of the file `from` as the array [L, L, L, channels] of the file `to`, which is
 * replaced; a layer of the box is in memory at a time. */
vt_status vt_volumes_convert(const char *from, const char *name, const char *to);

#endif
