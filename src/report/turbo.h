/* The turbo colour map: dark blue, through green, to dark red. */
#ifndef VT_REPORT_TURBO_H
#define VT_REPORT_TURBO_H

#include <stdint.h>

extern const uint32_t vt_turbo_colours[256]; /* 0xRRGGBB */

#endif
