/* Memory that all processes of a user on one machine share, which the first of them fills. */
#ifndef VT_SOURCE_VOLUMES_SHARED_BOX_H
#define VT_SOURCE_VOLUMES_SHARED_BOX_H

#include <stddef.h>

#include "base/status.h"

typedef struct {
    char *name; /* of its file */
    int file;
    char *memory;
    size_t bytes; /* with a page at the end that says whether it was filled */
} vt_shared_box;

/* The memory [bytes] of the name `key`, which says all that its contents depend on. If no other process has filled it,
 * fill(memory, context) fills it while others wait. The last process that closes it removes it. A killed process leaves
 * it behind, and the next run uses it. */
vt_status vt_shared_box_open(const char *key, size_t bytes, vt_status (*fill)(void *memory, void *context),
                             void *context, vt_shared_box **box);
void vt_shared_box_close(vt_shared_box **box); /* *box may be NULL */

#endif
