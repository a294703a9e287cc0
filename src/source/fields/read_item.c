/* Doing the items of a plan. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/fields/read_plan_inside.h"

/* Bytes that are read before their values are checked: about half of a core's second-level cache. */
#define PIECE (INT64_C(512) << 10)

/* The time that byte `offset` of the file belongs to: of a run. */
static int64_t time_at(const vt_read_item *item, int64_t offset)
{
    return item->start[0] + (offset - item->offset) / (item->bytes / item->count[0]);
}

static vt_status read_bytes(const vt_read_item *item, int64_t offset, int64_t bytes, void *memory)
{
    const vt_field_source *source = item->source;
    int64_t got;
    if (vt_store_read(source->store, offset, bytes, memory, &got) == VT_OK) return VT_OK;
    return vt_error_context("%s: can't read '%s' at time %ld", source->store->path, source->name,
                            time_at(item, offset + got));
}

/* Are the item's values looked at? They are where the manner says so; where the library reads; where they are converted
 * on the way (place_span); and of each level at the first time that is read of it, which this item claims if no other
 * has. That finds values that are always missing, like land in a field of the sea. All others are only copied. */
static bool claims_check(const vt_fields_plan *plan, const vt_read_item *item)
{
    const int64_t first = item->start[0], levels = item->source->extent[1];
    bool is_sample = false;
    if (plan->manner.checked || item->kind == VT_ITEM_LIBRARY) return true;
    for (int64_t level = item->start[1]; level < item->start[1] + item->count[1] && level < levels; level++) {
        int64_t sampled = 0; /* what is there, if it isn't 0 */
        const bool is_first = __atomic_compare_exchange_n(&item->source->sampled[level], &sampled, first + 1, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        is_sample = is_sample || is_first || (sampled > first && sampled <= first + item->count[0]);
    }
    return is_sample;
}

/* The item's numbers as they are in memory: the library turns their bytes. */
static vt_packing packing_of(const vt_read_item *item)
{
    vt_packing packing = item->source->packing;
    packing.swapped = packing.swapped && item->kind != VT_ITEM_LIBRARY;
    return packing;
}

/* An error for the first of the values that is not finite, unless it is a missing one that is allowed. They are those
 * of the file's channel `channel`, `rows` from `row` on and `width` columns from `column`. */
static vt_status fail_not_finite(const vt_fields_file *file, int64_t time, int64_t channel, int64_t row, int64_t column,
                                 int64_t width, const float *values, int64_t count)
{
    vt_status status = VT_OK;
    const vt_field_source *source = &file->sources[file->channels[channel].source];
    const char *name = file->about->names != NULL ? file->about->names[channel] : "";
    int64_t i = 0;
    while (i < count && (fabsf(values[i]) <= VT_LARGEST_VALUE || (isnan(values[i]) && file->about->masked))) i++;
    if (i == count) goto done;
    char large[48];
    snprintf(large, sizeof large, "%g, which is no data,", (double)values[i]);
    const char *what = isfinite(values[i])                 ? large
                       : !isnan(values[i])                 ? "infinite"
                       : source->packing.has_limits        ? "NaN, missing (_FillValue) or outside its valid_range"
                       : source->packing.missing_count > 0 ? "NaN or missing (_FillValue)"
                                                           : "NaN";
    VT_FAIL("%s: '%s' is %s at time %ld, channel %ld%s%s%s, row %ld, column %ld; the training needs finite values "
            "everywhere%s",
            source->store->path, source->name, what, time, channel, name[0] != '\0' ? " (" : "", name,
            name[0] != '\0' ? ")" : "", row + i / width, column + i % width,
            isnan(values[i]) ? ", unless --missing=mask leaves out what is missing" : "");
done:
    return status;
}

/* Checks a part of one plane of a frame: `rows` rows from `row` on and `columns` columns from `column` on, both counted
 * in the window. */
static vt_status check_rows(const vt_fields_plan *plan, const vt_read_item *item, const vt_frame *frame,
                            int64_t channel, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    vt_status status = VT_OK;
    const vt_frame_window *window = &plan->window;
    const float *values = frame->values + ((channel - frame->first) * window->rows + row) * window->width + column;
    const int64_t file_column = vt_window_column(window, column);
    if (plan->manner.as_is) return VT_OK;
    if (columns == window->width) {
        if (vt_all_finite(values, rows * columns)) return VT_OK;
        return fail_not_finite(item->file, frame->time, channel, window->first_row + row, file_column, columns, values,
                               rows * columns);
    }
    for (int64_t r = 0; r < rows; r++, values += window->width)
        if (!vt_all_finite(values, columns))
            VT_TRY(fail_not_finite(item->file, frame->time, channel, window->first_row + row + r, file_column, columns,
                                   values, columns));
done:
    return status;
}

/* Copies those columns of a plane of an item's box [rows, columns] that are in the span to one channel of a frame.
 * `plane` may be changed. */
static vt_status place_span(const vt_fields_plan *plan, const vt_read_item *item, const vt_frame *frame,
                            int64_t channel, const vt_column_span *span, bool checked, unsigned char *plane)
{
    const vt_frame_window *window = &plan->window;
    const vt_field_source *source = item->source;
    const vt_packing packing = packing_of(item);
    const int64_t size = vt_element_size(packing.element), row_bytes = item->count[3] * size;
    const int64_t wanted = vt_first_file_row(source, window); /* file rows wanted … wanted + window->rows - 1 */
    int64_t first = item->start[2] > wanted ? item->start[2] : wanted, end = item->start[2] + item->count[2];
    int64_t left = item->start[3] > span->first ? item->start[3] : span->first, right = item->start[3] + item->count[3];
    if (end > wanted + window->rows) end = wanted + window->rows;
    if (right > span->first + span->count) right = span->first + span->count;
    if (right <= left) return VT_OK;
    unsigned char *bytes = plane + (first - item->start[2]) * row_bytes + (left - item->start[3]) * size;
    const int64_t rows = end - first, row = source->south_first ? wanted + window->rows - end : first - wanted;
    const int64_t columns = right - left, column = span->at + left - span->first;
    float *values = frame->values + ((channel - frame->first) * window->rows + row) * window->width + column;
    if (columns == item->count[3] && columns == window->width && !source->south_first) {
        vt_unpack(&packing, bytes, rows * columns, values);
    } else {
        for (int64_t r = 0; r < rows; r++, bytes += row_bytes)
            vt_unpack(&packing, bytes, columns, values + (source->south_first ? rows - 1 - r : r) * window->width);
    }
    if (!checked && vt_packing_is_plain(&packing)) return VT_OK;
    return check_rows(plan, item, frame, channel, row, rows, column, columns);
}

/* Elements of an item's box from one place along a dimension to the next. */
static void find_strides(const vt_read_item *item, int64_t stride[4])
{
    stride[3] = 1;
    for (int d = 2; d >= 0; d--) stride[d] = stride[d + 1] * item->count[d + 1];
    if (item->kind == VT_ITEM_CHUNK) memcpy(stride, item->source->stride, 4 * sizeof *stride);
}

/* Are the rows of a plane of it one after another? */
static bool has_plain_planes(const vt_read_item *item, const int64_t stride[4])
{
    return stride[3] == 1 && (stride[2] == item->count[3] || item->count[2] == 1);
}

/* plane [rows, columns] of those elements in the box: of a chunk with another order of dimensions. */
static void gather_plane(const unsigned char *box, int64_t rows, int64_t columns, const int64_t stride[4], int64_t size,
                         unsigned char *plane)
{
    enum { TILE = 16 };
#define GATHER(TYPE)                                                                                                   \
    for (int64_t row = 0; row < rows; row += TILE)                                                                     \
        for (int64_t column = 0; column < columns; column += TILE)                                                     \
            for (int64_t r = row; r < rows && r < row + TILE; r++)                                                     \
                for (int64_t c = column; c < columns && c < column + TILE; c++)                                        \
                    memcpy(plane + (r * columns + c) * (int64_t)sizeof(TYPE),                                          \
                           box + (r * stride[2] + c * stride[3]) * (int64_t)sizeof(TYPE), sizeof(TYPE));               \
    break
    switch (size) {
    case 1:
        GATHER(uint8_t);
    case 2:
        GATHER(uint16_t);
    case 4:
        GATHER(uint32_t);
    default:
        GATHER(uint64_t);
    }
#undef GATHER
}

/* Copies the item's box to the frames that hold a part of it, but for the first `done` of them. */
static vt_status place_box(const vt_fields_plan *plan, const vt_read_item *item, int64_t done, bool checked,
                           unsigned char *box, vt_decoder *decoder)
{
    vt_status status = VT_OK;
    const vt_field_source *source = item->source;
    const int64_t size = vt_element_size(source->packing.element);
    const int64_t plane_bytes = item->count[2] * item->count[3] * size;
    int64_t stride[4];
    unsigned char *copy = NULL; /* of a plane, whose bytes are swapped in place although others need it unchanged */
    find_strides(item, stride);
    const bool plain = has_plain_planes(item, stride);
    const int source_index = (int)(source - item->file->sources);
    vt_column_span spans[2];
    const int span_count = vt_window_spans(&plan->window, spans);
    if ((packing_of(item).swapped || !plain) && item->frame_count > 0)
        VT_TRY(vt_decoder_reserve(&decoder->turned, (size_t)plane_bytes, &copy));
    for (int64_t f = done; f < item->frame_count; f++) {
        const vt_frame *frame = &plan->frames[item->first_frame + f];
        for (int64_t c = frame->first; c < frame->first + frame->channels; c++) {
            const vt_field_channel *channel = &item->file->channels[c];
            int64_t level = channel->level - item->start[1];
            if (channel->source != source_index || level < 0 || level >= item->count[1]) continue;
            unsigned char *plane = box + ((frame->time - item->start[0]) * stride[0] + level * stride[1]) * size;
            if (!plain) gather_plane(plane, item->count[2], item->count[3], stride, size, copy);
            if (copy != NULL) plane = plain ? memcpy(copy, plane, (size_t)plane_bytes) : copy;
            for (int s = 0; s < span_count; s++) VT_TRY(place_span(plan, item, frame, c, &spans[s], checked, plane));
        }
    }
done:
    return status;
}

/* ---- boxes that are a part of a frame as they are ---- */

/* The channel whose place in a frame the item's bytes can be read into as they are, with its further levels in the next
 * channels; -1 if they can't. They can if the item holds plain floats of one time and all of the window, and its levels
 * are successive channels. */
static int64_t straight_channel(const vt_fields_plan *plan, const vt_read_item *item)
{
    const vt_field_source *source = item->source;
    const vt_field_channel *channels = item->file->channels;
    const int source_index = (int)(source - item->file->sources);
    int64_t levels = 0, stride[4];
    vt_column_span spans[2];
    const vt_packing packing = packing_of(item);
    find_strides(item, stride);
    if (!has_plain_planes(item, stride) || (stride[1] != item->count[2] * item->count[3] && item->count[1] > 1))
        return -1;
    if (!vt_packing_is_plain(&packing) || source->south_first || item->count[0] > 1) return -1;
    if (item->start[2] != plan->window.first_row || item->count[2] != plan->window.rows) return -1;
    if (item->start[3] != plan->window.first_column || item->count[3] != plan->window.width) return -1;
    if (vt_window_spans(&plan->window, spans) > 1 || item->frame_count == 0) return -1;
    const vt_frame *frame = &plan->frames[item->first_frame];
    const int64_t end = frame->first + frame->channels;
    int64_t first = frame->first;
    while (first < end && (channels[first].source != source_index || channels[first].level != item->start[1])) first++;
    while (levels < item->count[1] && first + levels < end && channels[first + levels].source == source_index &&
           channels[first + levels].level == item->start[1] + levels)
        levels++;
    return levels == item->count[1] ? first : -1;
}

/* Checks `count` rows from `row` on (counted through all levels) of an item that was read straight into `values`. */
static vt_status check_straight(const vt_fields_plan *plan, const vt_read_item *item, int64_t channel,
                                const float *values, int64_t row, int64_t count)
{
    vt_status status = VT_OK;
    const vt_frame *frame = &plan->frames[item->first_frame];
    const int64_t width = plan->window.width;
    if (vt_all_finite(values + row * width, count * width)) return VT_OK;
    for (int64_t r = row; r < row + count; r++)
        VT_TRY(check_rows(plan, item, frame, channel + r / item->count[2], r % item->count[2], 1, 0, width));
done:
    return status;
}

static float *straight_place(const vt_fields_plan *plan, const vt_read_item *item, int64_t channel)
{
    const vt_frame *frame = &plan->frames[item->first_frame];
    return frame->values + (channel - frame->first) * plan->window.rows * plan->window.width;
}

/* Reads and checks piece by piece: while the values are still in a cache, checking takes only a fifth of the time of
 * reading. */
static vt_status read_checked(const vt_fields_plan *plan, const vt_read_item *item, int64_t channel)
{
    vt_status status = VT_OK;
    float *values = straight_place(plan, item, channel);
    const int64_t width = plan->window.width, row_bytes = width * (int64_t)sizeof(float);
    const int64_t rows = item->count[1] * item->count[2], step = PIECE / row_bytes > 0 ? PIECE / row_bytes : 1;
    for (int64_t row = 0; row < rows; row += step) {
        const int64_t count = rows - row < step ? rows - row : step;
        VT_TRY(read_bytes(item, item->offset + row * row_bytes, count * row_bytes, values + row * width));
        VT_TRY(check_straight(plan, item, channel, values, row, count));
    }
done:
    return status;
}

/* ---- doing an item ---- */

static vt_status load_chunk(const vt_read_item *item, int64_t bytes, vt_decoder *decoder, unsigned char *to)
{
    const vt_field_source *source = item->source;
    char times[64] = "";
    int64_t first[4];
    vt_field_own_dimensions(source, item->start, first);
    if (vt_array_load_chunk(source->array, first, &item->place, decoder, (size_t)bytes, to) == VT_OK) return VT_OK;
    if (item->count[0] > 1) snprintf(times, sizeof times, " to %ld", item->start[0] + item->count[0] - 1);
    return vt_error_context("%s: can't read '%s' at time %ld%s", source->store->path, source->name, item->start[0],
                            times);
}

/* Reads the box [start, start + count) of time, level, row (of the file) and column through the library, one time of
 * it, in the stored type and this machine's byte order. */
static vt_status read_by_library(const vt_field_source *source, const int64_t start[4], const int64_t count[4],
                                 void *memory)
{
    int64_t first[4], size[4];
    vt_field_own_dimensions(source, start, first);
    vt_field_own_dimensions(source, count, size);
    if (source->store->kind->read(source->array, first, size, false, memory) == VT_OK) return VT_OK;
    return vt_error_context("%s: can't read '%s' at time %ld (damaged or cut short?)", source->store->path,
                            source->name, start[0]);
}

/* The item's box, which has so many bytes, in `place` or, if that is NULL, in memory of the decoder; *box is where it
 * is. */
static vt_status load_box(const vt_read_item *item, int64_t bytes, vt_decoder *decoder, void *place,
                          unsigned char **box)
{
    vt_status status = VT_OK;
    *box = place;
    if (place == NULL) VT_TRY(vt_decoder_reserve(&decoder->box, (size_t)bytes, box));
    if (item->kind == VT_ITEM_CHUNK)
        VT_TRY(load_chunk(item, bytes, decoder, *box));
    else if (item->kind == VT_ITEM_RUN)
        VT_TRY(read_bytes(item, item->offset, bytes, *box));
    else
        VT_TRY(read_by_library(item->source, item->start, item->count, *box));
done:
    return status;
}

/* Reads and decodes the item's box, unless it is kept: `chunk` then holds it. `place` is as in load_box. */
static vt_status take_box(const vt_fields_plan *plan, const vt_read_item *item, vt_decoder *decoder, void *place,
                          vt_kept_chunk *chunk, unsigned char **box)
{
    vt_status status = VT_OK;
    vt_chunk_cache *cache = item->kind == VT_ITEM_CHUNK ? plan->manner.cache : NULL;
    vt_chunk_state state = VT_CHUNK_NOT_KEPT;
    int64_t bytes = vt_element_size(item->source->packing.element);
    for (int i = 0; i < 4; i++) bytes *= item->count[i];
    if (cache != NULL && (item->count[0] > 1 || vt_chunk_cache_is_for_others(cache)))
        state = vt_chunk_cache_take(cache, (vt_chunk_key){item->source->key, item->number}, bytes, chunk);
    *box = chunk->bytes;
    if (state == VT_CHUNK_FOUND) return VT_OK;
    status = load_box(item, bytes, decoder, state == VT_CHUNK_WANTED ? chunk->bytes : place, box);
    if (state == VT_CHUNK_WANTED) vt_chunk_cache_settle(cache, chunk, status == VT_OK);
    if (cache != NULL && status == VT_OK) vt_chunk_cache_count(cache, bytes);
    return status;
}

/* A box that is read straight into its place in the first frame goes from there to the others. */
static vt_status read_item(const vt_fields_plan *plan, const vt_read_item *item, vt_decoder *decoder)
{
    vt_status status = VT_OK;
    vt_kept_chunk chunk = {0};
    const int64_t channel = straight_channel(plan, item), rows = item->count[1] * item->count[2];
    const bool is_straight = channel >= 0, checked = claims_check(plan, item);
    float *place = is_straight ? straight_place(plan, item, channel) : NULL;
    unsigned char *box = (unsigned char *)place;
    if (is_straight && checked && item->kind == VT_ITEM_RUN) {
        VT_TRY(read_checked(plan, item, channel));
    } else {
        VT_TRY(take_box(plan, item, decoder, place, &chunk, &box));
        if (is_straight && chunk.bytes != NULL) memcpy(place, box, (size_t)(rows * item->count[3]) * sizeof *place);
        if (is_straight && checked) VT_TRY(check_straight(plan, item, channel, place, 0, rows));
    }
    VT_TRY(place_box(plan, item, is_straight, checked && !is_straight, box, decoder));
done:
    if (chunk.bytes != NULL) vt_chunk_cache_release(plan->manner.cache, &chunk);
    return status;
}

/* One of the items that the frame waits for is done. The last one transforms the whole frame. */
static void finish_part(const vt_fields_plan *plan, int64_t frame)
{
    vt_frame *whole = &plan->frames[frame];
    const vt_read_manner *manner = &plan->manner;
    if (manner->departures == NULL && manner->transforms == NULL) return;
    if (__atomic_sub_fetch(&whole->awaited, 1, __ATOMIC_ACQ_REL) > 0) return;
    if (manner->transforms != NULL)
        vt_transforms_apply(manner->transforms + whole->first, whole->channels, plan->window.rows * plan->window.width,
                            whole->values);
    if (manner->departures == NULL) return;
    vt_seasonal_add(manner->departures, whole->date, -1, whole->first, whole->channels, whole->values);
}

vt_status vt_fields_plan_run(vt_read_plan *base, int64_t index, vt_decoder *decoder)
{
    vt_status status = VT_OK;
    vt_fields_plan *plan = (vt_fields_plan *)base;
    if (index >= plan->item_count) {
        const vt_memory_item *item = &plan->in_memory[index - plan->item_count];
        if (item->known != NULL)
            vt_known_fields_take(item->known, item->date, false, item->to);
        else
            memcpy(item->to, item->from, (size_t)item->floats * sizeof *item->to);
    } else {
        const vt_read_item *item = vt_plan_item(plan, index);
        VT_TRY(read_item(plan, item, decoder));
        for (int64_t f = 0; f < item->frame_count; f++) finish_part(plan, item->first_frame + f);
    }
    __atomic_add_fetch(&plan->done, 1, __ATOMIC_RELEASE);
done:
    return status;
}

/* Reads one frame by itself. */
static vt_status read_alone(const vt_frame *frame, const vt_frame_window *window, const vt_read_manner *manner,
                            vt_decoder *decoder)
{
    vt_status status = VT_OK;
    vt_read_plan *alone = vt_fields_plan_open(NULL);
    vt_fields_plan_add(alone, frame);
    VT_TRY(vt_fields_plan_make(alone, window, manner));
    for (int64_t i = 0; i < alone->item_count; i++) VT_TRY(vt_fields_plan_run(alone, i, decoder));
done:
    vt_fields_plan_close(alone);
    return status;
}

/* Reads each time of the item alone; the good ones end up in their places. HDF5 is not asked again: after a failed read
 * its buffers may hold anything. */
void vt_fields_plan_retry(const vt_read_plan *base, int64_t index, vt_decoder *decoder, bool *bad)
{
    const vt_fields_plan *plan = (const vt_fields_plan *)base;
    const vt_read_item *item = vt_plan_item(plan, index);
    const vt_frame_window *window = &plan->window;
    vt_read_manner manner = plan->manner;
    manner.direct = manner.tolerant = true;
    manner.departures = NULL; /* finish_part makes them, of the whole frame */
    manner.transforms = NULL;
    for (int64_t f = 0; f < item->frame_count; f++) {
        const vt_frame *frame = &plan->frames[item->first_frame + f];
        vt_frame copy = *frame;
        const size_t bytes = (size_t)(frame->channels * window->rows * window->width) * sizeof(float);
        /* not in its place, where another item may be at work */
        copy.values = item->kind != VT_ITEM_LIBRARY ? malloc(bytes) : NULL;
        if (copy.values != NULL && read_alone(&copy, window, &manner, decoder) == VT_OK) {
            memcpy(frame->values, copy.values, bytes);
            finish_part(plan, item->first_frame + f);
        } else {
            vt_mark_bad(bad, frame->sample);
        }
        vt_error_clear();
        free(copy.values);
    }
}

vt_status vt_fields_file_read(vt_fields_file *file, int64_t time, int64_t channels, const vt_frame_window *window,
                              bool checked, float *values)
{
    const vt_frame frame = {
        .opened = file, .time = vt_fields_file_place(file, time), .channels = channels, .values = values};
    const vt_read_manner manner = {.tolerant = true, .as_is = !checked};
    vt_decoder decoder = {0};
    VT_ASSERT(time >= 0 && time < file->about->times && channels <= file->about->channels && window->first_row >= 0 &&
              window->rows > 0 && window->first_row + window->rows <= file->about->rows &&
              window->width <= file->about->columns);
    const vt_status status = read_alone(&frame, window, &manner, &decoder);
    vt_decoder_close(&decoder);
    return status;
}
