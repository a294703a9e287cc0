#include "source/fields/seasonal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "storage/output_file.h"
#include "storage/tensor_file.h"

void vt_seasonal_basis(vt_date date, int64_t harmonics, double *basis)
{
    const double angle = 2 * M_PI * vt_date_of_year(date);
    basis[0] = 1;
    for (int64_t h = 1; h <= harmonics; h++) {
        basis[2 * h - 1] = cos((double)h * angle);
        basis[2 * h] = sin((double)h * angle);
    }
}

/* ---- what the file says ---- */

char *vt_seasonal_terms(int64_t harmonics, int64_t times_of_day, int64_t minutes)
{
    vt_text text = {0};
    vt_text_append(&text, "a mean");
    if (harmonics > 0) vt_text_append(&text, " and %ld harmonic%s of the year", harmonics, harmonics > 1 ? "s" : "");
    if (minutes == VT_SEASONAL_ANY_TIME)
        vt_text_append(&text, " for any time of day");
    else
        vt_text_append(&text, " for %s%ld time%s of day", times_of_day > 1 ? "each of " : "", times_of_day,
                       times_of_day > 1 ? "s" : "");
    return text.characters;
}

static vt_status read_checksum(vt_tensor_file *file, int64_t *checksum)
{
    *checksum = -1;
    return vt_tensor_file_has(file, "crc32c") ? vt_tensor_file_get_integer(file, "crc32c", checksum) : VT_OK;
}

vt_status vt_seasonal_checksum(const char *path, int64_t *checksum)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    VT_TRY(vt_tensor_file_open(path, &file));
    VT_TRY(read_checksum(file, checksum));
done:
    vt_tensor_file_close(&file);
    return status;
}

static vt_status read_head(vt_tensor_file *file, vt_seasonal *seasonal)
{
    vt_status status = VT_OK;
    char *format = NULL, *first = NULL, *last = NULL, *terms = NULL;
    int64_t times = 0;
    seasonal->slots = VT_SEASONAL_SLOTS;
    if (vt_tensor_file_has(file, "format")) VT_TRY(vt_tensor_file_get_text(file, "format", &format));
    VT_CHECK(format != NULL && strcmp(format, VT_SEASONAL_FORMAT) == 0,
             "climatology_path: %s holds no seasonal climatology that this program reads (its format is '%s', expected "
             "'%s'); make it again with `vitrain stats`",
             seasonal->path, format != NULL ? format : "", VT_SEASONAL_FORMAT);
    VT_TRY(vt_tensor_file_get_integer(file, "harmonics", &seasonal->harmonics));
    VT_TRY(vt_tensor_file_get_integers(file, "minutes_of_day", &seasonal->slots, seasonal->minutes));
    VT_TRY(vt_tensor_file_get_integer(file, "times", &times));
    VT_TRY(vt_tensor_file_get_text(file, "first", &first));
    VT_TRY(vt_tensor_file_get_text(file, "last", &last));
    VT_CHECK(seasonal->harmonics >= 0 && seasonal->harmonics <= VT_SEASONAL_HARMONICS,
             "climatology_path: %s has %ld harmonics, expected 0 to %d; make it again with `vitrain stats`",
             seasonal->path, seasonal->harmonics, VT_SEASONAL_HARMONICS);
    terms = vt_seasonal_terms(seasonal->harmonics, seasonal->slots, seasonal->minutes[0]);
    seasonal->description = vt_text_format("%s, fitted to %ld times, %s to %s", terms, times, first, last);
    VT_TRY(read_checksum(file, &seasonal->checksum));
    if (vt_tensor_file_has(file, "about")) VT_TRY(vt_tensor_file_get_text(file, "about", &seasonal->about));
done:
    free(format);
    free(first);
    free(last);
    free(terms);
    return status;
}

/* The place of a name among lines; -1: it is none of them. */
static int64_t place_of(const char *lines, const char *name)
{
    int64_t place = 0;
    for (const char *line = lines; *line != '\0'; place++) {
        const size_t length = strcspn(line, "\n");
        if (strlen(name) == length && strncmp(line, name, length) == 0) return place;
        line += length + (line[length] == '\n');
    }
    return -1;
}

/* Where the file has the data's channels, by their names, as far as both are known. */
static vt_status find_order(vt_tensor_file *file, const vt_seasonal *seasonal, const vt_fields_about *data,
                            int64_t *order)
{
    vt_status status = VT_OK;
    char *names = NULL;
    for (int64_t c = 0; c < seasonal->channels; c++) order[c] = c;
    if (data->names == NULL || !vt_tensor_file_has(file, "channels")) return VT_OK;
    VT_TRY(vt_tensor_file_get_text(file, "channels", &names));
    for (int64_t c = 0; c < seasonal->channels; c++) {
        if (data->names[c][0] == '\0') continue;
        order[c] = place_of(names, data->names[c]);
        VT_CHECK(order[c] >= 0,
                 "climatology_path: %s has no channel '%s', which the data have; make it again with `vitrain stats`",
                 seasonal->path, data->names[c]);
    }
done:
    free(names);
    return status;
}

