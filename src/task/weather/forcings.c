#include "task/weather/forcings.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

enum { MINUTES_A_DAY = 24 * 60 };

#define MEAN_HEIGHT 0.25                   /* of cos_zenith over the sphere */
#define DEVIATION_OF_HEIGHT sqrt(5 / 48.0) /* its mean square is 1/6 */

bool vt_forcing_changes(vt_forcing forcing)
{
    return forcing <= VT_FORCING_COS_ZENITH;
}

bool vt_forcing_needs_latitudes(vt_forcing forcing)
{
    return forcing == VT_FORCING_COS_ZENITH || forcing == VT_FORCING_SIN_LAT || forcing == VT_FORCING_COS_LAT;
}

bool vt_forcing_needs_longitudes(vt_forcing forcing)
{
    return forcing == VT_FORCING_COS_ZENITH || forcing == VT_FORCING_SIN_LON || forcing == VT_FORCING_COS_LON;
}

/* ---- the sun ---- */

double vt_sun_declination(double year)
{
    const double day = 2 * M_PI * year;
    return 0.006918 - 0.399912 * cos(day) + 0.070257 * sin(day) - 0.006758 * cos(2 * day) + 0.000907 * sin(2 * day) -
           0.002697 * cos(3 * day) + 0.00148 * sin(3 * day);
}

double vt_sun_equation_of_time(double year)
{
    const double day = 2 * M_PI * year;
    return 0.0000075 + 0.001868 * cos(day) - 0.032077 * sin(day) - 0.014615 * cos(2 * day) - 0.040849 * sin(2 * day);
}

/* The part of the day that is over. */
static double day_over(vt_date date)
{
    return (double)vt_date_of_day(date) / MINUTES_A_DAY;
}

/* A part of the step, at most a day, through which the declination is that of its middle. */
typedef struct {
    double declination;
    double from, span; /* hour angles at longitude 0: of its beginning, and from there to its end */
} sun_path;

static sun_path path_of(vt_date date, int64_t minutes)
{
    const double year = vt_date_of_year((vt_date){date.calendar, date.minutes + minutes / 2});
    const double span = 2 * M_PI * (double)minutes / MINUTES_A_DAY;
    return (sun_path){vt_sun_declination(year), 2 * M_PI * (day_over(date) - 0.5) + vt_sun_equation_of_time(year),
                      span};
}

/* A column's hour angles at the path's beginning, from -π to π, and at its end, and their sines. */
typedef struct {
    double from, to, sin_from, sin_to;
} column_angles;

/* The integral of max(0, a + b cos h) over a column's hour angles, b > 0. The sun is up from -rise to rise, and a day
 * later again. */
static double integrate(double a, double b, double rise, double sin_rise, const column_angles *column)
{
    const double next = 2 * M_PI - rise;
    double sum = 0;
    if (column->from < rise && column->to > -rise) {
        const bool rises = column->from<-rise, sets = column->to> rise;
        sum += a * ((sets ? rise : column->to) - (rises ? -rise : column->from));
        sum += b * ((sets ? sin_rise : column->sin_to) - (rises ? -sin_rise : column->sin_from));
    }
    if (column->to > next) {
        const bool sets = column->to > 2 * M_PI + rise;
        sum += a * ((sets ? 2 * M_PI + rise : column->to) - next);
        sum += b * ((sets ? sin_rise : column->sin_to) + sin_rise);
    }
    return sum;
}

/* heights [rows, width] += the integral of the sun's height over the path. */
static void add_path(const sun_path *path, const double *latitudes, int64_t rows, const double *longitudes,
                     int64_t width, column_angles *columns, double *heights)
{
    for (int64_t x = 0; x < width; x++) {
        const double from = remainder(path->from + longitudes[x] * M_PI / 180, 2 * M_PI), to = from + path->span;
        columns[x] = (column_angles){from, to, sin(from), sin(to)};
    }
    for (int64_t y = 0; y < rows; y++) {
        const double latitude = latitudes[y] * M_PI / 180;
        const double a = sin(latitude) * sin(path->declination), b = fabs(cos(latitude)) * cos(path->declination);
        const double rise = a >= b ? M_PI : a <= -b ? 0 : acos(-a / b), sin_rise = sin(rise);
        for (int64_t x = 0; x < width && rise > 0; x++)
            heights[y * width + x] += integrate(a, b, rise, sin_rise, &columns[x]);
    }
}

static void mean_height(vt_date date, int64_t step, const double *latitudes, int64_t rows, const double *longitudes,
                        int64_t width, float *field)
{
    const int64_t minutes = vt_date_after(date, step).minutes - date.minutes;
    double *heights = vt_allocate((size_t)(rows * width), sizeof *heights, "the sun's height");
    column_angles *columns = vt_allocate((size_t)width, sizeof *columns, "the sun's height");
    for (int64_t begin = 0, length; begin < minutes; begin += length) {
        length = minutes - begin < MINUTES_A_DAY ? minutes - begin : MINUTES_A_DAY;
        const sun_path path = path_of((vt_date){date.calendar, date.minutes + begin}, length);
        add_path(&path, latitudes, rows, longitudes, width, columns, heights);
    }
    const double whole = 2 * M_PI * (double)minutes / MINUTES_A_DAY;
    for (int64_t i = 0; i < rows * width; i++)
        field[i] = (float)((heights[i] / whole - MEAN_HEIGHT) / DEVIATION_OF_HEIGHT);
    free(heights);
    free(columns);
}

/* ---- fields ---- */

static bool is_sine(vt_forcing forcing)
{
    return forcing == VT_FORCING_SIN_YEAR || forcing == VT_FORCING_SIN_DAY || forcing == VT_FORCING_SIN_LAT ||
           forcing == VT_FORCING_SIN_LON;
}

void vt_forcing_field(vt_forcing forcing, vt_date date, int64_t step, const double *latitudes, int64_t rows,
                      const double *longitudes, int64_t width, float *field)
{
    const bool of_year = forcing == VT_FORCING_SIN_YEAR || forcing == VT_FORCING_COS_YEAR;
    double (*of)(double) = is_sine(forcing) ? sin : cos;
    if (forcing == VT_FORCING_COS_ZENITH) {
        mean_height(date, step, latitudes, rows, longitudes, width, field);
        return;
    }
    const double now = of(2 * M_PI * (of_year ? vt_date_of_year(date) : day_over(date)));
    for (int64_t i = 0; i < rows * width; i++)
        field[i] = (float)(vt_forcing_changes(forcing)           ? now
                           : vt_forcing_needs_latitudes(forcing) ? of(latitudes[i / width] * M_PI / 180)
                                                                 : of(longitudes[i % width] * M_PI / 180));
}
