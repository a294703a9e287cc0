/* The grid of a file: the latitudes and longitudes that all of its sources have. */
#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "source/fields/coordinates.h"
#include "source/fields/fields_inside.h"
#include "storage/cf_attributes.h"

static void turn_round(double *values, int64_t count)
{
    for (int64_t low = 0, high = count - 1; low < high; low++, high--) {
        const double value = values[low];
        values[low] = values[high];
        values[high] = value;
    }
}

/* A coordinate of one source and that of the sources before it, as far as both are known. */
static vt_status agree(const vt_fields_file *file, const vt_field_source *source, const char *what, int64_t count,
                       const double *values, const double *of_file)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; values != NULL && of_file != NULL && i < count; i++)
        VT_CHECK(fabs(values[i] - of_file[i]) < 1e-3,
                 "%s: the %s of '%s' are not those of '%s'; all variables need the same grid", source->store->path,
                 what, source->name, file->sources[0].name);
done:
    return status;
}

/* Rows that run from the south can't be combined with rows whose direction is unknown. */
static vt_status check_rows(const vt_fields_file *file, const vt_field_source *source, bool known)
{
    vt_status status = VT_OK;
    for (const vt_field_source *other = file->sources; other < source; other++)
        VT_CHECK(
            other->latitudes_known == known || !(other->south_first || source->south_first),
            "%s: the rows of '%s' run from south to north, by their latitudes, but '%s' of %s says no latitudes, so "
            "its rows can't be matched; write them into the file, or --coordinates=[lat=NAME]",
            (known ? source : other)->store->path, (known ? source : other)->name, (known ? other : source)->name,
            (known ? other : source)->store->path);
done:
    return status;
}

vt_status vt_fields_take_grid(vt_fields_file *file, vt_field_source *source)
{
    vt_status status = VT_OK;
    vt_fields_about *about = file->about, *own = vt_fields_about_make();
    char planet[8] = "", *doubts[2] = {NULL, NULL};
    const int64_t rows = source->extent[2], columns = source->extent[3];
    VT_TRY(vt_coordinates_grid(source->coordinates, own, doubts));
    source->latitudes_known = own->latitudes != NULL;
    own->turned = source->south_first =
        source->latitudes_known && rows > 1 && own->latitudes[0] < own->latitudes[rows - 1];
    if (source->south_first) turn_round(own->latitudes, rows);
    VT_TRY(check_rows(file, source, source->latitudes_known));
    VT_TRY(agree(file, source, "latitudes", rows, own->latitudes, about->latitudes));
    VT_TRY(agree(file, source, "longitudes", columns, own->longitudes, about->longitudes));
    vt_cf_text(source->array, "planet", planet, sizeof planet);
    own->imaginary = planet[0] != '\0';
    vt_fields_about_add_grid(about, own);
    for (int k = 0; k < 2; k++)
        if (file->doubts[k] == NULL && doubts[k] != NULL) file->doubts[k] = vt_text_copy(doubts[k]);
done:
    for (int k = 0; k < 2; k++) free(doubts[k]);
    vt_fields_about_close(&own);
    return status;
}
