#include "base/text.h"
#include "base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"

/* So %ld prints it without a cast. */
_Static_assert(_Generic((int64_t)0, long : true, default : false), "int64_t is long");

static void append_list(vt_text *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    VT_ASSERT(length >= 0);
    const size_t needed = text->length + (size_t)length + 1;
    if (needed > text->capacity) {
        text->capacity = text->capacity > 0 ? 2 * needed : needed;
        text->characters = vt_reallocate(text->characters, 1, text->capacity, "text");
    }
    vsnprintf(text->characters + text->length, (size_t)length + 1, format, again);
    text->length += (size_t)length;
    va_end(again);
}

void vt_text_append(vt_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append_list(text, format, arguments);
    va_end(arguments);
}

enum { LONGEST_SHOWN = 4 }; /* characters for a byte, "\x1b" */

int vt_text_decode(const char *text, size_t left, uint32_t *character)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    const int bytes = at[0] < 0x80 ? 1 : at[0] < 0xC0 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : at[0] < 0xF8 ? 4 : 0;
    if (bytes == 0 || (size_t)bytes > left) return 0;
    uint32_t value = bytes == 1 ? at[0] : at[0] & (0x7Fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((at[i] & 0xC0) != 0x80) return 0;
        value = value << 6 | (at[i] & 0x3F);
    }
    *character = value;
    return value < least[bytes] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ? 0 : bytes;
}

void vt_text_on_one_line(char *to, size_t size, const char *from)
{
    static const char letters[] = "abtnvfr"; /* of 7 and on */
    size_t length = 0, left = strlen(from);
    while (left > 0) {
        char shown[8];
        uint32_t code = 0;
        int bytes = vt_text_decode(from, left, &code);
        if (bytes == 0)
            snprintf(shown, sizeof shown, "\\x%02x", (unsigned char)*from);
        else if (code >= '\a' && code <= '\r')
            snprintf(shown, sizeof shown, "\\%c", letters[code - '\a']);
        else if (code < ' ' || (code >= 0x7F && code < 0xA0))
            snprintf(shown, sizeof shown, "\\x%02x", (unsigned)code);
        else
            snprintf(shown, sizeof shown, "%.*s", bytes, from);
        const size_t more = strlen(shown);
        if (length + more >= size) break;
        memcpy(to + length, shown, more);
        length += more;
        bytes += bytes == 0;
        from += bytes;
        left -= (size_t)bytes;
    }
    to[length] = '\0';
}

int vt_print(const char *format, ...)
{
    vt_text text = {0};
    va_list arguments;
    int printed = 0;
    va_start(arguments, format);
    append_list(&text, format, arguments);
    va_end(arguments);
    const size_t room = LONGEST_SHOWN * text.length + 1;
    char *shown = vt_allocate(1, room, "text");
    for (char *part = text.characters; *part != '\0';) {
        const size_t length = strcspn(part, "\n\t");
        const char end = part[length];
        part[length] = '\0';
        vt_text_on_one_line(shown, room, part);
        printed += end != '\0' ? printf("%s%c", shown, end) : printf("%s", shown);
        part += length + (end != '\0');
    }
    free(shown);
    vt_text_close(&text);
    return printed;
}

void vt_text_wrap(vt_text *to, const char *text, int columns, int indent)
{
    size_t length;
    int column = 0, begin = indent + (int)strspn(text, " ");
    for (const char *word = text; *word != '\0'; word += length) { /* with what stands before it */
        length = 1 + (word[1] == '[' ? strspn(word + 1, "[0123456789 ") : 0);
        length += strcspn(word + length, " \n");
        const int width = vt_text_columns(word, length);
        if (*word == '\n') {
            begin = indent + (int)strspn(word + 1, " ");
            column = -1;
        } else if (*word == ' ' && column >= begin && column + width > columns) {
            vt_text_append(to, "\n%*s", begin - 1, "");
            column = begin - 1;
        }
        vt_text_append(to, "%.*s", (int)length, word);
        column += width;
    }
}

void vt_print_wrapped(const char *format, ...)
{
    vt_text text = {0}, lines = {0};
    va_list arguments;
    va_start(arguments, format);
    append_list(&text, format, arguments);
    va_end(arguments);
    vt_text_wrap(&lines, text.characters, VT_PRINT_COLUMNS, 2);
    vt_print("%s", lines.characters != NULL ? lines.characters : "");
    vt_text_close(&text);
    vt_text_close(&lines);
}

void vt_text_close(vt_text *text)
{
    free(text->characters);
    *text = (vt_text){0};
}

char *vt_text_format(const char *format, ...)
{
    vt_text text = {0};
    va_list arguments;
    va_start(arguments, format);
    append_list(&text, format, arguments);
    va_end(arguments);
    return text.characters;
}

char *vt_text_copy(const char *string)
{
    size_t size = strlen(string) + 1;
    return memcpy(vt_allocate(1, size, "text"), string, size);
}

double vt_text_plain_nan(double value)
{
    return isnan(value) ? (double)NAN : value;
}

