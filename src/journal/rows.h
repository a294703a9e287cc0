/* The .csv files that grow with a run: metrics.csv, epochs.csv and others. */
#ifndef VT_JOURNAL_ROWS_H
#define VT_JOURNAL_ROWS_H

#include <stdint.h>

#include "base/status.h"

/* A .csv file whose first column is the step. The functions take NULL: no file, so nothing is written. */
typedef struct vt_rows vt_rows;

/* Makes the file with this line of names when `steps` is 0; else the rows up to that step stay, and what follows them
 * is cut off. A file with other names is set aside, with a warning. */
vt_status vt_rows_open(const char *path, const char *names, int64_t steps, vt_rows **rows);

/* Adds text, written through to the file at once. When this fails (a full disk, say), the file is closed, and later
 * rows are dropped. */
vt_status vt_rows_add(vt_rows *rows, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits until the rows are on the disk. */
vt_status vt_rows_synchronise(vt_rows *rows);

void vt_rows_close(vt_rows **rows);

#endif
