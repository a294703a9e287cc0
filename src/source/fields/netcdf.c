/* netCDF-4 files like those of the Copernicus store and NOAA: each variable is a dataset [time, lat, lon] or [time,
 * level, lat, lon], perhaps packed, in one file or in several with the same times. A netCDF-4 file is an HDF5 file;
 * attributes follow the CF conventions, "Packed Data" and "Missing Data". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/fields/coordinates.h"
#include "source/fields/fields_inside.h"
#include "storage/cf_attributes.h"

/* A word of `variables`: "z@500". */
typedef struct {
    char *name;
    bool has_level;
    double level;
} variable;

static vt_status parse_word(const char *word, size_t length, variable *result)
{
    vt_status status = VT_OK;
    char *at;
    result->name = vt_text_format("%.*s", (int)length, word);
    at = strchr(result->name, '@');
    if (at == NULL) return VT_OK;
    *at = '\0';
    result->has_level = true;
    VT_CHECK(at > result->name && vt_text_to_double(at + 1, &result->level),
             "variables: '%.*s' is no variable with a level (pressure in hPa) after @, like z@500", (int)length, word);
done:
    return status;
}

/* ---- what is in a file ---- */

/* Lists the names as `variables` would have them, also of variables in groups: forecast/t2m. */
static vt_status fail_missing(const vt_fields_file *file, const vt_fields_form *form, const char *name)
{
    vt_status status = VT_OK;
    vt_text found = {0};
    for (int i = 0; i < file->store_count; i++) {
        vt_names names = {0};
        file->stores[i]->kind->list(file->stores[i], "", true, &names);
        for (int64_t k = 0; k < names.count; k++) {
            vt_array *array = NULL;
            if (vt_array_find(file->stores[i], names.names[k], &array) != VT_OK) vt_error_clear();
            if (array == NULL || array->rank >= (form->fixed ? 2 : 3))
                vt_text_append(&found, "%s%s", found.length > 0 ? ", " : "", names.names[k]);
            vt_array_close(&array);
        }
        vt_names_close(&names);
    }
    VT_FAIL("%s%s: no variable '%s'; found: %s", file->path,
            file->store_count > 1 ? " and the files of the same date" : "", name,
            found.length > 0 ? found.characters : "none");
done:
    vt_text_close(&found);
    return status;
}

/* Is the second dimension ERA5's `expver`, which tells preliminary values from final ones? */
static bool has_versions(const vt_field_source *source)
{
    return vt_array_length(source->store, "expver") == source->extent[1];
}

/* The level of the variable, by its coordinate: in hPa, or in Pa. */
static vt_status find_level(const vt_field_source *source, const variable *wanted, int64_t *level,
                            vt_channel_meaning *meaning)
{
    vt_status status = VT_OK;
    double *values = NULL;
    vt_text found = {0};
    vt_array *array = NULL;
    char *doubt = NULL;
    bool is_found = false;
    const int64_t levels = source->extent[1];
    *level = 0;
    if (!wanted->has_level && levels == 1) goto done;
    VT_CHECK(source->rank == 4, "%s: '%s' has no levels, so '@%g' can't be chosen", source->store->path, source->name,
             wanted->level);
    VT_TRY(vt_coordinates_find(source->coordinates, VT_COORDINATE_LEVEL, &array, &doubt));
    VT_CHECK((array != NULL && strcmp(array->name, "expver") != 0) || !has_versions(source),
             "%s: '%s' comes in %ld versions of ERA5 (its second dimension is 'expver'); make one of them first (cdo "
             "-vertmax, or xarray's combine_first)",
             source->store->path, source->name, levels);
    VT_CHECK(doubt == NULL, "%s; --coordinates=[level=NAME] chooses", doubt);
    VT_CHECK(array != NULL,
             "%s: '%s' has %ld levels, but there is no dataset 'level', 'pressure_level' or 'plev' of that length; "
             "--coordinates=[level=NAME] names another",
             source->store->path, source->name, levels);
    VT_TRY(vt_coordinate_levels(array, levels, &values, meaning->level_units));
    for (int64_t i = 0; i < levels; i++) vt_text_append(&found, "%s%g", i > 0 ? ", " : "", values[i]);
    VT_CHECK(wanted->has_level, "%s: '%s' has levels: choose one, as %s@%g (there are %s)", source->store->path,
             source->name, source->name, values[0], found.characters);
    static const double units[] = {1, 100, 0.01}; /* levels without units may be in Pa, and so may the wanted one */
    for (size_t u = 0; u < sizeof units / sizeof units[0] && !is_found; u++)
        for (int64_t i = 0; i < levels; i++) {
            if (fabs(values[i] - units[u] * wanted->level) > 1e-4 * fabs(values[i])) continue;
            VT_CHECK(!is_found,
                     "%s: '%s' has level %g twice, at indices %ld and %ld of '%s' (there are %s), so '%s@%g' may be "
                     "either; correct the coordinate, or name another one with --coordinates=[level=NAME]",
                     source->store->path, source->name, values[i], *level, i, array->name, found.characters,
                     source->name, wanted->level);
            is_found = true;
            *level = i;
        }
    VT_CHECK(is_found, "%s: '%s' has no level %g; there are %s", source->store->path, source->name, wanted->level,
             found.characters);
done:
    meaning->has_level = status == VT_OK && values != NULL;
    if (meaning->has_level) meaning->level = values[*level];
    vt_array_close(&array);
    vt_text_close(&found);
    free(doubt);
    free(values);
    return status;
}

