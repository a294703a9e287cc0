/* Samples: which times of which file they are, and reading them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/fields/dataset_inside.h"

void vt_dataset_describe(const vt_source *source, int64_t sample, char *buffer, int64_t size)
{
    const vt_dataset *dataset = (const vt_dataset *)source;
    int64_t time;
    const vt_set_stretch *stretch = vt_index_sample(&dataset->index, sample, &time);
    const vt_set_piece *piece = vt_index_piece(&dataset->index, stretch, time, &time);
    snprintf(buffer, (size_t)size, "%s, time %ld", vt_file_list_path(&dataset->reading.list, piece->file), time);
}

/* ---- reading ---- */

/* Adds the fields of time `time` of a stretch to the plan. as_stored: as the files have them, read again in any case.
 */
static vt_status add_frame(vt_dataset *dataset, const vt_set_stretch *stretch, int64_t time, bool as_stored,
                           vt_frame frame, vt_read_plan *plan)
{
    const int64_t points = dataset->options.rows * dataset->options.width;
    frame.file = vt_index_piece(&dataset->index, stretch, time, &frame.time)->file;
    vt_index_date(&dataset->index, stretch, time, &frame.date);
    return vt_fields_reading_add(&dataset->reading, plan, frame, as_stored ? -1 : stretch->first_frame + time, points);
}

/* Steps of forecast whose targets the plan reads. */
static int64_t steps_of(const vt_read_plan *plan)
{
    return plan->steps > 0 ? plan->steps : 1;
}

static vt_status add_frames(vt_dataset *dataset, int64_t sample, int64_t place, float *input, float *target,
                            float *forcings, vt_read_plan *plan)
{
    vt_status status = VT_OK;
    const vt_dataset_options *options = &dataset->options;
    const int64_t channels = vt_dataset_window_channels(options), points = options->rows * options->width;
    const int64_t size = channels * points, target_size = options->out_channels * points;
    int64_t time;
    const vt_set_stretch *stretch = vt_index_sample(&dataset->index, sample, &time);
    vt_frame frame = {.sample = place};
    for (int64_t back = -steps_of(plan); back <= options->history; back++) {
        if ((back < 0 ? target : input) == NULL) continue;
        frame.channels = back < 0 ? options->out_channels : channels;
        frame.values = back < 0 ? target - (back + 1) * target_size : input + back * size;
        VT_TRY(add_frame(dataset, stretch, time - back * options->dt, false, frame, plan));
    }
    for (int64_t step = 0; step < steps_of(plan) && forcings != NULL; step++) {
        float *fields = forcings + step * vt_dataset_forcings(options) * points;
        vt_date date;
        vt_index_date(&dataset->index, stretch, time + step * options->dt, &date);
        if (dataset->known != NULL) vt_fields_plan_add_known(plan, dataset->known, date, fields);
        if (options->forcing_channels == 0) continue;
        frame.first = vt_dataset_first_forcing(options);
        frame.channels = options->forcing_channels;
        frame.values = fields + vt_known_count(&options->known) * points;
        VT_TRY(add_frame(dataset, stretch, time + step * options->dt, false, frame, plan));
    }
done:
    return status;
}

/* What the plan asks for becomes items, if `added` says that all was added; unlocks. */
static vt_status finish_plan(vt_dataset *dataset, bool checked, bool as_stored, vt_read_plan *plan, vt_status added)
{
    vt_frame_window window = dataset->about->window;
    window.first_row += dataset->options.first_row;
    window.rows = dataset->options.rows;
    const vt_read_manner manner = {.direct = dataset->options.direct,
                                   .tolerant = dataset->options.tolerant,
                                   .checked = checked,
                                   .transforms = as_stored ? NULL : dataset->transforms,
                                   .departures = as_stored ? NULL : dataset->seasonal,
                                   .cache = &dataset->reading.chunks};
    return vt_fields_reading_finish(&dataset->reading, plan, &window, &manner, added);
}

static vt_status plan_samples(vt_read_plan *plan, const int64_t *samples, int64_t count, bool checked, float *input,
                              float *target, float *forcings)
{
    vt_status status = VT_OK;
    vt_dataset *dataset = (vt_dataset *)plan->source;
    const vt_dataset_options *options = &dataset->options;
    const int64_t points = options->rows * options->width;
    const int64_t forced = options->targets * vt_dataset_forcings(options) * points;
    vt_fields_reading_lock(&dataset->reading, plan);
    for (int64_t i = 0; i < count && status == VT_OK; i++)
        status = add_frames(dataset, samples[i], i, input != NULL ? input + i * options->in_channels * points : NULL,
                            target != NULL ? target + i * options->targets * options->out_channels * points : NULL,
                            forcings != NULL ? forcings + i * forced : NULL, plan);
    return finish_plan(dataset, checked, false, plan, status);
}

