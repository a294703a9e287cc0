/* One HDF5 file of fields: what it holds, and reading windows of it. The only reader of HDF5. */
#ifndef VT_DATA_FIELDS_FILE_H
#define VT_DATA_FIELDS_FILE_H

#include <stdint.h>

#include "base/status.h"

/* Sizes of the dataset `fields` [time, channel, lat, lon]. */
typedef struct {
    int64_t times, channels, height, width;
} vt_fields_shape;

typedef struct vt_fields_file vt_fields_file;

/* Opens without HDF5 file locking and reads everything but the fields. Contiguous, chunked and compressed storage, and
 * every floating-point type, are read alike. Errors: no file, no permission, not HDF5 or truncated, `fields` missing or
 * not 4-D floating point, `lat` or `lon` that don't fit it, `channels` that aren't strings. */
vt_status vt_fields_file_open(const char *path, vt_fields_file **file);
void vt_fields_file_close(vt_fields_file **file);

const char *vt_fields_file_path(const vt_fields_file *file);
vt_fields_shape vt_fields_file_shape(const vt_fields_file *file);

/* Names from the attribute `channels` ([shape.channels], "" past those given), or NULL. */
const char *const *vt_fields_file_channel_names(const vt_fields_file *file);

/* Degrees, [shape.height] and [shape.width], from the datasets `lat` and `lon`, or NULL. */
const double *vt_fields_file_latitudes(const vt_fields_file *file);
const double *vt_fields_file_longitudes(const vt_fields_file *file);

/* Bytes of decoded chunks that an open file may hold; 0 for contiguous storage. */
int64_t vt_fields_file_cache_bytes(const vt_fields_file *file);

/* values [channels, rows, width] = rows first_row … of the first `channels` channels at `time`, the first `width` of
 * their columns, as float32. The region must lie within the shape; nothing else is read (of chunked files: nothing but
 * the chunks that it touches). A value that is NaN or infinite is an error that names time, channel, row and column. */
vt_status vt_fields_file_read(vt_fields_file *file, int64_t time, int64_t channels, int64_t first_row, int64_t rows,
                              int64_t width, float *values);

#endif
