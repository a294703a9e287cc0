/* The end of writing a file: what stdio still holds goes out only now, and may fail only now. */
#ifndef VT_BASE_FILE_H
#define VT_BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Closes `file`; `written` says whether all that went before succeeded. True when all is written; else errno is the
 * first failure's. */
bool vt_file_close(FILE *file, bool written);

#endif
