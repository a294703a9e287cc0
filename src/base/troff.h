/* Text as the source of a man page has it (groff_man(7), mandoc's man(7)). */
#ifndef VT_BASE_TROFF_H
#define VT_BASE_TROFF_H

#include <stdio.h>

/* The text (UTF-8) with all that troff would take for its own marks escaped: for a piece of a line that begins with
 * something else. */
void vt_troff_print(FILE *file, const char *text);

/* The same on lines of its own, broken between words. */
void vt_troff_print_lines(FILE *file, const char *text);

#endif
