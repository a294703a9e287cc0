#define _GNU_SOURCE /* preadv2 */
#include "source/fields/read_plan.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/memory.h"
#include "source/fields/read_plan_inside.h"

/* Bytes that a run has at most, unless a single plane has more: so that several threads share a sample. Runs of
 * neighbouring times are joined up to the smaller bound. */
#define LONGEST_RUN (INT64_C(1) << 20)
#define LONGEST_JOINED_RUN (INT64_C(256) << 10)

static const char purpose[] = "the plan of a batch";

vt_read_plan *vt_fields_plan_open(vt_source *source)
{
    vt_fields_plan *plan = vt_allocate(1, sizeof *plan, purpose);
    plan->plan.source = source;
    return &plan->plan;
}

void vt_fields_plan_close(vt_read_plan *base)
{
    vt_fields_plan *plan = (vt_fields_plan *)base;
    if (plan == NULL) return;
    free(plan->frames);
    free(plan->items);
    free(plan->in_memory);
    free(plan->chunk_numbers);
    free(plan);
}

void vt_fields_plan_clear(vt_read_plan *base)
{
    vt_fields_plan *plan = (vt_fields_plan *)base;
    plan->frame_count = plan->item_count = plan->memory_count = plan->done = 0;
    base->item_count = 0;
    plan->made = false;
}

void vt_fields_plan_add(vt_read_plan *base, const vt_frame *frame)
{
    vt_fields_plan *plan = (vt_fields_plan *)base;
    plan->frames = vt_grow(plan->frames, (size_t)plan->frame_count, sizeof *frame, purpose);
    plan->frames[plan->frame_count++] = *frame;
}

static void add_in_memory(vt_fields_plan *plan, const vt_memory_item *item)
{
    plan->in_memory = vt_grow(plan->in_memory, (size_t)plan->memory_count, sizeof *item, purpose);
    plan->in_memory[plan->memory_count++] = *item;
}

void vt_fields_plan_add_copy(vt_read_plan *plan, const float *from, float *to, int64_t floats)
{
    add_in_memory((vt_fields_plan *)plan, &(vt_memory_item){.to = to, .from = from, .floats = floats});
}

void vt_fields_plan_add_known(vt_read_plan *plan, const vt_known_fields *known, vt_date date, float *to)
{
    add_in_memory((vt_fields_plan *)plan, &(vt_memory_item){.to = to, .known = known, .date = date});
}

const vt_frame *vt_fields_plan_frames(const vt_read_plan *base, int64_t *count, bool *complete)
{
    const vt_fields_plan *plan = (const vt_fields_plan *)base;
    *count = plan->frame_count;
    *complete = plan->made && __atomic_load_n(&plan->done, __ATOMIC_ACQUIRE) == base->item_count;
    return plan->frames;
}

static void add_item(vt_fields_plan *plan, const vt_read_item *item)
{
    plan->items = vt_grow(plan->items, (size_t)plan->item_count, sizeof *item, purpose);
    plan->items[plan->item_count++] = *item;
}

/* By file and time; of one time, and of frames that begin with the same channel, the one with most channels comes
 * first: the others are copied from it. */
static int by_place(const void *left, const void *right)
{
    const vt_frame *a = left, *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    if (a->channels != b->channels) return a->channels > b->channels ? -1 : 1;
    return a->values < b->values ? -1 : a->values > b->values ? 1 : 0;
}

/* Is the second of two frames copied from the first? */
static bool are_alike(const vt_fields_plan *plan, int64_t one, int64_t other)
{
    const vt_frame *a = &plan->frames[one], *b = &plan->frames[other];
    return a->time == b->time && a->first == b->first;
}

/* ---- contiguous storage ---- */

