/* Cells of .csv files. */
#ifndef VT_BASE_CSV_H
#define VT_BASE_CSV_H

#include <stdio.h>

#include "base/text.h"

/* ",1.25" with nine digits; nothing after the comma where the value is NaN. */
void vt_csv_number(FILE *file, double value);

/* In quotes where it holds a comma, a quote or the end of a line; after an apostrophe where a spreadsheet would take it
 * for a formula: where it begins with = + - @ or a tab and holds more. */
void vt_csv_text(FILE *file, const char *text);
void vt_csv_append(vt_text *line, const char *text);

/* The text that was written, of a cell whose quotes are removed: its end, perhaps without an apostrophe. */
const char *vt_csv_written(const char *cell);

#endif
