/* The CUDA back end's state, for files that call the runtime and the libraries. */
#ifndef VT_CUDA_STATE_H
#define VT_CUDA_STATE_H

#include <cuda_runtime_api.h>

#include "backend/choices.h"
#include "cuda.h"
#include "libraries.h"

enum { VT_CUDA_STREAMS = 3, VT_CUDA_CLOCK = 2, VT_CUDA_EVENTS = VT_CUDA_CLOCK + VT_MARKS + VT_BESIDE + 3 };

typedef struct {
    vt_cuda_common common; /* must come first: the part that kernels' launchers see */
    union {
        cudaStream_t streams[VT_CUDA_STREAMS];
        struct {
            cudaStream_t stream;        /* the main one, also the back end's */
            cudaStream_t copy_stream;   /* of the batches' uploads */
            cudaStream_t beside_stream; /* of copy_beside */
        };
    };
    union {
        cudaEvent_t events[VT_CUDA_EVENTS];
        struct {
            cudaEvent_t clock[VT_CUDA_CLOCK]; /* of clock_start and clock_stop, which alone take times */
            cudaEvent_t marks[VT_MARKS];
            cudaEvent_t beside[VT_BESIDE]; /* on beside_stream: the copies of each place are made */
            cudaEvent_t asked;             /* on the main stream: what copy_beside comes after */
            cudaEvent_t uploaded;          /* on the upload stream: the last upload is in its staging memory */
            cudaEvent_t staging_free;      /* on the main stream: the staging memory of all uploads has been read */
        };
    };
    char device_name[256];
    int device;
    int capability; /* the major number of its compute capability */
    bool failed;
    bool recording;
    const char *recording_fault; /* why this recording fails; NULL: it does not so far */
    int record_failures;         /* in a row: after a few, recording is no longer tried */
    cudaGraphExec_t graph;       /* the recorded step; NULL: none, or its workspace has moved */
    void *workspace;             /* of operations */
    size_t workspace_bytes;
    size_t allocation_count;
    void **allocations;
    bool is_warm;       /* something was timed */
    bool fixed_choices; /* choices are fixed: the first that works, or what a checkpoint says */
    size_t least_free;  /* of the GPU's memory, while something was timed; 0: nothing was timed */
    struct vt_products *products;
    struct vt_attention_choices *attention; /* whose attention runs */
    struct vt_cudnn_state *cudnn;           /* NULL: not found */
} vt_cuda_state;

_Static_assert(offsetof(vt_cuda_state, events) - offsetof(vt_cuda_state, streams) ==
                   VT_CUDA_STREAMS * sizeof(cudaStream_t),
               "streams holds all of them");
_Static_assert(offsetof(vt_cuda_state, device_name) - offsetof(vt_cuda_state, events) ==
                   VT_CUDA_EVENTS * sizeof(cudaEvent_t),
               "events holds all of them");

/* While a step is recorded, a failure, or something that would wait for the GPU, ends only the recording: the step is
 * then run without it, and a failure that recurs is reported. False: no step is being recorded. */
static inline bool vt_cuda_ends_recording(vt_cuda_state *state, const char *why)
{
    if (state->recording && state->recording_fault == NULL) state->recording_fault = why;
    return state->recording;
}

/* Where something would wait for the GPU. */
#define VT_CUDA_WOULD_WAIT "an operation needed memory, or a choice by timing"

/* Notes a failure of the runtime or a library, with `what` naming the operation, unless one was noted before. False if
 * `error` is one. */
bool vt_cuda_succeeds(vt_backend *backend, cudaError_t error, const char *what);

/* products.c and product_plans.c: matrix products by cuBLASLt. */
vt_status vt_products_open(vt_backend *backend, struct vt_products **products);
void vt_products_close(struct vt_products **products);
void vt_products_fill(vt_backend *backend);
size_t vt_products_version(const struct vt_products *products);
/* linear_gelu_forward in two operations. */
void vt_product_then_gelu(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                          const uint16_t *rounded, vt_matrix hidden, vt_matrix active);

/* attention_choice.c: whose attention runs. Replaces the attention in the table by one that chooses; opened after
 * cuDNN's. */
struct vt_attention_choices *vt_attention_open(vt_backend *backend);
void vt_attention_close(struct vt_attention_choices **choices);

#ifdef VT_HAS_CUDNN

struct vt_cudnn_state {
    const vt_cudnn *library;
    cudnnHandle_t handle;
    char failure[300]; /* why attention's last plan that failed could not be made or run; "": none failed */
    size_t plan_count; /* of all other operations: graph_plans.c */
    struct vt_graph_plan **plans;
    bool prefers_plans; /* plans run even where the rival is faster; only tests set it */
};

/* fused_attention.c: opens cuDNN, and has its attention. NULL: cuDNN is missing, too old, or was missing at build time.
 */
struct vt_cudnn_state *vt_cudnn_open(vt_backend *backend);
void vt_cudnn_close(struct vt_cudnn_state **cudnn);
size_t vt_cudnn_version(const struct vt_cudnn_state *cudnn); /* NULL: 0 */

/* graph_plans.c: ends cuDNN's plans for the operations below; before vt_cudnn_close. */
void vt_graph_plans_close(struct vt_cudnn_state *cudnn);

/* convolution.c: convolutions by cuDNN. gelu_products.c: products with GELU in one kernel of cuDNN's. */
void vt_convolutions_fill(vt_backend *backend);
void vt_gelu_products_fill(vt_backend *backend);

#else

#define vt_cudnn_open(backend) NULL
#define vt_cudnn_close(cudnn) (void)(cudnn)
#define vt_cudnn_version(cudnn) ((size_t)0)
#define vt_graph_plans_close(cudnn) (void)(cudnn)
#define vt_convolutions_fill(backend) (void)(backend)
#define vt_gelu_products_fill(backend) (void)(backend)

#endif

/* One way to do something; run returns false if it fails. */
typedef struct {
    bool (*run)(void *context);
    void *context;
    double milliseconds; /* the shortest of three runs after a warm-up, on the back end's stream; INFINITY: it fails */
} vt_cuda_trial;

/* Times `count` ways in turn. Before the first timing of all, the GPU is kept busy for a while, because its clock rises
 * slowly. Waits for the stream: call only in a run's first step. */
void vt_cuda_time_all(vt_backend *backend, int count, vt_cuda_trial *trials);

#endif
