#define _GNU_SOURCE /* strcasestr */

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/fields/coordinates_inside.h"
#include "storage/cf_attributes.h"

enum { KINDS = VT_COORDINATE_KINDS, TEXT = VT_COORDINATE_TEXT, MOST_CANDIDATES = 1000 };

/* The words of the option, and names that mean the kind if no attribute says more: those of `certain` always, those of
 * `perhaps` only if the values fit. */
static const struct {
    const char *word;
    const char *const certain[9], *const perhaps[4];
} known[KINDS] = {
    {"time", {"time", "valid_time", "times"}, {NULL}},
    {"level", {"level", "pressure_level", "plev", "lev", "isobaricinhpa", "isobaric", "levels", "pressure"}, {NULL}},
    {"lat", {"lat", "latitude", "nav_lat", "lats", "latitudes", "xlat", "rlat"}, {"y", "ylat"}},
    {"lon", {"lon", "longitude", "nav_lon", "lons", "longitudes", "xlong", "long", "rlon"}, {"x", "xlon"}},
};

/* ---- the option ---- */

static vt_status take_word(vt_coordinates *c, const char *word, size_t length)
{
    vt_status status = VT_OK;
    const char *equals = memchr(word, '=', length);
    const size_t of_kind = equals != NULL ? (size_t)(equals - word) : 0;
    int kind = KINDS;
    if (equals != NULL && of_kind + 1 < length)
        for (kind = 0; kind < KINDS; kind++)
            if (strlen(known[kind].word) == of_kind && strncmp(known[kind].word, word, of_kind) == 0) break;
    VT_CHECK(kind < KINDS,
             "coordinates: '%.*s' is not understood; expected names of datasets, like [lat=FNOCY, lon=FNOCX, time=T] "
             "(lat, lon, level or time; none: there is no such coordinate)",
             (int)length, word);
    free(c->given[kind]);
    c->given[kind] = vt_text_format("%.*s", (int)(length - of_kind - 1), equals + 1);
done:
    return status;
}

static vt_status take_given(vt_coordinates *c, const char *text)
{
    vt_status status = VT_OK;
    size_t length;
    for (const char *word; (word = vt_text_next_word(&text, &length)) != NULL;) VT_TRY(take_word(c, word, length));
done:
    return status;
}

/* ---- what is in the file ---- */

static bool is_in_list(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
        if ((at == list || isspace((unsigned char)at[-1])) &&
            (at[length] == '\0' || isspace((unsigned char)at[length])))
            return true;
    return false;
}

/* Whether the array can be a coordinate, and what it says of itself. */
static bool describe(vt_coordinates *c, const vt_array *array, vt_candidate *found)
{
    char name_of_scale[TEXT] = "", positive[8] = "";
    found->rank = array->rank;
    if (array->element == VT_ELEMENT_NONE || found->rank < 0 || found->rank > 3) return false;
    for (int i = 0; i < found->rank; i++) found->extent[i] = array->extent[i];
    vt_cf_text(array, "NAME", name_of_scale, sizeof name_of_scale);
    if (strncmp(name_of_scale, "This is a netCDF dimension but not", 34) == 0) return false;
    vt_cf_text(array, "units", found->units, TEXT);
    vt_cf_text(array, "standard_name", found->standard_name, TEXT);
    vt_cf_text(array, "axis", found->axis, TEXT);
    vt_cf_text(array, "positive", positive, sizeof positive);
    found->is_vertical = positive[0] != '\0';
    found->is_listed = is_in_list(c->list, found->name);
    const vt_store_kind *kind = array->store->kind;
    found->is_scale = kind->is_scale_of(array, NULL, 0);
    const vt_field_source *source = c->source;
    for (int d = 0; d < source->rank && found->is_scale && found->rank == 1; d++)
        found->along[vt_field_dimension(source->rank, d)] = kind->is_scale_of(array, source->array, d);
    return true;
}

