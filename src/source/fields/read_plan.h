/* What has to be read for a batch, as a list of items that any number of threads can do in any order: each piece of a
 * file once, however many samples share it. Where the file allows it, HDF5's library is passed by: runs of bytes, and
 * chunks that are decoded here, are read with pread; otherwise the store's library reads. */
#ifndef VT_SOURCE_FIELDS_READ_PLAN_H
#define VT_SOURCE_FIELDS_READ_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "data/source.h"
#include "source/fields/fields_file.h"
#include "source/fields/known_fields.h"
#include "source/fields/seasonal.h"
#include "source/fields/window.h"
#include "storage/chunk_cache.h"
#include "storage/decode.h"
#include "task/weather/transforms.h"

/* What is asked for: some channels of a frame, and where they go. A frame may be asked for several times. */
typedef struct {
    int64_t file; /* which file of the dataset: frames are sorted by (file, time) */
    vt_fields_file *opened;
    int64_t time;
    vt_date date;            /* of the time; read where departures are wanted */
    int64_t first, channels; /* of the file's channels */
    float *values;           /* [channels, rows, width] */
    int64_t sample;          /* its place in the batch: 0, 1, … */
    int64_t kept_as;         /* `values` is the place of this frame among those kept; -1: it is elsewhere */
    int64_t awaited;         /* by the plan: items that it lacks until it is whole; atomic */
} vt_frame;

/* How it is read. */
typedef struct {
    bool direct;                    /* past HDF5 where it can be, else through it */
    bool tolerant;                  /* also of a file that has changed */
    bool checked;                   /* every value is looked at; else only some, see claims_check in read_item.c */
    bool as_is;                     /* no value is looked at */
    const vt_transform *transforms; /* of the file's channels, before they become departures; NULL: none */
    const vt_seasonal *departures;  /* frames become departures from it; NULL: they stay as the files have them */
    vt_chunk_cache *cache;          /* keeps decoded chunks that are needed again; NULL: none are */
} vt_read_manner;

/* All functions of vt_reading (data/source.h) but make and release; `close` takes NULL. Errors of items name file,
 * variable, time and cause; of a NaN or Inf among the values looked at also channel, row and column. */
vt_read_plan *vt_fields_plan_open(vt_source *source);
void vt_fields_plan_close(vt_read_plan *plan);
vt_status vt_fields_plan_run(vt_read_plan *plan, int64_t item, vt_decoder *decoder);
void vt_fields_plan_retry(const vt_read_plan *plan, int64_t item, vt_decoder *decoder, bool *bad);
vt_file_extent vt_fields_plan_extent(const vt_read_plan *plan, int64_t item, int64_t further);

/* Begins anew, with no frames. */
void vt_fields_plan_clear(vt_read_plan *plan);
void vt_fields_plan_add(vt_read_plan *plan, const vt_frame *frame);

/* An item that is in memory already: a copy of `floats` floats. */
void vt_fields_plan_add_copy(vt_read_plan *plan, const float *from, float *to, int64_t floats);

/* An item that no file is needed for: the fields that are known of a date go to `to`, by vt_known_fields_take. */
void vt_fields_plan_add_known(vt_read_plan *plan, const vt_known_fields *known, vt_date date, float *to);

/* The frames become items. The files must stay open until the last item is done. Fails if a file has changed, unless it
 * is tolerant. One thread at a time for one set of files. */
vt_status vt_fields_plan_make(vt_read_plan *plan, const vt_frame_window *window, const vt_read_manner *manner);

/* The frames that were added; *count: how many; *complete: all items have been done, without an error. */
const vt_frame *vt_fields_plan_frames(const vt_read_plan *plan, int64_t *count, bool *complete);

#endif
