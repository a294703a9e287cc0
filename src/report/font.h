/* A small built-in font for pictures: the printable characters of ASCII. */
#ifndef VT_REPORT_FONT_H
#define VT_REPORT_FONT_H

#include <stdint.h>

enum { VT_FONT_WIDTH = 6, VT_FONT_HEIGHT = 13, VT_FONT_FIRST = ' ', VT_FONT_LAST = '~' };

extern const uint8_t vt_font_glyphs[VT_FONT_LAST - VT_FONT_FIRST + 1][VT_FONT_HEIGHT];

#endif
