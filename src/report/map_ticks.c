#include "report/map_ticks.h"

#include <math.h>
#include <stdio.h>

double vt_tick_step(double least)
{
    const double power = pow(10, floor(log10(least))), ratio = least / power;
    return power * (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1);
}

/* The degrees of point i, rounded to the precision of float32 coordinates, plus `turns` full circles where longitudes
 * wrapped. */
static double degrees_at(const double *degrees, int64_t i, double turns)
{
    return round(1e4 * (degrees[i] + 360 * turns)) / 1e4;
}

/* How many circles to add from here on: longitudes that jump by more than half a circle have wrapped. */
static double next_turns(const double *degrees, int64_t i, bool longitudes, double turns)
{
    const double step = degrees[i] - degrees[i - 1];
    return longitudes && fabs(step) > 180 ? turns - (step > 0 ? 1 : -1) : turns;
}

/* Signed degrees from the first point to the last; 0 if they are not monotonic. */
static double span_of(const double *degrees, int64_t count, bool longitudes)
{
    double turns = 0, before = degrees_at(degrees, 0, 0), span = 0;
    for (int64_t i = 1; i < count; i++) {
        turns = next_turns(degrees, i, longitudes, turns);
        const double here = degrees_at(degrees, i, turns), step = here - before;
        if (!isfinite(here) || step == 0 || step * span < 0) return 0;
        span += step;
        before = here;
    }
    return span;
}

static void write_label(double value, bool longitude, char label[VT_MAP_LABEL_SIZE])
{
    if (longitude) value -= 360 * ceil((value - 180) / 360); /* -180 … 180 */
    value = round(1e4 * value) / 1e4;
    const bool none = value == 0 || (longitude && fabs(value) == 180);
    const char *side = longitude ? (value < 0 ? "W" : "E") : (value < 0 ? "S" : "N");
    snprintf(label, VT_MAP_LABEL_SIZE, "%.6g%s", fabs(value), none ? "" : side);
}

/* The ticks between points i - 1 and i, whose degrees are `from` and `to`; `to` itself only at the last point. */
static void add_between(double from, double to, int64_t i, bool last, double step, bool longitudes, vt_map_ticks *ticks)
{
    const double low = fmin(from, to), high = fmax(from, to);
    for (double k = ceil(low / step - 1e-9); k * step <= high + 1e-9 && ticks->count < VT_MAP_TICKS; k++) {
        const double value = k * step, share = (value - from) / (to - from);
        if (share > 1 - 1e-9 && !last) continue;
        ticks->at[ticks->count] = (double)(i - 1) + share;
        write_label(value, longitudes, ticks->labels[ticks->count++]);
    }
}

void vt_map_ticks_place(const double *degrees, int64_t count, bool longitudes, double room, vt_map_ticks *ticks)
{
    static const double steps[] = {15, 20, 30, 45, 60, 90}; /* beyond 10 */
    ticks->count = 0;
    if (degrees == NULL || count < 2) return;
    const double span = fabs(span_of(degrees, count, longitudes));
    if (span == 0) return;
    const double least = room * span / (double)(count - 1) * (1 - 1e-6);
    double step = least <= 10 ? vt_tick_step(fmax(least, 0.01)) : 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && step == 0; i++)
        if (steps[i] >= least) step = steps[i];
    double turns = 0, before = degrees_at(degrees, 0, 0);
    for (int64_t i = 1; i < count && step > 0; i++) {
        turns = next_turns(degrees, i, longitudes, turns);
        const double here = degrees_at(degrees, i, turns);
        add_between(before, here, i, i == count - 1, step, longitudes, ticks);
        before = here;
    }
}
