/* Files: opening, reading by lines, as a whole and at an offset, writing; what paths say; when a file was changed. */
#ifndef VT_BASE_FILE_H
#define VT_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/status.h"
#include "base/text.h"

/* Opens a file for reading, if it is a regular one: a pipe could wait forever, and a device never end. *size: its bytes
 * (size may be NULL). */
vt_status vt_file_open(const char *path, FILE **file, int64_t *size);

/* Reads the next line, including its end, into *line (malloc'd, of *size bytes, grown as needed; start with NULL and 0;
 * free() it). A line of more than VT_FILE_LONGEST_LINE bytes comes in pieces. Returns its length, or 0 at the end of
 * the file and on a read error (ferror). */
enum { VT_FILE_LONGEST_LINE = 1 << 20 };
size_t vt_file_line(FILE *file, char **line, size_t *size);

/* When a file was last written, or entries of a directory were last made or removed, in nanoseconds since 1970; wraps
 * round after the year 2262. */
static inline int64_t vt_file_changed(const struct stat *info)
{
    return (int64_t)((uint64_t)info->st_mtim.tv_sec * 1000000000U + (uint64_t)info->st_mtim.tv_nsec);
}

/* What follows the last slash of a path; all of it if there is none. */
const char *vt_file_name(const char *path);

/* What stands before that slash; "." if there is none. malloc'd. */
char *vt_file_directory(const char *path);

/* The files of a directory whose names match a pattern of the shell ("epoch-*.png", where * stands for no leading dot):
 * their paths, sorted; none if it can't be read. */
vt_names vt_file_matching(const char *directory, const char *pattern);

/* The path in "file:///path"; every other text is one already. */
const char *vt_file_of_address(const char *address);

/* Is it a Zarr store: by its name (also of one that is zipped), as the address of a remote one, or by the metadata in
 * the directory? */
bool vt_file_is_zarr(const char *path);

/* Closes `file`. That flushes its buffer, so the last write may fail here. `written` says whether all earlier writes
 * succeeded. True if everything is written; otherwise errno is the first failure's. */
bool vt_file_close(FILE *file, bool written);

/* Writes a whole file: to the name `path`.partial, which is then renamed, so that `path` never holds a part of it. It
 * is not synchronised with the disk. */
vt_status vt_file_write(const char *path, const void *bytes, size_t size);

/* Reads `bytes` from `offset` on, all of them unless it returns fewer; then errno says why, or is 0: the file ends
 * there. */
int64_t vt_file_read_at(int file, void *to, int64_t bytes, int64_t offset);

/* The text of a whole file of at most `most` bytes, malloc'd, *size of them (may be NULL) and a 0; and the CRC-32C of a
 * file. Both take regular files only. */
vt_status vt_file_read(const char *path, int64_t most, char **text, int64_t *size);
vt_status vt_file_checksum(const char *path, uint32_t *checksum);

#endif
