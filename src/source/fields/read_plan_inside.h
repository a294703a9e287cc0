/* The inside of a plan, for read_plan.c, which makes its items, and read_item.c, which does them. */
#ifndef VT_SOURCE_FIELDS_READ_PLAN_INSIDE_H
#define VT_SOURCE_FIELDS_READ_PLAN_INSIDE_H

#include "source/fields/fields_inside.h"
#include "source/fields/read_plan.h"

typedef enum { VT_ITEM_LIBRARY, VT_ITEM_RUN, VT_ITEM_CHUNK } vt_item_kind;

/* A box of one source: elements [start, start + count) of time, level, row (of the file) and column. The library reads
 * it; or it lies in one piece in the file (a run); or it is a chunk. */
typedef struct {
    vt_item_kind kind;
    vt_fields_file *file;
    vt_field_source *source;
    int64_t start[4], count[4];
    int64_t offset, bytes; /* in the file; of no use for the library */
    vt_chunk_place place;  /* of a chunk … */
    int64_t number;        /* … and which one of the source's it is */
    int64_t first_frame, frame_count;
} vt_read_item;

/* What needs no file: a copy of `floats` floats, or, where `known` is not NULL, what is known of the date. */
typedef struct {
    float *to;
    const float *from;
    int64_t floats;
    const vt_known_fields *known;
    vt_date date;
} vt_memory_item;

typedef struct {
    vt_read_plan plan;
    vt_frame *frames;
    int64_t frame_count;
    vt_read_item *items;
    int64_t item_count;
    int64_t group, first_of_group; /* see vt_plan_item */
    vt_memory_item *in_memory;     /* items as well: they follow the others; plan.item_count counts all */
    int64_t memory_count;
    bool made;
    int64_t done;           /* items that succeeded; atomic */
    int64_t *chunk_numbers; /* scratch */
    vt_frame_window window;
    vt_read_manner manner;
} vt_fields_plan;

/* Item `index` in the order in which this rank does them. Ranks that need the same chunks do the items of each `group`
 * beginning with another one, so that each of them decodes some, instead of waiting for what the first one decodes. */
static inline const vt_read_item *vt_plan_item(const vt_fields_plan *plan, int64_t index)
{
    const int64_t begin = index / plan->group * plan->group, left = plan->item_count - begin;
    const int64_t count = left < plan->group ? left : plan->group;
    return &plan->items[begin + (index - begin + plan->first_of_group) % count];
}

/* The file's rows of a source that hold the window's, whichever way they run. */
static inline int64_t vt_first_file_row(const vt_field_source *source, const vt_frame_window *window)
{
    return source->south_first ? source->extent[2] - window->first_row - window->rows : window->first_row;
}

#endif