/* Joins the item to the one before if they are neighbours in the file and both hold whole times. */
static bool join(vt_fields_plan *plan, const vt_read_item *item)
{
    if (plan->item_count == 0) return false;
    vt_read_item *before = &plan->items[plan->item_count - 1];
    const int64_t *extent = item->source->extent;
    if (before->kind != VT_ITEM_RUN || before->source != item->source) return false;
    if (before->offset + before->bytes != item->offset || before->bytes + item->bytes > LONGEST_JOINED_RUN)
        return false;
    if (item->count[1] != extent[1] || before->count[1] != extent[1]) return false;
    before->count[0] += item->count[0];
    before->bytes += item->bytes;
    before->frame_count = item->first_frame + item->frame_count - before->first_frame;
    return true;
}

/* What the item's source holds of a frame's channels, level by level in one piece: in runs of whole rows, or for the
 * library in columns of the window. */
static void plan_runs(vt_fields_plan *plan, const vt_read_item *time, const vt_frame *frame)
{
    const vt_fields_file *file = time->file;
    const vt_field_source *source = time->source;
    const int64_t *extent = source->extent, size = vt_element_size(source->packing.element);
    const int64_t row_bytes = extent[3] * size, plane_bytes = extent[2] * row_bytes;
    const int source_index = (int)(source - file->sources);
    const bool by_library = time->kind == VT_ITEM_LIBRARY, all_rows = plan->window.rows == extent[2];
    vt_column_span spans[2] = {{0, extent[3], 0}};
    const int span_count = by_library ? vt_window_spans(&plan->window, spans) : 1;
    const int64_t end = frame->first + frame->channels;
    for (int64_t c = frame->first, run; c < end; c += run) {
        const vt_field_channel *first = &file->channels[c];
        run = 1;
        if (first->source != source_index) continue;
        while ((by_library || (all_rows && (run + 1) * plane_bytes <= LONGEST_RUN)) && c + run < end &&
               first[run].source == source_index && first[run].level == first->level + run)
            run++;
        for (int s = 0; s < span_count; s++) {
            vt_read_item item = *time;
            item.start[1] = first->level;
            item.start[2] = vt_first_file_row(source, &plan->window);
            item.start[3] = spans[s].first;
            item.count[0] = 1;
            item.count[1] = run;
            item.count[2] = plan->window.rows;
            item.count[3] = spans[s].count;
            item.offset = source->array->address + (item.start[0] * extent[1] + item.start[1]) * plane_bytes +
                          item.start[2] * row_bytes;
            item.bytes = run * plan->window.rows * row_bytes;
            if (by_library || !join(plan, &item)) add_item(plan, &item);
        }
    }
}

/* ---- chunks ---- */

/* The numbers of all chunks of a source that a frame's channels touch. */
static void note_chunks(vt_fields_plan *plan, const vt_read_item *time, const vt_frame *frame, int64_t *count)
{
    const vt_field_source *source = time->source;
    const int source_index = (int)(source - time->file->sources);
    const int64_t *chunk = source->chunk, *grid = source->grid;
    const int64_t first_row = vt_first_file_row(source, &plan->window), last_row = first_row + plan->window.rows - 1;
    vt_column_span spans[2];
    const int span_count = vt_window_spans(&plan->window, spans);
    for (int64_t c = frame->first; c < frame->first + frame->channels; c++) {
        if (time->file->channels[c].source != source_index) continue;
        int64_t box = time->start[0] / chunk[0] * grid[1] + time->file->channels[c].level / chunk[1];
        for (int64_t row = first_row / chunk[2]; row <= last_row / chunk[2]; row++)
            for (int s = 0; s < span_count; s++)
                for (int64_t column = spans[s].first / chunk[3];
                     column <= (spans[s].first + spans[s].count - 1) / chunk[3]; column++) {
                    plan->chunk_numbers = vt_grow(plan->chunk_numbers, (size_t)*count, sizeof column, purpose);
                    plan->chunk_numbers[(*count)++] = (box * grid[2] + row) * grid[3] + column;
                }
    }
}

static int by_number(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b ? 1 : 0;
}

