/* Descriptions of data as JSON. The keys are those of docs/data.md. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "source/fields/about.h"
#include "storage/output_file.h"

enum { VERSION = 1 };
static const char version_key[] = "vitrain_data";

/* ---- writing ---- */

static void set_text(json_t *object, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0') json_object_set_new(object, key, json_string(text));
}

static void set_true(json_t *object, const char *key, bool value)
{
    if (value) json_object_set_new(object, key, json_true());
}

/* A number that is none, NaN or infinite, is null. */
static void set_numbers(json_t *object, const char *key, const double *values, int64_t count)
{
    if (values == NULL) return;
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_t *number = json_real(values[i]);
        json_array_append_new(list, number != NULL ? number : json_null());
    }
    json_object_set_new(object, key, list);
}

static json_t *channels_of(const vt_fields_about *about)
{
    json_t *list = json_array();
    for (int64_t c = 0; c < about->channels; c++) {
        json_t *channel = json_object();
        const vt_channel_meaning *meaning = vt_fields_about_meaning(about, c);
        set_text(channel, "name", about->names != NULL ? about->names[c] : NULL);
        set_text(channel, "standard_name", meaning->standard_name);
        set_text(channel, "long_name", meaning->long_name);
        set_text(channel, "units", meaning->units);
        set_text(channel, "cell_methods", meaning->cell_methods);
        set_text(channel, "transform", meaning->transform);
        if (meaning->has_level) {
            json_t *level = json_pack("{s:f}", "value", meaning->level);
            set_text(level, "units", meaning->level_units);
            json_object_set_new(channel, "level", level);
        }
        json_array_append_new(list, channel);
    }
    return list;
}

static json_t *grid_of(const vt_fields_about *about, bool coordinates)
{
    const vt_frame_window *window = &about->window;
    const bool known = about->latitudes != NULL || about->longitudes != NULL;
    json_t *grid = json_pack("{s:I, s:I}", "rows", (json_int_t)about->rows, "columns", (json_int_t)about->columns);
    if (known || about->no_latitudes)
        set_text(grid, "kind",
                 about->rotated        ? "rotated latitude and longitude"
                 : about->no_latitudes ? "no latitudes"
                                       : "latitude and longitude");
    set_true(grid, "turned", about->turned);
    set_true(grid, "partly_unplaced", about->unplaced && known);
    set_true(grid, "wraps", about->longitudes != NULL && vt_window_period(about->longitudes, about->columns) > 0);
    json_object_set_new(grid, "window",
                        json_pack("{s:I, s:I, s:I, s:I}", "first_row", (json_int_t)window->first_row, "first_column",
                                  (json_int_t)window->first_column, "rows", (json_int_t)window->rows, "columns",
                                  (json_int_t)window->width));
    if (coordinates) set_numbers(grid, "latitudes", about->latitudes, about->rows);
    if (coordinates) set_numbers(grid, "longitudes", about->longitudes, about->columns);
    return grid;
}

static json_t *times_of(const vt_fields_about *about)
{
    json_t *times = json_object(), *spans = json_array();
    char dates[2][VT_DATE_SIZE];
    const bool months = about->step >= VT_A_MONTH;
    if (about->dated) set_text(times, "calendar", vt_calendar_name(about->calendar));
    if (about->step > 0)
        json_object_set_new(times, months ? "step_months" : "step_minutes",
                            json_integer(months ? about->step / VT_A_MONTH : about->step));
    set_text(times, "step_from", about->step_from);
    if (about->dt > 0) json_object_set_new(times, "dt", json_integer(about->dt));
    if (about->times > 0) json_object_set_new(times, "count", json_integer(about->times));
    for (int64_t i = 0; i < about->span_count; i++)
        json_array_append_new(spans, json_pack("[s, s]", vt_date_format(about->spans[i].first, dates[0]),
                                               vt_date_format(about->spans[i].last, dates[1])));
    json_object_set_new(times, "spans", spans);
    return times;
}

