/* Where the time of a back end's operations goes: by operation, and by size for matrix products; beside it stands what
 * each one has to do. A device that works on its own is waited for before and after each operation; its own clock,
 * where it has one, tells how long the operation took. */
#ifndef VT_BACKEND_TIMES_H
#define VT_BACKEND_TIMES_H

#include "backend/backend.h"

typedef struct {
    const char *operation;        /* its name in the table */
    vt_operation_work work;       /* of one call */
    double seconds, flops, bytes; /* of all calls */
    int64_t calls;
} vt_operation_time;

/* Begins: from now on the table's operations are timed. One back end at a time. */
void vt_times_open(vt_backend *backend);
/* Ends, and restores the table. */
void vt_times_close(vt_backend *backend);
/* Forgets all times so far. */
void vt_times_clear(void);
/* The operations so far, the longest first; *count of them. They are valid until the next operation. */
const vt_operation_time *vt_times_sorted(int *count);

#endif
