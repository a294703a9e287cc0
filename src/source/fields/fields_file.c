#include "source/fields/fields_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/fields_inside.h"
#include "storage/cf_attributes.h"
#include "storage/chunk_cache.h"
#include "storage/trial.h"

static vt_status open_fields(vt_fields_file *file, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    file->sources = vt_allocate(1, sizeof *file->sources, "a file of fields");
    VT_CHECK(file->stores[0]->kind->has_array(file->stores[0], "fields"),
             "%s has no dataset 'fields'; expected float32 'fields' [time, channel, lat, lon], or with --%s a dataset "
             "for each of them, see docs/data.md",
             file->path, form->fixed ? "static_variables" : "variables");
    file->source_count = 1;
    VT_TRY(vt_field_source_open(file->stores[0], "fields", form, file->sources));
    const vt_field_source *fields = file->sources;
    VT_TRY(vt_cf_packing(fields->array, &file->sources->packing));
    VT_CHECK(vt_element_is_float(fields->packing.element) || fields->packing.scale != 1 || fields->packing.offset != 0,
             "%s: 'fields' must hold floating-point numbers (float32), but holds whole ones without an attribute "
             "scale_factor or add_offset that says what they stand for",
             file->path);
    VT_CHECK(fields->rank == 4, "%s: 'fields' has %d dimensions, expected 4: [time, channel, lat, lon]", file->path,
             fields->rank);
    file->about->channels = fields->extent[1];
    file->channels = calloc((size_t)file->about->channels, sizeof *file->channels);
    VT_CHECK(file->channels != NULL, "out of memory for %ld channels", file->about->channels);
    for (int64_t c = 0; c < file->about->channels; c++) file->channels[c].level = c;
    VT_TRY(vt_field_source_enlarge_cache(file->sources, &file->cache_bytes));
done:
    return status;
}

/* The texts of an attribute of `fields`, one a channel, "" past those given: *texts [channels], or NULL if there is no
 * such attribute. */
static vt_status open_texts(const vt_fields_file *file, const char *name, char ***texts, int64_t *count)
{
    vt_status status = VT_OK;
    const vt_array *array = file->sources[0].array;
    const int64_t channels = file->about->channels;
    vt_names found = {0};
    *texts = NULL;
    VT_CHECK(array->store->kind->attribute_texts(array, name, &found),
             "%s: the attribute '%s' of 'fields' must hold strings, one a channel", file->path, name);
    *count = found.count;
    if (*count == 0) goto done;
    *texts = vt_allocate((size_t)channels, sizeof **texts, "the channels of a file");
    for (int64_t c = 0; c < channels; c++) (*texts)[c] = vt_text_clean(c < *count ? found.names[c] : "");
done:
    vt_names_close(&found);
    return status;
}

static vt_status check_names(const vt_fields_file *file)
{
    vt_status status = VT_OK;
    char *const *names = file->about->names;
    for (int64_t c = 0; names != NULL && c < file->about->channels; c++) {
        VT_CHECK(names[c][0] != '\0', "%s: the attribute 'channels' of 'fields' has an empty name for channel %ld",
                 file->path, c);
        for (int64_t other = 0; other < c; other++)
            VT_CHECK(strcmp(names[c], names[other]) != 0,
                     "%s: the attribute 'channels' of 'fields' names channels %ld and %ld both '%s'; each needs a name "
                     "of its own",
                     file->path, other, c, names[c]);
    }
done:
    return status;
}

static vt_status open_channel_names(vt_fields_file *file)
{
    vt_status status = VT_OK;
    int64_t count = 0;
    VT_TRY(open_texts(file, "channels", &file->about->names, &count));
    VT_CHECK(file->about->names == NULL || count == file->about->channels,
             "%s: the attribute 'channels' of 'fields' names %ld channel%s, but there are %ld; name each one once",
             file->path, count, count == 1 ? "" : "s", file->about->channels);
    VT_TRY(check_names(file));
done:
    return status;
}