/* ---- the grid ---- */

/* A window of all columns that begins at another one than the grid: does the file begin as the window does? */
static bool begins_as_window(vt_tensor_file *file, const vt_fields_about *data)
{
    float first = 0;
    const vt_tensor_box box = {.first = {0}, .shape = {1, {1}}};
    if (data->window.first_column == 0 || data->longitudes == NULL) return data->window.first_column == 0;
    if (vt_tensor_file_read_box(file, "lon", &box, &first) != VT_OK) vt_error_clear();
    return fabs(remainder((double)first - data->longitudes[data->window.first_column], 360)) <= 1e-3;
}

/* Finds the part of the file that is the data's window. *columns: of the file. */
static vt_status find_part(vt_tensor_file *file, const vt_seasonal *seasonal, const vt_fields_about *data,
                           vt_frame_window *part, int64_t *columns)
{
    vt_status status = VT_OK;
    const vt_frame_window *window = &data->window;
    vt_tensor_shape shape;
    char found[128];
    VT_TRY(vt_tensor_file_shape(file, "coefficients", &shape));
    vt_tensor_shape_text(&shape, found);
    const bool fits =
        shape.dimensions == 5 && shape.shape[0] == seasonal->slots && shape.shape[1] == 1 + 2 * seasonal->harmonics;
    VT_CHECK(fits && shape.shape[2] >= seasonal->channels,
             "climatology_path: /coefficients of %s is %s, expected [%ld, %ld, C, rows, columns] with C at least "
             "%ld, the channels in use; make it again with `vitrain stats`",
             seasonal->path, found, seasonal->slots, 1 + 2 * seasonal->harmonics, seasonal->channels);
    const bool is_window = shape.shape[3] == window->rows && shape.shape[4] == window->width;
    const bool is_grid = shape.shape[3] == data->rows && shape.shape[4] == data->columns;
    VT_CHECK(is_window || is_grid,
             "climatology_path: %s is of a grid of [%ld, %ld], neither the window [%ld, %ld] nor the grid [%ld, "
             "%ld] of the data; make it again with `vitrain stats`",
             seasonal->path, shape.shape[3], shape.shape[4], window->rows, window->width, data->rows, data->columns);
    const bool cut = is_grid && !(is_window && begins_as_window(file, data));
    *part = cut ? *window : (vt_frame_window){.rows = window->rows, .width = window->width};
    *columns = shape.shape[4];
done:
    return status;
}

/* Latitudes (axis 0) or longitudes of the file beside those of the data. */
static vt_status check_coordinate(vt_tensor_file *file, const char *path, const vt_fields_about *data,
                                  const vt_frame_window *part, int axis)
{
    vt_status status = VT_OK;
    const char *name = axis == 0 ? "lat" : "lon";
    const int64_t count = axis == 0 ? part->rows : part->width;
    double *expected = vt_fields_about_coordinates(data, axis == 1);
    float *values = NULL;
    vt_tensor_shape shape;
    if (expected == NULL) goto done;
    if (vt_tensor_file_shape(file, name, &shape) != VT_OK) { /* it is not known there */
        vt_error_clear();
        goto done;
    }
    const int64_t there = vt_tensor_count(&shape);
    values = vt_allocate((size_t)there + 1, sizeof *values, "the climatology");
    VT_TRY(vt_tensor_file_read(file, name, &shape, values));
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = axis == 0 ? part->first_row + i : vt_window_column(part, i);
        const double value = (double)values[place % there];
        const double apart = fabs(axis == 0 ? value - expected[i] : remainder(value - expected[i], 360));
        VT_CHECK(apart <= 1e-3,
                 "climatology_path: %s is of another grid: its %s %ld is at %g degrees, that of the data at %g; make "
                 "it again with `vitrain stats`",
                 path, axis == 0 ? "row" : "column", i, value, expected[i]);
    }
done:
    free(expected);
    free(values);
    return status;
}

/* ---- reading ---- */

