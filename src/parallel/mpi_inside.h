/* The inside of MPI's engine, for mpi.c (the engine and its groups), mpi_operations.c and mpi_wait.c: the only files
 * that include mpi.h. */
#ifndef VT_PARALLEL_MPI_INSIDE_H
#define VT_PARALLEL_MPI_INSIDE_H

#include <mpi.h>

#include "parallel/group.h"

/* What ranks write to one another about a time-out. Small: MPI then sends without the receiver's help. */
typedef struct {
    char text[1024]; /* the wait that took too long; the wait of who answers; the sentence to be said */
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
    char **answers; /* [size], while this rank asks: what each waits for, NULL: silent */
    char waiting[256];
    double end;            /* someone asked: when to be gone, else 0 */
    int64_t largest_count; /* elements and bytes that MPI is given at once */
    int64_t largest_bytes;
} vt_mpi_state;

/* One operation: its parts, and what MPI reads while they run. */
typedef struct {
    const char *name;
    size_t volume;         /* bytes, of all ranks together or one */
    int count, room, over; /* requests; the first `over` are */
    MPI_Request *requests;
    int *counts, *offsets;
    void *sum; /* made here, because it may lie in what is sent; belongs to `receive` */
    void *receive;
    size_t bytes;
} vt_mpi_operation;

/* Ends the job where MPI reports an error. */
void vt_mpi_check(vt_engine *engine, int code, const char *operation_name, const char *where);

/* Is the operation over? Moves all that is under way on. */
bool vt_mpi_is_over(vt_engine *engine, vt_mpi_operation *work, const char *where);

/* group NULL: all ranks. Ends the job after engine->timeout seconds. */
void vt_mpi_wait_for(vt_engine *engine, vt_mpi_operation *work, const vt_group *group);

/* For MPI's calls that can't be polled: when all ranks are here they take a moment only. */
void vt_mpi_meet(vt_engine *engine, const char *name);

/* From here on this rank gets letters; to be read again and again. */
void vt_mpi_post_receive(vt_mpi_state *state);
void vt_mpi_read_mail(vt_engine *engine);

/* The engine's operations over groups. */
void vt_mpi_operations_fill(vt_engine *engine);

#endif