static void add_candidate(vt_coordinates *c, const char *prefix, const char *name, bool is_near)
{
    if (c->count == MOST_CANDIDATES) return;
    vt_array *array = NULL;
    vt_candidate found = {.path = vt_text_format("%s%s", prefix, name), .is_near = is_near};
    found.name = found.path + strlen(prefix);
    const bool is_other = strcmp(found.path, c->source->name) != 0;
    if (is_other && vt_array_find(c->source->store, found.path, &array) != VT_OK) vt_error_clear();
    if (array != NULL && describe(c, array, &found)) {
        c->candidates =
            vt_reallocate(c->candidates, (size_t)c->count + 1, sizeof *c->candidates, "the coordinates of a file");
        c->candidates[c->count++] = found;
    } else {
        free(found.path);
    }
    vt_array_close(&array);
}

/* The variable's own group, and those around it. */
static void list_candidates(vt_coordinates *c)
{
    char *group = vt_text_copy(c->source->name);
    bool is_near = true;
    do {
        char *slash = strrchr(group, '/');
        group[slash != NULL ? slash - group : 0] = '\0';
        char *prefix = vt_text_format("%s%s", group, group[0] != '\0' ? "/" : "");
        vt_names names = {0};
        c->source->store->kind->list(c->source->store, group, false, &names);
        for (int64_t i = 0; i < names.count; i++) add_candidate(c, prefix, names.names[i], is_near);
        vt_names_close(&names);
        free(prefix);
        is_near = false;
    } while (group[0] != '\0');
    free(group);
}

vt_status vt_coordinates_open(const vt_field_source *source, const char *given, vt_coordinates **result)
{
    vt_status status = VT_OK;
    vt_coordinates *c = vt_allocate(1, sizeof *c, "the coordinates of a file");
    *result = NULL;
    c->source = source;
    if (given != NULL) VT_TRY(take_given(c, given));
    vt_cf_text(source->array, "coordinates", c->list, sizeof c->list);
    list_candidates(c);
    for (int64_t i = 0; i < c->count; i++)
        for (int d = 0; d < 4; d++) c->has_scale[d] = c->has_scale[d] || c->candidates[i].along[d];
    *result = c;
    c = NULL;
done:
    vt_coordinates_close(&c);
    return status;
}

void vt_coordinates_close(vt_coordinates **pointer)
{
    vt_coordinates *c = *pointer;
    if (c == NULL) return;
    *pointer = NULL;
    for (int64_t i = 0; i < c->count; i++) free(c->candidates[i].path);
    for (int kind = 0; kind < KINDS; kind++) free(c->given[kind]);
    free(c->candidates);
    free(c);
}

/* ---- what a dataset is ---- */

/* The length of "degree" or "degrees" at the beginning of `units` ("degrees_north", "degree_N", "degreesE", …), or 0.
 */
static size_t degrees_length(const char *units)
{
    size_t length = strncasecmp(units, "degree", 6) == 0 ? 6 : 0;
    if (length > 0 && tolower((unsigned char)units[length]) == 's') length++;
    return length;
}

static bool is_towards(const char *units, const char *direction)
{
    size_t length = degrees_length(units);
    if (length == 0) return false;
    length += strspn(units + length, "_ ");
    return strcasecmp(units + length, direction) == 0 ||
           (tolower((unsigned char)units[length]) == tolower((unsigned char)direction[0]) && units[length + 1] == '\0');
}

static bool is_angle(const char *units)
{
    const size_t length = degrees_length(units);
    return units[0] == '\0' || (length > 0 && units[length] == '\0') || strncasecmp(units, "radian", 6) == 0;
}

int vt_candidate_place_of_name(const vt_candidate *c, vt_coordinate_kind kind)
{
    return vt_text_place(c->name, strlen(c->name), known[kind].certain);
}

