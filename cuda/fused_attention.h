/* cuDNN's attention, built with its C graph API: forward and backward composed of products, pointwise operations and
 * reductions, which the library fuses into one kernel each. (Its one-node backward does not build from C.) Where cuDNN
 * is missing, nothing fits. */
#ifndef VT_CUDA_FUSED_ATTENTION_H
#define VT_CUDA_FUSED_ATTENTION_H

#include "attention_choice.h"
#include "fused_graph.h"

#ifdef VT_HAS_CUDNN

/* A plan for a shape; NULL: this cuDNN has none (vt_fused_attention_failure says why). */
vt_fused_graph *vt_fused_attention_plan_open(vt_backend *backend, const vt_attention_key *shape);
void vt_fused_attention_plan_close(vt_fused_graph **plan);

/* Could cuDNN run the call at all? It takes 16-bit types only; its mask is that of queries and keys that begin at the
 * same place, and its random numbers differ from the CPU's. */
bool vt_fused_attention_fits(const vt_attention_call *call);
/* Bytes of workspace that the call takes, whose shape must have a plan. */
size_t vt_fused_attention_workspace(const vt_attention_call *call);
/* Runs the plan of a vt_attention_call's shape. False: it failed, or there is no workspace. */
bool vt_fused_attention_run(void *call);

/* Why a plan could not be made or run, the last one of those that failed; "": none did. */
const char *vt_fused_attention_failure(vt_backend *backend);
void vt_fused_attention_note(vt_backend *backend, const char *failure);

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
    VT_FUSED_DQ_SUM, /* of VT_ATTENTION_BACKWARD: [batch, heads, queries, head_dim] float32, which cuDNN clears
                      * (since 9.6)
                      */
    VT_FUSED_UNSEEN, /* causal: one float on the host, the score of a key that is not seen: -FLT_MAX */
    VT_FUSED_TENSORS = VT_FUSED_UNSEEN
};

/* The graph and its plan (attention_graph.c); `handle` and `device_text` as in vt_fused_graph_begin. False: this cuDNN
 * has no such plan. */
bool vt_attention_graph_open(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text,
                             const vt_attention_key *shape, vt_fused_graph *graph);

#else /* nothing fits */

#define vt_fused_attention_plan_open(backend, shape) ((void)(backend), (void)(shape), NULL)
#define vt_fused_attention_plan_close(plan) (void)(plan)
#define vt_fused_attention_fits(call) ((void)(call), false)
#define vt_fused_attention_workspace(call) ((void)(call), (size_t)0)
#define vt_fused_attention_run NULL
#define vt_fused_attention_failure(backend) ((void)(backend), "built without cuDNN")
#define vt_fused_attention_note(backend, failure) ((void)(backend), (void)(failure))

#endif
#endif
