/* The CUDA back end's state, for the files that talk to the runtime and the libraries. */
#ifndef VT_CUDA_STATE_H
#define VT_CUDA_STATE_H

#include <cuda_runtime_api.h>

#include "backend/choices.h"
#include "cuda.h"

enum { VT_CUDA_MOST_ALLOCATIONS = 256 };

typedef struct {
    vt_cuda_common common; /* first: what the kernels' launchers know of */
    cudaStream_t stream;
    char device_name[256];
    int device, capability; /* 90: compute capability 9.0 */
    bool failed;
    cudaStream_t copy_stream; /* batches on their way */
    cudaEvent_t marks[VT_MARKS];
    cudaEvent_t uploaded;     /* on the copies' stream: the last upload is in its staging memory */
    cudaEvent_t staging_free; /* on the work's stream: the staging memory of all uploads has been read */
    bool recording;
    bool recording_lacks;        /* memory, or a choice that can't be made meanwhile: it will not do */
    const char *recording_fault; /* what of it failed */
    int record_failures;         /* in a row: after a few it is left alone */
    cudaGraphExec_t graph;       /* what was recorded; NULL: nothing, or its workspace has moved */
    void *workspace;             /* of operations */
    size_t workspace_bytes;
    size_t allocation_count;
    void *allocations[VT_CUDA_MOST_ALLOCATIONS];
    vt_choices *choices; /* by timing */
    bool is_warm;        /* something was timed */
    bool fixed_choices;  /* none is: the first that works, or what a checkpoint says */
    size_t least_free;   /* of the GPU's memory, seen while something was timed; 0: nothing was */
    struct vt_products *products;
    struct vt_fused_attention *fused_attention; /* cuDNN's; NULL: not there */
} vt_cuda_state;

/* Notes a failure of the runtime or a library, in the words of `what`, unless one was noted before. False when `error`
 * is one. */
bool vt_cuda_succeeds(vt_backend *backend, cudaError_t error, const char *what);

/* products.c and product_plans.c: matrix products by cuBLASLt. */
vt_status vt_products_open(vt_backend *backend, struct vt_products **products);
void vt_products_close(struct vt_products **products);
void vt_products_fill(vt_backend *backend);
size_t vt_products_version(const struct vt_products *products);

/* fused_attention.c: attention by cuDNN, where it builds and is faster. NULL: cuDNN is missing, too old, or was not
 * there when this was built. */
struct vt_fused_attention *vt_fused_attention_open(vt_backend *backend);
void vt_fused_attention_close(struct vt_fused_attention **attention);
/* Replaces the attention in the table by one that chooses; deterministic: forward only. */
void vt_fused_attention_fill(vt_backend *backend, bool deterministic);
size_t vt_fused_attention_version(const struct vt_fused_attention *attention); /* NULL: 0 */

/* For tests and measurements: attention by timing, or always by one of the two where both exist. */
typedef enum { VT_ATTENTION_BY_TIME, VT_ATTENTION_OWN, VT_ATTENTION_CUDNN } vt_attention_choice;
void vt_fused_attention_prefer(vt_backend *backend, vt_attention_choice choice);
/* How many shapes cuDNN has served so far, forward and backward each for itself. */
int vt_fused_attention_served(vt_backend *backend);
/* Why the last plan of cuDNN's that was tried could not be made; "": none failed. */
const char *vt_fused_attention_failure(vt_backend *backend);

/* One way to do something; run returns false where it fails. */
typedef struct {
    bool (*run)(void *context);
    void *context;
    double milliseconds; /* the shortest of three runs after a first, on the back end's stream; INFINITY: it fails */
} vt_cuda_trial;

/* Times `count` ways, which take turns; the first time that anything is timed the GPU is kept busy before, for its
 * clock rises for a while. Waits for the stream: only in a run's first step. */
void vt_cuda_time_all(vt_backend *backend, int count, vt_cuda_trial *trials);

static inline double vt_cuda_time(vt_backend *backend, bool (*run)(void *context), void *context)
{
    vt_cuda_trial one = {run, context, 0};
    vt_cuda_time_all(backend, 1, &one);
    return one.milliseconds;
}

#endif
