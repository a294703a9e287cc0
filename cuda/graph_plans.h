/* Plans of cuDNN's graphs, one for each key that an operation asks for: chosen by time once, and kept
 * (backend/choices.h). */
#ifndef VT_CUDA_GRAPH_PLANS_H
#define VT_CUDA_GRAPH_PLANS_H

#include "fused_graph.h"

#ifdef VT_HAS_CUDNN

enum { VT_GRAPH_MOST_OPERANDS = 6, VT_GRAPH_MOST_NUMBERS = 16 };

typedef struct {
    void *memory; /* NULL: it lies in the workspace, */
    size_t place; /* so many bytes behind its beginning */
} vt_graph_operand;

/* A call of an operation. */
typedef struct vt_graph_call {
    vt_backend *backend;
    int count;
    vt_graph_operand operands[VT_GRAPH_MOST_OPERANDS]; /* of the graph's tensors 1, 2, … */
    size_t bytes;                                      /* of the workspace, that the operation wants itself */
    const void *context;                               /* the operation's own */
    char *workspace;                                   /* bytes, and behind them the plan's */
    cudnnBackendDescriptor_t plan;
    bool is_trial; /* nothing may be added to a result */
} vt_graph_call;

/* Where an operand lies, once there is a workspace. */
static inline void *vt_graph_memory(const vt_graph_call *call, int operand)
{
    const vt_graph_operand *o = &call->operands[operand];
    return o->memory != NULL ? o->memory : call->workspace + o->place;
}

/* An operation, for all of its calls. */
typedef struct {
    const char *choice; /* the kind of its choices */
    int key_numbers;
    int most; /* so many plans are timed */
    /* Begins the graph of a key, as vt_fused_graph_begin; its tensors are 1, 2, … */
    void (*describe)(const vt_cudnn *library, cudnnHandle_t handle, const char *device_text, const void *key,
                     vt_fused_graph *graph);
    bool (*run)(void *call);   /* with its plan */
    bool (*rival)(void *call); /* the same without cuDNN, which is timed, too; NULL: there is no other way */
} vt_graph_operation;

typedef struct {
    const vt_graph_operation *operation;
    int64_t key[VT_GRAPH_MOST_NUMBERS];
    vt_fused_graph graph;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN has none, or the rival is faster */
    int64_t own_bytes;             /* of the workspace, that the plan wants for itself */
} vt_graph_plan;

/* The plan for a key; a new key's is chosen. NULL: not in a recording. `exact`: float32 operands are not rounded. */
const vt_graph_plan *vt_graph_plan_find(const vt_graph_operation *operation, const void *key, bool exact,
                                        const vt_graph_call *call);

/* Takes the workspace that call and plan want, and sets the plan. False: there is none, which is noted. */
bool vt_graph_prepare(vt_graph_call *call, const vt_graph_plan *plan);

/* For tests: from now on plans run rather than their rivals, whichever is faster; and how many plans there are. */
void vt_graph_plans_prefer(vt_backend *backend);
int vt_graph_plans_count(const vt_backend *backend);

/* Runs the plan on the operands; `call` is a vt_graph_call. */
bool vt_graph_run(void *call);

#endif
#endif