/* The part that holds the variable; store_count: none does. *name becomes another of the variable's names if only that
 * one is there. */
static int find_part(const vt_fields_file *file, const char **name)
{
    const char *const *others = vt_variable_aliases(*name);
    for (;; others++) {
        for (int p = 0; p < file->store_count; p++)
            if (file->stores[p]->kind->has_array(file->stores[p], *name)) return p;
        if (others == NULL || *others == NULL) return file->store_count;
        *name = *others;
    }
}

vt_status vt_netcdf_holds(const char *path, const char *variables, vt_names *held)
{
    vt_status status = VT_OK;
    vt_store *store = NULL;
    const vt_fields_file file = {.stores = &store, .store_count = 1};
    const char *rest = variables, *word;
    size_t length;
    VT_TRY(vt_store_open(path, &store));
    while ((word = vt_text_next_word(&rest, &length)) != NULL) {
        const size_t level = strcspn(word, "@");
        char *own = vt_text_format("%.*s", (int)(level < length ? level : length), word);
        const char *name = own;
        if (find_part(&file, &name) < file.store_count) vt_names_add(held, own);
        free(own);
    }
done:
    vt_store_close(&store);
    return status;
}

/* The source of a variable, also by another of its names; its first channel opens it. */
static vt_status use_source(vt_fields_file *file, const vt_fields_form *form, const variable *wanted, int *index)
{
    vt_status status = VT_OK;
    const char *name = wanted->name;
    const int p = find_part(file, &name);
    if (p == file->store_count) return fail_missing(file, form, wanted->name);
    for (*index = 0; *index < file->source_count; ++*index)
        if (strcmp(file->sources[*index].name, name) == 0) return VT_OK;
    const vt_store *store = file->stores[p];
    vt_field_source *source = &file->sources[file->source_count++];
    int64_t cache_bytes = 0;
    VT_TRY(vt_field_source_open(store, name, form, source));
    VT_TRY(vt_field_source_enlarge_cache(source, &cache_bytes));
    file->cache_bytes += cache_bytes;
    VT_TRY(vt_cf_packing(source->array, &source->packing));
    const int64_t *extent = source->extent, *first = file->sources[0].extent;
    VT_CHECK(extent[0] == first[0] && extent[2] == first[2] && extent[3] == first[3],
             "%s: '%s' has %ld times of [%ld, %ld], but '%s' has %ld of [%ld, %ld]; all variables need the same "
             "times and grid",
             store->path, source->name, extent[0], extent[2], extent[3], file->sources[0].name, first[0], first[2],
             first[3]);
    VT_TRY(vt_fields_take_grid(file, source));
done:
    return status;
}

/* Two channels of the same values would count twice in the loss, and two of one name could not be told apart. */
static vt_status check_only_once(const vt_fields_file *file, int64_t channel)
{
    vt_status status = VT_OK;
    const vt_field_channel *own = &file->channels[channel], *other = file->channels;
    char *const *names = file->about->names;
    for (int64_t c = 0; c < channel; c++, other++) {
        VT_CHECK(own->source != other->source || own->level != other->level,
                 "variables: channel %ld (%s) is channel %ld (%s) once more; name each one once", channel,
                 names[channel], c, names[c]);
        VT_CHECK(strcmp(names[channel], names[c]) != 0, "variables: channels %ld and %ld would both be called '%s'", c,
                 channel, names[c]);
    }
done:
    return status;
}

