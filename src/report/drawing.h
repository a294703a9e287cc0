/* Rectangles, smooth lines and text in a picture. What lies outside of it, or of the given box, isn't drawn. */
#ifndef VT_REPORT_DRAWING_H
#define VT_REPORT_DRAWING_H

#include "report/image.h"

/* In pixels. */
typedef struct {
    int left, top, width, height;
} vt_box;

typedef struct {
    double from_x, from_y, to_x, to_y; /* in pixels; 0.5 is the middle of the first one */
} vt_stroke;

enum { VT_TEXT_HEIGHT = 23 }; /* of a line of text */

void vt_draw_box(vt_image *image, vt_box box, uint32_t colour);

/* Lines of this width, mixed with what is below by `opacity`, 0 … 1; where strokes overlap, they count once. */
void vt_draw_strokes(vt_image *image, vt_box box, const vt_stroke *strokes, int64_t count, double width,
                     uint32_t colour, double opacity);

/* The first character begins at left, the line at top. Characters outside ASCII are drawn as '?'. */
void vt_draw_text(vt_image *image, int left, int top, const char *text, uint32_t colour);
int vt_draw_text_width(const char *text);

#endif
