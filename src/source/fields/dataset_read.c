/* Samples: which times of which file they are, and reading them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/config.h"
#include "source/fields/dataset_inside.h"

void vt_dataset_describe(const vt_dataset *dataset, int64_t sample, char *buffer, int64_t size)
{
    int64_t time;
    const vt_set_stretch *stretch = vt_dataset_find_sample(dataset, sample, &time);
    const vt_set_piece *piece = vt_dataset_piece(dataset, stretch, time);
    snprintf(buffer, (size_t)size, "%s, time %lld", vt_dataset_group_path(dataset, piece->file),
             (long long)(piece->first_time + time - piece->first));
}

/* ---- reading ---- */

static vt_status add_reading(vt_dataset *dataset, const vt_frame *frame, vt_fields_plan *plan)
{
    vt_status status = VT_OK;
    VT_TRY(vt_fields_plan_add(plan, frame));
    dataset->files[frame->file].users++;
done:
    return status;
}

/* The fields of time `time` of a stretch come from the cache, or from the file; the first who wants them there has them
 * read into the cache, too, as one more frame of that time. */
static vt_status add_frame(vt_dataset *dataset, const vt_set_stretch *stretch, int64_t time, vt_frame *frame,
                           vt_fields_plan *plan)
{
    vt_status status = VT_OK;
    vt_frame_cache *cache = dataset->kept;
    const vt_set_piece *piece = vt_dataset_piece(dataset, stretch, time);
    const int64_t index = stretch->first_frame + time;
    const int64_t points = dataset->options.rows * dataset->options.width;
    if (cache != NULL && cache->states[index] == VT_FRAME_KEPT) {
        vt_fields_plan_add_copy(plan, vt_frame_cache_place(cache, index), frame->values, frame->channels * points);
        goto done;
    }
    frame->file = piece->file;
    frame->time = piece->first_time + time - piece->first;
    frame->kept_as = -1;
    VT_TRY(vt_dataset_use_file(dataset, frame->file, &frame->opened));
    VT_TRY(add_reading(dataset, frame, plan));
    if (cache == NULL || cache->states[index] != VT_FRAME_MISSING) goto done;
    vt_frame kept = *frame;
    kept.values = vt_frame_cache_place(cache, index);
    kept.channels = vt_dataset_frame_channels(dataset);
    kept.kept_as = index;
    cache->states[index] = VT_FRAME_COMING;
    status = add_reading(dataset, &kept, plan);
done:
    return status;
}

static vt_status add_frames(vt_dataset *dataset, int64_t sample, int64_t place, float *input, float *target,
                            vt_fields_plan *plan)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &dataset->options;
    const int64_t channels = vt_dataset_window_channels(options), size = channels * options->rows * options->width;
    int64_t time;
    const vt_set_stretch *stretch = vt_dataset_find_sample(dataset, sample, &time);
    vt_frame frame = {.sample = place};
    for (int64_t back = -1; back <= options->history; back++) {
        frame.channels = back < 0 ? options->out_channels : channels;
        frame.values = back < 0 ? target : input + back * size;
        VT_TRY(add_frame(dataset, stretch, time - back * options->dt, &frame, plan));
    }
done:
    return status;
}

/* What it brought for the cache is kept, when all of it came. */
static void release_frames(vt_dataset *dataset, vt_fields_plan *plan)
{
    const bool complete = vt_fields_plan_is_complete(plan);
    for (int64_t f = 0; f < vt_fields_plan_frames(plan); f++) {
        const vt_frame *frame = vt_fields_plan_frame(plan, f);
        dataset->files[frame->file].users--;
        if (frame->kept_as >= 0) vt_frame_cache_settle(dataset->kept, frame->kept_as, complete);
    }
    vt_fields_plan_clear(plan);
}

static vt_read_manner manner_of(vt_dataset *dataset, bool checked)
{
    return (vt_read_manner){dataset->options.direct, dataset->options.tolerant, checked, &dataset->cache};
}

static vt_status plan_samples(vt_dataset *dataset, const int64_t *samples, int64_t count, bool checked, float *input,
                              float *target, vt_fields_plan *plan)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &dataset->options;
    const int64_t points = options->rows * options->width;
    const vt_frame_window window = vt_dataset_own_window(dataset);
    const vt_read_manner manner = manner_of(dataset, checked);
    pthread_mutex_lock(&dataset->lock);
    vt_fields_plan_clear(plan);
    for (int64_t i = 0; i < count; i++)
        VT_TRY(add_frames(dataset, samples[i], i, input + i * options->in_channels * points,
                          target + i * options->out_channels * points, plan));
    VT_TRY(vt_fields_plan_make(plan, &window, &manner));
done:
    if (status != VT_OK) release_frames(dataset, plan);
    pthread_mutex_unlock(&dataset->lock);
    return status;
}

vt_status vt_dataset_plan(vt_dataset *dataset, const int64_t *samples, int64_t count, float *input, float *target,
                          vt_fields_plan *plan)
{
    return plan_samples(dataset, samples, count, !dataset->options.unchecked || dataset->kept != NULL, input, target,
                        plan);
}

void vt_dataset_release(vt_dataset *dataset, vt_fields_plan *plan)
{
    pthread_mutex_lock(&dataset->lock);
    release_frames(dataset, plan);
    pthread_mutex_unlock(&dataset->lock);
}

