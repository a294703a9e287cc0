/* The .csv files that grow with a run: metrics.csv, epochs.csv and others. */
#ifndef VT_JOURNAL_ROWS_H
#define VT_JOURNAL_ROWS_H

#include <stdint.h>

#include "base/status.h"

/* What a file has: one row a step; one row an epoch; or any number of rows for each step, the last column a text in
 * quotes. The first column is the step, the second the epoch. */
typedef enum { VT_ROWS_STEPS, VT_ROWS_EPOCHS, VT_ROWS_SAMPLES } vt_rows_kind;

/* The functions take NULL: no file, so nothing is written. */
typedef struct vt_rows vt_rows;

/* Makes the file `name` in this directory with this line of names when `last` is 0. Else rows up to that step or epoch
 * stay, and those behind are cut off: the run writes them again. Lines among them that are damaged are left out, and
 * the file as it was kept beside it, with a warning; another one says which steps or epochs have no row. A file with
 * other names is set aside, with a warning. */
vt_status vt_rows_open(const char *directory, const char *name, const char *names, vt_rows_kind kind, int64_t last,
                       vt_rows **rows);

/* Adds text, written through to the file at once. When this fails (a full disk, say), the file is closed, and later
 * rows are dropped. */
vt_status vt_rows_add(vt_rows *rows, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits until the rows are on the disk, as a checkpoint that comes behind them needs. */
vt_status vt_rows_synchronise(vt_rows *rows);

void vt_rows_close(vt_rows **rows);

#endif
