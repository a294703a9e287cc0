/* How OpenMP's idle threads wait, and the cores that threads run on. */
#ifndef VT_BASE_THREADS_H
#define VT_BASE_THREADS_H

enum { VT_CORES_BYTES = 1024 }; /* of a set of cores, a bit for each */

/* Restarts the program once, with the same arguments, so that idle threads spin only for about a tenth of a millisecond
 * before they sleep; libgomp reads this setting (GOMP_SPINCOUNT) before main and has no call for it. By default they
 * spin for milliseconds: whenever another process wants a core, a team waits for a thread that the spinning ones keep
 * from running, and steps took up to ten times as long (docs/performance.md). Does nothing if GOMP_SPINCOUNT or
 * OMP_WAIT_POLICY is set. `arguments` are main's, ended by NULL. */
void vt_threads_wait_shortly(char *const *arguments);

/* The cores that the process may use, even if OpenMP (OMP_PROC_BIND) or vt_threads_pin has bound the calling thread to
 * one of them. All 0: unknown. */
void vt_threads_cores(unsigned char cores[VT_CORES_BYTES]);

/* How many these are; 0: unknown. */
int vt_threads_core_count(void);

/* In how many NUMA domains these cores lie; 1 if the system does not tell. `directory`, VT_NUMA_DOMAINS but in tests,
 * has a file node<number>/cpulist for each domain ("0-15,32-47"). */
#define VT_NUMA_DOMAINS "/sys/devices/system/node"
int vt_threads_domains(const char *directory);

/* Binds each of the calling thread's `count` OpenMP threads to a core of its own: what a thread has written stays in
 * its core's caches, and near it in memory. Only if the process has exactly as many cores as threads (if there are more
 * cores, other processes may share them, so threads may move); otherwise the threads may run on any core. Does nothing
 * if OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY is set: then the user has decided. */
void vt_threads_pin(int count);

/* A new thread inherits its creator's cores: this lets the calling thread use all of the process's again. */
void vt_threads_roam(void);

#endif
