/* A place in the loader's ring: the memory of one batch, and the plan whose items fill it. */
#ifndef VT_DATA_SLOT_H
#define VT_DATA_SLOT_H

#include "data/loader.h"
#include "data/source.h"

typedef struct {
    const vt_loader_options *options;
    void *memory;                    /* NULL with indices_only */
    void *tensors[VT_BATCH_TENSORS]; /* their places in `memory` */
    int64_t *samples;
    bool *bad;
    vt_batch batch;
    vt_read_plan *plan;
    bool planned; /* the plan holds what its items need */
    /* guarded by the loader's lock */
    int64_t items, next_item, done_items;
    bool failed;
    int64_t failed_item; /* the lowest one; -1: making the plan failed */
    vt_error error;
} vt_slot;

/* `slot` starts as zeros; vt_slot_close also takes one that was opened in part. `slots`: how many there are, for the
 * message when memory is short. */
vt_status vt_slot_open(vt_slot *slot, const vt_loader_options *options, int64_t slots);
void vt_slot_close(vt_slot *slot);

/* Takes the sampler's batch, with its `steps`, and makes the plan that reads it. An error is kept in the slot. */
vt_status vt_slot_plan(vt_slot *slot, const vt_batch *batch);

/* Does an item. With skip_bad, samples that cannot be read are marked, instead of an error. */
vt_status vt_slot_run(vt_slot *slot, int64_t item, vt_decoder *decoder);

/* Takes the error of this thread, which did the item. Several items may fail: that of the lowest one is the batch's,
 * whichever came first. */
void vt_slot_note_failure(vt_slot *slot, int64_t item);

/* The batch of a constant source: read here, once. */
vt_status vt_slot_read_constant(vt_slot *slot);

static inline bool vt_slot_is_ready(const vt_slot *slot)
{
    return slot->done_items == slot->items;
}

#endif
