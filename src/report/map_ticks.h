/* Sides of maps: where degrees lie between grid points, ticks at round degrees and their labels: 30N, 120W. */
#ifndef VT_REPORT_MAP_TICKS_H
#define VT_REPORT_MAP_TICKS_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_MAP_TICKS = 24, VT_MAP_LABEL_SIZE = 16 };

/* The grid points along a side. */
typedef struct {
    int64_t count; /* 0: where they lie isn't known */
    bool longitudes;
    double *degrees; /* [count], monotonic: longitudes go on beyond 360 or below -180 */
} vt_map_side;

typedef struct {
    int count;
    double at[VT_MAP_TICKS]; /* in grid points: 0 is the middle of the first point */
    char labels[VT_MAP_TICKS][VT_MAP_LABEL_SIZE];
} vt_map_ticks;

/* degrees [count]: of the grid points, in order along the side, with any spacing; longitudes may wrap from 360 to 0, or
 * from 180 to -180. NULL, a single point, or degrees that are not monotonic, give a side of unknown degrees. */
vt_map_side vt_map_side_open(const double *degrees, int64_t count, bool longitudes);
void vt_map_side_close(vt_map_side *side);

/* Where these degrees lie, in grid points; beyond the ends as far as the last two points are apart. The side is known.
 */
double vt_map_side_position(const vt_map_side *side, double degrees);

/* Ticks at least `room` grid points apart; none on an unknown side. */
void vt_map_ticks_place(const vt_map_side *side, double room, vt_map_ticks *ticks);

/* The smallest of 1, 2 and 5 times a power of ten that is at least `least`, which is above 0: what lies between the
 * ticks of an axis. */
double vt_tick_step(double least);

#endif
