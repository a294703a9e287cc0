/* Every option with type, default, range and meaning: as text for a terminal, and as docs/options.md. */
#include <string.h>

#include "config/option.h"

enum { LINE_WIDTH = 100, MEANING_COLUMN = 36 };

/* "whole number, 1 to 65536": type and range. */
static void append_value(const vt_row *row, vt_text *text)
{
    if (row->kind == VT_ROW_ALIAS && vt_row_is_switch(row)) {
        vt_text_append(text, "true or false");
        return;
    }
    row = vt_row_meant(row);
    if (row->kind == VT_ROW_INTEGER) vt_text_append(text, "whole number, ");
    if (row->kind == VT_ROW_REAL) vt_text_append(text, "number, ");
    if (row->kind == VT_ROW_PAIR) vt_text_append(text, "two whole numbers ");
    if (row->kind == VT_ROW_RANGE) vt_text_append(text, "two numbers ");
    vt_row_range(row, text);
    if (vt_row_may_be_unset(row)) vt_text_append(text, ", or None");
}

/* "=N", "[=PATH]", "": the value as it is written behind the flag's name. */
static void append_form(const vt_row *row, vt_text *text)
{
    static const char *const forms[] = {
        [VT_ROW_INTEGER] = "N",    [VT_ROW_REAL] = "X",     [VT_ROW_PATH] = "PATH",
        [VT_ROW_OPERAND] = "PATH", [VT_ROW_PAIR] = "[N,N]", [VT_ROW_RANGE] = "[X,X]",
    };
    const bool is_switch = vt_row_is_switch(row);
    row = vt_row_meant(row);
    const char *form = row->choices != NULL ? row->choices : row->is_text ? "TEXT" : forms[row->kind];
    if (!is_switch)
        vt_text_append(text, "=%s", form);
    else
        vt_text_append(text, row->is_switch ? "[=%s]" : "%s", row->is_switch ? form : "");
}

/* The help with "(whole number, 1 to 65536; default 4; default of unet3d: 8)". */
static void append_meaning(const vt_row *row, vt_text *text)
{
    vt_text facts = {0}, others = {0};
    if (row->choices == NULL) append_value(row, &facts); /* else the form has them */
    if (vt_row_is_option(row) && vt_text_choice(row->preset, "|None|false") < 0)
        vt_text_append(&facts, "%sdefault %s", facts.length > 0 ? "; " : "", row->preset);
    vt_row_other_presets(row, "", &others);
    if (others.length > 0) vt_text_append(&facts, "; default of %s", others.characters + strlen("; "));
    vt_text_append(text, "%s", row->help);
    if (facts.length > 0) vt_text_append(text, " (%s)", facts.characters);
    vt_text_close(&facts);
    vt_text_close(&others);
}

void vt_rows_print(FILE *file, const vt_row *rows)
{
    for (const vt_row *row = rows; row->kind != VT_ROW_END; row++) {
        if (row->kind == VT_ROW_SECTION) {
            fprintf(file, "\n%s\n", row->name);
            continue;
        }
        vt_text form = {0}, meaning = {0}, lines = {0};
        append_form(row, &form);
        vt_text_append(&meaning, "%*s", MEANING_COLUMN, "");
        append_meaning(row, &meaning);
        vt_text_wrap(&lines, meaning.characters, LINE_WIDTH, 0);
        const int column = fprintf(file, "%c --%s%s", row->flag_only ? '*' : ' ', row->name, form.characters);
        if (column >= 0 && column < MEANING_COLUMN) /* below 0: it could not be written */
            fprintf(file, "%s\n", lines.characters + column);
        else
            fprintf(file, "\n%s\n", lines.characters);
        vt_text_close(&form);
        vt_text_close(&meaning);
        vt_text_close(&lines);
    }
}

/* A cell of a Markdown table: '|' and '<' would be read as marks. */
static void print_cell(FILE *file, const char *text)
{
    fputs(" ", file);
    for (; *text != '\0'; text++) {
        if (*text == '|' || *text == '<' || *text == '*') fputc('\\', file);
        fputc(*text, file);
    }
    fputs(" |", file);
}

static void print_markdown_row(FILE *file, const vt_row *row)
{
    vt_text range = {0}, others = {0};
    append_value(row, &range);
    vt_row_other_presets(row, "`", &others);
    fprintf(file, "| `%s`%s |", row->name, row->flag_only ? " (flag)" : "");
    print_cell(file, range.characters);
    fprintf(file, row->kind == VT_ROW_ALIAS ? " %s" : " `%s`", row->kind == VT_ROW_ALIAS ? "" : row->preset);
    fprintf(file, "%s |", others.length > 0 ? others.characters : "");
    print_cell(file, row->help);
    fputc('\n', file);
    vt_text_close(&range);
    vt_text_close(&others);
}

static void print_markdown(FILE *file)
{
    fprintf(
        file,
        "<!-- Made by `make docs` from src/config/options.def; not to be edited. -->\n"
        "# Options\n\n"
        "Each is a key of a configuration in the YAML file and a flag of `vitrain train`, `--name=value` or\n"
        "`--name value`; those marked (flag) are flags only. A switch takes a value only after `=`\n"
        "(`--enable_jit`, `--enable_jit=false`). Of a repeated flag the last counts. A flag wins over the file, in\n"
        "both directions. `None` (also `null`, `~`) means not set; for an option whose default is not `None`, it\n"
        "means that default. A default that a model has for itself is behind the model's name. Options under a\n"
        "heading `Only with ...` can be set only in such a run. `vitrain options` prints this list.\n");
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
        if (row->kind == VT_ROW_SECTION)
            fprintf(file, "\n## %s\n\n| option | value | default | meaning |\n|---|---|---|---|\n", row->name);
        else
            print_markdown_row(file, row);
    }
}

void vt_options_print(FILE *file, bool markdown)
{
    if (markdown) {
        print_markdown(file);
        return;
    }
    fprintf(file,
            "Every option. As a flag: --name=value or --name value; a switch (true or false) takes a value\n"
            "only after '='. All but those marked * are also keys of a configuration in the YAML file. Flags\n"
            "win. Options under 'Only with ...' are refused in other runs. What has no default is not set: None.\n");
    vt_rows_print(file, vt_options);
}
