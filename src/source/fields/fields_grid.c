/* The grid of a file: the latitudes and longitudes that all of its sources have. */
#include <math.h>

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

/* The coordinate of the first source becomes the file's; those of the others must agree with it. Takes over `values`.
 */
static vt_status agree(const vt_fields_file *file, const vt_field_source *source, const char *what, int64_t count,
                       double **values, double **of_file)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; *values != NULL && *of_file != NULL && i < count; i++)
        VT_CHECK(fabs((*values)[i] - (*of_file)[i]) < 1e-3,
                 "%s: the %s of '%s' are not those of '%s'; all variables need the same grid", source->store->path,
                 what, source->name, file->sources[0].name);
    if (*of_file == NULL) {
        *of_file = *values;
        *values = NULL;
    }
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
    vt_fields_about *about = file->about;
    vt_grid grid = {0};
    char planet[8] = "";
    const int64_t rows = source->extent[2], columns = source->extent[3];
    VT_TRY(vt_coordinates_grid(source->coordinates, &grid));
    source->latitudes_known = grid.latitudes != NULL;
    source->south_first = source->latitudes_known && rows > 1 && grid.latitudes[0] < grid.latitudes[rows - 1];
    if (source->south_first) turn_round(grid.latitudes, rows);
    about->turned = about->turned || source->south_first;
    VT_TRY(check_rows(file, source, source->latitudes_known));
    VT_TRY(agree(file, source, "latitudes", rows, &grid.latitudes, &about->latitudes));
    VT_TRY(agree(file, source, "longitudes", columns, &grid.longitudes, &about->longitudes));
    about->rotated = about->rotated || grid.rotated;
    vt_cf_text(source->array, "planet", planet, sizeof planet);
    about->imaginary = about->imaginary || planet[0] != '\0';
    about->no_latitudes = about->no_latitudes || grid.no_latitudes;
    for (int k = 0; k < 2; k++)
        if (file->doubts[k] == NULL && grid.doubts[k] != NULL) file->doubts[k] = vt_text_copy(grid.doubts[k]);
done:
    vt_grid_close(&grid);
    return status;
}