static void take_meaning(const vt_field_source *source, const variable *wanted, vt_channel_meaning *meaning)
{
    vt_cf_text(source->array, "units", meaning->units, sizeof meaning->units);
    vt_cf_text(source->array, "standard_name", meaning->standard_name, sizeof meaning->standard_name);
    vt_cf_text(source->array, "long_name", meaning->long_name, sizeof meaning->long_name);
    vt_cf_text(source->array, "cell_methods", meaning->cell_methods, sizeof meaning->cell_methods);
    const size_t length = strlen(meaning->long_name);
    if (wanted->has_level && length > 0)
        snprintf(meaning->long_name + length, sizeof meaning->long_name - length, " at level %g", wanted->level);
}

/* The channel of one word, which becomes the file's last. */
static vt_status add_channel(vt_fields_file *file, const vt_fields_form *form, const char *word, size_t length)
{
    vt_status status = VT_OK;
    variable wanted = {0};
    char *name = NULL;
    const int64_t c = file->about->channels++;
    vt_channel_meaning *meaning = &file->about->meanings[c];
    vt_field_channel *channel = &file->channels[c];
    VT_TRY(parse_word(word, length, &wanted));
    const char *level = wanted.has_level ? word + strlen(wanted.name) + 1 : word + length;
    name = vt_text_format("%s%.*s", wanted.name, (int)(word + length - level), level); /* "z500" */
    file->about->names[c] = vt_text_clean(name);
    VT_TRY(use_source(file, form, &wanted, &channel->source));
    VT_TRY(find_level(&file->sources[channel->source], &wanted, &channel->level, meaning));
    VT_TRY(check_only_once(file, c));
    take_meaning(&file->sources[channel->source], &wanted, meaning);
done:
    free(name);
    free(wanted.name);
    return status;
}

vt_status vt_netcdf_open(vt_fields_file *file, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    size_t words = 0, length;
    const char *rest = form->variables, *word;
    while (vt_text_next_word(&rest, &length) != NULL) words++;
    VT_CHECK(words > 0,
             "variables: '%s' names none; expected the variables that are the channels, like [u10,v10,t2m,z@500]",
             form->variables);
    file->sources = vt_allocate(words, sizeof *file->sources, "the channels of a file");
    file->channels = vt_allocate(words, sizeof *file->channels, "the channels of a file");
    file->about->names = vt_allocate(words, sizeof *file->about->names, "the channels of a file");
    file->about->meanings = vt_allocate(words, sizeof *file->about->meanings, "the channels of a file");
    for (rest = form->variables; (word = vt_text_next_word(&rest, &length)) != NULL;)
        VT_TRY(add_channel(file, form, word, length));
done:
    return status;
}

/* ---- which variables there are ---- */

/* "z@1000, z@500", or the name alone of what has no levels; nothing of versions of ERA5, and of levels without values.
 */
static void list_levels(const vt_field_source *source, vt_text *words)
{
    vt_array *array = NULL;
    double *values = NULL;
    char *doubt = NULL, units[32] = "";
    const int64_t levels = source->extent[1];
    if (levels == 1) vt_text_append(words, "%s%s", words->length > 0 ? ", " : "", source->name);
    if (levels > 1 && vt_coordinates_find(source->coordinates, VT_COORDINATE_LEVEL, &array, &doubt) == VT_OK &&
        array != NULL && strcmp(array->name, "expver") != 0 &&
        vt_coordinate_levels(array, levels, &values, units) == VT_OK)
        for (int64_t i = 0; i < levels; i++)
            vt_text_append(words, "%s%s@%.12g", words->length > 0 ? ", " : "", source->name, values[i]);
    vt_error_clear();
    vt_array_close(&array);
    free(values);
    free(doubt);
}

vt_status vt_netcdf_variables(const char *path, int64_t extent[4], vt_text *words)
{
    vt_status status = VT_OK;
    vt_store *store = NULL;
    vt_names all = {0};
    VT_TRY(vt_store_open(path, &store));
    if (!store->kind->has_array(store, "fields")) store->kind->list(store, "", true, &all);
    vt_names_sort(&all);
    for (int64_t i = 0; i < all.count; i++) {
        vt_field_source source = {0};
        const bool good = vt_field_source_open(store, all.names[i], &(vt_fields_form){0}, &source) == VT_OK;
        if (good && extent[0] == 0) memcpy(extent, source.extent, sizeof source.extent);
        if (good && extent[0] == source.extent[0] && extent[2] == source.extent[2] && extent[3] == source.extent[3])
            list_levels(&source, words);
        vt_error_clear();
        vt_field_source_close(&source);
    }
done:
    vt_store_close(&store);
    vt_names_close(&all);
    return status;
}
