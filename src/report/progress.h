/* The line below the log that shows the progress of a run on a terminal, and the small curve in it. A file or a pipe
 * never gets it. */
#ifndef VT_REPORT_PROGRESS_H
#define VT_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* ---- a curve as a few characters of text: "█▆▄▃▂▂▁▁" ---- */

enum { VT_SPARKLINE_BUCKETS = 64, VT_SPARKLINE_SIZE = 3 * VT_SPARKLINE_BUCKETS + 1 };

/* The whole history of a value in little memory. Start with {0}. */
typedef struct {
    double sums[VT_SPARKLINE_BUCKETS]; /* of 2^doublings values each; the last one may be of fewer */
    int64_t count;                     /* of all values */
    int doublings;
} vt_sparkline;

/* Ignores NaN and infinity. */
void vt_sparkline_add(vt_sparkline *line, double value);

/* At most `columns` characters of UTF-8, lowest value at the bottom, highest at the top; "" for fewer than two
 * values. */
void vt_sparkline_format(const vt_sparkline *line, int columns, char text[VT_SPARKLINE_SIZE]);

/* ---- the line ---- */

typedef struct {
    int64_t epoch, epochs; /* 1 for the first */
    int64_t step, steps;   /* done in this epoch, and the epoch's length */
    double loss;
    double samples_per_sec;
    double data_wait;       /* fraction of the time spent waiting for data, 0 … 1 */
    double seconds_left;    /* in the whole run */
    double validation_loss; /* the last validation's; NAN or 0 before the first */
    vt_sparkline history;   /* of the loss */
} vt_progress_figures;

typedef struct vt_progress vt_progress;

/* Is standard output watched as it is drawn? Not under Open MPI: it gives its ranks a terminal as standard output even
 * if its own goes into a file. (Other launchers give them pipes.) */
bool vt_progress_is_seen(int descriptor);

/* NULL if vt_progress_is_seen is false; the functions below then do nothing. Printing a line of the log clears the bar
 * first. Colours unless NO_COLOR is set (https://no-color.org) or TERM is dumb. */
vt_progress *vt_progress_open(void);

/* Redraws, at most ten times a second, in the terminal's current width. */
void vt_progress_show(vt_progress *progress, const vt_progress_figures *figures);

/* Clears the bar. */
void vt_progress_close(vt_progress **progress);

/* The text of the bar, at most `columns` wide (colours not counted), with the history only if the locale is UTF-8; the
 * least important parts are dropped first. */
enum { VT_PROGRESS_SIZE = 1024 };
void vt_progress_format(const vt_progress_figures *figures, int columns, bool colour, char text[VT_PROGRESS_SIZE]);

#endif