/* A single text applies to all channels. */
static vt_status open_meanings(vt_fields_file *file)
{
    static const char *const names[] = {"units", "standard_names", "long_names"};
    vt_status status = VT_OK;
    char **texts = NULL;
    const int64_t channels = file->about->channels;
    file->about->meanings = vt_allocate((size_t)channels, sizeof *file->about->meanings, "the channels of a file");
    for (int i = 0; i < 3; i++) {
        int64_t count = 0;
        VT_TRY(open_texts(file, names[i], &texts, &count));
        for (int64_t c = 0; texts != NULL && c < channels; c++) {
            vt_channel_meaning *meaning = &file->about->meanings[c];
            char *const places[] = {meaning->units, meaning->standard_name, meaning->long_name};
            const size_t sizes[] = {sizeof meaning->units, sizeof meaning->standard_name, sizeof meaning->long_name};
            vt_text_on_one_line(places[i], sizes[i], texts[count == 1 ? 0 : c]);
        }
        vt_text_free_list(texts, channels);
        texts = NULL;
    }
done:
    vt_text_free_list(texts, channels);
    return status;
}

/* Puts the channels into the order of form->like, if it has all of them; the others follow as they come. */
static void order_channels(vt_fields_file *file, const vt_fields_form *form)
{
    char **names = file->about->names, **wanted = form->like != NULL ? form->like->names : NULL;
    vt_channel_meaning *meanings = file->about->meanings;
    int64_t *order = form->like != NULL ? vt_fields_order(form->like, file->about) : NULL;
    for (int64_t c = 0; order != NULL && c < form->like->channels; c++)
        for (int64_t place = c + 1; place < file->about->channels && strcmp(names[c], wanted[c]) != 0; place++) {
            if (strcmp(names[place], wanted[c]) != 0) continue;
            char *const name = names[c];
            const vt_field_channel channel = file->channels[c];
            const vt_channel_meaning meaning = meanings[c];
            names[c] = names[place];
            file->channels[c] = file->channels[place];
            meanings[c] = meanings[place];
            names[place] = name;
            file->channels[place] = channel;
            meanings[place] = meaning;
        }
    free(order);
}

static void describe_times(vt_fields_file *file, const vt_fields_form *form)
{
    const vt_time_axis *axis = &file->times;
    vt_fields_about *about = file->about;
    about->dated = axis->known && axis->named == 0;
    about->step = axis->minutes;
    about->step_from = axis->minutes == 0 ? "assumed" : form->time_step != NULL ? "time_step" : "file";
    if (axis->known) about->calendar = axis->begin.calendar;
    if (axis->known && !about->dated)
        vt_fields_about_add_span(about, axis->begin, vt_time_axis_date(axis, about->times - 1));
    for (int64_t i = 0; i < about->times && about->dated; i++)
        vt_fields_about_add_span(about, vt_time_axis_date(axis, i), vt_time_axis_date(axis, i));
}

static void describe(vt_fields_file *file, const vt_fields_form *form)
{
    vt_fields_about *about = file->about;
    about->window = (vt_frame_window){.rows = about->rows, .width = about->columns};
    about->no_latitudes = about->no_latitudes && about->latitudes == NULL;
    about->unplaced = about->latitudes == NULL;
    about->masked = form->masked;
    about->files = vt_text_clean(vt_file_name(file->path));
    about->file_count = 1;
    describe_times(file, form);
}

static vt_status open_all(vt_fields_file *file, const char *const *paths, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    for (int i = 0; i < file->store_count; i++) VT_TRY(vt_store_open(paths[i], &file->stores[i]));
    if (form->variables != NULL) {
        VT_TRY(vt_netcdf_open(file, form));
    } else {
        VT_TRY(open_fields(file, form));
        VT_TRY(open_channel_names(file));
        VT_TRY(open_meanings(file));
        VT_TRY(vt_fields_take_grid(file, file->sources));
        order_channels(file, form);
    }
    const int64_t *extent = file->sources[0].extent;
    file->about->times = extent[0];
    file->about->rows = extent[2];
    file->about->columns = extent[3];
    if (!form->fixed) VT_TRY(vt_fields_open_times(file, form));
    for (int i = 0; i < file->source_count && file->obstacle == NULL; i++)
        file->obstacle = file->sources[i].array->obstacle;
    describe(file, form);
done:
    return status;
}

