#include "base/csv.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

void vt_csv_number(FILE *file, double value)
{
    if (isnan(value))
        fprintf(file, ",");
    else
        fprintf(file, ",%.9g", value);
}

void vt_csv_text(FILE *file, const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted) fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    if (quoted) fputc('"', file);
}
