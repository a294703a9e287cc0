/* The grid of a variable: which coordinates its rows and columns have, and their values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/fields/coordinates_inside.h"
#include "storage/cf_attributes.h"

#define MOST_DEGREES 720 /* of longitudes: twice round */

/* ---- values ---- */

/* Reads `count` numbers, unpacked: of dimensions before the last `rank` ones, only the first index. */
static vt_status read_numbers(const vt_array *array, int rank, int64_t count, double **values)
{
    vt_status status = VT_OK;
    vt_packing packing = {.element = VT_ELEMENT_FLOAT64, .scale = 1};
    int64_t start[VT_ARRAY_RANK] = {0}, extent[VT_ARRAY_RANK], found = 1;
    const char *path = array->store->path, *name = array->name;
    double *memory = vt_allocate((size_t)count, sizeof *memory, "the coordinates of a file");
    VT_TRY(vt_cf_packing(array, &packing));
    for (int i = 0; i < array->rank; i++) {
        extent[i] = i < array->rank - rank ? 1 : array->extent[i];
        found *= extent[i];
    }
    VT_CHECK(found == count, "%s: can't read '%s': it has %ld values, not %ld", path, name, found, count);
    if (array->store->kind->read(array, start, extent, true, memory) != VT_OK) {
        status = vt_error_context("%s: can't read '%s'", path, name);
        goto done;
    }
    for (int64_t i = 0; i < count; i++) memory[i] = vt_unpack_number(&packing, memory[i]);
    *values = memory;
    memory = NULL;
done:
    free(memory);
    return status;
}

static vt_status check_values(const vt_array *array, int64_t count, double limit, const char *what,
                              const double *values)
{
    vt_status status = VT_OK;
    for (int64_t i = 0; i < count; i++)
        VT_CHECK(fabs(values[i]) <= limit + 1e-3, "%s: '%s' holds %g at index %ld, expected %s from %g to %g",
                 array->store->path, array->name, values[i], i, what, -limit, limit);
done:
    return status;
}

vt_status vt_coordinate_levels(const vt_array *array, int64_t count, double **levels, char units[32])
{
    static const char *const pascals[] = {"Pa", "Pascal", "Pascals", NULL};
    vt_status status = VT_OK;
    double *numbers = NULL;
    *levels = NULL;
    VT_TRY(read_numbers(array, 1, count, &numbers));
    VT_ASSERT(numbers != NULL);
    VT_TRY(check_values(array, count, 1e7, "levels", numbers));
    vt_cf_text(array, "units", units, 32);
    const bool in_pascals = vt_text_place(units, strlen(units), pascals) >= 0;
    for (int64_t i = 0; i < count && in_pascals; i++) numbers[i] /= 100;
    if (in_pascals) snprintf(units, 32, "hPa");
    *levels = numbers;
    numbers = NULL;
done:
    free(numbers);
    return status;
}

/* ---- rows and columns ---- */

/* Are the values numbers of rows, not degrees: 0, 1, 2, … or 0.5, 1.5, …? 360 of them are a circle of degrees. */
static bool are_indices(const double *values, int64_t count)
{
    if (count < 2 || count == 360 || (values[0] != 0 && values[0] != 0.5 && values[0] != 1)) return false;
    for (int64_t i = 1; i < count; i++)
        if (values[i] != values[0] + (double)i) return false;
    return true;
}

/* Are the values along one dimension the same everywhere along the other one? Then `values` [rows, columns] is reduced
 * to the values along that dimension. */
static bool reduce_plane(double *values, int64_t rows, int64_t columns, bool of_rows)
{
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++)
            if (!(fabs(values[y * columns + x] - values[of_rows ? y * columns : x]) < 1e-3)) return false;
    for (int64_t y = 0; of_rows && y < rows; y++) values[y] = values[y * columns];
    return true;
}

static bool goes_one_way(const double *values, int64_t count)
{
    for (int64_t i = 2; i < count; i++)
        if ((values[i] > values[i - 1]) != (values[1] > values[0]) || values[i] == values[i - 1]) return false;
    return count < 2 || values[1] != values[0];
}

/* Makes them keep growing (or falling) beyond the seam from 360 to 0 or from 180 to -180. */
static void unwrap(double *longitudes, int64_t count)
{
    for (int64_t i = 1; i < count; i++) longitudes[i] += 360 * rint((longitudes[i - 1] - longitudes[i]) / 360);
}

/* Whether values without units are degrees; `doubt` says why not. */
static bool are_degrees(const vt_store *store, const vt_candidate *one, const double *values, int64_t count,
                        double limit, char **doubt)
{
    const bool indices = are_indices(values, count);
    bool within = goes_one_way(values, count);
    for (int64_t i = 0; i < count; i++) within = within && fabs(values[i]) <= limit;
    if ((indices || !within) && *doubt == NULL)
        *doubt = vt_text_format("%s: '%s' has no units (degrees_north, degrees_east), and holds %s", store->path,
                                one->path, indices ? "only the numbers of rows or columns" : "no such degrees");
    return within && !indices;
}

