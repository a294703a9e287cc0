/* One file of fields: what it holds, and reading windows of it through HDF5. Either a dataset `fields`, or variables
 * that are datasets of their own (netCDF-4), perhaps in several files of the same times. */
#ifndef VT_SOURCE_FIELDS_FIELDS_FILE_H
#define VT_SOURCE_FIELDS_FIELDS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "source/fields/about.h"
#include "source/fields/time_axis.h"
#include "source/fields/window.h"
#include "storage/store.h"

/* What a user says of files; NULL: nothing. */
typedef struct {
    const char *variables;     /* "[u10, z@500]": datasets that are the channels; else there is `fields` */
    const char *coordinates;   /* "[lat=FNOCY, time=T]": names of coordinates; else they are recognised */
    const char *time_step;     /* "24h": between times of a file that doesn't say when they are, else 6 hours; of other
                                  files every n-th time is used */
    const char *period;        /* "1979..2015": only these times are used */
    const char *period_option; /* that says so, for messages: "train_period" */
    const char *accept;        /* "[grid, units]": differences that are let pass (about.h) */
    vt_fields_about *like;     /* its channels come first, in its order, if the file has them all */
    const char *transform, *bounds; /* what channels become, and where they stay (transforms.h); a dataset's alone */
    bool masked;                    /* NaN is a missing value, not an error */
    bool fixed; /* fields that don't change: a variable may lack the time, and no dates are looked for */
} vt_fields_form;

typedef struct vt_field_source vt_field_source;

/* Where a channel is: a level of a source. */
typedef struct {
    int source;
    int64_t level;
} vt_field_channel;

/* An open file: first what it says of itself, then how it is read, which is for the files of this folder. */
typedef struct {
    char *path; /* the first one's, of several files */
    /* What it says of itself: `times` are those that are used, and the window is all of its grid. Names are "" past
     * those in the attribute `channels`, or those of variables ("z500"); the rest of a channel is from the variable's
     * attributes, or from those of `fields`. */
    vt_fields_about *about;
    char *doubts[2];      /* why latitudes or longitudes are unknown although there is something; or NULL */
    vt_time_axis times;   /* those that are used, by its time coordinate or its name; without a coordinate `minutes` is
                             form->time_step, that of the attribute `time_step`, or what so many times in the year of
                             its name must be; else 0 */
    int64_t cache_bytes;  /* decoded chunks that HDF5 may hold; 0 for contiguous storage */
    const char *obstacle; /* why it can't be read past HDF5 ("'fields' is compressed with 'lzf'"), or NULL */

    int64_t *places;             /* [about->times]: where each is among the times of the file; NULL: all are used */
    const vt_store *times_store; /* the one that says the times */
    int store_count, source_count;
    vt_store **stores;
    vt_field_source *sources;
    vt_field_channel *channels; /* [about->channels] */
} vt_fields_file;

/* Opens without HDF5 file locking and reads everything but the fields. Contiguous, chunked and compressed storage, and
 * every floating-point type, are read alike. Errors: no file, no permission, not HDF5 or truncated, `fields` missing or
 * not 4-D floating point or in another file, latitudes or longitudes that don't fit it, `channels` that aren't strings;
 * a file on which HDF5 crashes or never returns; times that occur twice or go backwards; more times than the year of
 * its name can hold, if nothing says how far apart they are. Each of form->variables is in one of the files; further
 * errors: a variable or a level that is missing or named twice, or has other extents. */
vt_status vt_fields_file_open(const char *const *paths, int64_t path_count, const vt_fields_form *form,
                              vt_fields_file **file);

/* Fails unless HDF5 survives the files of several dates, all tried in one process (storage/trial.h), as a process for
 * each would take long: the paths of each date, with NULL between dates. */
vt_status vt_fields_files_try(const char *const *paths, int64_t count, const vt_fields_form *form);

/* The same as vt_fields_file_open for a file that was tried or opened before: that one tries it first. */
vt_status vt_fields_file_open_again(const char *const *paths, int64_t path_count, const vt_fields_form *form,
                                    vt_fields_file **file);
void vt_fields_file_close(vt_fields_file **file);

/* The place in the file of time `time` of those that are used. */
static inline int64_t vt_fields_file_place(const vt_fields_file *file, int64_t time)
{
    return file->places != NULL ? file->places[time] : time;
}

/* Appends the variables of a netCDF file or a Zarr store that can be channels together, "t2m, z@1000": those of
 * these extents [times, any, rows, columns], or, if they are 0, of the first one's, which they become. A file of
 * `fields` has none. */
vt_status vt_netcdf_variables(const char *path, int64_t extent[4], vt_text *words);

/* Decoded bytes of the chunks that its times touch, which are decoded whole: of those that hold several times, and of
 * all. */
void vt_fields_file_chunk_bytes(const vt_fields_file *file, double *several, double *all);

/* Values that were never written, because the program that wrote the file was ended early, read as the fill value
 * (mostly 0), as if they were data. Fails if nothing at all was written, and warns if chunks are missing, or if the
 * stores have something odd to tell. */
vt_status vt_fields_file_check_written(const vt_fields_file *file);

/* Fails if the size of one of its files has changed since it was opened. `time` is for the message. */
vt_status vt_fields_file_check_size(const vt_fields_file *file, int64_t time);

/* How its arrays are stored, a line each ("t2m: zarr, chunks of [1, 64, 32], blosc (lz4)"), malloc'd; "": nothing to
 * tell. */
char *vt_fields_file_storage(const vt_fields_file *file);

/* values [channels, rows, width] = the window of the first `channels` channels at `time`, as float32. The window must
 * lie within the grid; nothing else is read (of chunked files: only the chunks that it touches). If `checked`, a value
 * that is NaN (unless form->masked), infinite or beyond VT_LARGEST_VALUE is an error that names time, channel, row and
 * column; otherwise missing values are NaN. Any thread; HDF5 is entered. */
vt_status vt_fields_file_read(vt_fields_file *file, int64_t time, int64_t channels, const vt_frame_window *window,
                              bool checked, float *values);

#endif