static json_t *normalisation_of(const vt_fields_about *about)
{
    const vt_fields_normalisation *numbers = &about->normalisation;
    json_t *object = json_object(), *checksums = json_object(), *blocks = json_object();
    char text[VT_NUMBER_SIZE];
    set_text(object, "of", numbers->of_departures ? "departures" : "values");
    set_numbers(object, "means", numbers->means, about->channels);
    set_numbers(object, "stds", numbers->stds, about->channels);
    set_numbers(object, "change_stds", numbers->change_stds, about->channels);
    for (int i = 0; numbers->block_sides[i] > 0; i++) {
        snprintf(text, sizeof text, "%ld", numbers->block_sides[i]);
        set_numbers(blocks, text, numbers->block_change_stds[i], about->channels);
    }
    if (numbers->block_sides[0] > 0) json_object_set(object, "block_change_stds", blocks);
    json_decref(blocks);
    for (int i = 0; i < VT_NORMALISING_FILES; i++) {
        if (numbers->checksums[i] < 0) continue;
        snprintf(text, sizeof text, "%08x", (unsigned)numbers->checksums[i]);
        set_text(checksums, vt_normalising_names[i], text);
    }
    json_object_set_new(object, "crc32c", checksums);
    return object;
}

static char *text_of_about(const vt_fields_about *about, bool coordinates)
{
    vt_text text = {0};
    json_t *root = json_pack("{s:i}", version_key, (int)VERSION), *origin = json_object();
    if (about->channels > 0) json_object_set_new(root, "channels", channels_of(about));
    if (about->rows > 0) json_object_set_new(root, "grid", grid_of(about, coordinates));
    json_object_set_new(root, "time", times_of(about));
    set_true(root, "missing_values", about->masked);
    if (about->normalisation.stds != NULL) json_object_set_new(root, "normalisation", normalisation_of(about));
    set_text(origin, "files", about->files);
    if (about->file_count > 0) json_object_set_new(origin, "file_count", json_integer(about->file_count));
    set_text(origin, "made_by", about->made_by);
    set_text(origin, "date", about->date);
    json_object_set_new(root, "origin", origin);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) /* a line each */
    {
        char *line = json_dumps(value, JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
        vt_text_append(&text, "%s\"%s\": %s", text.length > 0 ? ",\n " : "{", key, line);
        free(line);
    }
    vt_text_append(&text, "}\n");
    json_decref(root);
    return text.characters;
}

char *vt_fields_about_text(const vt_fields_about *about)
{
    return text_of_about(about, true);
}

char *vt_fields_about_short_text(const vt_fields_about *about)
{
    enum { MOST = 60000 };
    char *text = text_of_about(about, true);
    if (strlen(text) <= MOST) return text;
    free(text);
    return text_of_about(about, false);
}

