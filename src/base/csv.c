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

/* Also one that has apostrophes before it, so that what is written can be told from what was added. */
static bool is_formula(const char *text)
{
    text += strspn(text, "'");
    return text[0] != '\0' && strchr("=+-@\t", text[0]) != NULL && text[1] != '\0';
}

void vt_csv_append(vt_text *line, const char *text)
{
    const char *quote = strpbrk(text, ",\"\r\n") != NULL ? "\"" : "";
    vt_text_append(line, "%s%s", quote, is_formula(text) ? "'" : "");
    for (; *text != '\0'; text++) vt_text_append(line, *text == '"' ? "\"%c" : "%c", *text);
    vt_text_append(line, "%s", quote);
}

void vt_csv_text(FILE *file, const char *text)
{
    vt_text cell = {0};
    vt_csv_append(&cell, text);
    fputs(cell.characters, file);
    vt_text_close(&cell);
}

const char *vt_csv_written(const char *cell)
{
    return cell + (cell[0] == '\'' && is_formula(cell));
}