bool vt_dataset_reaches(const vt_dataset *dataset, int64_t sample, int64_t steps)
{
    int64_t time;
    const vt_set_stretch *stretch = vt_dataset_find_sample(dataset, sample, &time);
    return time + steps * dataset->options.dt < stretch->times;
}

bool vt_dataset_date(const vt_dataset *dataset, int64_t sample, vt_date *date)
{
    int64_t time;
    if (dataset->options.synthetic) return false;
    const vt_set_stretch *stretch = vt_dataset_find_sample(dataset, sample, &time);
    const vt_set_piece *piece = vt_dataset_piece(dataset, stretch, time);
    *date = vt_date_after(piece->date, (time - piece->first) * vt_dataset_minutes_a_time(dataset));
    return piece->dated;
}

int64_t vt_dataset_minutes_a_time(const vt_dataset *dataset)
{
    return dataset->minutes_a_time > 0 ? dataset->minutes_a_time : 60 * VT_HOURS_A_TIME;
}

vt_status vt_dataset_read_later(vt_dataset *dataset, int64_t sample, int64_t steps, float *fields)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &dataset->options;
    const vt_frame_window window = vt_dataset_own_window(dataset);
    vt_fields_file *file = NULL;
    int64_t time;
    const vt_set_stretch *stretch = vt_dataset_find_sample(dataset, sample, &time);
    VT_ASSERT(vt_dataset_reaches(dataset, sample, steps));
    time += steps * options->dt;
    const vt_set_piece *piece = vt_dataset_piece(dataset, stretch, time);
    VT_TRY(vt_dataset_use_file(dataset, piece->file, &file));
    VT_TRY(vt_fields_file_read_window(file, piece->first_time + time - piece->first, options->out_channels, &window,
                                      fields));
done:
    return status;
}

vt_status vt_dataset_read(vt_dataset *dataset, int64_t sample, float *input, float *target)
{
    vt_status status = VT_OK;
    VT_TRY(plan_samples(dataset, &sample, 1, true, input, target, dataset->plan));
    for (int64_t i = 0; i < ((const vt_read_plan *)dataset->plan)->item_count && status == VT_OK; i++)
        status = vt_fields_plan_run(dataset->plan, i, &dataset->decoder);
    vt_dataset_release(dataset, dataset->plan);
done:
    return status;
}

vt_status vt_dataset_check(vt_dataset *dataset, int64_t sample)
{
    const vt_dataset_options *options = &dataset->options;
    const int64_t points = options->rows * options->width;
    if (!options->unchecked) return VT_OK;
    float *values = vt_allocate((size_t)((options->in_channels + options->out_channels) * points), sizeof *values,
                                "a sample that is read again");
    vt_status status = vt_dataset_read(dataset, sample, values, values + options->in_channels * points);
    free(values);
    return status;
}

/* ---- frames ---- */

int64_t vt_dataset_frame_count(const vt_dataset *dataset)
{
    return dataset->source.frame_count;
}

void vt_dataset_frames(const vt_dataset *dataset, int64_t sample, int64_t *frames)
{
    int64_t time;
    const vt_dataset_options *options = &dataset->options;
    const vt_set_stretch *stretch = vt_dataset_find_sample(dataset, sample, &time);
    const int64_t frame = stretch->first_frame + time;
    for (int64_t back = 0; back <= options->history; back++) frames[back] = frame - back * options->dt;
    frames[options->history + 1] = frame + options->dt;
}

int64_t vt_dataset_frame_channels(const vt_dataset *dataset)
{
    const int64_t in = vt_dataset_window_channels(&dataset->options), out = dataset->options.out_channels;
    return in > out ? in : out;
}

vt_status vt_dataset_read_frame(vt_dataset *dataset, int64_t index, float *values)
{
    vt_status status = VT_OK;
    const vt_frame_window window = vt_dataset_own_window(dataset);
    const vt_read_manner manner = manner_of(dataset, true);
    vt_fields_plan *plan = dataset->plan;
    VT_ASSERT(index >= 0 && index < dataset->source.frame_count);
    const vt_set_stretch *stretch = &dataset->stretches[dataset->stretch_count - 1];
    while (stretch->first_frame > index) stretch--;
    vt_frame frame = {.channels = vt_dataset_frame_channels(dataset), .values = values};
    pthread_mutex_lock(&dataset->lock);
    vt_fields_plan_clear(plan);
    status = add_frame(dataset, stretch, index - stretch->first_frame, &frame, plan);
    if (status == VT_OK) status = vt_fields_plan_make(plan, &window, &manner);
    pthread_mutex_unlock(&dataset->lock);
    for (int64_t i = 0; i < ((const vt_read_plan *)plan)->item_count && status == VT_OK; i++)
        status = vt_fields_plan_run(plan, i, &dataset->decoder);
    vt_dataset_release(dataset, plan);
    return status;
}

vt_status vt_dataset_keep_frames(vt_dataset *dataset)
{
    const int64_t floats = vt_dataset_frame_channels(dataset) * dataset->options.rows * dataset->options.width;
    if (dataset->source.frame_count == 0 || dataset->kept != NULL) return VT_OK;
    return vt_frame_cache_open(dataset->source.frame_count, floats, &dataset->kept);
}

int64_t vt_dataset_kept_frames(vt_dataset *dataset)
{
    pthread_mutex_lock(&dataset->lock);
    const int64_t kept = dataset->kept != NULL ? dataset->kept->kept : 0;
    pthread_mutex_unlock(&dataset->lock);
    return kept;
}