vt_status vt_fields_file_open_again(const char *const *paths, int64_t path_count, const vt_fields_form *form,
                                    vt_fields_file **result)
{
    vt_status status = VT_OK;
    vt_fields_file *file = vt_allocate(1, sizeof *file, "a file of fields");
    *result = NULL;
    VT_ASSERT(path_count > 0 && (path_count == 1 || form->variables != NULL));
    file->path = vt_text_copy(paths[0]);
    file->about = vt_fields_about_make();
    file->stores = vt_allocate((size_t)path_count, sizeof *file->stores, "a file of fields");
    file->store_count = (int)path_count;
    VT_TRY(open_all(file, paths, form));
    *result = file;
    file = NULL;
done:
    vt_fields_file_close(&file);
    return status;
}

/* ---- the first try ---- */

/* Does what HDF5 will do later: reads each source's index of chunks, and applies filters that only HDF5 knows. */
static void visit_storage(vt_fields_file *file)
{
    const vt_fields_about *about = file->about;
    int64_t at[4];
    vt_chunk_place place;
    for (int i = 0; i < file->source_count; i++) {
        vt_field_source *source = &file->sources[i];
        if (source->array->layout != VT_LAYOUT_CHUNKED) continue;
        const int64_t chunks = vt_field_source_chunks(source);
        source->store->kind->chunks_written(source->array);
        if (chunks > 0) vt_field_source_find_chunk(source, 0, at, &place);
        if (chunks > 0) vt_field_source_find_chunk(source, chunks - 1, at, &place);
    }
    if (about->times < 1) return;
    float *values = vt_allocate((size_t)(about->channels * about->columns), sizeof *values, "a row of the fields");
    vt_frame_window row = {.rows = 1, .width = about->columns};
    vt_fields_file_read(file, 0, about->channels, &row, true, values);
    row.first_row = about->rows - 1;
    vt_fields_file_read(file, about->times - 1, about->channels, &row, true, values);
    free(values);
}

/* The words that say what is read of the files; behind them the paths of each date, which a NULL ends. */
enum { VARIABLES, COORDINATES, TIME_STEP, PERIOD, FIXED, FORM_WORDS };

static void try_out(const char *const *words, int64_t count)
{
    const vt_fields_form form = {.variables = words[VARIABLES],
                                 .coordinates = words[COORDINATES],
                                 .time_step = words[TIME_STEP],
                                 .period = words[PERIOD],
                                 .period_option = "period",
                                 .fixed = words[FIXED] != NULL};
    for (int64_t first = FORM_WORDS, end = first; first < count; first = ++end) {
        vt_fields_file *file = NULL;
        while (words[end] != NULL) end++;
        if (vt_fields_file_open_again(words + first, end - first, &form, &file) == VT_OK) visit_storage(file);
        vt_fields_file_close(&file);
    }
}

vt_status vt_fields_files_try(const char *const *paths, int64_t count, const vt_fields_form *form)
{
    const char **words = vt_allocate((size_t)(FORM_WORDS + count + 1), sizeof *words, "the trial of files");
    words[VARIABLES] = form->variables;
    words[COORDINATES] = form->coordinates;
    words[TIME_STEP] = form->time_step;
    words[PERIOD] = form->period;
    words[FIXED] = form->fixed ? "fixed" : NULL;
    memcpy(words + FORM_WORDS, paths, (size_t)count * sizeof *words);
    const vt_status status = vt_trial(paths[0], 0, try_out, words, FORM_WORDS + count + 1);
    free(words);
    return status;
}

