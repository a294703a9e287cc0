#include "report/sparkline.h"

#include <math.h>
#include <string.h>

void vt_sparkline_add(vt_sparkline *line, double value)
{
    if (!isfinite(value)) return;
    if (line->used == VT_SPARKLINE_BUCKETS &&
        line->counts[line->used - 1] == line->run) { /* when full, pairs are averaged */
        for (int i = 0; i < VT_SPARKLINE_BUCKETS / 2; i++) {
            line->sums[i] = line->sums[2 * i] + line->sums[2 * i + 1];
            line->counts[i] = line->counts[2 * i] + line->counts[2 * i + 1];
        }
        line->used /= 2;
        line->run *= 2;
    }
    if (line->used == 0 || line->counts[line->used - 1] == line->run) {
        line->sums[line->used] = 0;
        line->counts[line->used++] = 0;
    }
    line->sums[line->used - 1] += value;
    line->counts[line->used - 1]++;
}

void vt_sparkline_format(const vt_sparkline *line, int columns, char text[VT_SPARKLINE_SIZE])
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double values[VT_SPARKLINE_BUCKETS], low = INFINITY, high = -INFINITY;
    int shown = line->used < columns ? line->used : columns;
    text[0] = '\0';
    if (shown < 2) return;
    for (int i = 0; i < shown; i++) {
        double sum = 0, count = 0;
        for (int j = i * line->used / shown; j < (i + 1) * line->used / shown; j++) {
            sum += line->sums[j];
            count += (double)line->counts[j];
        }
        values[i] = sum / count;
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    for (int i = 0; i < shown; i++)
        strcat(text, blocks[high > low ? (int)(7.999 * (values[i] - low) / (high - low)) : 0]);
}
