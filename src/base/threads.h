/* How the threads of OpenMP wait, and the cores that threads run on. */
#ifndef VT_BASE_THREADS_H
#define VT_BASE_THREADS_H

enum { VT_CORES_BYTES = 1024 }; /* of a set of cores, a bit for each */

/* Starts the program anew (same arguments, once) with idle threads that spin for about a tenth of a millisecond only,
 * then sleep; libgomp reads this (GOMP_SPINCOUNT) before main and has no call for it. Its default spins for
 * milliseconds: when anything else wants a core, a team's threads then wait for one that the spinning keeps from
 * running, and steps were measured to take up to ten times as long (docs/performance.md). Does nothing when
 * GOMP_SPINCOUNT or OMP_WAIT_POLICY is set. `arguments` are main's, ended by NULL. */
void vt_threads_wait_shortly(char *const *arguments);

/* The cores that the process may use: also where OpenMP (OMP_PROC_BIND) or vt_threads_pin keeps the calling thread on
 * one of them. All 0: unknown. */
void vt_threads_cores(unsigned char cores[VT_CORES_BYTES]);

/* OpenMP's threads of the calling thread, `count` of them, each stay on a core of their own: what a thread has written
 * stays in its core's caches, and near it in memory. Only where the process has as many cores as threads (fewer threads
 * may share the machine with others, so they move); otherwise they may run anywhere again. Leaves them alone when
 * OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY is set: then that is what was asked for. */
void vt_threads_pin(int count);

/* A thread starts out on its creator's cores: the calling one may use all of the process's again. */
void vt_threads_roam(void);

#endif
