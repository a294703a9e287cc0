/* What pictures are drawn with: a small font and a colour map. */
#ifndef VT_REPORT_IMAGE_DATA_H
#define VT_REPORT_IMAGE_DATA_H

#include <stdint.h>

enum { VT_FONT_WIDTH = 6, VT_FONT_HEIGHT = 13, VT_FONT_FIRST = ' ', VT_FONT_LAST = '~' };

/* The printable characters of ASCII. */
extern const uint8_t vt_font_glyphs[VT_FONT_LAST - VT_FONT_FIRST + 1][VT_FONT_HEIGHT];

/* Turbo: from dark blue through green to dark red, 0xRRGGBB. */
extern const uint32_t vt_turbo_colours[256];

#endif