/* The fewest digits, at most `most`, that read back as the value, a float32 if `single`. */
static const char *write_shortest(double value, bool single, int most, char buffer[VT_NUMBER_SIZE])
{
    if (fabs(value) < 1e15 && value == trunc(value)) { /* with the fewest digits 600 would become 6e+02 */
        snprintf(buffer, VT_NUMBER_SIZE, "%.0f", value);
        return buffer;
    }
    for (int digits = 1; digits <= most; digits++) {
        snprintf(buffer, VT_NUMBER_SIZE, "%.*g", digits, vt_text_plain_nan(value));
        if (!isfinite(value) || (single ? (double)strtof(buffer, NULL) : strtod(buffer, NULL)) == value) break;
    }
    return buffer;
}

const char *vt_text_float(float value, char buffer[VT_NUMBER_SIZE])
{
    return write_shortest((double)value, true, 9, buffer);
}

const char *vt_text_double(double value, char buffer[VT_NUMBER_SIZE])
{
    return write_shortest(value, false, 17, buffer);
}

const char *vt_text_bytes(double bytes, char buffer[VT_NUMBER_SIZE])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buffer, VT_NUMBER_SIZE, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
    return buffer;
}

bool vt_text_to_integer(const char *string, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    int64_t parsed = strtoll(string, &end, 10);
    if (end == string || *end != '\0' || errno != 0) return false;
    *value = parsed;
    return true;
}

bool vt_text_to_double(const char *string, double *value)
{
    char *end = NULL;
    errno = 0;
    double parsed = strtod(string, &end);
    if (end == string || *end != '\0' || !isfinite(parsed)) return false;
    *value = parsed;
    return true;
}

/* Levenshtein distance with two rows, ignoring case. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t columns = strlen(b) + 1;
    size_t *row = vt_allocate(columns, sizeof *row, "text");
    for (size_t j = 0; j < columns; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j < columns; j++) {
            size_t replaced = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            diagonal = row[j];
            size_t other = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            row[j] = replaced < other ? replaced : other;
        }
    }
    size_t distance = row[columns - 1];
    free(row);
    return distance;
}

const char *vt_text_nearest(const char *name, const char *const *candidates, size_t count)
{
    const char *nearest = NULL;
    const size_t length = strlen(name), most = (length + 1) / 3;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(name, candidates[i]);
        const bool begins = length > 2 && strncmp(candidates[i], name, length) == 0; /* num_ep, of num_epochs */
        if (begins && distance > most) distance = most;
        if (distance <= most && distance < least) {
            least = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

bool vt_text_ends_with(const char *string, const char *end)
{
    const size_t length = strlen(string), size = strlen(end);
    return length > size && strcmp(string + length - size, end) == 0;
}

char *vt_text_clean(const char *string)
{
    while (isspace((unsigned char)*string)) string++;
    size_t length = strlen(string);
    while (length > 0 && isspace((unsigned char)string[length - 1])) length--;
    char *trimmed = vt_text_format("%.*s", (int)length, string);
    char *clean = vt_allocate(length + 1, LONGEST_SHOWN, "text");
    vt_text_on_one_line(clean, LONGEST_SHOWN * (length + 1), trimmed);
    free(trimmed);
    return clean;
}

void vt_text_free_list(char **strings, int64_t count)
{
    for (int64_t i = 0; strings != NULL && i < count; i++) free(strings[i]);
    free(strings);
}

void vt_names_take(vt_names *list, char *name)
{
    list->names = vt_grow(list->names, (size_t)list->count, sizeof *list->names, "a list of names");
    list->names[list->count++] = name;
}

void vt_names_add(vt_names *list, const char *name)
{
    vt_names_take(list, vt_text_copy(name));
}

int vt_by_name(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

void vt_names_sort(vt_names *list)
{
    if (list->count > 0) qsort(list->names, (size_t)list->count, sizeof *list->names, vt_by_name);
}

void vt_names_close(vt_names *list)
{
    vt_text_free_list(list->names, list->count);
    *list = (vt_names){0};
}

const char *vt_text_next_word(const char **rest, size_t *length)
{
    static const char separators[] = "[], \t\n'\"";
    if (*rest == NULL) return NULL;
    const char *word = *rest + strspn(*rest, separators);
    *length = strcspn(word, separators);
    *rest = word + *length;
    return *length > 0 ? word : NULL;
}

int vt_text_place(const char *string, size_t length, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strlen(words[i]) == length && strncasecmp(string, words[i], length) == 0) return i;
    return -1;
}

int vt_text_choice(const char *word, const char *choices)
{
    const size_t length = strlen(word);
    int index = 0;
    for (const char *choice = choices; choice != NULL; index++) {
        const size_t choice_length = strcspn(choice, "|");
        if (length == choice_length && strncmp(word, choice, length) == 0) return index;
        choice = choice[choice_length] == '|' ? choice + choice_length + 1 : NULL;
    }
    return -1;
}

int vt_text_columns(const char *text, size_t length)
{
    int columns = 0;
    for (size_t i = 0; i < length; i++) columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

/* ---- cells of .csv files ---- */

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
