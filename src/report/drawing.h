/* Rectangles, smooth lines and text in a picture, and the tables that they are drawn with: font, colours, coasts. What
 * lies outside of the picture, or of the given box, isn't drawn. Also the steps of an axis, for charts, too. */
#ifndef VT_REPORT_DRAWING_H
#define VT_REPORT_DRAWING_H

#include <stdbool.h>
#include <stdint.h>

/* RGB, 8 bits each, rows from the top. */
typedef struct {
    int width, height;
    uint8_t *pixels; /* [height, width, 3] */
} vt_image;

/* In pixels. */
typedef struct {
    int left, top, width, height;
} vt_box;

typedef struct {
    double from_x, from_y, to_x, to_y; /* in pixels; 0.5 is the middle of the first one */
} vt_stroke;

enum { VT_TEXT_HEIGHT = 23 }; /* of a line of text */

void vt_draw_box(vt_image *image, int left, int top, int width, int height, uint32_t colour);

/* Lines of this width, mixed with what is below by `opacity`, 0 … 1; where strokes overlap, they count once. */
void vt_draw_strokes(vt_image *image, vt_box box, const vt_stroke *strokes, int64_t count, double width,
                     uint32_t colour, double opacity);

/* The first character begins at left, the line at top. Characters outside ASCII are drawn as '?'. */
void vt_draw_text(vt_image *image, int left, int top, const char *text, uint32_t colour);
int vt_draw_text_width(const char *text);

static inline int vt_larger(int a, int b)
{
    return a > b ? a : b;
}

/* The smallest of 1, 2 and 5 times a power of ten that is at least `least`, which is above 0: what lies between the
 * ticks of an axis. */
double vt_tick_step(double least);

/* The colour at a position from 0 to 1 as 0xRRGGBB: turbo, from dark blue through green to dark red; or diverging, from
 * dark blue through white to dark red. */
uint32_t vt_colour_at(bool diverging, double position);

/* ---- what pictures are drawn with, in files of their own: a font, and the coasts of the Earth ---- */

enum { VT_FONT_FIRST = ' ', VT_FONT_LAST = '~' };

/* The printable characters of ASCII as strokes: the glyph's left and right side, then x and y of each point, all as
 * letters whose distance from 'R' counts units, y downwards. " R" lifts the pen. */
extern const char *const vt_font_glyphs[VT_FONT_LAST - VT_FONT_FIRST + 1];

/* Coastlines, in digits of base VT_COAST_BASE, the smallest of which is VT_COAST_ZERO. A line begins with a blank, and
 * the longitude and latitude of its first point, two digits each: the smallest numbers are 180 degrees west and 90
 * south, the largest 180 east and 90 north. Each further point has one digit for each, the steps from the last point
 * plus VT_COAST_BASE / 2; or, where these are too many, a '!' and four digits like those of a first point. */
enum { VT_COAST_BASE = 91, VT_COAST_ZERO = '$' };
extern const char vt_coastlines[];

#endif
