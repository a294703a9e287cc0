/* Where the time of a back end's operations goes: by operation, and by size for matrix products. What each one has to
 * do is counted by the dry back end, so that times can stand beside limits. A device that works on its own is waited
 * for before and behind each operation. */
#ifndef VT_BACKEND_TIMES_H
#define VT_BACKEND_TIMES_H

#include "backend/backend.h"

typedef struct {
    const char *operation;       /* its name in the table */
    int64_t rows, columns, deep; /* of a product's result, and the length of its sums; 0: not a product */
    double seconds, flops, bytes;
    int64_t calls;
} vt_operation_time;

/* Begins: from now on the table's operations are timed. One back end at a time. Errors: none but memory. */
vt_status vt_times_open(vt_backend *backend);
/* Ends, and gives the table back as it was. */
void vt_times_close(vt_backend *backend);
/* All is 0 again. */
void vt_times_clear(void);
/* The operations so far, the longest first; *count of them. They stand until the next operation. */
const vt_operation_time *vt_times_sorted(int *count);

#endif