vt_status vt_fields_file_open(const char *const *paths, int64_t path_count, const vt_fields_form *form,
                              vt_fields_file **result)
{
    vt_status status = VT_OK;
    *result = NULL;
    VT_TRY(vt_fields_files_try(paths, path_count, form));
    VT_TRY(vt_fields_file_open_again(paths, path_count, form, result));
done:
    return status;
}

void vt_fields_file_close(vt_fields_file **pointer)
{
    vt_fields_file *file = *pointer;
    if (file == NULL) return;
    *pointer = NULL;
    for (int i = 0; i < file->source_count; i++) vt_field_source_close(&file->sources[i]);
    for (int i = 0; i < file->store_count; i++) vt_store_close(&file->stores[i]);
    vt_fields_about_close(&file->about);
    vt_time_axis_close(&file->times);
    free(file->places);
    for (int k = 0; k < 2; k++) free(file->doubts[k]);
    free(file->channels);
    free(file->sources);
    free(file->stores);
    free(file->path);
    free(file);
}

vt_status vt_fields_file_check_size(const vt_fields_file *file, int64_t time)
{
    vt_status status = VT_OK;
    for (int i = 0; i < file->store_count; i++) {
        const vt_store *store = file->stores[i];
        struct stat info;
        if (store->kind->check_unchanged != NULL) {
            VT_TRY(store->kind->check_unchanged(store));
            continue;
        }
        if (fstat(store->descriptor, &info) != 0) continue; /* reading will say why */
        VT_CHECK(info.st_size == store->size,
                 "%s %s while it was in use: it had %ld bytes when it was opened, now %ld (noticed before reading "
                 "time %ld); data must not change during a run",
                 store->path, info.st_size < store->size ? "was cut short" : "has grown", store->size, info.st_size,
                 time);
    }
done:
    return status;
}

vt_status vt_fields_file_check_written(const vt_fields_file *file)
{
    vt_status status = VT_OK;
    for (int i = 0; i < file->store_count; i++)
        if (file->stores[i]->oddity != NULL) vt_log_warning("%s", file->stores[i]->oddity);
    for (int i = 0; i < file->source_count && file->about->times > 0; i++)
        VT_TRY(vt_array_check_written(file->sources[i].array));
done:
    return status;
}

char *vt_fields_file_storage(const vt_fields_file *file)
{
    vt_text text = {0};
    vt_text_append(&text, "%s", "");
    for (int i = 0; i < file->source_count; i++) {
        const vt_array *array = file->sources[i].array;
        if (array->storage == NULL) continue;
        const int64_t written = array->store->kind->chunks_written(array);
        vt_text_append(&text, "%s: %s, %s", array->name, array->store->kind->name, array->storage);
        if (written >= 0)
            vt_text_append(&text, ", %ld of %ld chunks written", written, vt_field_source_chunks(&file->sources[i]));
        vt_text_append(&text, "\n");
    }
    return text.characters;
}

/* How many chunks along the time hold times that are used. */
static int64_t used_chunks(const vt_fields_file *file, int64_t chunk)
{
    int64_t count = 0, before = -1;
    for (int64_t time = 0; time < file->about->times; time++) {
        const int64_t place = vt_fields_file_place(file, time) / chunk;
        count += place != before;
        before = place;
    }
    return count;
}

void vt_fields_file_chunk_bytes(const vt_fields_file *file, double *several, double *all)
{
    *several = *all = 0;
    for (int i = 0; i < file->source_count; i++) {
        const vt_field_source *source = &file->sources[i];
        double bytes = (double)vt_element_size(source->packing.element);
        if (source->array->layout != VT_LAYOUT_CHUNKED) continue;
        for (int d = 0; d < 4; d++) bytes *= (double)source->chunk[d];
        bytes = ceil(bytes / VT_CHUNK_ALIGNMENT) * VT_CHUNK_ALIGNMENT;
        for (int d = 1; d < 4; d++) bytes *= (double)source->grid[d];
        bytes *= (double)used_chunks(file, source->chunk[0]);
        *all += bytes;
        if (source->chunk[0] > 1) *several += bytes;
    }
}
