/* Cells of .csv files. */
#ifndef VT_BASE_CSV_H
#define VT_BASE_CSV_H

#include <stdio.h>

/* ",1.25" with nine digits; nothing after the comma where the value is NaN. */
void vt_csv_number(FILE *file, double value);

/* In quotes where it holds a comma, a quote or the end of a line. */
void vt_csv_text(FILE *file, const char *text);

#endif
