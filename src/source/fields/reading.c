#include "source/fields/reading.h"

#include <stdlib.h>

#include "base/text.h"

/* Files are kept open because opening one costs a few round trips to a parallel file system; a set of ERA5 has 26
 * files. Fewer stay open if their caches of decoded chunks would together exceed CACHE_BUDGET bytes. */
#define OPEN_FILES 32
#define CACHE_BUDGET (INT64_C(1) << 30)

/* Bytes of decoded chunks of several times that our own reader keeps. */
#define CHUNK_BUDGET (INT64_C(512) << 20)

vt_status vt_fields_reading_open(vt_fields_reading *reading, const char *directory, const char *option_name,
                                 const vt_fields_form *form, vt_source *source)
{
    pthread_mutex_init(&reading->lock, NULL);
    vt_chunk_cache_open(&reading->chunks, CHUNK_BUDGET);
    reading->plan = vt_fields_plan_open(source);
    reading->open_limit = OPEN_FILES;
    reading->form = form;
    return directory != NULL ? vt_file_list_open(directory, option_name, form, &reading->list) : VT_OK;
}

void vt_fields_reading_close(vt_fields_reading *reading)
{
    free(reading->obstacle);
    vt_file_list_close(&reading->list);
    vt_fields_plan_close(reading->plan);
    vt_decoder_close(&reading->decoder);
    vt_chunk_cache_close(&reading->chunks);
    free(reading->kept_values);
    free(reading->kept_states);
    pthread_mutex_destroy(&reading->lock);
}

/* ---- files ---- */

void vt_fields_reading_expect(vt_fields_reading *reading, const vt_fields_file *file, bool direct)
{
    double several, all;
    const bool by_library = !direct || file->obstacle != NULL;
    vt_fields_file_chunk_bytes(file, &several, &all);
    if (file->obstacle != NULL && reading->obstacle == NULL)
        reading->obstacle = vt_text_format("%s: %s", file->path, file->obstacle);
    if (!by_library) {
        reading->chunk_bytes[0] += several;
        reading->chunk_bytes[1] += all;
    }
    while (by_library && reading->open_limit > 1 && file->cache_bytes * reading->open_limit > CACHE_BUDGET)
        reading->open_limit--;
}

/* Closes those unused for longest until one more may be opened; if all are in use, none. */
static void make_room(vt_file_list *list, int64_t limit)
{
    for (;;) {
        vt_file_group *oldest = NULL;
        int64_t open = 0;
        for (vt_file_group *own = list->groups; own < list->groups + list->group_count; own++) {
            open += own->file != NULL;
            if (own->file == NULL || own->users > 0) continue;
            if (oldest == NULL || own->last_use < oldest->last_use) oldest = own;
        }
        if (open < limit || oldest == NULL) return;
        vt_fields_file_close(&oldest->file);
    }
}

vt_status vt_fields_reading_use(vt_fields_reading *reading, int64_t index, vt_fields_file **result)
{
    vt_status status = VT_OK;
    vt_file_group *own = &reading->list.groups[index];
    own->last_use = ++reading->use_clock;
    if (own->file == NULL) {
        make_room(&reading->list, reading->open_limit);
        VT_TRY(vt_file_list_use(&reading->list, index, reading->form, &own->file));
    }
    *result = own->file;
done:
    return status;
}

/* ---- plans ---- */

void vt_fields_reading_lock(vt_fields_reading *reading, vt_read_plan *plan)
{
    pthread_mutex_lock(&reading->lock);
    vt_fields_plan_clear(plan);
}

static void add_frame(vt_fields_reading *reading, vt_read_plan *plan, const vt_frame *frame)
{
    vt_fields_plan_add(plan, frame);
    reading->list.groups[frame->file].users++;
}

vt_status vt_fields_reading_add(vt_fields_reading *reading, vt_read_plan *plan, vt_frame frame, int64_t number,
                                int64_t points)
{
    vt_status status = VT_OK;
    unsigned char *state = number >= 0 && reading->kept_states != NULL ? &reading->kept_states[number] : NULL;
    float *place = state != NULL ? reading->kept_values + number * reading->kept_floats : NULL;
    if (state != NULL && *state == VT_FRAME_KEPT) {
        vt_fields_plan_add_copy(plan, place + frame.first * points, frame.values, frame.channels * points);
        goto done;
    }
    VT_TRY(vt_fields_reading_use(reading, frame.file, &frame.opened));
    frame.kept_as = -1;
    add_frame(reading, plan, &frame);
    if (state == NULL || *state != VT_FRAME_MISSING) goto done;
    *state = VT_FRAME_COMING;
    frame.values = place;
    frame.first = 0;
    frame.channels = reading->kept_floats / points;
    frame.kept_as = number;
    add_frame(reading, plan, &frame);
done:
    return status;
}

/* With the lock. */
static void release(vt_fields_reading *reading, vt_read_plan *plan)
{
    bool complete;
    int64_t count;
    const vt_frame *frames = vt_fields_plan_frames(plan, &count, &complete);
    for (int64_t f = 0; f < count; f++) {
        reading->list.groups[frames[f].file].users--;
        if (frames[f].kept_as < 0) continue;
        reading->kept_states[frames[f].kept_as] = complete ? VT_FRAME_KEPT : VT_FRAME_MISSING;
        reading->kept_frames += complete;
    }
    vt_fields_plan_clear(plan);
}

vt_status vt_fields_reading_finish(vt_fields_reading *reading, vt_read_plan *plan, const vt_frame_window *window,
                                   const vt_read_manner *manner, vt_status added)
{
    const vt_status status = added == VT_OK ? vt_fields_plan_make(plan, window, manner) : added;
    if (status != VT_OK) release(reading, plan);
    pthread_mutex_unlock(&reading->lock);
    return status;
}

void vt_fields_reading_release(vt_fields_reading *reading, vt_read_plan *plan)
{
    pthread_mutex_lock(&reading->lock);
    release(reading, plan);
    pthread_mutex_unlock(&reading->lock);
}

vt_status vt_fields_reading_run(vt_fields_reading *reading)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; i < reading->plan->item_count && status == VT_OK; i++)
        status = vt_fields_plan_run(reading->plan, i, &reading->decoder);
    vt_fields_reading_release(reading, reading->plan);
    return status;
}