/* Frames [first, first + count) of one file: each chunk that any of them touches is one item. */
static vt_status plan_chunks(vt_fields_plan *plan, vt_field_source *source, int64_t first, int64_t frames)
{
    vt_status status = VT_OK;
    int64_t count = 0;
    const int64_t *chunk = source->chunk;
    for (int64_t f = first; f < first + frames; f++) {
        vt_read_item time = {.file = plan->frames[f].opened, .source = source, .start = {plan->frames[f].time}};
        if (f == first || !are_alike(plan, f - 1, f)) note_chunks(plan, &time, &plan->frames[f], &count);
    }
    if (count > 0) qsort(plan->chunk_numbers, (size_t)count, sizeof *plan->chunk_numbers, by_number);
    int64_t begin = first;
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = plan->chunk_numbers[i];
        if (i > 0 && number == plan->chunk_numbers[i - 1]) continue;
        vt_read_item item = {
            .kind = VT_ITEM_CHUNK, .file = plan->frames[first].opened, .source = source, .number = number};
        VT_TRY(vt_field_source_find_chunk(source, number, item.start, &item.place));
        memcpy(item.count, chunk, sizeof item.count);
        while (plan->frames[begin].time < item.start[0]) begin++;
        int64_t end = begin;
        while (end < first + frames && plan->frames[end].time < item.start[0] + chunk[0]) end++;
        item.first_frame = begin;
        item.frame_count = end - begin;
        item.offset = item.place.address;
        item.bytes = item.place.address < 0 ? 0 : item.place.size;
        add_item(plan, &item);
    }
done:
    return status;
}

/* ---- all ---- */

/* Is the byte in the page cache? False if the kernel can't say. */
static bool is_cached(int descriptor, int64_t offset)
{
#ifdef RWF_NOWAIT
    char byte;
    struct iovec memory = {&byte, 1};
    return preadv2(descriptor, &memory, 1, offset, RWF_NOWAIT) == 1;
#else
    (void)descriptor, (void)offset;
    return false;
#endif
}

/* Lets the kernel begin to fetch the item's bytes, unless it has them: then the advice would only cost a walk over its
 * pages. */
static void advise(const vt_read_item *item)
{
    if (item->kind == VT_ITEM_LIBRARY || item->bytes == 0) return;
    const int descriptor = item->source->store->descriptor;
    if (is_cached(descriptor, item->offset) && is_cached(descriptor, item->offset + item->bytes - 1)) return;
    (void)posix_fadvise(descriptor, item->offset, item->bytes, POSIX_FADV_WILLNEED);
}

/* What `source` holds of the frames, in runs; without a source all of them, to be read by the library. */
static void plan_times(vt_fields_plan *plan, vt_field_source *source, int64_t first, int64_t frames)
{
    for (int64_t f = first, count; f < first + frames; f += count) {
        const vt_frame *frame = &plan->frames[f];
        count = 1;
        while (f + count < first + frames && are_alike(plan, f, f + count)) count++;
        vt_read_item item = {.kind = source != NULL ? VT_ITEM_RUN : VT_ITEM_LIBRARY,
                             .file = frame->opened,
                             .source = source,
                             .start = {frame->time},
                             .first_frame = f,
                             .frame_count = count};
        if (source != NULL) plan_runs(plan, &item, frame);
        for (int s = 0; source == NULL && s < frame->opened->source_count; s++) {
            item.source = &frame->opened->sources[s];
            plan_runs(plan, &item, frame);
        }
    }
}

