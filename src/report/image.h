/* Pictures: fields side by side in false colours, as PNG. */
#ifndef VT_REPORT_IMAGE_H
#define VT_REPORT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* RGB, 8 bits each, rows from the top. */
typedef struct {
    int width, height;
    uint8_t *pixels; /* [height, width, 3] */
} vt_image;

void vt_image_close(vt_image *image);

typedef struct {
    const char *title;                    /* ASCII; above both */
    const char *left_title, *right_title; /* above each */
    const char *before_title;             /* of a field that is drawn first, at the left; NULL: none */
    const float *before;
    const float *left, *right; /* [height, width]; row 0 is the north */
    int64_t height, width;
    const char *difference_title; /* title of a third field, right - left, with a colour bar of its own; NULL: none */
    const double *latitudes;      /* [height], degrees, for ticks at the sides; NULL: not known */
    const double *longitudes;     /* [width], the same */
    bool on_earth;                /* where both are known, its coasts are drawn */
    bool is_signed;               /* 0 has a meaning, as for winds: drawn like the difference */
} vt_comparison;

/* Draws these fields in turbo's colours, with one colour bar, whose range is that of the left field: values of another
 * field outside it get the bar's end colours, NaN is grey. The difference, and signed fields, are blue below 0, white
 * at 0 and red above, with a symmetric range. Small grids are enlarged by a whole factor. */
void vt_image_compare(const vt_comparison *comparison, vt_image *image);

/* *png is malloc'd. */
vt_status vt_image_encode(const vt_image *image, void **png, size_t *size);

#endif
