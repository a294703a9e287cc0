#include "source/fields/window.h"

#include <math.h>

#include "base/text.h"
#include "source/fields/about.h"

static const double tolerance = 1e-4; /* degrees: coordinates are float32 mostly */

int vt_window_spans(const vt_frame_window *window, vt_column_span spans[2])
{
    const int64_t left = window->period > 0 ? window->period - window->first_column : window->width;
    const int64_t first = window->width < left ? window->width : left;
    spans[0] = (vt_column_span){window->first_column, first, 0};
    spans[1] = (vt_column_span){0, window->width - first, first};
    return spans[1].count > 0 ? 2 : 1;
}

int64_t vt_window_column(const vt_frame_window *window, int64_t column)
{
    column += window->first_column;
    return window->period > 0 && column >= window->period ? column - window->period : column;
}

vt_window_range vt_window_range_of(const double lat_range[2], const double lon_range[2])
{
    return (vt_window_range){.by_rows = !isnan(lat_range[0]),
                             .by_columns = !isnan(lon_range[0]),
                             .south = lat_range[0],
                             .north = lat_range[1],
                             .west = lon_range[0],
                             .east = lon_range[1]};
}

/* Degrees eastwards from `west` to `longitude`, 0 or more and below 360. */
static double eastwards(double west, double longitude)
{
    double degrees = fmod(longitude - west, 360);
    if (degrees < 0) degrees += 360;
    return degrees > 360 - tolerance ? 0 : degrees;
}

/* Degrees from west to east: [0, 360] and [-180, 180] are the whole globe, [350, 10] is 20 degrees. */
static double extent_of(const vt_window_range *range)
{
    return range->east - range->west >= 360 - tolerance ? 360 : eastwards(range->west, range->east);
}

int64_t vt_window_period(const double *longitudes, int64_t width)
{
    if (width < 3) return 0;
    const double step = eastwards(longitudes[0], longitudes[1]);
    if (eastwards(longitudes[0], longitudes[width - 1]) < tolerance) return width - 1;
    return fabs(eastwards(longitudes[width - 1], longitudes[0]) - step) < 0.01 * step + tolerance ? width : 0;
}

int64_t vt_window_repeats(const double *longitudes, int64_t width)
{
    for (int64_t i = 1; i < width; i++)
        if (eastwards(longitudes[0], longitudes[i]) < tolerance) return i;
    return 0;
}

static bool is_in_range(const vt_window_range *range, double latitude)
{
    return latitude >= range->south - tolerance && latitude <= range->north + tolerance;
}

static vt_status find_rows(const vt_window_range *range, const vt_fields_about *grid, const char *path,
                           vt_frame_window *window)
{
    vt_status status = VT_OK;
    const double *latitudes = grid->latitudes;
    int64_t first = 0, count = 0;
    if (!range->by_rows) goto done;
    VT_CHECK(latitudes != NULL,
             "lat_range: %s has no latitudes, so a range of them can't be found; give the window as img_size", path);
    while (first < grid->rows && !is_in_range(range, latitudes[first])) first++;
    while (first + count < grid->rows && is_in_range(range, latitudes[first + count])) count++;
    VT_CHECK(count > 0, "lat_range [%g, %g]: no row of %s is within; its latitudes go from %g to %g", range->south,
             range->north, path, latitudes[0], latitudes[grid->rows - 1]);
    *window = (vt_frame_window){first, count, window->first_column, window->width, window->period};
done:
    return status;
}

static vt_status find_columns(const vt_window_range *range, const vt_fields_about *grid, const char *path,
                              vt_frame_window *window)
{
    vt_status status = VT_OK;
    const double *longitudes = grid->longitudes;
    const double extent = extent_of(range);
    int64_t first = -1, within = 0, count = 0;
    double nearest = 0, last = -1;
    if (!range->by_columns) goto done;
    VT_CHECK(longitudes != NULL,
             "lon_range: %s has no longitudes, so a range of them can't be found; give the window as img_size", path);
    const int64_t period = vt_window_period(longitudes, grid->columns), columns = period > 0 ? period : grid->columns;
    for (int64_t i = 0; i < columns; i++) {
        const double degrees = eastwards(range->west, longitudes[i]);
        if (degrees > extent + tolerance) continue;
        within++;
        if (first < 0 || degrees < nearest) {
            first = i;
            nearest = degrees;
        }
    }
    VT_CHECK(within > 0, "lon_range [%g, %g]: no column of %s is within; its longitudes go from %g to %g", range->west,
             range->east, path, longitudes[0], longitudes[grid->columns - 1]);
    for (; count < within; count++) {
        const int64_t column = first + count < columns ? first + count : period > 0 ? first + count - period : -1;
        const double degrees = column >= 0 ? eastwards(range->west, longitudes[column]) : -1;
        if (degrees <= last || degrees > extent + tolerance) break;
        last = degrees;
    }
    VT_CHECK(count == within,
             "lon_range [%g, %g]: the %ld columns of %s that are within don't lie side by side from west to east (its "
             "longitudes go from %g to %g); choose a range that doesn't reach past both ends of the grid",
             range->west, range->east, within, path, longitudes[0], longitudes[grid->columns - 1]);
    window->first_column = first;
    window->width = count;
    window->period = period;
done:
    return status;
}

vt_status vt_window_find(const vt_window_range *range, const vt_fields_about *grid, const char *path,
                         vt_frame_window *window)
{
    vt_status status = VT_OK;
    *window = (vt_frame_window){0, grid->rows, 0, grid->columns, 0};
    VT_TRY(find_rows(range, grid, path, window));
    VT_TRY(find_columns(range, grid, path, window));
done:
    return status;
}

/* ---- advice ---- */

/* A longitude in the terms of the range: not before its western end. */
static double longitude_at(const vt_window_range *range, const vt_fields_about *grid, const vt_frame_window *window,
                           int64_t column)
{
    return range->west + eastwards(range->west, grid->longitudes[vt_window_column(window, column)]);
}

char *vt_window_advice(const vt_window_range *range, const vt_fields_about *grid, const vt_frame_window *window,
                       int64_t patch)
{
    vt_text text = {0};
    const int64_t sizes[2] = {window->rows, window->width};
    for (int k = 0; k < 2; k++) {
        const bool by_range = k == 0 ? range->by_rows : range->by_columns;
        const char *what = k == 0 ? "lat_range" : "lon_range", *unit = k == 0 ? "rows" : "columns";
        const int64_t below = sizes[k] - sizes[k] % patch, above = below + patch;
        if (sizes[k] % patch == 0 || !by_range) continue;
        for (int j = 0; j < 2; j++) {
            const int64_t size = j == 0 ? below : above;
            const int64_t room = k == 0 ? grid->rows - window->first_row
                                        : (window->period > 0 ? window->period : grid->columns - window->first_column);
            if (size == 0 || size > room) continue;
            vt_frame_window changed = *window;
            changed.width = size;
            const double low =
                k == 0 ? grid->latitudes[window->first_row + size - 1] : longitude_at(range, grid, &changed, 0);
            const double high =
                k == 0 ? grid->latitudes[window->first_row] : longitude_at(range, grid, &changed, size - 1);
            vt_text_append(&text, "%s%s [%g, %g] would be %ld %s", text.length > 0 ? ", " : "", what, low, high, size,
                           unit);
        }
    }
    return text.characters;
}