static vt_identity identify_place(const vt_candidate *c, vt_coordinate_kind kind)
{
    static const char *const names[2][2] = {{"latitude", "grid_latitude"}, {"longitude", "grid_longitude"}};
    static const char *const directions[2] = {"north", "east"};
    const int own = kind == VT_COORDINATE_LATITUDE ? 0 : 1;
    if (c->standard_name[0] != '\0') {
        const bool is_it =
            strcasecmp(c->standard_name, names[own][0]) == 0 || strcasecmp(c->standard_name, names[own][1]) == 0;
        return is_it && (is_angle(c->units) || is_towards(c->units, directions[own])) ? VT_IDENTITY_BY_UNITS
                                                                                      : VT_IDENTITY_NONE;
    }
    if (is_towards(c->units, directions[own])) return VT_IDENTITY_BY_UNITS;
    if (!is_angle(c->units)) return VT_IDENTITY_NONE;
    if (toupper((unsigned char)c->axis[0]) == (own == 0 ? 'Y' : 'X') && c->units[0] != '\0') return VT_IDENTITY_BY_AXIS;
    if (c->axis[0] != '\0' && toupper((unsigned char)c->axis[0]) != (own == 0 ? 'Y' : 'X')) return VT_IDENTITY_NONE;
    if (vt_candidate_place_of_name(c, kind) >= 0) return VT_IDENTITY_BY_NAME;
    const bool perhaps = vt_text_place(c->name, strlen(c->name), known[kind].perhaps) >= 0;
    return perhaps || c->axis[0] != '\0' || c->along[own + 2] ? VT_IDENTITY_WEAK : VT_IDENTITY_NONE;
}

static vt_identity identify_time(const vt_candidate *c)
{
    if (c->standard_name[0] != '\0' && strcasecmp(c->standard_name, "time") != 0) return VT_IDENTITY_NONE;
    if (strcasestr(c->units, " since ") != NULL)
        return c->standard_name[0] != '\0' ? VT_IDENTITY_BY_UNITS : VT_IDENTITY_BY_AXIS;
    if (vt_candidate_place_of_name(c, VT_COORDINATE_TIME) >= 0 || c->standard_name[0] != '\0')
        return VT_IDENTITY_BY_NAME;
    return toupper((unsigned char)c->axis[0]) == 'T' ? VT_IDENTITY_BY_NAME : VT_IDENTITY_NONE;
}

static bool is_pressure(const char *units)
{
    static const char *const names[] = {"Pa",     "hPa",     "millibar",    "millibars",    "mbar", "mb",
                                        "Pascal", "Pascals", "hectopascal", "hectopascals", NULL};
    return vt_text_place(units, strlen(units), names) >= 0;
}

static vt_identity identify_level(const vt_candidate *c)
{
    if (is_pressure(c->units) || toupper((unsigned char)c->axis[0]) == 'Z' || c->is_vertical)
        return VT_IDENTITY_BY_UNITS;
    if (vt_candidate_place_of_name(c, VT_COORDINATE_LEVEL) >= 0) return VT_IDENTITY_BY_NAME;
    return c->along[1] ? VT_IDENTITY_WEAK : VT_IDENTITY_NONE;
}

vt_identity vt_candidate_identity(const vt_candidate *c, vt_coordinate_kind kind)
{
    switch (kind) {
    case VT_COORDINATE_TIME:
        return identify_time(c);
    case VT_COORDINATE_LEVEL:
        return identify_level(c);
    default:
        return identify_place(c, kind);
    }
}

/* ---- the choice ---- */

static bool is_plane(const vt_coordinates *c, const vt_candidate *one)
{
    const int64_t *extent = c->source->extent;
    return one->rank >= 2 && one->extent[one->rank - 2] == extent[2] && one->extent[one->rank - 1] == extent[3];
}

/* Does its shape fit the variable: a value for each index of the dimension, or of latitudes and longitudes for each
 * grid point? A scale of another dimension doesn't fit. */
static bool fits(const vt_coordinates *c, const vt_candidate *one, vt_coordinate_kind kind)
{
    const int dimension = (int)kind;
    if (kind >= VT_COORDINATE_LATITUDE && is_plane(c, one)) return true;
    if (one->rank == 0) return kind == VT_COORDINATE_TIME && c->source->extent[0] == 1 && one->is_near;
    if (one->rank != 1 || one->extent[0] != c->source->extent[dimension]) return false;
    return !(one->is_scale && c->has_scale[dimension] && !one->along[dimension]);
}

