/* Reading through the store's own library. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/fields/fields_inside.h"

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

/* What one read takes from a source. Rows are the file's. */
typedef struct {
    int64_t time, first_level, levels, first_row, rows, width, first_column;
} window;

static vt_status read_window(const vt_field_source *source, const window *w, void *memory)
{
    int64_t start[4] = {w->time, w->first_level, w->first_row, w->first_column};
    int64_t count[4] = {1, w->levels, w->rows, w->width};
    const int skipped = 4 - source->rank; /* dimensions: an array of rank 3 has no levels */
    start[skipped] = w->time;
    count[skipped] = 1;
    if (source->part->kind->read(source->array, start + skipped, count + skipped, false, memory) == VT_OK) return VT_OK;
    return vt_error_context("%s: can't read '%s' at time %lld (damaged or cut short?)", source->part->path,
                            source->name, (long long)w->time);
}

/* The library's elements become float32, north first. */
static void unpack_window(const vt_field_source *source, const window *w, char *memory, float *values)
{
    vt_packing packing = source->packing;
    packing.swapped = false;
    const int64_t row_bytes = w->width * vt_element_size(packing.element), rows = w->levels * w->rows;
    for (int64_t i = 0; i < rows; i++) {
        int64_t level = i / w->rows, row = i % w->rows;
        int64_t to = source->south_first ? level * w->rows + w->rows - 1 - row : i;
        vt_unpack(&packing, memory + i * row_bytes, w->width, values + to * w->width);
    }
}

static vt_status read_levels(const vt_fields_file *file, const window *wanted, int64_t channel, bool checked,
                             float *values)
{
    vt_status status = VT_OK;
    const vt_field_source *source = &file->sources[file->channels[channel].source];
    const int64_t plane = wanted->rows * wanted->width;
    window w = *wanted;
    char *memory = NULL;
    vt_packing packing = source->packing;
    packing.swapped = false; /* the library turns them */
    if (source->south_first) w.first_row = source->extent[2] - w.first_row - w.rows;
    if (vt_packing_is_plain(&packing) && !source->south_first) {
        VT_TRY(read_window(source, &w, values));
    } else {
        memory = malloc((size_t)(w.levels * plane * vt_element_size(packing.element)));
        VT_CHECK(memory != NULL, "out of memory for a time of %s", source->part->path);
        VT_TRY(read_window(source, &w, memory));
        unpack_window(source, &w, memory, values);
    }
    for (int64_t l = 0; l < w.levels && checked; l++)
        if (!vt_all_finite(values + l * plane, plane))
            VT_TRY(vt_fields_not_finite(file, w.time, channel + l, wanted->first_row, w.first_column, w.width,
                                        values + l * plane, plane));
done:
    free(memory);
    return status;
}

vt_status vt_fields_file_read(const vt_fields_file *file, int64_t time, int64_t channels, const vt_frame_window *part,
                              bool checked, float *values)
{
    vt_status status = VT_OK;
    vt_column_span spans[2];
    const int count = vt_window_spans(part, spans);
    const int64_t rows = part->rows, width = part->width;
    float *memory = NULL; /* of one span of several */
    VT_ASSERT(time >= 0 && time < file->shape.times && channels <= file->shape.channels && part->first_row >= 0 &&
              rows > 0 && part->first_row + rows <= file->shape.height && width <= file->shape.width);
    if (count > 1) memory = vt_allocate((size_t)(rows * width), sizeof *memory, "a window of fields");
    for (int64_t c = 0, run = 1; c < channels; c += run) {
        const int source = file->channels[c].source;
        const int64_t level = file->channels[c].level;
        float *place = values + c * rows * width;
        for (run = 1; count == 1 && c + run < channels; run++) /* channels that lie side by side, in one read */
            if (file->channels[c + run].source != source || file->channels[c + run].level != level + run) break;
        for (int s = 0; s < count; s++) {
            const window w = {time, level, run, part->first_row, rows, spans[s].count, spans[s].first};
            VT_TRY(read_levels(file, &w, c, checked, memory != NULL ? memory : place));
            for (int64_t row = 0; row < rows && memory != NULL; row++)
                memcpy(place + row * width + spans[s].at, memory + row * spans[s].count,
                       (size_t)spans[s].count * sizeof *place);
        }
    }
done:
    free(memory);
    return status;
}
