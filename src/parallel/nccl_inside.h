/* Internals of NCCL's engine, for nccl.c (the engine, its groups and the watching thread) and nccl_operations.c. */
#ifndef VT_PARALLEL_NCCL_INSIDE_H
#define VT_PARALLEL_NCCL_INSIDE_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "libraries.h"
#include "parallel/group.h"

typedef struct vt_nccl_communicator {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t begin; /* the work submitted to the back end's stream before the operation */
    cudaEvent_t end;   /* of the newest operation */
    double started;    /* when it was submitted; 0: none yet */
    const char *what;
    void *room; /* device memory for host groups */
    size_t room_bytes;
    vt_group *group;
    struct vt_nccl_communicator *next;
} vt_nccl_communicator;

typedef struct {
    const vt_nccl *nccl;
    vt_engine *engine;
    ncclComm_t all;
    int device;
    vt_nccl_communicator *list; /* protected by `mutex`, which the watching thread takes, too */
    cudaEvent_t replay_end;
    double replay_started; /* of the newest replay; 0: none yet */
    pthread_mutex_t mutex;
    pthread_t watch;
    bool watching, stop;
} vt_nccl_state;

static inline vt_nccl_state *vt_nccl_state_of(const vt_group *group)
{
    return group->engine->state;
}

/* Between two looks at what has been waited for since `since` (vt_clock_seconds): a fifth of a millisecond, but nothing
 * in the first tenth of one. */
void vt_nccl_rest(double since);

/* The engine's operations over groups. */
void vt_nccl_operations_fill(vt_engine *engine);

#endif
