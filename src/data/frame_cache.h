/* The fields of a dataset's times, kept in memory as float32 after they were read: each is read from the files once.
 * Frames are never evicted. The caller holds a lock; only `values` is used without it. */
#ifndef VT_DATA_FRAME_CACHE_H
#define VT_DATA_FRAME_CACHE_H

#include <stdint.h>

#include "base/status.h"

/* COMING: a plan reads it into its place. */
enum { VT_FRAME_MISSING, VT_FRAME_COMING, VT_FRAME_KEPT };

typedef struct {
    int64_t floats;        /* of a frame */
    float *values;         /* [frames, floats]; memory is taken as frames come */
    unsigned char *states; /* [frames] */
    int64_t kept;          /* frames that are KEPT */
} vt_frame_cache;

/* Fails when the address space is refused. */
vt_status vt_frame_cache_open(int64_t count, int64_t floats, vt_frame_cache **cache);
void vt_frame_cache_close(vt_frame_cache **cache);

static inline float *vt_frame_cache_place(const vt_frame_cache *cache, int64_t frame)
{
    return cache->values + frame * cache->floats;
}

/* Frame `frame` was COMING: it is KEPT from now on if it has come, else MISSING again. */
void vt_frame_cache_settle(vt_frame_cache *cache, int64_t frame, bool has_come);

#endif
