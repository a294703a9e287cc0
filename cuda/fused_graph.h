/* Operations that cuDNN fuses into one kernel, described with its C graph API, and the plan that runs them. After a
 * failure nothing more is described, and no plan is found. */
#ifndef VT_CUDA_FUSED_GRAPH_H
#define VT_CUDA_FUSED_GRAPH_H

#include "backend/backend.h"

#include "libraries.h"

#ifdef VT_HAS_CUDNN

enum { VT_FUSED_MOST_DESCRIPTORS = 256, VT_FUSED_MOST_OPERATIONS = 32 };
enum { VT_FUSED_MOST_PLANS = 8, VT_FUSED_ANY_PROPOSAL = -1 };

typedef struct vt_fused_graph {
    const vt_cudnn *library;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device; /* NULL: the handle's */
    bool failed;
    int count, operation_count;
    int64_t next_id; /* of a tensor that stays inside the kernel */
    cudnnBackendDescriptor_t descriptors[VT_FUSED_MOST_DESCRIPTORS];
    cudnnBackendDescriptor_t operations[VT_FUSED_MOST_OPERATIONS];
    cudnnBackendDescriptor_t all;  /* all operations; NULL: no proposals were asked for yet */
    cudnnBackendDescriptor_t plan; /* NULL: none was found */
    int64_t workspace_bytes;
    char failure[300]; /* the last call that failed, in the library's words */
} vt_fused_graph;

typedef struct {
    cudnnBackendDescriptor_t tensor;
    int64_t dims[5];
} vt_fused_tensor;

/* Memory of the GPU aligned to 16 bytes, inside the kernel, or one float on the host. */
typedef enum { VT_FUSED_IN_MEMORY, VT_FUSED_INSIDE, VT_FUSED_VALUE } vt_fused_place;

/* Begins a graph for `handle`, or in tests for the device that `device_text` describes (JSON; cuDNN's
 * CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). The latter needs no GPU, but a driver's library to load the compiled
 * kernel. */
void vt_fused_graph_begin(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text,
                          vt_fused_graph *graph);

/* A tensor of 3 to 5 dimensions; strides in elements. `id` is the number under which a pack names the tensor's memory;
 * for VT_FUSED_INSIDE it is ignored. */
vt_fused_tensor vt_fused_tensor_make(vt_fused_graph *g, vt_fused_place place, int64_t id, cudnnDataType_t type,
                                     int rank, const int64_t *dims, const int64_t *strides);

/* Operations, computed in float32; each returns its result. */
/* y = mode(x, b), or y = mode(x) if b is NULL. */
vt_fused_tensor vt_fused_pointwise(vt_fused_graph *g, cudnnPointwiseMode_t mode, vt_fused_tensor x,
                                   const vt_fused_tensor *b, vt_fused_tensor y);
/* dx = dy times the derivative of a function at x: GELU's, whose `mode` is one of backward. */
void vt_fused_derivative(vt_fused_graph *g, cudnnPointwiseMode_t mode, vt_fused_tensor x, vt_fused_tensor dy,
                         vt_fused_tensor dx);
/* y, of x's size: each element's place along a dimension, CUDNN_DATA_INT32. */
vt_fused_tensor vt_fused_index(vt_fused_graph *g, vt_fused_tensor x, int64_t dimension, vt_fused_tensor y);
/* y = (a >= b), CUDNN_DATA_BOOLEAN. */
vt_fused_tensor vt_fused_at_least(vt_fused_graph *g, vt_fused_tensor a, vt_fused_tensor b, vt_fused_tensor y);
/* y = x where `which` holds, b elsewhere. */
vt_fused_tensor vt_fused_choose(vt_fused_graph *g, vt_fused_tensor which, vt_fused_tensor x, vt_fused_tensor b,
                                vt_fused_tensor y);
/* c = a b, matrices in the last two dimensions. */
vt_fused_tensor vt_fused_multiply(vt_fused_graph *g, vt_fused_tensor a, vt_fused_tensor b, vt_fused_tensor c);
/* y is x reduced over the dimensions in which y has size 1. */
vt_fused_tensor vt_fused_reduce(vt_fused_graph *g, cudnnReduceTensorOp_t how, vt_fused_tensor x, vt_fused_tensor y);
/* y is x with y's dimensions and strides. */
vt_fused_tensor vt_fused_reshape(vt_fused_graph *g, vt_fused_tensor x, vt_fused_tensor y);
/* A convolution over three dimensions with stride 2 and padding 1: y of x and weight, or the gradient of x or of the
 * weight. */
typedef enum { VT_CONVOLUTION_FORWARD, VT_CONVOLUTION_DATA, VT_CONVOLUTION_WEIGHT } vt_convolution_kind;
void vt_fused_convolve(vt_fused_graph *g, vt_convolution_kind kind, vt_fused_tensor x, vt_fused_tensor weight,
                       vt_fused_tensor y);

typedef struct {
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes;
    int64_t proposal; /* its number, the same each time that the same library is asked */
} vt_fused_plan;

/* What a plan must not do, besides adding parts of sums in 16 bits and rounding operands to fewer bits: */
typedef struct {
    bool any_will_do; /* it may do all of this; the others here do not count */
    bool exact;       /* round float32 operands to TF32 */
    bool same_bits;   /* add in an order that changes from run to run */
} vt_fused_needs;

/* Plans of the proposals of cuDNN's heuristic, or else of its fallback, in their order: up to `most`, or only that of
 * one proposal. Returns their number. */
int vt_fused_graph_find_plans(vt_fused_graph *g, vt_fused_needs needs, int64_t proposal, int most,
                              vt_fused_plan found[VT_FUSED_MOST_PLANS]);
void vt_fused_graph_close(vt_fused_graph *graph);

/* Runs a plan on memory [count]: that of the tensors 1, 2, …, of which those without memory are not the plan's. False:
 * the library refuses. */
bool vt_fused_plan_run(const vt_cudnn *library, cudnnHandle_t handle, cudnnBackendDescriptor_t plan, int count,
                       void *const *memory, void *workspace);

/* A vt_type, as cuDNN names it. */
static inline cudnnDataType_t vt_fused_type(int64_t type)
{
    if (type == VT_FLOAT32) return CUDNN_DATA_FLOAT;
    return type == VT_FLOAT16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

/* What a part of the workspace takes, so that the next one is aligned. */
static inline size_t vt_fused_rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

#endif
#endif
