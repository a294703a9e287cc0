/* A curve as a few characters of text: "█▆▄▃▂▂▁▁". */
#ifndef VT_REPORT_SPARKLINE_H
#define VT_REPORT_SPARKLINE_H

#include <stdint.h>

enum { VT_SPARKLINE_BUCKETS = 64, VT_SPARKLINE_SIZE = 3 * VT_SPARKLINE_BUCKETS + 1 };

/* The whole history of a value in little memory: means over `run` values each. Begin with {.run = 1}. */
typedef struct {
    double sums[VT_SPARKLINE_BUCKETS];
    int64_t counts[VT_SPARKLINE_BUCKETS];
    int64_t run;
    int used;
} vt_sparkline;

/* Ignores NaN and infinity. */
void vt_sparkline_add(vt_sparkline *line, double value);

/* At most `columns` characters of UTF-8, lowest value at the bottom, highest at the top; "" for fewer than two
 * values. */
void vt_sparkline_format(const vt_sparkline *line, int columns, char text[VT_SPARKLINE_SIZE]);

#endif
