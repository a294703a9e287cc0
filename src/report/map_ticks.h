/* Where round degrees lie along a side of a map, and how they are written: 30N, 120W. */
#ifndef VT_REPORT_MAP_TICKS_H
#define VT_REPORT_MAP_TICKS_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_MAP_TICKS = 24, VT_MAP_LABEL_SIZE = 16 };

typedef struct {
    int count;
    double at[VT_MAP_TICKS]; /* in grid points: 0 is the middle of the first */
    char labels[VT_MAP_TICKS][VT_MAP_LABEL_SIZE];
} vt_map_ticks;

/* degrees [count]: of the grid points, in order along the side, at any distances; longitudes may go on at 0 behind 360,
 * or at -180 behind 180. NULL, or degrees that do not all run one way, give no ticks. Ticks are at least `room` grid
 * points apart. */
void vt_map_ticks_place(const double *degrees, int64_t count, bool longitudes, double room, vt_map_ticks *ticks);

#endif
