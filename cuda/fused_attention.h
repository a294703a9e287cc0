/* cuDNN's attention, built with its C graph API: forward and backward composed of products, pointwise operations and
 * reductions, which the library fuses into one kernel each. (Its one-node backward does not build from C.) */
#ifndef VT_CUDA_FUSED_ATTENTION_H
#define VT_CUDA_FUSED_ATTENTION_H

#include "fused_graph.h"

#ifdef VT_HAS_CUDNN

/* VT_FUSED_REPEATABLE: dq is made at once, of all gradients of scores, which go through the library's workspace;
 * VT_FUSED_BACKWARD adds parts of it in an order that changes from run to run. */
typedef enum { VT_FUSED_FORWARD, VT_FUSED_BACKWARD, VT_FUSED_REPEATABLE } vt_fused_pass;

/* What a plan depends on. Strides in elements, from row to row; all have the same 16-bit type except log_sum. */
typedef struct {
    int64_t batch, heads, head_dim, queries, keys;
    int64_t q_stride, k_stride, v_stride, out_stride, dout_stride, dq_stride, dk_stride, dv_stride;
    int64_t pass;   /* vt_fused_pass */
    int64_t type;   /* vt_type */
    int64_t causal; /* query i sees the keys up to i */
} vt_fused_shape;

/* The tensors of a plan by their unique ids. */
enum {
    VT_FUSED_Q = 1,
    VT_FUSED_K,
    VT_FUSED_V,
    VT_FUSED_OUT,
    VT_FUSED_LOG_SUM,
    VT_FUSED_SCALE, /* one float on the host: what scores are multiplied by */
    VT_FUSED_DOUT,
    VT_FUSED_DQ,
    VT_FUSED_DK,
    VT_FUSED_DV,
    VT_FUSED_DELTA,  /* [batch, heads, queries] float32, scratch */
    VT_FUSED_ONE,    /* one float on the host: 1 */
    VT_FUSED_DQ_SUM, /* of VT_FUSED_BACKWARD: [batch, heads, queries, head_dim] float32, which cuDNN clears (since 9.6)
                      */
    VT_FUSED_UNSEEN, /* causal: one float on the host, the score of a key that is not seen: -FLT_MAX */
    VT_FUSED_ID_COUNT
};

/* The graph and its plan (attention_graph.c); `handle` and `device_text` as in vt_fused_graph_begin. False: this cuDNN
 * has no such plan. */
bool vt_fused_graph_open(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text,
                         const vt_fused_shape *shape, vt_fused_graph *graph);

/* For tests and measurements: attention chosen by timing, or always the named one if both exist. */
typedef enum { VT_ATTENTION_BY_TIME, VT_ATTENTION_OWN, VT_ATTENTION_CUDNN } vt_attention_choice;
void vt_fused_attention_prefer(vt_backend *backend, vt_attention_choice choice);
/* How many shapes cuDNN has run so far; forward and backward count separately. */
int vt_fused_attention_served(vt_backend *backend);
/* Why the last plan that was tried could not be made; "": none failed. */
const char *vt_fused_attention_failure(vt_backend *backend);

/* The library that attention uses, for other operations. */
void vt_fused_attention_library(vt_backend *backend, const vt_cudnn **library, cudnnHandle_t *handle);

#endif
#endif
