/* cuDNN's attention, built with its C graph API: forward and backward composed of products, pointwise operations and
 * reductions, which the library fuses into one kernel each. (Its one-node backward does not build from C.) */
#ifndef VT_CUDA_FUSED_ATTENTION_H
#define VT_CUDA_FUSED_ATTENTION_H

#include "backend/backend.h"

#include "libraries.h"

#ifdef VT_HAS_CUDNN

/* What a plan depends on. Strides in elements, from row to row; all have the same 16-bit type except log_sum. */
typedef struct {
    int64_t batch, heads, head_dim, queries, keys;
    int64_t q_stride, k_stride, v_stride, out_stride, dout_stride, dq_stride, dk_stride, dv_stride;
    int64_t backward;
    int64_t type; /* vt_type */
} vt_fused_shape;

/* The tensors of a plan by their unique ids. */
enum {
    VT_FUSED_Q = 1,
    VT_FUSED_K,
    VT_FUSED_V,
    VT_FUSED_OUT,
    VT_FUSED_LOG_SUM,
    VT_FUSED_SCALE, /* one float on the host: 1 / √head_dim */
    VT_FUSED_DOUT,
    VT_FUSED_DQ,
    VT_FUSED_DK,
    VT_FUSED_DV,
    VT_FUSED_DELTA,  /* [batch, heads, queries] float32, scratch */
    VT_FUSED_DQ_SUM, /* [batch, heads, queries, head_dim] float32; cuDNN clears it itself since 9.6 */
    VT_FUSED_ONE,    /* one float on the host: 1 */
    VT_FUSED_ID_COUNT
};

enum { VT_FUSED_MOST_DESCRIPTORS = 256 };

typedef struct {
    const vt_cudnn *library;
    bool failed;
    int count, operation_count;
    int64_t next_id; /* a tensor that stays inside the kernel */
    cudnnBackendDescriptor_t descriptors[VT_FUSED_MOST_DESCRIPTORS];
    cudnnBackendDescriptor_t operations[32];
    cudnnBackendDescriptor_t plan; /* NULL: none was found */
    int64_t workspace_bytes;
    int proposals;     /* engine configurations that the library named */
    char failure[300]; /* the last call that failed, in the library's words */
} vt_fused_graph;

/* Builds graph and plan for `handle`, or for the device that `device_text` describes (JSON; cuDNN's
 * CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). The latter needs no GPU, but a driver's library to load the compiled
 * kernel. False: this cuDNN has no such plan. */
bool vt_fused_graph_open(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text,
                         const vt_fused_shape *shape, vt_fused_graph *graph);

/* The plan as text (JSON, about 100 KB: it contains the compiled kernel). The same library restores it for the same
 * kind of GPU in milliseconds; compiling takes about half a second. malloc'd; NULL: it has none. */
char *vt_fused_graph_text(const vt_fused_graph *graph, size_t *bytes);
/* A graph with only the plan of such a text; `handle` and `device_text` as above. False: the library rejects it. */
bool vt_fused_graph_restore(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text, const char *text,
                            size_t bytes, vt_fused_graph *graph);
void vt_fused_graph_close(vt_fused_graph *graph);

#endif
#endif
