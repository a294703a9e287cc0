/* How much of the machine's memory this process uses. */
#ifndef VT_BASE_PROCESS_MEMORY_H
#define VT_BASE_PROCESS_MEMORY_H

/* Resident bytes now, and the maximum so far (0 if the system doesn't say). */
double vt_memory_resident(void);
double vt_memory_peak(void);

/* The part of the resident bytes that other processes count, too: the program and its libraries, and the shared memory
 * through which MPI passes messages within a node. */
double vt_memory_shared(void);

/* Bytes of address space; 0 if the system doesn't say. And those that `ulimit -v` leaves; INFINITY without a limit. */
double vt_memory_address_space(void);
double vt_memory_address_space_left(void);

/* What the machine could give without swapping, or what the control group allows (a container, a batch job) if that is
 * less; -1 if the system doesn't say. */
double vt_memory_available(void);

#endif
