/* Tables of numbers with a line of names on top: the .csv files of a run, read back for reports and live views. */
#ifndef VT_REPORT_TABLE_H
#define VT_REPORT_TABLE_H

#include <stdint.h>

#include "base/status.h"

typedef struct {
    int64_t rows, columns;
    char **names;   /* [columns] */
    double *values; /* [rows, columns]; NAN where no number stands */
} vt_table;

/* A last line that is still being written (no line end yet) is left out. Errors: no such file, no line of names. */
vt_status vt_table_open(const char *path, vt_table *table);
void vt_table_close(vt_table *table);

/* Which column has this name; -1: none. */
int64_t vt_table_find(const vt_table *table, const char *name);

/* NAN when there is no such column or row; row -1 is the last. */
double vt_table_value(const vt_table *table, int64_t row, const char *name);

#endif