static vt_status take_values(const vt_coordinates *c, const vt_candidate *one, vt_coordinate_kind kind,
                             vt_fields_about *grid, char **doubt)
{
    vt_status status = VT_OK;
    const bool of_rows = kind == VT_COORDINATE_LATITUDE, plane = one->rank >= 2;
    const vt_store *store = c->source->store;
    const int64_t rows = c->source->extent[2], columns = c->source->extent[3], length = of_rows ? rows : columns;
    const int64_t count = plane ? rows * columns : length;
    const double limit = of_rows ? 90 : MOST_DEGREES;
    double *numbers = NULL;
    vt_array *array = NULL;
    VT_TRY(vt_array_find(store, one->path, &array));
    VT_TRY(read_numbers(array, plane ? 2 : 1, count, &numbers));
    VT_ASSERT(numbers != NULL);
    const bool radians = strncasecmp(one->units, "radian", 6) == 0;
    for (int64_t i = 0; i < count && radians; i++) numbers[i] *= 180 / M_PI;
    const bool weak = c->given[kind] == NULL && vt_candidate_identity(one, kind) == VT_IDENTITY_WEAK;
    if (weak && (plane || !are_degrees(store, one, numbers, count, limit, doubt))) goto done;
    if (plane && !reduce_plane(numbers, rows, columns, of_rows)) {
        grid->no_latitudes = grid->no_latitudes || of_rows;
        *doubt =
            vt_text_format("%s: '%s' is another one at every grid point (a curvilinear grid)", store->path, one->path);
        goto done;
    }
    VT_TRY(check_values(array, length, limit, "degrees", numbers));
    if (!of_rows) unwrap(numbers, length);
    VT_CHECK(goes_one_way(numbers, length) || length == 1,
             "%s: '%s' goes up and down; the %s of a grid run one way, each once (coordinates=[%s=none] ignores them)",
             store->path, one->path, of_rows ? "rows" : "columns", of_rows ? "lat" : "lon");
    grid->rotated = grid->rotated || strncasecmp(one->standard_name, "grid_", 5) == 0 ||
                    (one->standard_name[0] == '\0' && strncasecmp(one->name, of_rows ? "rlat" : "rlon", 5) == 0);
    *(of_rows ? &grid->latitudes : &grid->longitudes) = numbers;
    numbers = NULL;
done:
    vt_array_close(&array);
    free(numbers);
    return status;
}

/* Nothing fits: is there a coordinate of that kind that should fit, or one that says that the dimension is something
 * else?
 */
static vt_status explain(const vt_coordinates *c, vt_coordinate_kind kind, vt_fields_about *grid, char **doubt)
{
    vt_status status = VT_OK;
    const bool of_rows = kind == VT_COORDINATE_LATITUDE;
    const int dimension = (int)kind; /* of [time, level, lat, lon] */
    const vt_field_source *source = c->source;
    for (int64_t i = 0; i < c->count; i++) {
        const vt_candidate *one = &c->candidates[i];
        const vt_identity how = one->rank == 1 ? vt_candidate_identity(one, kind) : VT_IDENTITY_NONE;
        const int place = vt_candidate_place_of_name(one, kind);
        const bool named = how >= VT_IDENTITY_BY_NAME && (place == 0 || place == 1);
        const bool is_other = one->is_scale && c->has_scale[dimension]; /* a scale of another variable's dimension */
        const bool across =
            how >= VT_IDENTITY_BY_NAME &&
            (one->along[5 - dimension] || (named && !is_other && one->extent[0] == source->extent[5 - dimension]));
        VT_CHECK(!across,
                 "%s: '%s' has %ld values, but '%s' is [.., %ld, %ld]: the last two dimensions of a variable are to "
                 "be latitudes and longitudes, in this order",
                 source->store->path, one->path, one->extent[0], source->name, source->extent[2], source->extent[3]);
        VT_CHECK(!named || is_other || one->extent[0] == source->extent[dimension],
                 "%s: '%s' has %ld values, but '%s' has %ld along that dimension", source->store->path, one->path,
                 one->extent[0], source->name, source->extent[dimension]);
        if (one->along[dimension] && one->units[0] != '\0' && *doubt == NULL) {
            *doubt = vt_text_format("%s: '%s', along that dimension, is in '%s'", source->store->path, one->path,
                                    one->units);
            grid->no_latitudes = grid->no_latitudes || of_rows;
        }
    }
done:
    return status;
}

vt_status vt_coordinates_grid(const vt_coordinates *c, vt_fields_about *grid, char *doubts[2])
{
    vt_status status = VT_OK;
    for (int k = 0; k < 2; k++) {
        const vt_coordinate_kind kind = k == 0 ? VT_COORDINATE_LATITUDE : VT_COORDINATE_LONGITUDE;
        const vt_candidate *found = NULL;
        VT_TRY(vt_coordinates_choose(c, kind, &found, &doubts[k]));
        if (found != NULL)
            VT_TRY(take_values(c, found, kind, grid, &doubts[k]));
        else if (c->given[kind] == NULL && doubts[k] == NULL)
            VT_TRY(explain(c, kind, grid, &doubts[k]));
    }
done:
    return status;
}
