/* Activations that wait in the host's memory (offload_activations), of one micro-batch in flight. What a block keeps
 * for backward lies in one of two rooms of the device's memory, and the stream behind a unit in one of three, which
 * its neighbours do not use. After a block's forward both leave for pinned memory while
 * the next block computes, and in backward they return to the same places, so that pointers to them stay as they are.
 *
 * Units are numbered as the model's (model.h). The last two blocks' rooms are never needed by another block: nothing of
 * them is sent. */
#ifndef VT_MODEL_OFFLOAD_H
#define VT_MODEL_OFFLOAD_H

#include "backend/arena.h"
#include "parallel/layout.h"

/* Bytes. */
typedef struct {
    size_t kept, stream; /* of the largest block: what it keeps, and the stream in front of it or behind it */
    size_t host;         /* pinned */
} vt_offload_sizes;

typedef struct vt_offload vt_offload;

/* `units` are those of a pass, `blocks` those of them that are blocks. Sizes SIZE_MAX (dry back end only): no memory,
 * and no limit. */
vt_status vt_offload_open(vt_backend *backend, vt_span units, vt_span blocks, vt_offload_sizes sizes,
                          vt_offload **offload);
void vt_offload_close(vt_offload **offload);

/* The largest sizes that passes have needed so far. */
vt_offload_sizes vt_offload_needed(const vt_offload *offload);
/* Bytes of the device's memory. */
size_t vt_offload_device_bytes(vt_offload_sizes sizes);

/* Empty arenas: where block `unit` keeps what it needs in backward, and where the stream behind `unit` is. */
vt_arena *vt_offload_kept(vt_offload *offload, int64_t unit);
vt_arena *vt_offload_stream(vt_offload *offload, int64_t unit);

/* Around the units of a pass; NULL: nothing is offloaded. Before a unit's forward: its rooms are free from then on.
 * After it, where a backward follows: what a later block will overwrite leaves. Before its backward: what it kept is
 * there, and that of the block before it is on its way. */
void vt_offload_begin_forward(vt_offload *offload, int64_t unit);
void vt_offload_end_forward(vt_offload *offload, int64_t unit);
void vt_offload_begin_backward(vt_offload *offload, int64_t unit);

#endif