/* Reads whole rows of the file and keeps the columns of `part`, which may go round the globe. */
static vt_status read_coefficients(vt_tensor_file *file, vt_seasonal *seasonal, bool of_values, const int64_t *order,
                                   const vt_frame_window *part, int64_t columns)
{
    vt_status status = VT_OK;
    static const char values_name[] = "value_coefficients";
    const int64_t basis = 1 + 2 * seasonal->harmonics, channels = seasonal->channels;
    const int64_t fields = seasonal->slots * basis * channels;
    vt_tensor_shape shape;
    vt_column_span spans[2];
    const int span_count = vt_window_spans(part, spans);
    of_values = of_values && vt_tensor_file_shape(file, values_name, &shape) == VT_OK;
    if (!of_values) vt_error_clear();
    float *to = seasonal->coefficients = malloc((size_t)(fields * seasonal->points) * sizeof *to);
    float *values = malloc((size_t)(part->rows * columns) * sizeof *values);
    VT_CHECK(to != NULL && values != NULL, "out of memory for the climatology of %s", seasonal->path);
    for (int64_t i = 0; i < fields; i++) {
        const int64_t of = i / channels;
        const vt_tensor_box box = {.first = {of / basis, of % basis, order[i % channels], part->first_row, 0},
                                   .shape = {5, {1, 1, 1, part->rows, columns}}};
        VT_TRY(vt_tensor_file_read_box(file, of_values ? values_name : "coefficients", &box, values));
        for (int64_t row = 0; row < part->rows; row++, to += part->width)
            for (int s = 0; s < span_count; s++)
                memcpy(to + spans[s].at, values + row * columns + spans[s].first, (size_t)spans[s].count * sizeof *to);
    }
done:
    free(values);
    return status;
}

static vt_status read_stds(vt_tensor_file *file, const vt_seasonal *seasonal, const int64_t *order, const char *name,
                           float **stds)
{
    vt_status status = VT_OK;
    vt_tensor_shape shape;
    float *all = NULL;
    VT_TRY(vt_tensor_file_shape(file, name, &shape));
    for (int64_t c = 0; c < seasonal->channels; c++)
        VT_CHECK(shape.dimensions == 1 && order[c] < shape.shape[0],
                 "climatology_path: /%s of %s has no value for each channel; make it again with `vitrain stats`", name,
                 seasonal->path);
    all = vt_allocate((size_t)shape.shape[0], sizeof *all, "the climatology");
    *stds = vt_allocate((size_t)seasonal->channels, sizeof **stds, "the climatology");
    VT_TRY(vt_tensor_file_read(file, name, &shape, all));
    for (int64_t c = 0; c < seasonal->channels; c++) (*stds)[c] = all[order[c]];
done:
    free(all);
    return status;
}

static vt_status read_all(vt_tensor_file *file, vt_seasonal *seasonal, const vt_fields_about *data, vt_span rows,
                          bool of_values)
{
    vt_status status = VT_OK;
    vt_frame_window part = {0};
    vt_tensor_shape shape;
    int64_t columns = 0, *order = vt_allocate((size_t)seasonal->channels, sizeof *order, "the climatology");
    VT_TRY(read_head(file, seasonal));
    VT_TRY(find_order(file, seasonal, data, order));
    VT_TRY(find_part(file, seasonal, data, &part, &columns));
    VT_ASSERT(columns > 0);
    for (int axis = 0; axis < 2; axis++) VT_TRY(check_coordinate(file, seasonal->path, data, &part, axis));
    part.first_row += rows.first;
    part.rows = rows.count;
    VT_TRY(read_coefficients(file, seasonal, of_values, order, &part, columns));
    VT_TRY(read_stds(file, seasonal, order, "departure_stds", &seasonal->departure_stds));
    if (vt_tensor_file_shape(file, "departure_change_stds", &shape) != VT_OK)
        vt_error_clear(); /* there are no two times that are dt apart */
    else
        VT_TRY(read_stds(file, seasonal, order, "departure_change_stds", &seasonal->change_stds));
done:
    free(order);
    return status;
}

vt_status vt_seasonal_open(const char *path, const vt_fields_about *data, int64_t channels, vt_span rows,
                           bool of_values, vt_seasonal **result)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    vt_seasonal *seasonal = vt_allocate(1, sizeof *seasonal, "the climatology");
    *result = NULL;
    VT_ASSERT(rows.first >= 0 && rows.first + rows.count <= data->window.rows);
    seasonal->path = vt_text_copy(path);
    seasonal->channels = channels;
    seasonal->points = rows.count * data->window.width;
    VT_CHECK(vt_output_exists(path), "climatology_path: there is no %s; `vitrain stats` makes such a file", path);
    VT_TRY(vt_tensor_files_try(path));
    if (vt_tensor_file_open(path, &file) != VT_OK) {
        status = vt_error_context("climatology_path (`vitrain stats` makes such a file)");
        goto done;
    }
    VT_TRY(read_all(file, seasonal, data, rows, of_values));
    *result = seasonal;
    seasonal = NULL;
