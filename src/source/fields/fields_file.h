/* One file of fields: what it holds, and reading windows of it through HDF5. Either a dataset `fields`, or variables
 * that are datasets of their own (netCDF-4), perhaps in several files of the same times. */
#ifndef VT_SOURCE_FIELDS_FIELDS_FILE_H
#define VT_SOURCE_FIELDS_FIELDS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/time_axis.h"
#include "source/fields/window.h"
#include "storage/chunk_cache.h"
#include "task/weather/channels.h"

/* Sizes of the fields [time, channel, lat, lon]. */
typedef struct {
    int64_t times, channels, height, width;
} vt_fields_shape;

typedef struct vt_fields_file vt_fields_file;

/* What a user says of files; each is NULL where nothing is said. */
typedef struct {
    const char *variables;   /* "[u10, z@500]": datasets that are the channels; else there is `fields` */
    const char *coordinates; /* "[lat=FNOCY, time=T]": names of coordinates; else they are recognised */
    const char *time_step;   /* "24h": between times of a file that doesn't say when they are; else 6 hours */
    bool masked;             /* NaN is a missing value, and no error of those who read */
} vt_fields_form;

/* Opens without HDF5 file locking and reads everything but the fields. Contiguous, chunked and compressed storage, and
 * every floating-point type, are read alike. Errors: no file, no permission, not HDF5 or truncated, `fields` missing or
 * not 4-D floating point or in another file, latitudes or longitudes that don't fit it, `channels` that aren't strings;
 * a file over which HDF5 crashes or does not end; times that come twice or go backwards. Each of form->variables is in
 * one of the files; further errors: a variable or a level that isn't there or comes twice, of other extents. */
vt_status vt_fields_file_open(const char *const *paths, int64_t path_count, const vt_fields_form *form,
                              vt_fields_file **file);

/* Whether HDF5 survives the files of several dates, tried in one process: those of date d are paths[first[d]] …
 * paths[first[d + 1] - 1]. If so they may be opened as if they had been before. One process each is dear where files
 * are many. */
bool vt_fields_files_survive(const char *const *paths, const int64_t *first, int64_t dates, const vt_fields_form *form);

/* The same for a file that was opened before: without trying first, in a process of its own (storage/trial.h), whether
 * HDF5 survives it. */
vt_status vt_fields_file_open_again(const char *const *paths, int64_t path_count, const vt_fields_form *form,
                                    vt_fields_file **file);
void vt_fields_file_close(vt_fields_file **file);

/* Of the first of its files. */
const char *vt_fields_file_path(const vt_fields_file *file);
vt_fields_shape vt_fields_file_shape(const vt_fields_file *file);

/* Of the variable of a netCDF file; of `fields` from its attributes `units`, `standard_names` and `long_names`, a text
 * a channel. */
const vt_channel_meaning *vt_fields_file_meaning(const vt_fields_file *file, int64_t channel);

/* Names from the attribute `channels` ([shape.channels], "" past those given) or of the variables ("z500"), or NULL. */
const char *const *vt_fields_file_channel_names(const vt_fields_file *file);

/* Degrees, [shape.height] and [shape.width]: latitudes from north to south, longitudes as the columns run, not wrapped
 * round at 360 or 180. NULL where the file doesn't say them; the reason, if there is something, is
 * vt_fields_file_grid_doubt of dimension 0 or 1. */
const double *vt_fields_file_latitudes(const vt_fields_file *file);
const double *vt_fields_file_longitudes(const vt_fields_file *file);
const char *vt_fields_file_grid_doubt(const vt_fields_file *file, int dimension);

/* More of the grid: its pole is elsewhere (CF's rotated_latitude_longitude); its rows are known to run along no
 * latitudes; some of its rows run from south to north in the file, and are turned round. */
bool vt_fields_file_is_rotated(const vt_fields_file *file);
bool vt_fields_file_has_no_latitudes(const vt_fields_file *file);
bool vt_fields_file_is_turned(const vt_fields_file *file);

/* When its times are, by the file's time coordinate; `count` 0 where it has none, `minutes` then is form->time_step or
 * 0. It goes with the file. */
const vt_time_axis *vt_fields_file_times(const vt_fields_file *file);

/* Bytes of decoded chunks that HDF5 may hold of an open file; 0 for contiguous storage. */
int64_t vt_fields_file_cache_bytes(const vt_fields_file *file);

/* Why it can't be read past HDF5 ("'fields' is compressed with 'lzf'"), or NULL. */
const char *vt_fields_file_obstacle(const vt_fields_file *file);

/* Drops what the cache keeps of the file's chunks; before it is closed. */
void vt_fields_file_forget(vt_fields_file *file, vt_chunk_cache *cache);

/* What was never written reads as the fill value, 0 mostly, as if it were data: what a program leaves that was ended
 * while it wrote. Fails where nothing at all was written, and warns where chunks lack: perhaps the rest is worth it. */
vt_status vt_fields_file_check_written(const vt_fields_file *file);

/* Fails when one of its files has no longer the size with which it was opened. */
vt_status vt_fields_file_check_size(const vt_fields_file *file, int64_t time);

/* values [channels, rows, width] = rows first_row … of the first `channels` channels at `time`, the first `width` of
 * their columns, as float32. The region must lie within the shape; nothing else is read (of chunked files: nothing but
 * the chunks that it touches). A value that is NaN (unless form->masked), infinite or beyond VT_LARGEST_VALUE is an
 * error that names time, channel, row and column. Any thread; HDF5 is entered. */
vt_status vt_fields_file_read(vt_fields_file *file, int64_t time, int64_t channels, int64_t first_row, int64_t rows,
                              int64_t width, float *values);

/* The same of a window that may begin at any column. */
vt_status vt_fields_file_read_window(vt_fields_file *file, int64_t time, int64_t channels,
                                     const vt_frame_window *window, float *values);

/* The first one without that error: what is missing is NaN. */
vt_status vt_fields_file_read_as_is(vt_fields_file *file, int64_t time, int64_t channels, int64_t first_row,
                                    int64_t rows, int64_t width, float *values);

#endif
