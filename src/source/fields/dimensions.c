#include "source/fields/dimensions.h"

#include <hdf5_hl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

enum { NAME_SIZE = 64, MOST_RANK = 8 };

/* The names of the first few dimensions, "" where they have none; returns the rank. */
typedef struct {
    char name[MOST_RANK][NAME_SIZE];
    int rank;
    bool named;
} dimensions;

/* The first scale of a dimension ends the iteration. */
static herr_t take_name(hid_t dataset, unsigned dimension, hid_t scale, void *context)
{
    char path[256] = "";
    char *name = context;
    (void)dataset, (void)dimension;
    if (H5Iget_name(scale, path, sizeof path) > 0) {
        const char *slash = strrchr(path, '/');
        const char *last = slash != NULL ? slash + 1 : path;
        snprintf(name, NAME_SIZE, "%.*s", NAME_SIZE - 1, last);
    }
    return 1;
}

static dimensions look_at(hid_t dataset)
{
    dimensions found = {.rank = 0};
    hid_t space = H5Dget_space(dataset);
    found.rank = H5Sget_simple_extent_ndims(space);
    H5Sclose(space);
    if (found.rank > MOST_RANK) found.rank = MOST_RANK;
    if (H5Aexists(dataset, "DIMENSION_LIST") <= 0) return found;
    for (int i = 0; i < found.rank; i++) {
        if (H5DSget_num_scales(dataset, (unsigned)i) < 1) continue;
        H5DSiterate_scales(dataset, (unsigned)i, NULL, take_name, found.name[i]);
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
    static const char *const words[] = {"number", "member", "ensemble", "ens", "realization", "realisation"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(name, words[i]) == 0) return true;
    return begins_with(name, "ensemble");
}

/* The dimension of an ensemble's members; NULL: none. */
static const char *find_ensemble(const dimensions *found)
{
    for (int i = 0; i < found->rank; i++)
        if (is_ensemble(found->name[i])) return found->name[i];
    return NULL;
}

char *vt_dimension_names(hid_t dataset)
{
    vt_text text = {0};
    const dimensions found = look_at(dataset);
    vt_text_append(&text, "%s", found.named ? " (" : "");
    for (int i = 0; i < found.rank && found.named; i++)
        vt_text_append(&text, "%s%s", i > 0 ? ", " : "", found.name[i][0] != '\0' ? found.name[i] : "?");
    vt_text_append(&text, "%s", found.named ? ")" : "");
    return text.characters;
}

const char *vt_dimension_advice(hid_t dataset)
{
    const dimensions found = look_at(dataset);
    return find_ensemble(&found) != NULL ? "; it is an ensemble, of which one member can be read: `ncks -d "
                                           "number,0 in.nc out.nc`, then `ncwa -a number out.nc one.nc`"
                                         : "";
}

/* The length of a 1-D dataset of one of two names; 0: there is none. */
static int64_t length_of(const vt_field_part *part, const char *name, const char *other)
{
    hsize_t extent = 0;
    hid_t dataset = H5I_INVALID_HID;
    if (!vt_field_part_has(part, name)) name = other;
    if (!vt_field_part_has(part, name)) return 0;
    if (vt_field_part_dataset(part, name, &dataset) != VT_OK) vt_error_clear();
    if (dataset < 0) return 0;
    hid_t space = H5Dget_space(dataset);
    if (H5Sget_simple_extent_ndims(space) == 1) H5Sget_simple_extent_dims(space, &extent, NULL);
    H5Sclose(space);
    H5Dclose(dataset);
    return (int64_t)extent;
}

static bool has_channels_last(const vt_field_source *source, const dimensions *found)
{
    const int64_t *extent = source->extent;
    if (source->rank != 4) return false;
    if (found->named) return is_latitude(found->name[1]) && is_longitude(found->name[2]);
    const int64_t rows = length_of(source->part, "lat", "latitude");
    const int64_t columns = length_of(source->part, "lon", "longitude");
    return rows == extent[1] && columns == extent[2] && (rows != extent[2] || columns != extent[3]);
}

vt_status vt_dimensions_check(const vt_field_source *source)
{
    vt_status status = VT_OK;
    char *names = vt_dimension_names(source->dataset);
    const dimensions found = look_at(source->dataset);
    const char *member = find_ensemble(&found), *path = source->part->path;
    const int64_t *extent = source->extent;
    VT_CHECK(member == NULL || source->rank == 3 || extent[1] == 1,
             "%s: '%s' is an ensemble%s of %lld members, of which one can be read: `ncks -d %s,0 %s one.nc`", path,
             source->name, names, (long long)extent[1], member, path);
    VT_CHECK(member == NULL || source->rank == 4,
             "%s: '%s' is an ensemble%s without times, but expected is [time, lat, lon] or [time, level, lat, lon]",
             path, source->name, names);
    VT_CHECK(
        !has_channels_last(source, &found),
        "%s: '%s' is [%lld, %lld, %lld, %lld]%s, with its channels or levels last, but expected is [time, channel, "
        "lat, lon]: numpy.moveaxis(values, -1, 1) turns an array, `ncpdq -a time,channel,lat,lon in.nc out.nc` a "
        "netCDF file with these names",
        path, source->name, (long long)extent[0], (long long)extent[1], (long long)extent[2], (long long)extent[3],
        names);
done:
    free(names);
    return status;
}
