/* netCDF-4 as the Copernicus store and NOAA hand it out: each variable a dataset [time, lat, lon] or [time, level, lat,
 * lon], perhaps packed, in one file or in several of the same times. A netCDF-4 file is an HDF5 file; attributes follow
 * the CF conventions, "Packed Data" and "Missing Data". */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
    char *channel; /* what it is called here: "z500" */
} variable;

static void close_variables(variable *variables, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        free(variables[i].name);
        free(variables[i].channel);
    }
    free(variables);
}

static vt_status parse_word(const char *word, size_t length, variable *result)
{
    vt_status status = VT_OK;
    char *text = vt_text_format("%.*s", (int)length, word), *at = strchr(text, '@');
    if (at != NULL) {
        *at = '\0';
        result->has_level = true;
        VT_CHECK(text[0] != '\0' && vt_text_to_double(at + 1, &result->level),
                 "variables: '%.*s' is no variable with a level (pressure in hPa) behind @, like z@500", (int)length,
                 word);
    }
    result->channel = vt_text_format("%s%s", text, at != NULL ? at + 1 : "");
    result->name = text;
    text = NULL;
done:
    free(text);
    return status;
}

/* "[u10, z@500]", with or without the brackets. */
static vt_status parse_variables(const char *text, variable **result, int64_t *count)
{
    vt_status status = VT_OK;
    const char *separators = "[], \t\n'\"";
    int64_t words = 0;
    for (const char *at = text + strspn(text, separators); *at != '\0'; words++) {
        at += strcspn(at, separators);
        at += strspn(at, separators);
    }
    *count = 0;
    *result = calloc((size_t)words + 1, sizeof **result);
    VT_CHECK(*result != NULL, "out of memory");
    VT_CHECK(words > 0,
             "variables: '%s' names none; expected the variables that are the channels, like [u10,v10,t2m,z@500]",
             text);
    for (const char *at = text + strspn(text, separators); *at != '\0';) {
        size_t length = strcspn(at, separators);
        VT_TRY(parse_word(at, length, &(*result)[*count]));
        ++*count;
        at += length;
        at += strspn(at, separators);
    }
done:
    return status;
}

/* ---- what stands in a file ---- */

static bool note_variable(const vt_array *array, void *context)
{
    vt_text *text = context;
    if (array->rank >= 3) vt_text_append(text, "%s%s", text->length > 0 ? ", " : "", array->name);
    return true;
}

/* The names found are those to write, also of variables in groups: forecast/t2m. */
static vt_status fail_missing(const vt_fields_file *file, const char *name)
{
    vt_status status = VT_OK;
    vt_text found = {0};
    vt_text_append(&found, "%s", "");
    for (int i = 0; i < file->part_count; i++)
        file->parts[i]->kind->visit(file->parts[i], "", true, note_variable, &found);
    VT_FAIL("%s%s: no variable '%s'; found: %s", file->path,
            file->part_count > 1 ? " and the files of the same date" : "", name,
            found.length > 0 ? found.characters : "none");
done:
    vt_text_close(&found);
    return status;
}

static bool is_unit_of_pascals(const char *units)
{
    return strcasecmp(units, "Pa") == 0 || strcasecmp(units, "Pascal") == 0 || strcasecmp(units, "Pascals") == 0;
}

/* In hPa where the levels are pressures in Pa. */
static vt_status read_levels(const vt_field_source *source, const char *name, double **values)
{
    vt_status status = VT_OK;
    char units[32];
    vt_array *array = NULL;
    VT_TRY(vt_coordinate_values(source->part, name, source->extent[1], 1e7, "levels", values));
    VT_TRY(vt_array_find(source->part, name, &array));
    vt_cf_text(array, "units", units, sizeof units);
    for (int64_t i = 0; i < source->extent[1] && is_unit_of_pascals(units); i++) (*values)[i] /= 100;
done:
    vt_array_close(&array);
    return status;
}

/* Is the second dimension ERA5's `expver`, which tells preliminary values from final ones? */
static bool has_versions(const vt_field_source *source)
{
    return vt_array_length(source->part, "expver") == source->extent[1];
}

/* The level of the variable, by its coordinate: in hPa, or in Pa. */
static vt_status find_level(const vt_field_source *source, const vt_fields_form *form, const variable *wanted,
                            int64_t *level)
{
    vt_status status = VT_OK;
    double *values = NULL;
    vt_text found = {0};
    vt_coordinates *coordinates = NULL;
    const char *name = NULL;
    char *doubt = NULL;
    const int64_t levels = source->extent[1];
    VT_ASSERT(source->part != NULL);
    *level = 0;
    if (!wanted->has_level && levels == 1) goto done;
    VT_CHECK(source->rank == 4, "%s: '%s' has no levels, so '@%g' can't be chosen", source->part->path, source->name,
             wanted->level);
    VT_TRY(vt_coordinates_open(source, form->coordinates, &coordinates));
    VT_TRY(vt_coordinates_find(coordinates, VT_COORDINATE_LEVEL, &name, &doubt));
    VT_CHECK((name != NULL && strcmp(name, "expver") != 0) || !has_versions(source),
             "%s: '%s' comes in %lld versions of ERA5 (its second dimension is 'expver'); make one of them first (cdo "
             "-vertmax, or xarray's combine_first)",
             source->part->path, source->name, (long long)levels);
    VT_CHECK(doubt == NULL, "%s; --coordinates=[level=NAME] chooses", doubt);
    VT_CHECK(name != NULL,
             "%s: '%s' has %lld levels, but there is no dataset 'level', 'pressure_level' or 'plev' of that length; "
             "--coordinates=[level=NAME] names another",
             source->part->path, source->name, (long long)levels);
    VT_TRY(read_levels(source, name, &values));
    for (int64_t i = 0; i < levels; i++) vt_text_append(&found, "%s%g", i > 0 ? ", " : "", values[i]);
    VT_CHECK(wanted->has_level, "%s: '%s' has levels: choose one, as %s@%g (there are %s)", source->part->path,
             source->name, source->name, values[0], found.characters);
    for (int in_pascals = 0; in_pascals < 2; in_pascals++) /* by name alone, levels may be Pa */
        for (*level = 0; *level < levels; ++*level)
            if (fabs(values[*level] - (in_pascals ? 100 : 1) * wanted->level) <= 1e-4 * fabs(values[*level])) goto done;
    for (*level = 0; *level < levels; ++*level) /* and the wish, too */
        if (fabs(100 * values[*level] - wanted->level) <= 1e-4 * fabs(wanted->level)) goto done;
    VT_FAIL("%s: '%s' has no level %g; there are %s", source->part->path, source->name, wanted->level,
            found.characters);
done:
    vt_coordinates_close(&coordinates);
    vt_text_close(&found);
    free(doubt);
    free(values);
    return status;
}