vt_status vt_dataset_plan(vt_read_plan *plan, const int64_t *samples, int64_t count, void *const *tensors)
{
    const vt_dataset *dataset = (const vt_dataset *)plan->source;
    return plan_samples(plan, samples, count, !dataset->options.unchecked || dataset->reading.kept_states != NULL,
                        tensors[VT_TENSOR_INPUT], tensors[VT_TENSOR_TARGET],
                        vt_dataset_forcings(&dataset->options) > 0 ? tensors[VT_TENSOR_FORCINGS] : NULL);
}

void vt_dataset_release(vt_read_plan *plan)
{
    vt_fields_reading_release(&((vt_dataset *)plan->source)->reading, plan);
}

/* Reads one frame by itself, of time `time` of a stretch. */
static vt_status read_frame(vt_dataset *dataset, const vt_set_stretch *stretch, int64_t time, bool as_stored,
                            vt_frame frame)
{
    vt_status status = VT_OK;
    vt_fields_reading *reading = &dataset->reading;
    vt_fields_reading_lock(reading, reading->plan);
    status = add_frame(dataset, stretch, time, as_stored, frame, reading->plan);
    VT_TRY(finish_plan(dataset, true, as_stored, reading->plan, status));
    VT_TRY(vt_fields_reading_run(reading));
done:
    return status;
}

vt_status vt_dataset_open_file(vt_dataset *dataset, int64_t sample, vt_fields_file **file)
{
    int64_t time;
    const vt_set_stretch *stretch = vt_index_sample(&dataset->index, sample, &time);
    return vt_fields_reading_use(&dataset->reading, vt_index_piece(&dataset->index, stretch, time, &time)->file, file);
}

bool vt_dataset_reaches(const vt_dataset *dataset, int64_t sample, int64_t steps)
{
    int64_t time;
    const vt_set_stretch *stretch = vt_index_sample(&dataset->index, sample, &time);
    return time + steps * dataset->options.dt < stretch->times;
}

bool vt_dataset_date(const vt_dataset *dataset, int64_t sample, int64_t steps, vt_date *date)
{
    int64_t time;
    if (dataset->options.synthetic) return false;
    const vt_set_stretch *stretch = vt_index_sample(&dataset->index, sample, &time);
    return vt_index_date(&dataset->index, stretch, time + steps * dataset->options.dt, date);
}

int64_t vt_dataset_find(const vt_dataset *dataset, vt_date wanted, int64_t from)
{
    const int64_t samples = dataset->source.sample_count, step = vt_index_minutes(&dataset->index);
    vt_date date;
    for (int64_t i = 0; i < samples; i++) {
        const int64_t sample = (from + i) % samples;
        if (vt_dataset_date(dataset, sample, 0, &date) && vt_date_steps(date, wanted, step) == 0) return sample;
    }
    return -1;
}

vt_status vt_dataset_read_later(vt_dataset *dataset, int64_t sample, int64_t steps, float *fields)
{
    int64_t time;
    const vt_set_stretch *stretch = vt_index_sample(&dataset->index, sample, &time);
    VT_ASSERT(vt_dataset_reaches(dataset, sample, steps));
    const vt_frame frame = {.channels = dataset->options.out_channels, .values = fields};
    return read_frame(dataset, stretch, time + steps * dataset->options.dt, true, frame);
}

vt_status vt_dataset_read_forcings(vt_dataset *dataset, int64_t sample, int64_t steps, float *fields)
{
    int64_t time;
    const vt_set_stretch *stretch = vt_index_sample(&dataset->index, sample, &time);
    const vt_frame frame = {.first = vt_dataset_first_forcing(&dataset->options),
                            .channels = dataset->options.forcing_channels,
                            .values = fields};
    VT_ASSERT(vt_dataset_reaches(dataset, sample, steps));
    return read_frame(dataset, stretch, time + steps * dataset->options.dt, false, frame);
}

vt_status vt_dataset_read(vt_dataset *dataset, int64_t sample, float *input, float *target)
{
    const vt_status status = plan_samples(dataset->reading.plan, &sample, 1, true, input, target, NULL);
    return status == VT_OK ? vt_fields_reading_run(&dataset->reading) : status;
}

vt_status vt_dataset_check(vt_source *source, int64_t sample)
{
    vt_dataset *dataset = (vt_dataset *)source;
    const vt_dataset_options *options = &dataset->options;
    const int64_t points = options->rows * options->width;
    if (!options->unchecked) return VT_OK;
    vt_read_plan *plan = dataset->reading.plan;
    const int64_t input = options->in_channels * points, target = options->reach * options->out_channels * points;
    const int64_t forcings = options->reach * vt_dataset_forcings(options) * points;
    float *values = vt_allocate((size_t)(input + target + forcings), sizeof *values, "a sample that is read again");
    plan->steps = options->reach;
    vt_status status =
        plan_samples(plan, &sample, 1, true, values, values + input, forcings > 0 ? values + input + target : NULL);
    if (status == VT_OK) status = vt_fields_reading_run(&dataset->reading);
    plan->steps = 0;
    free(values);
    return status;
}

