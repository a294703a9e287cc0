/* Where the time of a step goes on any back end: between begin and end every operation of the table is waited for and
 * timed, by what it does. A step is then slower than it is otherwise by what the waiting costs, and runs uncaptured. */
#ifndef VT_BENCH_TIMED_BACKEND_H
#define VT_BENCH_TIMED_BACKEND_H

#include "backend/backend.h"

void timed_backend_begin(vt_backend *backend);
void timed_backend_end(vt_backend *backend);
/* One line of JSON: seconds of each class, of the whole step (`step_seconds`), and calls of operations. */
void timed_backend_print(double step_seconds);

#endif
