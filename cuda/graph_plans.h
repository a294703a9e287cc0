/* Plans of cuDNN's graphs, one for each key that an operation asks for: chosen by time once, and kept
 * (backend/choices.h). */
#ifndef VT_CUDA_GRAPH_PLANS_H
#define VT_CUDA_GRAPH_PLANS_H

#include "fused_graph.h"

#ifdef VT_HAS_CUDNN

enum { VT_GRAPH_MOST_OPERANDS = 6, VT_GRAPH_MOST_NUMBERS = 16 };

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
    /* Begins the graph of a key, as vt_fused_graph_begin; its tensors are 1, 2, … */
    void (*describe)(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text, const void *key,
                     vt_fused_graph *graph);
    bool (*run)(void *call);   /* by call->plan */
    bool (*rival)(void *call); /* does the same without cuDNN, and is timed beside the plans; NULL: there is none */
} vt_graph_operation;

typedef struct {
    const vt_graph_operation *operation;
    int64_t key[VT_GRAPH_MOST_NUMBERS];
    vt_fused_graph graph;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN has none, or the rival is faster */
    int64_t own_bytes;             /* what the plan needs of the workspace */
} vt_graph_plan;

/* The plan for a key, which is chosen when the key is new. NULL: it is new, but a step is being recorded, when nothing
 * can be timed. `exact`: float32 operands must not be rounded. */
const vt_graph_plan *vt_graph_plan_find(const vt_graph_operation *operation, const void *key, bool exact,
                                        const vt_graph_call *call);

/* Makes the call ready to run by this plan, with its workspace. False: there is no memory for it, which is noted. */
bool vt_graph_prepare(vt_graph_call *call, const vt_graph_plan *plan);

/* For tests: from now on plans run rather than their rivals, whichever is faster; and how many plans there are. */
void vt_graph_plans_prefer(vt_backend *backend);
int vt_graph_plans_count(const vt_backend *backend);

/* Runs the plan on the operands; `call` is a vt_graph_call. */
bool vt_graph_run(void *call);

#endif
#endif