done:
    vt_tensor_file_close(&file);
    vt_seasonal_close(&seasonal);
    return status;
}

void vt_seasonal_close(vt_seasonal **pointer)
{
    vt_seasonal *seasonal = *pointer;
    if (seasonal == NULL) return;
    *pointer = NULL;
    free(seasonal->path);
    free(seasonal->description);
    free(seasonal->about);
    free(seasonal->coefficients);
    free(seasonal->departure_stds);
    free(seasonal->change_stds);
    free(seasonal);
}

/* ---- its values ---- */

/* The slot of a date's time of day, -1 where there is none. */
static int64_t find_slot(const vt_seasonal *seasonal, vt_date date)
{
    const int64_t minute = vt_date_of_day(date);
    for (int64_t s = 0; s < seasonal->slots; s++)
        if (seasonal->minutes[s] == minute || seasonal->minutes[s] == VT_SEASONAL_ANY_TIME) return s;
    return -1;
}

bool vt_seasonal_has(const vt_seasonal *seasonal, vt_date date)
{
    return find_slot(seasonal, date) >= 0;
}

vt_status vt_seasonal_check(const vt_seasonal *seasonal, vt_date date)
{
    vt_status status = VT_OK;
    char text[VT_DATE_SIZE];
    VT_CHECK(vt_seasonal_has(seasonal, date),
             "climatology_path: %s has no climatology for the time of day of %s; make it again with `vitrain stats` "
             "from files that have the times of day of this set",
             seasonal->path, vt_date_format(date, text));
done:
    return status;
}

void vt_seasonal_add(const vt_seasonal *seasonal, vt_date date, double factor, int64_t first, int64_t channels,
                     float *values)
{
    enum { TOGETHER = 512 };
    double basis[VT_SEASONAL_BASIS] = {0}, sums[TOGETHER];
    const int64_t terms = 1 + 2 * seasonal->harmonics, whole = seasonal->channels * seasonal->points;
    const int64_t count = channels * seasonal->points, slot = find_slot(seasonal, date);
    VT_ASSERT(slot >= 0 && first + channels <= seasonal->channels);
    vt_seasonal_basis(date, seasonal->harmonics, basis);
    const float *own = seasonal->coefficients + slot * terms * whole + first * seasonal->points;
    for (int64_t done = 0; done < count; done += TOGETHER) {
        const float *coefficients = own + done;
        const int64_t some = count - done < TOGETHER ? count - done : TOGETHER;
        for (int64_t i = 0; i < some; i++) sums[i] = 0;
        for (int64_t k = 0; k < terms; k++, coefficients += whole)
            for (int64_t i = 0; i < some; i++) sums[i] += basis[k] * (double)coefficients[i];
        for (int64_t i = 0; i < some; i++) values[done + i] = (float)((double)values[done + i] + factor * sums[i]);
    }
}

vt_status vt_seasonal_at(const vt_seasonal *seasonal, vt_date date, float *values)
{
    vt_status status = VT_OK;
    VT_TRY(vt_seasonal_check(seasonal, date));
    memset(values, 0, (size_t)(seasonal->channels * seasonal->points) * sizeof *values);
    vt_seasonal_add(seasonal, date, 1, 0, seasonal->channels, values);
done:
    return status;
}

vt_status vt_seasonal_stds(const vt_seasonal *seasonal, float *stds)
{
    vt_status status = VT_OK;
    for (int64_t c = 0; c < seasonal->channels; c++) {
        stds[c] = seasonal->departure_stds[c];
        VT_CHECK(isfinite(stds[c]) && stds[c] > 0,
                 "climatology_path: %s holds %g as the standard deviation of channel %ld's departures: a channel that "
                 "never departs from its climatology can't be normalised; leave it out, or use --normalise=mean",
                 seasonal->path, (double)stds[c], c);
    }
done:
    return status;
}

size_t vt_seasonal_bytes(const char *path, int64_t channels, int64_t points)
{
    enum { USUAL_TERMS = 4 * 3 };
    int64_t terms = USUAL_TERMS;
    vt_tensor_file *file = NULL;
    vt_tensor_shape shape;
    if (vt_output_exists(path) && vt_tensor_file_open(path, &file) == VT_OK &&
        vt_tensor_file_shape(file, "coefficients", &shape) == VT_OK && shape.dimensions == 5)
        terms = shape.shape[0] * shape.shape[1];
    vt_error_clear();
    vt_tensor_file_close(&file);
    return (size_t)(terms * channels * points) * sizeof(float);
}
