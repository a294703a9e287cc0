/* Plans of cuDNN's graphs, one for each key that an operation asks for: chosen by time once, and kept
 * (backend/choices.h); and the operations that have them. */
#ifndef VT_CUDA_GRAPH_PLANS_H
#define VT_CUDA_GRAPH_PLANS_H

#include "fused_graph.h"

#ifdef VT_HAS_CUDNN

enum { VT_GRAPH_MOST_OPERANDS = 6, VT_GRAPH_MOST_NUMBERS = 16 /* int64_t of a key */ };

typedef struct {
    void *memory; /* NULL: it lies in the workspace */
    size_t place; /* then: where, in bytes */
} vt_graph_operand;

/* A call of an operation. */
typedef struct vt_graph_call {
    vt_backend *backend;
    int count;
    vt_graph_operand operands[VT_GRAPH_MOST_OPERANDS]; /* of the graph's tensors 1, 2, … */
    size_t bytes;                                      /* what the operation itself needs of the workspace */
    const void *context;                               /* what the operation needs to know besides */
    char *workspace;                                   /* the operation's bytes, and behind them the plan's */
    cudnnBackendDescriptor_t plan;
    bool is_trial; /* its time is taken: results may be overwritten, but nothing may be added to them */
} vt_graph_call;

/* Where an operand lies, once there is a workspace. */
static inline void *vt_graph_memory(const vt_graph_call *call, int operand)
{
    const vt_graph_operand *o = &call->operands[operand];
    return o->memory != NULL ? o->memory : call->workspace + o->place;
}

/* An operation, for all of its calls. */
typedef struct {
    const char *choice; /* under this word its choices are kept */
    int key_numbers;
    int most; /* how many plans are timed at most */
    /* Describes the operations of a key in a graph that has begun; their tensors are 1, 2, … */
    void (*describe)(const void *key, vt_fused_graph *graph);
    bool (*run)(void *call);   /* by call->plan */
    bool (*rival)(void *call); /* does the same without cuDNN, and is timed beside the plans; NULL: there is none */
} vt_graph_operation;

typedef struct vt_graph_plan {
    const vt_graph_operation *operation;
    int64_t key[VT_GRAPH_MOST_NUMBERS];
    vt_fused_graph graph; /* whose plan is NULL where cuDNN has none, or the rival is faster */
} vt_graph_plan;

/* The plan for a key, which is chosen when the key is new. NULL: it is new, but a step is being recorded, when nothing
 * can be timed. `exact`: float32 operands must not be rounded. */
const vt_graph_plan *vt_graph_plan_find(const vt_graph_operation *operation, const void *key, bool exact,
                                        const vt_graph_call *call);

/* Makes the call ready to run by this plan, with its workspace. False: there is no memory for it, which is noted. */
bool vt_graph_prepare(vt_graph_call *call, const vt_graph_plan *plan);

/* Runs the plan on the operands; `call` is a vt_graph_call. */
bool vt_graph_run(void *call);

/* ---- convolution.c: convolutions, each a graph of one operation ---- */

/* What a plan depends on: cubes x [batch, (2 side)³, in] and y [batch, side³, out], whose points lie x_stride and
 * y_stride elements apart, and a weight [out, in, 4, 4, 4] without gaps, all of one type and in 16-byte pieces. */
typedef struct {
    int64_t kind; /* vt_convolution_kind */
    int64_t type; /* vt_type */
    int64_t batch, side, in, out, x_stride, y_stride;
} vt_convolution_key;

/* Describes the operation of a vt_convolution_key. Its tensors are 1, x; 2, the weight; 3, y; or their gradients. Sums
 * are float32. */
void vt_convolution_describe(const void *key, vt_fused_graph *graph);

/* ---- gelu_products.c: the products beside a GELU, each with it in one kernel that cuDNN fuses: what the product makes
 * then need not be read again ---- */

/* What a plan depends on. Forward: hidden = x weightᵀ + bias, active = gelu(hidden), with x [rows, in] and hidden,
 * active [rows, out]. Backward: dhidden = (dy weight) * gelu'(hidden), with dy [rows, in] and hidden, dhidden [rows,
 * out]. All are of one 16-bit type and in 16-byte pieces; sums are float32. */
typedef struct {
    int64_t is_backward;
    int64_t gelu; /* vt_gelu */
    int64_t type; /* vt_type */
    int64_t rows, in, out;
    int64_t x_stride, weight_stride, hidden_stride, result_stride; /* x: or dy; result: active or dhidden */
} vt_gelu_product_key;

/* Describes the operations of a vt_gelu_product_key. Their tensors: 1, x or dy; 2, the weight; 3, hidden; 4, active or
 * dhidden; 5, forward's bias in 16 bits. */
void vt_gelu_product_describe(const void *key, vt_fused_graph *graph);

#endif
#endif
