/* Reading through the store's own library, and one time by itself. */
#include <math.h>
#include <stdio.h>

#include "source/fields/read_plan_inside.h"

vt_status vt_fields_not_finite(const vt_fields_file *file, int64_t time, int64_t channel, int64_t row, int64_t column,
                               int64_t width, const float *values, int64_t count)
{
    vt_status status = VT_OK;
    const vt_field_source *source = &file->sources[file->channels[channel].source];
    const char *name = file->channel_names != NULL ? file->channel_names[channel] : "";
    int64_t i = 0;
    while (i < count && (fabsf(values[i]) <= VT_LARGEST_VALUE || (isnan(values[i]) && file->masked))) i++;
    if (i == count) goto done;
    char large[48];
    snprintf(large, sizeof large, "%g, which is no data,", (double)values[i]);
    const char *what = isfinite(values[i])                 ? large
                       : !isnan(values[i])                 ? "infinite"
                       : source->packing.has_limits        ? "NaN, missing (_FillValue) or outside its valid_range"
                       : source->packing.missing_count > 0 ? "NaN or missing (_FillValue)"
                                                           : "NaN";
    VT_FAIL("%s: '%s' is %s at time %lld, channel %lld%s%s%s, row %lld, column %lld; the training needs finite values "
            "everywhere%s",
            source->part->path, source->name, what, (long long)time, (long long)channel, name[0] != '\0' ? " (" : "",
            name, name[0] != '\0' ? ")" : "", (long long)(row + i / width), (long long)(column + i % width),
            isnan(values[i]) ? ", unless --missing=mask leaves out what is missing" : "");
done:
    return status;
}

vt_status vt_field_source_read(const vt_field_source *source, const int64_t start[4], const int64_t count[4],
                               void *memory)
{
    int64_t first[4], size[4];
    vt_field_own_dimensions(source, start, first);
    vt_field_own_dimensions(source, count, size);
    if (source->part->kind->read(source->array, first, size, false, memory) == VT_OK) return VT_OK;
    return vt_error_context("%s: can't read '%s' at time %lld (damaged or cut short?)", source->part->path,
                            source->name, (long long)start[0]);
}

vt_status vt_fields_file_read(vt_fields_file *file, int64_t time, int64_t channels, const vt_frame_window *window,
                              bool checked, float *values)
{
    const vt_frame frame = {
        .opened = file, .time = vt_fields_stored_time(file->stored, time), .channels = channels, .values = values};
    const vt_read_manner manner = {.tolerant = true, .as_is = !checked};
    vt_decoder decoder = {0};
    VT_ASSERT(time >= 0 && time < file->shape.times && channels <= file->shape.channels && window->first_row >= 0 &&
              window->rows > 0 && window->first_row + window->rows <= file->shape.height &&
              window->width <= file->shape.width);
    const vt_status status = vt_fields_read_alone(&frame, window, &manner, &decoder);
    vt_decoder_close(&decoder);
    return status;
}
