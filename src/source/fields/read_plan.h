/* What has to be read for a batch, as a list of items that any number of threads can do in any order: each piece of a
 * file once, however many samples share it. Past HDF5's library where the file allows it: pread of runs of bytes, and
 * of chunks that are decoded here; through H5Dread where not. */
#ifndef VT_SOURCE_FIELDS_READ_PLAN_H
#define VT_SOURCE_FIELDS_READ_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "data/source.h"
#include "source/fields/fields_file.h"
#include "source/fields/window.h"
#include "storage/chunk_cache.h"
#include "storage/decode.h"

/* The fields of one time, where they are wanted. */
typedef struct {
    int64_t file; /* which file of the dataset: frames are sorted by (file, time) */
    vt_fields_file *opened;
    int64_t time;
    int64_t channels;
    float *values;   /* [channels, rows, width] */
    int64_t sample;  /* of the batch: 0, 1, … */
    int64_t kept_as; /* `values` is that frame's place in the dataset's cache; -1: it is not */
} vt_frame;

/* How it is read. */
typedef struct {
    bool direct;           /* past HDF5 where it can be, else through it */
    bool tolerant;         /* also of a file that has changed */
    bool checked;          /* every value is looked at; else only those that are converted, or come through HDF5 */
    vt_chunk_cache *cache; /* keeps decoded chunks of several times */
} vt_read_manner;

typedef struct vt_fields_plan vt_fields_plan; /* begins with a vt_read_plan */

vt_status vt_fields_plan_open(vt_source *source, vt_fields_plan **plan);
void vt_fields_plan_close(vt_fields_plan **plan);

/* Begins anew, with no frames. */
void vt_fields_plan_clear(vt_fields_plan *plan);
vt_status vt_fields_plan_add(vt_fields_plan *plan, const vt_frame *frame);

/* An item that is in memory already: a copy of `floats` floats. */
void vt_fields_plan_add_copy(vt_fields_plan *plan, const float *from, float *to, int64_t floats);

/* Were all of its items done, without an error? */
bool vt_fields_plan_is_complete(const vt_fields_plan *plan);

/* The frames become items. The files must stay open until the last item is done. Fails when a file has changed, unless
 * it is tolerant. One thread at a time for one set of files. */
vt_status vt_fields_plan_make(vt_fields_plan *plan, const vt_frame_window *window, const vt_read_manner *manner);

int64_t vt_fields_plan_frames(const vt_fields_plan *plan);
const vt_frame *vt_fields_plan_frame(const vt_fields_plan *plan, int64_t index);

/* Reads item `item` to where it is wanted, with a thread's own decoder. Any thread, any order, each item once. Errors
 * name file, variable, time and cause; of a NaN or Inf among the values looked at also channel, row and column. */
vt_status vt_fields_plan_run(vt_fields_plan *plan, int64_t item, vt_decoder *decoder);

/* After an item failed: which of the times that it holds can't be read? Reads each of them alone; the good ones end up
 * where they are wanted, and mark(sample, context) is called for each sample that needs a bad one. */
void vt_fields_plan_retry(const vt_fields_plan *plan, int64_t item, vt_decoder *decoder,
                          void (*mark)(int64_t sample, void *context), void *context);

vt_file_extent vt_fields_plan_extent(const vt_fields_plan *plan, int64_t item);

#endif
