/* The files of a set as they are read: which of them are open, and which frames and decoded chunks are kept. This has
 * the set's lock, as hardly anything else of a set changes once it is open. The index says what is in which file. */
#ifndef VT_SOURCE_FIELDS_READING_H
#define VT_SOURCE_FIELDS_READING_H

#include <pthread.h>

#include "source/fields/file_list.h"
#include "source/fields/read_plan.h"

/* Of a frame that is to stay in memory. COMING: a plan reads it into its place. */
enum { VT_FRAME_MISSING, VT_FRAME_COMING, VT_FRAME_KEPT };

typedef struct {
    vt_file_list list;
    const vt_fields_form *form; /* what the user says of the files; not owned */
    char *obstacle;             /* of the first file that HDF5 has to read */
    vt_chunk_cache chunks;      /* with locks of its own */
    double chunk_bytes[2];      /* vt_fields_file_chunk_bytes of all files */
    vt_read_plan *plan;         /* with `decoder`: for single reads, by one thread at a time */
    vt_decoder decoder;
    pthread_mutex_t lock; /* guards what follows, and which files of the list are open */
    int64_t open_limit;   /* most files that are open at once, unless more are in use */
    uint64_t use_clock;
    /* frames that stay in memory as float32, each read from the files once */
    unsigned char *kept_states;       /* [frames]; NULL: none are kept */
    int64_t kept_floats, kept_frames; /* of a frame; that are KEPT */
    float *kept_values;               /* [frames, floats], used without the lock; taken as frames come */
} vt_fields_reading;

/* Lists the files of a directory or a store, and opens none. `reading` begins as zeros. */
vt_status vt_fields_reading_open(vt_fields_reading *reading, const char *directory, const char *option_name,
                                 const vt_fields_form *form, vt_source *source);
void vt_fields_reading_close(vt_fields_reading *reading);

/* Before there are threads: counts what chunks of this file decode to, and lowers how many files may be open at once.
 */
void vt_fields_reading_expect(vt_fields_reading *reading, const vt_fields_file *file, bool direct);

/* File `index`, open until the next call, or as long as a plan has frames of it; where too many are open, the one
 * unused for longest is closed. With the lock, or before there are threads. */
vt_status vt_fields_reading_use(vt_fields_reading *reading, int64_t index, vt_fields_file **file);

/* ---- plans: vt_fields_reading_lock, _add for each frame, then _finish ---- */

/* Locks, and empties the plan. */
void vt_fields_reading_lock(vt_fields_reading *reading, vt_read_plan *plan);

/* Asks for frame `number` of the set, of which frame->file and frame->time say where it is. It comes from memory if it
 * is kept; if it is to be kept, the first plan that needs it also reads it for that. number -1: read in any case.
 * points: of a channel in the window. */
vt_status vt_fields_reading_add(vt_fields_reading *reading, vt_read_plan *plan, vt_frame frame, int64_t number,
                                int64_t points);

/* Makes items of what was asked for, and unlocks. added: whether asking succeeded; if it didn't, or if this fails, the
 * plan holds nothing. */
vt_status vt_fields_reading_finish(vt_fields_reading *reading, vt_read_plan *plan, const vt_frame_window *window,
                                   const vt_read_manner *manner, vt_status added);

/* Lets go of the plan's files; what it read for the cache is kept if all of it was read. */
void vt_fields_reading_release(vt_fields_reading *reading, vt_read_plan *plan);

/* Does all items of `reading->plan`, which was finished, and releases it. */
vt_status vt_fields_reading_run(vt_fields_reading *reading);

#endif
