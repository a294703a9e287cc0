#include "report/map_ticks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

double vt_tick_step(double least)
{
    const double power = pow(10, floor(log10(least))), ratio = least / power;
    return power * (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1);
}

vt_map_side vt_map_side_open(const double *degrees, int64_t count, bool longitudes)
{
    vt_map_side side = {0, longitudes, NULL};
    double turns = 0;
    bool monotonic = degrees != NULL && count > 1;
    if (!monotonic) return side;
    side.degrees = vt_allocate((size_t)count, sizeof *side.degrees, "a picture");
    for (int64_t i = 0; i < count && monotonic; i++) {
        const double jump = i > 0 ? degrees[i] - degrees[i - 1] : 0;
        if (longitudes && fabs(jump) > 180) turns -= jump > 0 ? 1 : -1;  /* they wrapped */
        side.degrees[i] = round(1e4 * (degrees[i] + 360 * turns)) / 1e4; /* coordinates may be float32 */
        const double step = i > 0 ? side.degrees[i] - side.degrees[i - 1] : 1;
        monotonic = isfinite(side.degrees[i]) && step != 0 && (i < 2 || step * (side.degrees[1] - *side.degrees) > 0);
    }
    if (monotonic) side.count = count;
    return side;
}

void vt_map_side_close(vt_map_side *side)
{
    free(side->degrees);
    *side = (vt_map_side){0};
}

double vt_map_side_position(const vt_map_side *side, double degrees)
{
    const bool rising = side->degrees[1] > side->degrees[0];
    int64_t low = 0, high = side->count - 1; /* the degrees lie between these points, or beyond an end */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if ((side->degrees[middle] <= degrees) == rising)
            low = middle;
        else
            high = middle;
    }
    return (double)low + (degrees - side->degrees[low]) / (side->degrees[high] - side->degrees[low]);
}

static void write_label(double value, bool longitude, char label[VT_MAP_LABEL_SIZE])
{
    if (longitude) value -= 360 * ceil((value - 180) / 360); /* -180 … 180 */
    value = round(1e4 * value) / 1e4;
    const bool none = value == 0 || (longitude && fabs(value) == 180);
    const char *side = longitude ? (value < 0 ? "W" : "E") : (value < 0 ? "S" : "N");
    snprintf(label, VT_MAP_LABEL_SIZE, "%.6g%s", fabs(value), none ? "" : side);
}

void vt_map_ticks_place(const vt_map_side *side, double room, vt_map_ticks *ticks)
{
    static const double steps[] = {15, 20, 30, 45, 60, 90}; /* beyond 10 */
    ticks->count = 0;
    if (side->count == 0) return;
    const double first = side->degrees[0], last = side->degrees[side->count - 1];
    const double low = fmin(first, last), high = fmax(first, last);
    const double least = room * (high - low) / (double)(side->count - 1) * (1 - 1e-6);
    double step = least <= 10 ? vt_tick_step(fmax(least, 0.01)) : 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && step == 0; i++)
        if (steps[i] >= least) step = steps[i];
    if (step == 0) return;
    for (double k = ceil(low / step - 1e-9); k * step <= high + 1e-9 && ticks->count < VT_MAP_TICKS; k++) {
        ticks->at[ticks->count] = vt_map_side_position(side, k * step);
        write_label(k * step, side->longitudes, ticks->labels[ticks->count++]);
    }
}
