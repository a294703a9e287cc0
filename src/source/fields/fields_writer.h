/* Writes one HDF5 file of fields, time by time, in the layout that fields_file.h reads. It has its final name only when
 * it is complete. */
#ifndef VT_SOURCE_FIELDS_FIELDS_WRITER_H
#define VT_SOURCE_FIELDS_FIELDS_WRITER_H

#include <stdint.h>

#include "base/status.h"

/* Sizes of the fields [time, channel, lat, lon]. */
typedef struct {
    int64_t times, channels, height, width;
} vt_fields_shape;

typedef struct {
    vt_fields_shape shape;
    const char *const *channel_names; /* [channels] */
    const double *latitudes;          /* degrees, [height] */
    const double *longitudes;         /* degrees, [width] */
    const char *time_step;            /* "6h" */
    int64_t chunk_times;              /* times a chunk; 0: contiguous */
    int64_t compression;              /* gzip level of chunks, with the bytes shuffled; 0: none */
} vt_fields_writer_options;

typedef struct vt_fields_writer vt_fields_writer;

/* Errors: no permission, not enough space on the disk for contiguous storage. */
vt_status vt_fields_writer_open(const char *path, const vt_fields_writer_options *options, vt_fields_writer **writer);

/* The fields of the next time, float32 [channels, height, width]. */
vt_status vt_fields_writer_append(vt_fields_writer *writer, const float *fields);

/* After the last time: onto the disk, and to its final name; a file of that name is replaced. Closes the writer. */
vt_status vt_fields_writer_finish(vt_fields_writer **writer);

/* Gives up: the unfinished file is removed. */
void vt_fields_writer_close(vt_fields_writer **writer);

#endif
