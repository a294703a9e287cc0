/* The line below the log that shows, on a terminal, how far a run is. A file or a pipe never sees it. */
#ifndef VT_REPORT_PROGRESS_H
#define VT_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "report/sparkline.h"

typedef struct {
    int64_t epoch, epochs; /* 1 for the first */
    int64_t step, steps;   /* done in this epoch, and its length */
    double loss;
    double samples_per_sec;
    double data_wait;       /* share of the time that was spent waiting for data, 0 … 1 */
    double seconds_left;    /* of the whole run */
    double validation_loss; /* the last one; NAN, or 0, before the first */
    vt_sparkline history;   /* of the loss */
} vt_progress_figures;

typedef struct vt_progress vt_progress;

/* Does somebody see what is written there as it is drawn? Under Open MPI nobody does: it gives its ranks a terminal as
 * standard output even where its own goes into a file. (Other launchers give them pipes.) */
bool vt_progress_is_seen(int descriptor);

/* NULL when standard output is not a terminal, as vt_progress_is_seen has it; the functions below then do nothing.
 * Lines of the log take the bar away before they are printed. Colours unless NO_COLOR is set (https://no-color.org) or
 * TERM is dumb. */
vt_progress *vt_progress_open(void);

/* Redraws, at most ten times a second, in the terminal's width of this moment. */
void vt_progress_show(vt_progress *progress, const vt_progress_figures *figures);

/* Takes the bar away. */
void vt_progress_close(vt_progress **progress);

/* The text of the bar, at most `columns` wide (colours not counted), with the
 * history only where the locale is UTF-8; what matters least is left out first. */
enum { VT_PROGRESS_SIZE = 1024 };
void vt_progress_format(const vt_progress_figures *figures, int columns, bool colour, char text[VT_PROGRESS_SIZE]);

#endif
