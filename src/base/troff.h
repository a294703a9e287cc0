/* Text in the source form of a man page (groff_man(7), mandoc's man(7)). */
#ifndef VT_BASE_TROFF_H
#define VT_BASE_TROFF_H

#include <stdio.h>

/* The text (UTF-8) with everything escaped that troff would interpret; for text that does not begin a line. */
void vt_troff_print(FILE *file, const char *text);

/* The same as whole lines, broken between words. */
void vt_troff_print_lines(FILE *file, const char *text);

#endif
