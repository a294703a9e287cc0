/* What this process takes of the machine's memory. */
#ifndef VT_BASE_PROCESS_MEMORY_H
#define VT_BASE_PROCESS_MEMORY_H

/* Resident bytes now, and at most so far (0 where the system doesn't say). */
double vt_memory_resident(void);
double vt_memory_peak(void);

/* Of the resident bytes, those that other processes count, too: the program and its libraries, and the shared memory
 * through which MPI passes messages within a node. */
double vt_memory_shared(void);

/* What the machine could give without swapping, or what the control group allows (a container, a batch job) where that
 * is less; -1 where the system doesn't say. */
double vt_memory_available(void);

#endif
