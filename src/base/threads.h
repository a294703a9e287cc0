/* How the threads of OpenMP wait. */
#ifndef VT_BASE_THREADS_H
#define VT_BASE_THREADS_H

/* Starts the program anew (same arguments, once) with idle threads that spin for about a tenth of a millisecond only,
 * then sleep; libgomp reads this (GOMP_SPINCOUNT) before main and has no call for it. Its default spins for
 * milliseconds: when anything else wants a core, a team's threads then wait for one that the spinning keeps from
 * running, and steps were measured to take up to ten times as long (docs/performance.md). Does nothing when
 * GOMP_SPINCOUNT or OMP_WAIT_POLICY is set. `arguments` are main's, ended by NULL. */
void vt_threads_wait_shortly(char *const *arguments);

#endif