/* ---- frames ---- */

/* The known fields of step `step` of forecast, of which those that lie side by side are one piece. Returns how many. */
static int64_t add_known_pieces(const vt_dataset *dataset, int64_t frame, vt_sample_piece *list)
{
    const vt_dataset_options *options = &dataset->options;
    const size_t plane = (size_t)(options->rows * options->width) * sizeof(float);
    int64_t count = 0, place;
    for (int64_t field = 0; field < vt_known_count(&options->known); field++) {
        const bool changes = vt_known_field_changes(&options->known, field, &place);
        const int64_t channel = place + (changes ? vt_dataset_frame_channels(dataset) : 0);
        const vt_sample_piece own = {changes ? frame : dataset->index.frames, VT_TENSOR_FORCINGS,
                                     (size_t)channel * plane, plane};
        vt_sample_piece *before = list + count - 1;
        if (count > 0 && before->frame == own.frame && before->offset + before->bytes == own.offset)
            before->bytes += plane;
        else
            list[count++] = own;
    }
    return count;
}

/* The newest time of the input comes first. */
int64_t vt_dataset_pieces(const vt_source *source, int64_t sample, int64_t steps, vt_sample_piece *list)
{
    const vt_dataset *dataset = (const vt_dataset *)source;
    const vt_dataset_options *options = &dataset->options;
    const size_t plane = (size_t)(options->rows * options->width) * sizeof(float);
    int64_t time;
    const vt_set_stretch *stretch = vt_index_sample(&dataset->index, sample, &time);
    const int64_t frame = stretch->first_frame + time;
    for (int64_t back = 0; back <= options->history; back++)
        list[back] = (vt_sample_piece){frame - back * options->dt, VT_TENSOR_INPUT, 0,
                                       (size_t)vt_dataset_window_channels(options) * plane};
    const int64_t targets = steps > 0 ? steps : 1;
    int64_t count = options->history + 1;
    for (int64_t step = 1; step <= targets; step++)
        list[count++] =
            (vt_sample_piece){frame + step * options->dt, VT_TENSOR_TARGET, 0, (size_t)options->out_channels * plane};
    for (int64_t step = 0; step < targets; step++) {
        const int64_t of_step = frame + step * options->dt, first = vt_dataset_first_forcing(options);
        if (options->known_in_frames) count += add_known_pieces(dataset, of_step, list + count);
        if (options->forcing_channels > 0)
            list[count++] = (vt_sample_piece){of_step, VT_TENSOR_FORCINGS, (size_t)first * plane,
                                              (size_t)options->forcing_channels * plane};
    }
    return count;
}

int64_t vt_dataset_frame_channels(const vt_dataset *dataset)
{
    return vt_dataset_first_forcing(&dataset->options) + dataset->options.forcing_channels;
}

vt_status vt_dataset_read_frame(vt_source *source, int64_t index, void *values)
{
    vt_dataset *dataset = (vt_dataset *)source;
    const vt_dataset_options *options = &dataset->options;
    const int64_t points = options->rows * options->width;
    VT_ASSERT(index >= 0 && index < source->frame_count);
    if (index == dataset->index.frames) { /* behind the times: what doesn't change */
        const size_t bytes = (size_t)(vt_known_fixed_count(&options->known) * points) * sizeof(float);
        memcpy(values, vt_known_fields_fixed(dataset->known), bytes);
        return VT_OK;
    }
    const vt_set_stretch *stretch = vt_index_frame(&dataset->index, index);
    const vt_frame frame = {.channels = vt_dataset_frame_channels(dataset), .values = values};
    const vt_status status = read_frame(dataset, stretch, index - stretch->first_frame, false, frame);
    if (status == VT_OK && dataset->known != NULL && options->known_in_frames) {
        vt_date date;
        vt_index_date(&dataset->index, stretch, index - stretch->first_frame, &date);
        vt_known_fields_take(dataset->known, date, true, (float *)values + frame.channels * points);
    }
    return status;
}

vt_status vt_dataset_keep_frames(vt_source *source)
{
    vt_status status = VT_OK;
    vt_dataset *dataset = (vt_dataset *)source;
    vt_fields_reading *reading = &dataset->reading;
    const int64_t floats = vt_dataset_frame_channels(dataset) * dataset->options.rows * dataset->options.width;
    const size_t frames = (size_t)dataset->index.frames, bytes = frames * (size_t)floats * sizeof(float);
    char size[VT_NUMBER_SIZE];
    if (frames == 0 || reading->kept_states != NULL) return VT_OK;
    reading->kept_values = vt_allocate_large(bytes);
    VT_CHECK(reading->kept_values != NULL, "no memory for the cache (%s)", vt_text_bytes((double)bytes, size));
    reading->kept_states = vt_allocate(frames, 1, "the cache");
    reading->kept_floats = floats;
done:
    return status;
}
