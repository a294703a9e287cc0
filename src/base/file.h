/* Files by stdio: reading line by line, and the end of writing. */
#ifndef VT_BASE_FILE_H
#define VT_BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Reads the next line, its end included, into *line (malloc'd, of *size bytes, grown as needed; NULL and 0 at first;
 * free() it). Its length, or 0 at the end of the file and where it can't be read (ferror). Ends the program when there
 * is no memory for it: to getline that looks like the file's end. */
size_t vt_file_line(FILE *file, char **line, size_t *size);

/* What stdio still holds goes out only now, and may fail only now. Closes `file`; `written` says whether all that went
 * before succeeded. True when all is written; else errno is the first failure's. */
bool vt_file_close(FILE *file, bool written);

#endif
