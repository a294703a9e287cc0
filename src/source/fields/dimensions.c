/* Which dimensions an array has, as far as their names tell. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "source/fields/fields_inside.h"

enum { NAME_SIZE = 64 };

/* The names of the first dimensions, "" if they have none. */
typedef struct {
    char name[VT_ARRAY_RANK][NAME_SIZE];
    int rank;
    bool named;
} dimensions;

static dimensions look_at(const vt_array *array)
{
    dimensions found = {.rank = array->rank < VT_ARRAY_RANK ? array->rank : VT_ARRAY_RANK};
    for (int i = 0; i < found.rank; i++) {
        array->store->kind->dimension_name(array, i, found.name[i], NAME_SIZE);
        found.named = found.named || found.name[i][0] != '\0';
    }
    return found;
}

static bool begins_with(const char *name, const char *beginning)
{
    return strncasecmp(name, beginning, strlen(beginning)) == 0;
}

static bool is_latitude(const char *name)
{
    return begins_with(name, "lat") || strcasecmp(name, "y") == 0;
}

static bool is_longitude(const char *name)
{
    return begins_with(name, "lon") || strcasecmp(name, "x") == 0;
}

static bool is_ensemble(const char *name)
{
    static const char *const words[] = {"number", "member", "ens", "realization", "realisation", NULL};
    return vt_text_place(name, strlen(name), words) >= 0 || begins_with(name, "ensemble");
}

/* The dimension of an ensemble's members; NULL: none. */
static const char *find_ensemble(const dimensions *found)
{
    for (int i = 0; i < found->rank; i++)
        if (is_ensemble(found->name[i])) return found->name[i];
    return NULL;
}

/* " (time, number, lat, lon)", malloc'd; "" if they have no names. */
static char *names_of(const dimensions *found)
{
    vt_text text = {0};
    vt_text_append(&text, "%s", found->named ? " (" : "");
    for (int i = 0; i < found->rank && found->named; i++)
        vt_text_append(&text, "%s%s", i > 0 ? ", " : "", found->name[i][0] != '\0' ? found->name[i] : "?");
    vt_text_append(&text, "%s", found->named ? ")" : "");
    return text.characters;
}

/* The length of a one-dimensional array of one of two names; 0: there is none. */
static int64_t length_of(const vt_store *store, const char *name, const char *other)
{
    return vt_array_length(store, store->kind->has_array(store, name) ? name : other);
}

static bool is_time(const char *name)
{
    static const char *const words[] = {"time", "valid_time", "times", "dates", "date", "t", NULL};
    return vt_text_place(name, strlen(name), words) >= 0;
}

void vt_dimensions_order(vt_array *array)
{
    const dimensions found = look_at(array);
    int order[VT_ARRAY_RANK], count = 0, seen[3] = {0};
    if (array->store->kind->reorder == NULL || array->rank > VT_ARRAY_RANK) return;
    for (int place = 0; place < 4; place++) /* the second takes what is neither of the others */
        for (int i = 0; i < found.rank; i++) {
            const char *name = found.name[i];
            const int own = is_time(name) ? 0 : is_latitude(name) ? 2 : is_longitude(name) ? 3 : 1;
            if (own != place) continue;
            order[count++] = i;
            if (own != 1) seen[own == 0 ? 0 : own - 1]++;
        }
    if (seen[0] <= 1 && seen[1] == 1 && seen[2] == 1) array->store->kind->reorder(array, order);
}

static bool has_channels_last(const vt_array *array, const dimensions *found)
{
    const int64_t *extent = array->extent;
    if (array->rank != 4) return false;
    if (found->named) return is_latitude(found->name[1]) && is_longitude(found->name[2]);
    const int64_t rows = length_of(array->store, "lat", "latitude");
    const int64_t columns = length_of(array->store, "lon", "longitude");
    return rows == extent[1] && columns == extent[2] && (rows != extent[2] || columns != extent[3]);
}

/* Does another dimension have the name that the dimension `place` should have? */
static bool is_elsewhere(const dimensions *found, int place, bool (*is_it)(const char *name))
{
    bool elsewhere = false;
    for (int i = 0; i < found->rank; i++) elsewhere = elsewhere || (i != place && is_it(found->name[i]));
    return elsewhere && !is_it(found->name[place]);
}

vt_status vt_dimensions_check(const vt_array *array, bool fixed)
{
    vt_status status = VT_OK;
    const dimensions found = look_at(array);
    char *names = names_of(&found);
    const char *member = find_ensemble(&found), *path = array->store->path;
    const int64_t *extent = array->extent;
    VT_CHECK(
        array->rank == 3 || array->rank == 4 || (array->rank == 2 && fixed),
        "%s: '%s' has %d dimensions%s, expected 4: [time, channel, lat, lon], or in netCDF 3: [time, lat, lon]%s%s",
        path, array->name, array->rank, names, fixed ? ", or 2: [lat, lon]" : "",
        member != NULL ? "; it is an ensemble, of which one member can be read: `ncks -d number,0 in.nc out.nc`, "
                         "then `ncwa -a number out.nc one.nc`"
                       : "");
    VT_CHECK(member == NULL || array->rank == 3 || extent[1] == 1,
             "%s: '%s' is an ensemble%s of %ld members, of which one can be read: `ncks -d %s,0 %s one.nc`", path,
             array->name, names, extent[1], member, path);
    VT_CHECK(member == NULL || array->rank == 4,
             "%s: '%s' is an ensemble%s without times, but expected is [time, lat, lon] or [time, level, lat, lon]",
             path, array->name, names);
    VT_CHECK(!has_channels_last(array, &found),
             "%s: '%s' is [%ld, %ld, %ld, %ld]%s, with its channels or levels last, but expected is [time, channel, "
             "lat, lon]: numpy.moveaxis(values, -1, 1) turns an array, `ncpdq -a time,channel,lat,lon in.nc out.nc` a "
             "netCDF file with these names",
             path, array->name, extent[0], extent[1], extent[2], extent[3], names);
    VT_CHECK(!is_elsewhere(&found, 0, is_time) && !is_elsewhere(&found, array->rank - 2, is_latitude) &&
                 !is_elsewhere(&found, array->rank - 1, is_longitude),
             "%s: '%s' is%s: the first dimension of a variable is to be the time, and the last two dimensions of a "
             "variable are to be latitudes and longitudes, in this order; `ncpdq -a time,lat,lon in.nc out.nc` turns a "
             "file with these names",
             path, array->name, names);
done:
    free(names);
    return status;
}