static vt_status plan_file(vt_fields_plan *plan, int64_t first, int64_t frames)
{
    vt_status status = VT_OK;
    vt_fields_file *file = plan->frames[first].opened;
    const bool tolerant = plan->manner.tolerant;
    bool direct = plan->manner.direct && file->obstacle == NULL;
    const int64_t mark = plan->item_count;
    if (!tolerant) VT_TRY(vt_fields_file_check_size(file, plan->frames[first].time));
    for (int s = 0; direct && s < file->source_count && status == VT_OK; s++) {
        vt_field_source *source = &file->sources[s];
        if (source->array->layout == VT_LAYOUT_CONTIGUOUS)
            plan_times(plan, source, first, frames);
        else
            status = plan_chunks(plan, source, first, frames);
    }
    if (status != VT_OK && tolerant) { /* the library then tells the good times from the bad ones */
        vt_error_clear();
        status = VT_OK;
        plan->item_count = mark;
        direct = false;
    }
    if (!direct) plan_times(plan, NULL, first, frames);
    for (int64_t i = mark; status == VT_OK && i < plan->item_count; i++) advise(&plan->items[i]);
done:
    return status;
}

/* Groups of up to 8 items for each rank that needs the same chunks: fewer if they are so large that the cache couldn't
 * hold them until all ranks have used them. */
static void share_items(vt_fields_plan *plan)
{
    enum { MOST = 8 };
    const vt_chunk_cache *cache = plan->manner.cache;
    int64_t each = 1, largest = 1;
    for (int64_t i = 0; i < plan->item_count; i++) {
        int64_t bytes = vt_element_size(plan->items[i].source->packing.element);
        for (int d = 0; d < 4; d++) bytes *= plan->items[i].count[d];
        largest = bytes > largest ? bytes : largest;
    }
    if (cache != NULL) each = (int64_t)cache->mapped / 4 / cache->sharers / largest;
    each = each < 1 ? 1 : each > MOST ? MOST : each;
    plan->group = cache != NULL ? cache->sharers * each : 1;
    plan->first_of_group = cache != NULL ? cache->place * each : 0;
}

/* Counts the items that each frame has a part in. */
static void await_items(vt_fields_plan *plan)
{
    for (int64_t f = 0; f < plan->frame_count; f++) plan->frames[f].awaited = 0;
    for (int64_t i = 0; i < plan->item_count; i++)
        for (int64_t f = 0; f < plan->items[i].frame_count; f++) plan->frames[plan->items[i].first_frame + f].awaited++;
}

vt_status vt_fields_plan_make(vt_read_plan *base, const vt_frame_window *window, const vt_read_manner *manner)
{
    vt_status status = VT_OK;
    vt_fields_plan *plan = (vt_fields_plan *)base;
    plan->window = *window;
    plan->manner = *manner;
    plan->item_count = 0;
    if (plan->frame_count > 0) qsort(plan->frames, (size_t)plan->frame_count, sizeof *plan->frames, by_place);
    for (int64_t first = 0, count; first < plan->frame_count; first += count) {
        for (count = 1; first + count < plan->frame_count; count++)
            if (plan->frames[first + count].file != plan->frames[first].file) break;
        VT_TRY(plan_file(plan, first, count));
    }
    share_items(plan);
    if (manner->departures != NULL || manner->transforms != NULL) await_items(plan);
    base->item_count = plan->item_count + plan->memory_count;
    plan->made = true;
done:
    return status;
}

vt_file_extent vt_fields_plan_extent(const vt_read_plan *base, int64_t index, int64_t further)
{
    const vt_fields_plan *plan = (const vt_fields_plan *)base;
    if (further > 0) return (vt_file_extent){.bytes = -1};
    const vt_read_item *item = index < plan->item_count ? vt_plan_item(plan, index) : NULL;
    if (item == NULL || item->kind == VT_ITEM_LIBRARY ||
        (item->kind == VT_ITEM_CHUNK && item->source->store->kind->load_chunk != NULL))
        return (vt_file_extent){.descriptor = -1};
    vt_file_extent extent = {item->source->store->descriptor, item->offset, item->bytes, 0};
    if (item->kind == VT_ITEM_CHUNK && item->bytes > 0 && item->place.skipped_filters == 0 &&
        vt_pipeline_is_gzip(&item->source->array->pipeline)) {
        extent.inflated = vt_element_size(item->source->packing.element);
        for (int d = 0; d < 4; d++) extent.inflated *= item->count[d];
    }
    return extent;
}