static int rate(const vt_coordinates *c, const vt_candidate *one, vt_coordinate_kind kind)
{
    const vt_identity how = fits(c, one, kind) ? vt_candidate_identity(one, kind) : VT_IDENTITY_NONE;
    if (how <= VT_IDENTITY_WEAK) return one->rank == 1 ? (int)how : VT_IDENTITY_NONE;
    return (int)how + 4 * one->is_listed + 8 * one->along[(int)kind] + 16 * (one->rank == 1) + 32 * one->is_near;
}

static vt_status find_given(const vt_coordinates *c, vt_coordinate_kind kind, const vt_candidate **result)
{
    vt_status status = VT_OK;
    const char *name = c->given[kind];
    const vt_candidate *found = NULL;
    for (int64_t i = 0; i < c->count && found == NULL; i++)
        if (strcmp(c->candidates[i].path, name) == 0 || strcmp(c->candidates[i].name, name) == 0)
            found = &c->candidates[i];
    VT_CHECK(found != NULL,
             "coordinates: %s has no dataset of numbers '%s', which is to be the coordinate '%s' of '%s'",
             c->source->store->path, name, known[kind].word, c->source->name);
    VT_CHECK(fits(c, found, kind),
             "coordinates: '%s' of %s does not fit the dimension of '%s' that '%s' belongs to (%ld values)", name,
             c->source->store->path, c->source->name, known[kind].word, c->source->extent[(int)kind]);
    *result = found;
done:
    return status;
}

/* Fails if the coordinate lies in another file, instead of ignoring it. */
static vt_status refuse_elsewhere(const vt_coordinates *c, vt_coordinate_kind kind)
{
    vt_status status = VT_OK;
    const vt_store *store = c->source->store;
    vt_array *array = NULL;
    for (const char *const *name = known[kind].certain; *name != NULL && status == VT_OK; name++) {
        if (store->kind->has_array(store, *name)) status = vt_array_find(store, *name, &array);
        vt_array_close(&array);
    }
    return status;
}

vt_status vt_coordinates_choose(const vt_coordinates *c, vt_coordinate_kind kind, const vt_candidate **result,
                                char **doubt)
{
    vt_status status = VT_OK;
    const vt_candidate *best = NULL, *other = NULL;
    int most = VT_IDENTITY_NONE;
    *result = NULL;
    if (c->given[kind] != NULL) return strcmp(c->given[kind], "none") == 0 ? VT_OK : find_given(c, kind, result);
    if (kind != VT_COORDINATE_LEVEL || c->source->extent[1] > 1) VT_TRY(refuse_elsewhere(c, kind));
    for (int64_t i = 0; i < c->count; i++) {
        const vt_candidate *one = &c->candidates[i];
        const int rating = rate(c, one, kind);
        if (rating == VT_IDENTITY_NONE || rating < most) continue;
        const bool is_tie = rating == most && best != NULL;
        /* of two that are rated alike, the one whose name comes first in the list; names outside it come last */
        const unsigned place = (unsigned)vt_candidate_place_of_name(one, kind);
        const unsigned of_best = is_tie ? (unsigned)vt_candidate_place_of_name(best, kind) : place;
        if (place > of_best) continue;
        other = is_tie && place == of_best ? best : NULL;
        best = one;
        most = rating;
    }
    if (other != NULL && *doubt == NULL)
        *doubt = vt_text_format("%s: '%s' and '%s' could both be the coordinate of '%s'", c->source->store->path,
                                other->path, best->path, c->source->name);
    if (other == NULL) *result = best;
done:
    return status;
}

vt_status vt_coordinates_find(const vt_coordinates *c, vt_coordinate_kind kind, vt_array **array, char **doubt)
{
    vt_status status = VT_OK;
    const vt_candidate *found = NULL;
    *array = NULL;
    *doubt = NULL;
    VT_TRY(vt_coordinates_choose(c, kind, &found, doubt));
    if (found != NULL) VT_TRY(vt_array_find(c->source->store, found->path, array));
done:
    return status;
}
