/* Ticks of axes. Where round degrees lie along a side of a map, and their labels: 30N, 120W. */
#ifndef VT_REPORT_MAP_TICKS_H
#define VT_REPORT_MAP_TICKS_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_MAP_TICKS = 24, VT_MAP_LABEL_SIZE = 16 };

typedef struct {
    int count;
    double at[VT_MAP_TICKS]; /* in grid points: 0 is the middle of the first point */
    char labels[VT_MAP_TICKS][VT_MAP_LABEL_SIZE];
} vt_map_ticks;

/* degrees [count]: of the grid points, in order along the side, with any spacing; longitudes may wrap from 360 to 0, or
 * from 180 to -180. NULL, or degrees that are not monotonic, give no ticks. Ticks are at least `room` grid points
 * apart. */
void vt_map_ticks_place(const double *degrees, int64_t count, bool longitudes, double room, vt_map_ticks *ticks);

/* The smallest of 1, 2 and 5 times a power of ten that is at least `least`, which is above 0: what lies between the
 * ticks of an axis. */
double vt_tick_step(double least);

#endif
