/* Whose attention runs. There are up to three engines: our kernels for every GPU (attention_*.cu), cuDNN
 * (fused_attention.c), and our kernels for Hopper's wgmma (wgmma_attention_*.cu). All keep log_sum in the same way, so
 * that forward and backward may have different ones. */
#ifndef VT_CUDA_ATTENTION_CHOICE_H
#define VT_CUDA_ATTENTION_CHOICE_H

#include "backend/backend.h"

/* Their numbers are kept in choices. */
typedef enum {
    VT_ATTENTION_OWN,
    VT_ATTENTION_CUDNN,
    VT_ATTENTION_WGMMA,
    VT_ATTENTION_ENGINES,
    VT_ATTENTION_BY_TIME = VT_ATTENTION_ENGINES /* no engine: the fastest */
} vt_attention_engine;

/* VT_ATTENTION_REPEATABLE: a backward that gives the same bits every time. cuDNN then makes dq by one product, from all
 * gradients of scores, which its workspace holds; with VT_ATTENTION_BACKWARD it adds parts of dq in an order that
 * changes from run to run. */
typedef enum { VT_ATTENTION_FORWARD, VT_ATTENTION_BACKWARD, VT_ATTENTION_REPEATABLE } vt_attention_pass;

/* What a choice, or a plan of cuDNN's, depends on. Strides in elements, from row to row; all have the same 16-bit type
 * except log_sum and, of what cuDNN does not take, the results. */
typedef struct {
    int64_t batch, heads, head_dim, queries, keys;
    int64_t q_stride, k_stride, v_stride, out_stride, dout_stride, dq_stride, dk_stride, dv_stride;
    int64_t pass;    /* vt_attention_pass */
    int64_t type;    /* vt_type */
    int64_t causal;  /* query i sees the keys up to i */
    int64_t result;  /* vt_type of out, or of dq, dk and dv */
    int64_t drops;   /* with dropout */
    int64_t kernels; /* the version of our own kernels */
} vt_attention_key;

/* What is known of a shape. */
typedef struct {
    vt_attention_key shape;
    bool is_chosen, cudnn_refuses;
    vt_attention_engine chosen, ran; /* ran: the last time */
    struct vt_fused_graph *plan;     /* cuDNN's; NULL: none was needed yet, or it has none */
} vt_attention_choice;

/* One call: its operands, where forward has those of backward with data NULL, and what is known of its shape. */
typedef struct {
    vt_backend *backend;
    const vt_attention_shape *shape;
    vt_attention_pass pass;
    vt_matrix q, k, v, out, dout, dq, dk, dv;
    float *log_sum;
    vt_attention_choice *choice; /* NULL: nothing is known of its shape (find_shape) */
} vt_attention_call;

/* Is there a key that some query does not see? The first query sees the fewest. */
bool vt_attention_is_masked(const vt_attention_shape *shape);

/* For tests and measurements: attention by the named engine wherever that can, else by our kernels for every GPU. */
void vt_attention_prefer(vt_backend *backend, vt_attention_engine engine);
/* Of how many vt_attention_keys the last call ran on this engine. */
int vt_attention_served(vt_backend *backend, vt_attention_engine engine);
/* Whether this build and GPU have the engine. */
bool vt_attention_has(vt_backend *backend, vt_attention_engine engine);

#endif
