/* Where the time of a back end's operations goes: by operation, and by size for matrix products; beside it stands what
 * each one has to do. A device that works on its own is waited for before and after each operation; its own clock,
 * where it has one, tells how long the operation took. */
#ifndef VT_BACKEND_TIMES_H
#define VT_BACKEND_TIMES_H

#include "backend/work.h"

typedef struct {
    const char *operation;        /* its name in the table */
    vt_operation_work work;       /* of one call */
    double seconds, flops, bytes; /* of all calls */
    int64_t calls;
} vt_operation_time;

/* Begins, or begins anew without the times so far: from now on the table's operations are timed. */
void vt_times_open(vt_backend *backend);
/* Ends if it was begun, and restores the table. */
void vt_times_close(vt_backend *backend);
/* The operations so far, the longest first; *count of them. They are valid until the next operation. */
const vt_operation_time *vt_times_sorted(vt_backend *backend, int *count);

#endif
