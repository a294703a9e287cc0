/* The values of options and their text form. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "config/option.h"

/* Where the option's value is: int64_t, double, bool, int, char *, int64_t[2] or double[2]. */
static void *member_of(const vt_row *row, const void *values)
{
    return (char *)(uintptr_t)values + row->offset;
}

/* How many numbers a value is; and are they whole? */
static int number_count(const vt_row *row)
{
    if (row->kind == VT_ROW_PAIR || row->kind == VT_ROW_RANGE) return 2;
    return row->kind == VT_ROW_INTEGER || row->kind == VT_ROW_REAL;
}

static bool is_whole(const vt_row *row)
{
    return row->kind == VT_ROW_INTEGER || row->kind == VT_ROW_PAIR;
}

static void unset(const vt_row *row, void *values)
{
    int64_t *integers = member_of(row, values);
    double *reals = member_of(row, values);
    char **path = member_of(row, values);
    int *choice = member_of(row, values);
    for (int i = 0; i < number_count(row); i++)
        if (is_whole(row))
            integers[i] = VT_UNSET_INTEGER;
        else
            reals[i] = NAN;
    if (row->kind == VT_ROW_CHOICE) *choice = -1;
    if (row->kind == VT_ROW_PATH) {
        free(*path);
        *path = NULL;
    }
}

bool vt_row_is_unset(const vt_row *row, const void *values)
{
    const void *member = member_of(row, values);
    if (is_whole(row)) return *(const int64_t *)member == VT_UNSET_INTEGER;
    if (number_count(row) > 0) return isnan(*(const double *)member);
    if (row->kind == VT_ROW_CHOICE) return *(const int *)member < 0;
    return row->kind == VT_ROW_PATH && *(char *const *)member == NULL;
}

void vt_rows_start(const vt_row *rows, void *values)
{
    for (const vt_row *row = rows; row->kind != VT_ROW_END; row++)
        if (vt_row_is_option(row)) VT_ASSERT(vt_row_assign(row, row->preset, values, VT_FROM_DEFAULT) == VT_OK);
}

void vt_rows_free(const vt_row *rows, void *values)
{
    for (const vt_row *row = rows; row->kind != VT_ROW_END; row++)
        if (row->kind == VT_ROW_PATH) unset(row, values);
}

/* strtod also takes blanks, "inf", "nan" and hexadecimal; a configuration should not. */
static bool parse_real(const char *text, double *value)
{
    return text[strspn(text, "0123456789+-.eE")] == '\0' && vt_text_to_double(text, value);
}

/* Digits, or a decimal form whose value is a whole number ("1e3"). */
static bool parse_integer(const char *text, int64_t *value)
{
    double real = 0;
    if (!parse_real(text, &real)) return false;
    if (vt_text_to_integer(text, value)) return true;
    if (text[strspn(text, "0123456789+-")] == '\0') return false; /* digits, but too many */
    if (fabs(real) > 0x1p53 || real != rint(real)) return false;
    *value = (int64_t)real;
    return true;
}

bool vt_boolean_parse(const char *text, bool *value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1", NULL};
    const int place = vt_text_place(text, strlen(text), words);
    if (place >= 0) *value = place % 2 == 1;
    return place >= 0;
}

/* "[360, 720]", with or without the brackets. */
static bool split_pair(const char *text, char number[2][32])
{
    int end = 0;
    if (sscanf(text, " [ %31[0-9.eE+-] , %31[0-9.eE+-] ] %n", number[0], number[1], &end) != 2 || end == 0)
        if (sscanf(text, " %31[0-9.eE+-] , %31[0-9.eE+-] %n", number[0], number[1], &end) != 2) return false;
    return end > 0 && text[end] == '\0';
}

typedef union {
    int64_t integers[2];
    double reals[2];
} numbers;

/* False: the text is not as many numbers of the row's type. */
static bool parse_numbers(const vt_row *row, const char *text, numbers *found, bool *are_within)
{
    char pair[2][32];
    const int count = number_count(row);
    *are_within = true;
    if (count == 2 ? !split_pair(text, pair) : count == 0) return false;
    for (int i = 0; i < count; i++) {
        const char *number = count == 2 ? pair[i] : text;
        if (is_whole(row) ? !parse_integer(number, &found->integers[i]) : !parse_real(number, &found->reals[i]))
            return false;
        const double value = is_whole(row) ? (double)found->integers[i] : found->reals[i];
        *are_within = *are_within && value >= row->least && value <= row->most;
    }
    return true;
}

static bool is_utf8(const char *text)
{
    uint32_t character;
    size_t left = strlen(text);
    for (int bytes = 0; left > 0; text += bytes, left -= (size_t)bytes)
        if ((bytes = vt_text_decode(text, left, &character)) == 0) return false;
    return true;
}

