/* Memory for more than the machine may have: the pages of a file without a name, which the system keeps in memory as
 * far as there is room, and writes to the disk otherwise. */
#ifndef VT_STORAGE_SCRATCH_H
#define VT_STORAGE_SCRATCH_H

#include <stddef.h>

#include "base/status.h"

/* *memory: `bytes` zeros, above 0; the file is in `directory`, and gone as soon as the process ends. The error says
 * that it can't be made, or that the disk has not so much room. */
vt_status vt_scratch_open(const char *directory, size_t bytes, void **memory);

/* The same size again; *memory may be NULL. */
void vt_scratch_close(void **memory, size_t bytes);

#endif
