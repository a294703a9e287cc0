/* Tables of numbers with a header line of names: the .csv files of a run, read back for reports and live views. */
#ifndef VT_REPORT_TABLE_H
#define VT_REPORT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

typedef struct {
    int64_t rows;
    vt_names names;  /* of the columns */
    double *values;  /* [rows, columns]; NAN for cells without a number */
    vt_names labels; /* [rows]: the text of the first cells; none unless asked for */
    vt_names units;  /* [rows]: with labels, the text of the column "units"; none: there is no such column */
} vt_table;

/* labelled: with labels. Ignores an unfinished last line (without line end). Errors: no such file, no header line. */
vt_status vt_table_open(const char *path, bool labelled, vt_table *table);
void vt_table_close(vt_table *table);

/* The index of the column with this name; -1: none. */
int64_t vt_table_find(const vt_table *table, const char *name);

/* Values of a column, names.count apart: pointers into the table; NULL if there is no such column, or no row. */
const double *vt_table_column(const vt_table *table, const char *name);

/* Fails if one of these columns, which NULL ends, is missing. */
vt_status vt_table_need(const vt_table *table, const char *path, const char *const *columns);

/* NAN if there is no such column or row; row -1 is the last. */
double vt_table_value(const vt_table *table, int64_t row, const char *name);

/* The sum of a column's finite numbers. */
double vt_table_sum(const vt_table *table, const char *name);

#endif
