#include "report/table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

/* Removes the quotes of a cell that begins with one, in place; returns where it ends. */
static char *unquote(char *cell)
{
    char *to = cell, *from = cell + 1;
    for (; *from != '\0' && !(from[0] == '"' && from[1] != '"'); from++) {
        if (*from == '"') from++;
        *to++ = *from;
    }
    if (*from == '"') from++;
    if (to < from) *to = '\0';
    return from;
}

/* Cuts "a" out of "a,b,c" at *line and moves *line past the comma; NULL after the last cell. */
static char *next_cell(char **line)
{
    char *cell = *line, *end = strchr(*cell == '"' ? unquote(cell) : cell, ',');
    *line = end != NULL ? end + 1 : NULL;
    if (end != NULL) *end = '\0';
    return cell;
}

static void take_row(vt_table *table, char *line, bool labelled)
{
    const int64_t units = labelled ? vt_table_find(table, "units") : -1, index = table->rows++;
    table->values =
        vt_grow(table->values, (size_t)index, (size_t)table->names.count * sizeof *table->values, "a table");
    double *row = table->values + index * table->names.count;
    for (int64_t c = 0; c < table->names.count; c++) {
        const char *cell = line != NULL ? next_cell(&line) : "";
        char *end = NULL;
        if (labelled && (c == 0 || c == units))
            vt_names_take(c == 0 ? &table->labels : &table->units, vt_text_clean(vt_csv_written(cell)));
        row[c] = strtod(cell, &end);
        if (end == cell) row[c] = NAN;
    }
}

vt_status vt_table_open(const char *path, bool labelled, vt_table *table)
{
    vt_status status = VT_OK;
    char *line = NULL;
    size_t size = 0;
    *table = (vt_table){0};
    FILE *file = NULL;
    VT_TRY(vt_file_open(path, &file, NULL));
    for (size_t length; (length = vt_file_line(file, &line, &size)) > 0 && line[length - 1] == '\n';) {
        line[length - 1] = '\0';
        if (table->names.count > 0)
            take_row(table, line, labelled);
        else
            for (char *rest = line; rest != NULL;)
                vt_names_take(&table->names, vt_text_clean(vt_csv_written(next_cell(&rest))));
    }
    VT_CHECK(!ferror(file), "can't read %s: %s", path, strerror(errno));
    VT_CHECK(table->names.count > 0, "%s is empty; expected a line of names", path);
done:
    free(line);
    if (file != NULL) fclose(file);
    if (status != VT_OK) vt_table_close(table);
    return status;
}

void vt_table_close(vt_table *table)
{
    vt_names_close(&table->labels);
    vt_names_close(&table->units);
    vt_names_close(&table->names);
    free(table->values);
    *table = (vt_table){0};
}

int64_t vt_table_find(const vt_table *table, const char *name)
{
    for (int64_t c = 0; c < table->names.count; c++)
        if (strcmp(table->names.names[c], name) == 0) return c;
    return -1;
}

const double *vt_table_column(const vt_table *table, const char *name)
{
    const int64_t column = vt_table_find(table, name);
    return column >= 0 && table->rows > 0 ? table->values + column : NULL;
}

vt_status vt_table_need(const vt_table *table, const char *path, const char *const *columns)
{
    vt_status status = VT_OK;
    for (int i = 0; columns[i] != NULL; i++)
        VT_CHECK(vt_table_find(table, columns[i]) >= 0,
                 "%s has no column '%s', so it is not as vitrain wrote it; bring that file back", path, columns[i]);
done:
    return status;
}

double vt_table_value(const vt_table *table, int64_t row, const char *name)
{
    int64_t column = vt_table_find(table, name);
    if (row < 0) row += table->rows;
    if (column < 0 || row < 0 || row >= table->rows) return NAN;
    return table->values[row * table->names.count + column];
}

double vt_table_sum(const vt_table *table, const char *name)
{
    double sum = 0;
    for (int64_t row = 0; row < table->rows; row++) {
        const double value = vt_table_value(table, row, name);
        if (isfinite(value)) sum += value;
    }
    return sum;
}
