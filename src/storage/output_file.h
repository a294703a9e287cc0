/* Files that appear whole or not at all: written under a hidden name beside the final one, synchronised with the disk,
 * then renamed. Also memory that a file on the disk backs (vt_scratch_open). */
#ifndef VT_STORAGE_OUTPUT_FILE_H
#define VT_STORAGE_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

/* "dir/.name.partial" for "dir/name"; malloc'd. Always the same name, so that what a killed run left is replaced. */
char *vt_output_partial_path(const char *path);

/* Synchronises the finished file `partial` and gives it its name `path`. On failure `partial` is removed. */
vt_status vt_output_publish(const char *partial, const char *path);

/* Opens the file that is to be `path` for writing by stdio, whose errors vt_output_close finds. That one gives the file
 * its name if all was written, and removes it otherwise. */
vt_status vt_output_open(const char *path, FILE **file);
vt_status vt_output_close(FILE *file, const char *path);

/* For a file that several processes may make at once: *partial, "dir/.name.partial.XXXXXX", is this process's own, for
 * vt_output_publish; malloc'd, also when this fails. As long as *file, for reading and writing, is open, it has a lock.
 */
vt_status vt_output_open_own(const char *path, char **partial, int *file);

/* Removes such files of processes that were killed: those without a lock, where the file system knows locks. */
void vt_output_remove_leftovers(const char *path);

/* Waits until a file's bytes, or a directory's names, are on the disk. */
vt_status vt_output_synchronise(const char *path);

/* Makes a directory and the missing ones above it, also on the disk; one that exists is fine. */
vt_status vt_output_make_directory(const char *path);

bool vt_output_exists(const char *path);
bool vt_output_holds(const char *directory, const char *name); /* also if it is another directory */

/* Fails if there is a file of this name, unless --force says that it is replaced. */
vt_status vt_output_check_absent(const char *path, bool force);

/* Can a file of this name be made or replaced? Errors: its directory doesn't exist; a directory or a device, which must
 * not be replaced, has the name. `option` is named in the message. */
vt_status vt_output_check_file(const char *option, const char *path);

/* ---- memory for more than the machine may have: the pages of a file without a name, which the system keeps in memory
 * as far as there is room, and writes to the disk otherwise ---- */

/* *memory: `bytes` zeros, above 0; the file is in `directory`, and gone as soon as the process ends. The error says
 * whether it can't be made, or the disk lacks room. */
vt_status vt_scratch_open(const char *directory, size_t bytes, void **memory);

/* The same size again; *memory may be NULL. */
void vt_scratch_close(void **memory, size_t bytes);

#endif