int vt_words_among(const char *list, const char *choices, int *words)
{
    const char *word;
    size_t length;
    int count = 0, found = 0;
    for (; (word = vt_text_next_word(&list, &length)) != NULL; count++) {
        char *kind = vt_text_format("%.*s", (int)length, word);
        kind[strcspn(kind, "@")] = '\0';
        found += vt_text_choice(kind, choices) >= 0;
        free(kind);
    }
    if (words != NULL) *words = count;
    return found;
}

static bool is_none(const char *text)
{
    return vt_text_choice(text, "None|null|Null|NULL|~") >= 0;
}

/* Stores the value that the text says, if it is one of the option's type and in its range. */
static bool parse_value(const vt_row *row, const char *text, void *values)
{
    void *member = member_of(row, values);
    numbers found;
    bool on = false, are_within = false;
    if (number_count(row) > 0) {
        if (!parse_numbers(row, text, &found, &are_within) || !are_within) return false;
        memcpy(member, &found, (size_t)number_count(row) * sizeof found.reals[0]);
        return true;
    }
    if (row->kind == VT_ROW_BOOLEAN) return vt_boolean_parse(text, member);
    if (row->kind == VT_ROW_CHOICE) {
        if (row->is_switch && vt_boolean_parse(text, &on)) text = on ? "true" : "false";
        const int choice = vt_text_choice(text, row->choices);
        if (choice >= 0) memcpy(member, &choice, sizeof choice);
        return choice >= 0;
    }
    VT_ASSERT(row->kind == VT_ROW_PATH);
    if (row->is_switch && vt_boolean_parse(text, &on)) {
        unset(row, values);
        if (on) *(char **)member = vt_text_copy(VT_SWITCH_ON);
        return true;
    }
    if (text[0] == '\0' && !row->is_any) return false;
    if (row->in_yaml && (strlen(text) >= PATH_MAX || !is_utf8(text))) return false;
    int words = 0;
    if (row->choices != NULL && vt_words_among(text, row->choices, &words) < words) return false;
    unset(row, values);
    *(char **)member = vt_text_copy(text);
    return true;
}

static vt_status parse_option(const vt_row *row, const char *text, void *values, vt_origin origin)
{
    static const char *const types[] = {
        [VT_ROW_INTEGER] = "a whole number",    [VT_ROW_REAL] = "a number",      [VT_ROW_BOOLEAN] = "a switch",
        [VT_ROW_CHOICE] = "one of the choices", [VT_ROW_PATH] = "text in UTF-8", [VT_ROW_PAIR] = "two whole numbers",
        [VT_ROW_RANGE] = "two numbers"};
    vt_status status = VT_OK;
    vt_text range = {0};
    numbers found;
    bool are_within = false;
    VT_ASSERT(vt_row_is_option(row));
    if (is_none(text) && !row->none_counts && !row->is_any) text = row->preset;
    /* the path that a flag names may be a variable that is not set */
    bool is_empty = text[0] == '\0' && (row->kind != VT_ROW_PATH || origin != VT_FROM_COMMAND_LINE);
    if (vt_row_may_be_unset(row) && (is_empty || is_none(text))) {
        unset(row, values);
    } else if (!parse_value(row, text, values)) {
        vt_row_range(row, &range);
        if (vt_row_may_be_unset(row)) vt_text_append(&range, ", or None");
        VT_CHECK(text[0] != '\0', "has no value (expected %s; None means the default, %s)", range.characters,
                 row->preset);
        VT_CHECK(row->kind != VT_ROW_PATH || strlen(text) < PATH_MAX, "%.40s... has %zu bytes, too many for a path",
                 text, strlen(text));
        VT_CHECK(!parse_numbers(row, text, &found, &are_within), "%.200s is out of range (expected %s)", text,
                 range.characters);
        VT_FAIL("'%.200s' is not %s (expected %s)", text, types[row->choices != NULL ? VT_ROW_CHOICE : row->kind],
                range.characters);
    }
    *vt_row_origin(row, values) = origin;
done:
    vt_text_close(&range);
    return status;
}

vt_status vt_row_assign(const vt_row *row, const char *text, void *values, vt_origin origin)
{
    vt_status status = VT_OK;
    if (row->kind != VT_ROW_ALIAS) return parse_option(row, text, values, origin);
    const vt_row *target = vt_row_meant(row);
    if (row->target_value[0] == '\0') return parse_option(target, text, values, origin);
    bool on = false;
    vt_text set = {0};
    VT_CHECK(is_none(text) || vt_boolean_parse(text, &on), "'%.200s' is not a switch (expected true or false)", text);
    vt_row_format(target, values, &set);
    if (on || strcmp(set.characters, row->target_value) == 0) /* off: not fp16, but bf16 stays */
        VT_TRY(parse_option(target, on ? row->target_value : target->preset, values, origin));
done:
    vt_text_close(&set);
    return status;
}