/* The source of a variable, opened when it is the first channel of it. */
static vt_status use_source(vt_fields_file *file, const vt_fields_form *form, const variable *wanted, int *index)
{
    vt_status status = VT_OK;
    for (*index = 0; *index < file->source_count; ++*index) {
        VT_ASSERT(file->sources[*index].name != NULL);
        if (strcmp(file->sources[*index].name, wanted->name) == 0) return VT_OK;
    }
    int p = 0;
    while (p < file->part_count && !file->parts[p]->kind->has_array(file->parts[p], wanted->name)) p++;
    if (p == file->part_count) return fail_missing(file, wanted->name);
    const vt_store *part = file->parts[p];
    vt_field_source *source = &file->sources[file->source_count++];
    int64_t cache_bytes = 0;
    VT_TRY(vt_field_source_open(part, wanted->name, source));
    VT_TRY(vt_field_source_enlarge_cache(source, &cache_bytes));
    file->cache_bytes += cache_bytes;
    VT_TRY(vt_cf_packing(source->array, &source->packing));
    const int64_t *extent = source->extent, *first = file->sources[0].extent;
    VT_CHECK(extent[0] == first[0] && extent[2] == first[2] && extent[3] == first[3],
             "%s: '%s' has %lld times of [%lld, %lld], but '%s' has %lld of [%lld, %lld]; all variables need the same "
             "times and grid",
             part->path, source->name, (long long)extent[0], (long long)extent[2], (long long)extent[3],
             file->sources[0].name, (long long)first[0], (long long)first[2], (long long)first[3]);
    VT_TRY(vt_fields_take_grid(file, source, form));
done:
    return status;
}

/* Two channels of the same values would count twice in the loss, and two of one name could not be told apart. */
static vt_status check_only_once(const vt_fields_file *file, const variable *variables, int64_t channel)
{
    vt_status status = VT_OK;
    const vt_field_channel *own = &file->channels[channel], *other = file->channels;
    for (int64_t c = 0; c < channel; c++, other++) {
        VT_CHECK(own->source != other->source || own->level != other->level,
                 "variables: channel %lld (%s) is channel %lld (%s) once more; name each one once", (long long)channel,
                 variables[channel].channel, (long long)c, variables[c].channel);
        VT_CHECK(strcmp(variables[channel].channel, variables[c].channel) != 0,
                 "variables: channels %lld and %lld would both be called '%s'", (long long)c, (long long)channel,
                 variables[c].channel);
    }
done:
    return status;
}

static void take_meaning(const vt_field_source *source, const variable *wanted, vt_channel_meaning *meaning)
{
    vt_cf_text(source->array, "units", meaning->units, sizeof meaning->units);
    vt_cf_text(source->array, "standard_name", meaning->standard_name, sizeof meaning->standard_name);
    vt_cf_text(source->array, "long_name", meaning->long_name, sizeof meaning->long_name);
    const size_t length = strlen(meaning->long_name);
    if (wanted->has_level && length > 0)
        snprintf(meaning->long_name + length, sizeof meaning->long_name - length, " at level %g", wanted->level);
}

vt_status vt_netcdf_open(vt_fields_file *file, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    variable *variables = NULL;
    int64_t count = 0;
    VT_TRY(parse_variables(form->variables, &variables, &count));
    VT_ASSERT(count > 0);
    file->shape.channels = count;
    file->sources = calloc((size_t)count, sizeof *file->sources);
    file->channels = calloc((size_t)count, sizeof *file->channels);
    file->channel_names = calloc((size_t)count, sizeof *file->channel_names);
    VT_CHECK(file->sources != NULL && file->channels != NULL && file->channel_names != NULL, "out of memory");
    file->meanings = vt_allocate((size_t)count, sizeof *file->meanings, "the channels of a file");
    for (int64_t c = 0; c < count; c++) {
        vt_field_channel *channel = &file->channels[c];
        VT_TRY(use_source(file, form, &variables[c], &channel->source));
        VT_TRY(find_level(&file->sources[channel->source], form, &variables[c], &channel->level));
        VT_TRY(check_only_once(file, variables, c));
        file->channel_names[c] = vt_text_copy(variables[c].channel);
        take_meaning(&file->sources[channel->source], &variables[c], &file->meanings[c]);
    }
    const int64_t *extent = file->sources[0].extent;
    file->shape = (vt_fields_shape){extent[0], count, extent[2], extent[3]};
done:
    close_variables(variables, variables != NULL ? count : 0);
    return status;
}
