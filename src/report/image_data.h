/* What pictures are drawn with: a font, a colour map, and the coasts of the Earth. */
#ifndef VT_REPORT_IMAGE_DATA_H
#define VT_REPORT_IMAGE_DATA_H

#include <stdint.h>

enum { VT_FONT_FIRST = ' ', VT_FONT_LAST = '~' };

/* The printable characters of ASCII as strokes: the glyph's left and right side, then x and y of each point, all as
 * letters whose distance from 'R' counts units, y downwards. " R" lifts the pen. */
extern const char *const vt_font_glyphs[VT_FONT_LAST - VT_FONT_FIRST + 1];

/* Turbo: from dark blue through green to dark red, 0xRRGGBB. */
extern const uint32_t vt_turbo_colours[256];

/* Coastlines: of each point its longitude and its latitude, two digits each in base VT_COAST_BASE, where VT_COAST_ZERO
 * is 0. The smallest numbers are 180 degrees west and 90 south, the largest 180 east and 90 north. Four blanks end a
 * line. */
enum { VT_COAST_BASE = 91, VT_COAST_ZERO = '$' };
extern const char vt_coastlines[];

#endif