/* ---- reading ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static char *copy_of(const json_t *object, const char *key)
{
    const char *text = text_of(object, key);
    return text[0] != '\0' ? vt_text_copy(text) : NULL;
}

static int64_t integer_of(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

static vt_status take_numbers(const json_t *object, const char *key, int64_t count, const char *path, double **values)
{
    vt_status status = VT_OK;
    const json_t *list = json_object_get(object, key);
    if (list == NULL) return VT_OK;
    VT_CHECK(json_is_array(list) && (int64_t)json_array_size(list) == count,
             "%s: '%s' is no list of %ld numbers, as its other keys say", path, key, count);
    *values = vt_allocate((size_t)count + 1, sizeof **values, "a description of data");
    for (int64_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(list, (size_t)i);
        (*values)[i] = json_is_number(number) ? json_number_value(number) : (double)NAN;
    }
done:
    return status;
}

static void take_channel(const json_t *channel, char **name, vt_channel_meaning *meaning)
{
    const json_t *level = json_object_get(channel, "level");
    *name = vt_text_clean(text_of(channel, "name"));
    vt_text_on_one_line(meaning->standard_name, sizeof meaning->standard_name, text_of(channel, "standard_name"));
    vt_text_on_one_line(meaning->long_name, sizeof meaning->long_name, text_of(channel, "long_name"));
    vt_text_on_one_line(meaning->units, sizeof meaning->units, text_of(channel, "units"));
    vt_text_on_one_line(meaning->cell_methods, sizeof meaning->cell_methods, text_of(channel, "cell_methods"));
    vt_text_on_one_line(meaning->transform, sizeof meaning->transform, text_of(channel, "transform"));
    meaning->has_level = level != NULL;
    meaning->level = json_number_value(json_object_get(level, "value"));
    vt_text_on_one_line(meaning->level_units, sizeof meaning->level_units, text_of(level, "units"));
}

static void take_channels(const json_t *list, vt_fields_about *about)
{
    const size_t count = json_array_size(list);
    bool named = false;
    about->channels = (int64_t)count;
    about->names = vt_allocate(count + 1, sizeof *about->names, "a description of data");
    about->meanings = vt_allocate(count + 1, sizeof *about->meanings, "a description of data");
    for (size_t c = 0; c < count; c++) {
        take_channel(json_array_get(list, c), &about->names[c], &about->meanings[c]);
        named = named || about->names[c][0] != '\0';
    }
    if (named) return;
    vt_text_free_list(about->names, about->channels);
    about->names = NULL;
}

static vt_status take_grid(const json_t *grid, const char *path, vt_fields_about *about)
{
    vt_status status = VT_OK;
    const json_t *window = json_object_get(grid, "window");
    const char *kind = text_of(grid, "kind");
    about->rows = integer_of(grid, "rows");
    about->columns = integer_of(grid, "columns");
    about->window = (vt_frame_window){.first_row = integer_of(window, "first_row"),
                                      .rows = integer_of(window, "rows"),
                                      .first_column = integer_of(window, "first_column"),
                                      .width = integer_of(window, "columns")};
    const vt_frame_window *own = &about->window;
    VT_CHECK(own->first_row >= 0 && own->rows > 0 && own->rows <= about->rows - own->first_row &&
                 own->first_column >= 0 && own->first_column < about->columns && own->width > 0 &&
                 own->width <= about->columns,
             "%s: its window of [%ld, %ld] from [%ld, %ld] on is not in its grid of [%ld, %ld]", path, own->rows,
             own->width, own->first_row, own->first_column, about->rows, about->columns);
    about->rotated = kind[0] == 'r';
    about->no_latitudes = kind[0] == 'n';
    about->turned = json_is_true(json_object_get(grid, "turned"));
    about->unplaced = json_is_true(json_object_get(grid, "partly_unplaced"));
    VT_TRY(take_numbers(grid, "latitudes", about->rows, path, &about->latitudes));
    VT_TRY(take_numbers(grid, "longitudes", about->columns, path, &about->longitudes));
    about->unplaced = about->unplaced || about->latitudes == NULL;
    if (own->first_column + own->width <= about->columns) goto done;
    if (about->longitudes != NULL) about->window.period = vt_window_period(about->longitudes, about->columns);
    if (about->window.period == 0) about->window.period = about->columns;
done:
    return status;
}

static vt_status take_times(const json_t *times, const char *path, vt_fields_about *about)
{
    static const char *const sources[] = {"file", "time_step", "assumed", NULL};
    vt_status status = VT_OK;
    const json_t *spans = json_object_get(times, "spans");
    const char *calendar = text_of(times, "calendar"), *from = text_of(times, "step_from");
    const size_t count = json_array_size(spans);
    const int place = vt_text_place(from, strlen(from), sources);
    about->dated = calendar[0] != '\0';
    VT_CHECK(!about->dated || vt_calendar_of_name(calendar, &about->calendar), "%s: '%s' is no calendar", path,
             calendar);
    about->step = integer_of(times, "step_minutes") + integer_of(times, "step_months") * VT_A_MONTH;
    about->step_from = place >= 0 ? sources[place] : NULL;
    about->dt = integer_of(times, "dt");
    about->times = integer_of(times, "count");
    about->spans = vt_allocate(count + 1, sizeof *about->spans, "a description of data");
    for (size_t i = 0; i < count; i++) {
        vt_time_span *span = &about->spans[about->span_count++];
        vt_date *const ends[2] = {&span->first, &span->last};
        for (size_t k = 0; k < 2; k++) {
            const char *date = json_string_value(json_array_get(json_array_get(spans, i), k));
            VT_CHECK(date != NULL && vt_date_parse(date, about->calendar, ends[k]), "%s: '%s' in its spans is no date",
                     path, date != NULL ? date : "null");
        }
    }
done:
    return status;
}

static vt_status take_blocks(const json_t *blocks, const char *path, vt_fields_about *about)
{
    vt_status status = VT_OK;
    vt_fields_normalisation *numbers = &about->normalisation;
    const char *side;
    json_t *stds;
    int count = 0;
    json_object_foreach((json_t *)(uintptr_t)blocks, side, stds)
    {
        VT_CHECK(count < VT_MOST_SCALES && atoll(side) > 0, "%s: '%s' is no side of a block", path, side);
        VT_TRY(take_numbers(blocks, side, about->channels, path, &numbers->block_change_stds[count]));
        numbers->block_sides[count++] = atoll(side);
    }
done:
    return status;
}

static vt_status take_normalisation(const json_t *object, const char *path, vt_fields_about *about)
{
    vt_status status = VT_OK;
    vt_fields_normalisation *numbers = &about->normalisation;
    if (object == NULL) return VT_OK;
    numbers->of_departures = strcmp(text_of(object, "of"), "departures") == 0;
    VT_TRY(take_numbers(object, "means", about->channels, path, &numbers->means));
    VT_TRY(take_numbers(object, "stds", about->channels, path, &numbers->stds));
    VT_TRY(take_numbers(object, "change_stds", about->channels, path, &numbers->change_stds));
    VT_TRY(take_blocks(json_object_get(object, "block_change_stds"), path, about));
    VT_CHECK(numbers->means != NULL && numbers->stds != NULL, "%s: its normalisation lacks means or stds", path);
    for (int i = 0; i < VT_NORMALISING_FILES; i++) {
        const char *text = text_of(json_object_get(object, "crc32c"), vt_normalising_names[i]);
        if (text[0] != '\0') numbers->checksums[i] = (int64_t)strtoul(text, NULL, 16);
    }
done:
    return status;
}

vt_status vt_fields_about_parse(const char *text, const char *path, vt_fields_about **result)
{
    vt_status status = VT_OK;
    json_error_t error;
    vt_fields_about *about = vt_fields_about_make();
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    const json_t *origin = json_object_get(root, "origin");
    const int64_t version = integer_of(root, version_key);
    VT_CHECK(root != NULL, "%s is no JSON: %s, in line %d", path, error.text, error.line);
    VT_CHECK(version > 0, "%s describes no data: it has no key '%s'", path, version_key);
    VT_CHECK(version <= VERSION,
             "%s describes data in version %ld of the format, this program reads up to %d: it was written by a newer "
             "vitrain",
             path, version, (int)VERSION);
    take_channels(json_object_get(root, "channels"), about);
    if (json_object_get(root, "grid") != NULL) VT_TRY(take_grid(json_object_get(root, "grid"), path, about));
    VT_TRY(take_times(json_object_get(root, "time"), path, about));
    about->masked = json_is_true(json_object_get(root, "missing_values"));
    VT_TRY(take_normalisation(json_object_get(root, "normalisation"), path, about));
    about->files = copy_of(origin, "files");
    about->file_count = integer_of(origin, "file_count");
    about->made_by = copy_of(origin, "made_by");
    about->date = copy_of(origin, "date");
    *result = about;
    about = NULL;
done:
    json_decref(root);
    vt_fields_about_close(&about);
    return status;
}

/* ---- files ---- */

vt_status vt_fields_about_read(const char *directory, vt_fields_about **about)
{
    enum { MOST_BYTES = 16 << 20 };
    vt_status status = VT_OK;
    char *path = vt_text_format("%s/about.json", directory), *text = NULL;
    *about = NULL;
    if (!vt_output_exists(path)) goto done;
    VT_TRY(vt_file_read(path, MOST_BYTES, &text, NULL));
    VT_TRY(vt_fields_about_parse(text, path, about));
done:
    free(text);
    free(path);
    return status;
}

vt_status vt_fields_about_write(const char *directory, const vt_fields_about *about)
{
    char *path = vt_text_format("%s/about.json", directory), *text = vt_fields_about_text(about);
    const vt_status status = vt_file_write(path, text, strlen(text));
    free(text);
    free(path);
    return status;
}
