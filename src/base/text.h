/* Strings: a growing string, shortest decimal forms, strict parsing of numbers, the nearest of several names, cells of
 * .csv files. */
#ifndef VT_BASE_TEXT_H
#define VT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A growing string. Start with {0}; close frees it. characters is never NULL after the first append. */
typedef struct {
    char *characters;
    size_t length;
    size_t capacity;
} vt_text;

void vt_text_append(vt_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void vt_text_close(vt_text *text);

/* The bytes of the character that UTF-8 begins with at `text` [left], left > 0; 0: it is not UTF-8 (too long a form, a
 * surrogate, beyond 10FFFF, or cut off). */
int vt_text_decode(const char *text, size_t left, uint32_t *character);

/* `from` as part of one line of a message: control characters (ASCII's, and U+0080 to U+009F) are escaped as "\n" or
 * "\x1b", and so are bytes that are not UTF-8. Cut off where it doesn't fit, between characters. `to` [size] is not
 * `from`. */
void vt_text_on_one_line(char *to, size_t size, const char *from);

/* printf, for all that commands print: the same characters are escaped, except for ends of lines and tabs. So text from
 * files can't move the cursor of a terminal or colour it. */
int vt_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Appends the text, which begins a line, in lines of at most so many columns: longer ones are broken at blanks, but not
 * within "[0 1 2]", and go on `indent` columns further in than they begin. */
void vt_text_wrap(vt_text *to, const char *text, int columns, int indent);

/* vt_print in lines of at most VT_PRINT_COLUMNS, which go on two columns further in. */
enum { VT_PRINT_COLUMNS = 80 };
void vt_print_wrapped(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* malloc'd results; they abort when memory runs out (strings are small). */
char *vt_text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *vt_text_copy(const char *string);

/* A name or another text of a file, as everything after sees it: on one line as above, without the white space at its
 * beginning and end, with which some writers pad. */
char *vt_text_clean(const char *string);

/* Returns the value; a NaN without its sign, so that it is printed as "nan", as in Python (processors produce the
 * negative one). Every computed figure for log and files passes through here. */
double vt_text_plain_nan(double value);

/* Shortest decimal digits that read back as the same value ("0.431169"; "1e-07" where the exponent is large); a whole
 * number below 1e15 with all its digits ("600"). */
enum { VT_NUMBER_SIZE = 32 };
const char *vt_text_float(float value, char buffer[VT_NUMBER_SIZE]);
const char *vt_text_double(double value, char buffer[VT_NUMBER_SIZE]);

/* "1.4 GB" style, in powers of 1024, like the log's memory lines. */
const char *vt_text_bytes(double bytes, char buffer[VT_NUMBER_SIZE]);

/* The words of a list, "[u10, z@500]" with or without the brackets: the next one from *rest on, not terminated, and its
 * length; NULL after the last, or of no list (NULL). Blanks, quotes and brackets separate words as commas do. */
const char *vt_text_next_word(const char **rest, size_t *length);

/* The place in `words`, which NULL ends, of the first `length` characters of `string` in any case; -1: they are none of
 * them. */
int vt_text_place(const char *string, size_t length, const char *const *words);

/* Does `string` end with `end`, and hold more before it? */
bool vt_text_ends_with(const char *string, const char *end);

/* Frees malloc'd strings and their list, which may be NULL. */
void vt_text_free_list(char **strings, int64_t count);

/* A list of names that grows. Start with {0}. */
typedef struct {
    char **names; /* [count], malloc'd as each of them is */
    int64_t count;
} vt_names;
void vt_names_take(vt_names *list, char *name); /* which becomes the list's */
void vt_names_add(vt_names *list, const char *name);
void vt_names_sort(vt_names *list); /* by their bytes */
void vt_names_close(vt_names *list);
int vt_by_name(const void *one, const void *other); /* for qsort: two char * */

/* The whole string must be the number and must fit; otherwise false. */
bool vt_text_to_integer(const char *string, int64_t *value);
bool vt_text_to_double(const char *string, double *value);

/* The candidate with the smallest edit distance to `name` (ties: the first), or one that begins with it; NULL if even
 * that differs in more than about a third of the letters. */
const char *vt_text_nearest(const char *name, const char *const *candidates, size_t count);

/* The index of the word in "a|b|c"; -1: it is not among them. */
int vt_text_choice(const char *word, const char *choices);

/* Columns that UTF-8 text of `length` bytes takes on a terminal: its characters, none of which may be wide. */
int vt_text_columns(const char *text, size_t length);

/* ---- cells of .csv files ---- */

/* ",1.25" with nine digits; nothing after the comma where the value is NaN. */
void vt_csv_number(FILE *file, double value);

/* In quotes where it holds a comma, a quote or the end of a line; after an apostrophe where a spreadsheet would take it
 * for a formula: where it begins with = + - @ or a tab and holds more. */
void vt_csv_text(FILE *file, const char *text);
void vt_csv_append(vt_text *line, const char *text);

/* The text that was written, of a cell whose quotes are removed: its end, perhaps without an apostrophe. */
const char *vt_csv_written(const char *cell);

#endif
