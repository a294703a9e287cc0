/* Text into words as Python's str.lower().split() does it: UTF-8, white space of all of Unicode. */
#ifndef VT_SOURCE_TEXT_SPLIT_H
#define VT_SOURCE_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

enum { VT_LONGEST_WORD = 1000000 }; /* bytes */

/* What was met on the way. */
typedef struct {
    bool has_mark;   /* a byte order mark at the beginning, which is left out */
    bool kept_upper; /* letters beyond ASCII, of which this build makes no lower case */
    int64_t words;
} vt_split_facts;

/* Calls visit for each word of the first `size` bytes of a file, from where it stands, in order; the word is valid
 * until visit returns. Fails at bytes that are not UTF-8, at NUL and at a word that is too long, with `path`, line and
 * byte; where the file ends before; and when visit fails. */
vt_status vt_split_file(FILE *file, int64_t size, const char *path, bool lower,
                        vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                        vt_split_facts *facts);

/* The same of a text in memory. */
vt_status vt_split(const char *text, size_t size, const char *path, bool lower,
                   vt_status (*visit)(const char *word, size_t length, void *context), void *context,
                   vt_split_facts *facts);

/* Is lower case made beyond ASCII (libunistring)? */
bool vt_split_lowers_all(void);

#endif