/* ---- values of a YAML file ---- */

/* "word", "[a, b]", or of a mapping "[name=word, name=[a, b]]"; false if it is nested deeper than `levels`. */
static bool append_node(const vt_yaml_node *node, int levels, vt_text *text)
{
    const bool is_scalar = node->kind == VT_YAML_SCALAR, is_mapping = node->kind == VT_YAML_MAPPING;
    if (is_scalar) vt_text_append(text, "%s", node->text);
    if (is_scalar || levels == 0) return is_scalar;
    vt_text_append(text, "[");
    for (size_t i = 0; i < node->count; i++) {
        vt_text_append(text, "%s", i == 0 ? "" : is_mapping && i % 2 == 1 ? "=" : ", ");
        if (!append_node(node->child[i], levels - 1, text)) return false;
    }
    vt_text_append(text, "]");
    return true;
}

vt_status vt_row_read(const vt_row *row, const vt_yaml_node *value, void *values)
{
    vt_status status = VT_OK;
    char found[96];
    vt_text text = {0}, range = {0};
    const bool is_list = row->kind == VT_ROW_PAIR || row->kind == VT_ROW_RANGE || row->is_list;
    const int levels = row->is_map ? 2 : is_list ? 1 : 0;
    const bool is_allowed = row->is_map || value->kind != VT_YAML_MAPPING;
    vt_row_range(vt_row_meant(row), &range);
    VT_CHECK(is_allowed && append_node(value, levels, &text), "found %s, expected %s", vt_yaml_describe(value, found),
             range.characters);
    VT_TRY(vt_row_assign(row, text.characters, values, VT_FROM_YAML));
done:
    if (status != VT_OK) vt_error_context("%s:%zu:%zu: %s", VT_YAML_PLACE(value), row->name);
    vt_text_close(&text);
    vt_text_close(&range);
    return status;
}

/* ---- values as text ---- */

static void append_choice(const char *choices, int index, vt_text *text)
{
    for (; index > 0; index--) choices = strchr(choices, '|') + 1;
    vt_text_append(text, "%.*s", (int)strcspn(choices, "|"), choices);
}

/* With a point wherever there is an exponent: without one, YAML 1.1 readers such as PyYAML take "1e-05" for text. */
static void append_real(double value, vt_text *text)
{
    char digits[VT_NUMBER_SIZE];
    vt_text_double(value, digits);
    const char *exponent = strchr(digits, 'e');
    if (exponent != NULL && strchr(digits, '.') == NULL)
        vt_text_append(text, "%.*s.0%s", (int)(exponent - digits), digits, exponent);
    else
        vt_text_append(text, "%s", digits);
}

void vt_row_format(const vt_row *row, const void *values, vt_text *text)
{
    if (vt_row_is_unset(row, values)) {
        vt_text_append(text, "None");
        return;
    }
    const void *member = member_of(row, values);
    const int64_t *integers = member;
    const double *reals = member;
    for (int i = 0; i < number_count(row); i++) {
        vt_text_append(text, "%s", number_count(row) == 1 ? "" : i == 0 ? "[" : ", ");
        if (is_whole(row))
            vt_text_append(text, "%ld", integers[i]);
        else
            append_real(reals[i], text);
    }
    if (number_count(row) == 2) vt_text_append(text, "]");
    if (row->kind == VT_ROW_BOOLEAN)
        vt_text_append(text, "%s", *(const bool *)member ? "true" : "false");
    else if (row->kind == VT_ROW_CHOICE)
        append_choice(row->choices, *(const int *)member, text);
    else if (number_count(row) == 0)
        vt_text_append(text, "%s", *(char *const *)member);
}

void vt_row_range(const vt_row *row, vt_text *text)
{
    char least[VT_NUMBER_SIZE], most[VT_NUMBER_SIZE];
    if (row->kind == VT_ROW_BOOLEAN) vt_text_append(text, "true or false");
    if (row->choices != NULL)
        vt_text_append(text, "%s", row->choices);
    else if (row->kind == VT_ROW_PATH)
        vt_text_append(text, row->is_switch ? "true, false or a path" : "text");
    if (row->kind == VT_ROW_OPERAND) vt_text_append(text, "a path");
    if (number_count(row) == 2) vt_text_append(text, "[a, b], each ");
    if (is_whole(row) && row->most >= 0x1p63)
        vt_text_append(text, "%.0f or more", row->least);
    else if (is_whole(row))
        vt_text_append(text, "%.0f to %.0f", row->least, row->most);
    else if (number_count(row) > 0)
        vt_text_append(text, "%s to %s", vt_text_double(row->least, least), vt_text_double(row->most, most));
}
