/* Internals of MPI's engine, for mpi.c (the engine, its groups and their operations) and mpi_wait.c: the only files
 * that include mpi.h. */
#ifndef VT_PARALLEL_MPI_INSIDE_H
#define VT_PARALLEL_MPI_INSIDE_H

#include <mpi.h>

#include "parallel/group.h"

/* What ranks write to one another about a time-out. Small, because MPI then sends without the receiver's help. */
typedef struct {
    char text[1024]; /* the wait that took too long; the answering rank's own wait; the sentence to print */
} vt_mpi_letter;

typedef struct {
    char host[VT_HOST_SIZE];
    int pid;
} vt_mpi_process;

typedef struct {
    vt_mpi_process *processes; /* [size] */
    MPI_Comm mail;
    MPI_Request receive; /* always posted, from any rank */
    vt_mpi_letter incoming;
    char **answers;        /* [size], while this rank asks: what each rank waits for, NULL: no answer yet */
    char waiting[256];     /* what this rank waits for, or waited for last */
    double end;            /* someone asked: the time to be gone, otherwise 0 */
    int64_t largest_count; /* maximum elements and bytes of one MPI call */
    int64_t largest_bytes;
} vt_mpi_state;

/* One operation: its parts, and the arguments that MPI reads while they run. */
typedef struct {
    const char *name;
    bool is_receive; /* of one rank's message */
    size_t volume;   /* in bytes, over all ranks or of one */
    int count, over; /* requests; the first `over` have finished */
    MPI_Request *requests;
    int *counts;       /* of the ranks; and behind them, where they differ, their offsets */
    vt_group_bytes to; /* where the result is copied to from `from`; NULL: MPI puts it where it belongs */
    const void *from;
} vt_mpi_operation;

/* Ends the job if MPI reports an error. */
void vt_mpi_check(vt_engine *engine, int code, const char *operation_name, const char *where);

/* Has the operation finished? Advances everything that is in progress. */
bool vt_mpi_is_over(vt_engine *engine, vt_mpi_operation *work, const char *where);

/* group NULL: all ranks. Ends the job after engine->timeout seconds. */
void vt_mpi_wait_for(vt_engine *engine, vt_mpi_operation *work, const vt_group *group);

/* For MPI calls that can't be polled: once all ranks are here, they take only a moment. */
void vt_mpi_meet(vt_engine *engine, const char *name);

/* From here on this rank receives messages about time-outs; call vt_mpi_read_mail repeatedly. */
void vt_mpi_post_receive(vt_mpi_state *state);
void vt_mpi_read_mail(vt_engine *engine);

#endif
