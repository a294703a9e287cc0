/* Pictures: fields side by side in false colours, as PNG; and the sides of maps, with their degrees and ticks. */
#ifndef VT_REPORT_IMAGE_H
#define VT_REPORT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* RGB, 8 bits each. */
typedef struct {
    int width, height;
    void *bytes; /* [size], malloc'd, also after an error */
    size_t size;
} vt_png;

typedef struct {
    const char *title;  /* above it; ASCII */
    const float *field; /* [height, width]; row 0 is the north */
} vt_map;

typedef struct {
    const char *title; /* above all; ASCII */
    vt_map before;     /* drawn first, at the left; its field NULL: not drawn */
    vt_map left, right;
    int64_t height, width;
    const char *difference_title; /* of another map, right - left, with a colour bar of its own; NULL: none */
    const double *latitudes;      /* [height], degrees, for ticks at the sides; NULL: not known */
    const double *longitudes;     /* [width], the same */
    bool on_earth;                /* where both are known, its coasts are drawn */
    bool is_signed;               /* 0 has a meaning, as for winds: drawn like the difference */
} vt_comparison;

/* Draws these fields in turbo's colours, with one colour bar, whose range is that of the left field: values of another
 * field outside it get the bar's end colours, NaN is grey. The difference, and signed fields, are blue below 0, white
 * at 0 and red above, with a symmetric range. Small grids are enlarged by a whole factor. */
vt_status vt_image_compare(const vt_comparison *comparison, vt_png *png);

/* ---- sides of maps: where degrees lie between grid points, ticks at round degrees and their labels: 30N, 120W ---- */

enum { VT_MAP_TICKS = 24, VT_MAP_LABEL_SIZE = 16 };

typedef struct {
    int64_t count; /* of grid points along the side; 0: where they lie isn't known, and there are no ticks */
    bool longitudes;
    double *degrees; /* [count], monotonic: longitudes go on beyond 360 or below -180 */
    int tick_count;
    double ticks[VT_MAP_TICKS]; /* in grid points: 0 is the middle of the first point */
    char labels[VT_MAP_TICKS][VT_MAP_LABEL_SIZE];
} vt_map_side;

/* degrees [count]: of the grid points, in order along the side, with any spacing; longitudes may wrap from 360 to 0, or
 * from 180 to -180. NULL, a single point, or degrees that are not monotonic, give a side of unknown degrees. Ticks are
 * at least `room` grid points apart. */
vt_map_side vt_map_side_open(const double *degrees, int64_t count, bool longitudes, double room);
void vt_map_side_close(vt_map_side *side);

#endif
