/* Strings: one that grows, shortest decimal forms, strict number parsing, the nearest of several names. */
#ifndef VT_BASE_TEXT_H
#define VT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A string that grows. Start with {0}; close frees. characters is never NULL after the first append. */
typedef struct {
    char *characters;
    size_t length;
    size_t capacity;
} vt_text;

void vt_text_append(vt_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void vt_text_close(vt_text *text);

/* malloc'd results; abort when memory is out (strings are small). */
char *vt_text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *vt_text_copy(const char *string);

/* The value, but of a NaN the one without a sign, which is printed as "nan", as Python prints it: processors make the
 * other one. What readers get, in log and files, passes through here once it is computed. */
double vt_text_plain_nan(double value);

/* Shortest decimal digits that read back as the same value ("0.431169"; "1e-07" where the exponent is large); a whole
 * number below 1e15 with all its digits ("600"). */
enum { VT_NUMBER_SIZE = 32 };
const char *vt_text_float(float value, char buffer[VT_NUMBER_SIZE]);
const char *vt_text_double(double value, char buffer[VT_NUMBER_SIZE]);

/* "1.4 GB" style, powers of 1024, as the log's memory lines count. */
const char *vt_text_bytes(double bytes, char buffer[VT_NUMBER_SIZE]);

/* Whole string or nothing: false when anything but the number is there, or it doesn't fit. */
bool vt_text_to_integer(const char *string, int64_t *value);
bool vt_text_to_double(const char *string, double *value);

/* The candidate with the smallest edit distance to `name` (ties: the first), or NULL when none is near enough to be
 * worth naming (more than half of the letters differ). */
const char *vt_text_nearest(const char *name, const char *const *candidates, size_t count);

/* The same without a limit: NULL only when there are no candidates. */
const char *vt_text_closest(const char *name, const char *const *candidates, size_t count);

#endif
