#include "graph_plans.h"

#ifdef VT_HAS_CUDNN

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "state.h"

#define THE_RIVAL UINT64_MAX /* as a kept choice; the others are numbers of cuDNN's proposals */

bool vt_graph_run(void *call)
{
    const vt_graph_call *c = call;
    const struct vt_cudnn_state *cudnn = ((vt_cuda_state *)c->backend->state)->cudnn;
    void *memory[VT_GRAPH_MOST_OPERANDS];
    for (int i = 0; i < c->count; i++) memory[i] = vt_graph_memory(c, i);
    return vt_fused_plan_run(cudnn->library, cudnn->handle, c->plan, c->count, memory, c->workspace + c->bytes);
}

bool vt_graph_prepare(vt_graph_call *call, const vt_graph_plan *plan)
{
    const size_t bytes = call->bytes + (size_t)plan->graph.workspace_bytes + 1;
    call->plan = plan->graph.plan;
    call->workspace = ((vt_cuda_common *)call->backend->state)->workspace(call->backend, bytes);
    return call->workspace != NULL;
}

/* *best: which candidate is the fastest; `count`: the rival is. False: there is no memory to time them, and the rival
 * is taken, or else the first candidate. */
static bool find_fastest(const vt_graph_operation *operation, const vt_graph_call *call, int count,
                         const vt_fused_plan *found, bool has_rival, int *best)
{
    vt_cuda_trial trials[VT_FUSED_MOST_PLANS + 1];
    vt_graph_call calls[VT_FUSED_MOST_PLANS + 1];
    int64_t most = 0;
    *best = has_rival ? count : 0;
    void *memory = NULL;
    for (int i = 0; i < count; i++)
        if (found[i].workspace_bytes > most) most = found[i].workspace_bytes;
    if (cudaMalloc(&memory, call->bytes + (size_t)most + 1) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    for (int i = 0; i < count + has_rival; i++) {
        calls[i] = *call;
        calls[i].is_trial = true;
        calls[i].workspace = memory;
        calls[i].plan = i < count ? found[i].plan : NULL;
        trials[i] = (vt_cuda_trial){i < count ? operation->run : operation->rival, &calls[i], 0};
    }
    vt_cuda_time_all(call->backend, count + has_rival, trials);
    for (int i = 0; i < count; i++)
        if (trials[i].milliseconds < trials[*best].milliseconds) *best = i;
    cudaFree(memory);
    return true;
}

static void choose(vt_graph_plan *plan, bool exact, const vt_graph_call *call)
{
    const vt_graph_operation *operation = plan->operation;
    const vt_cuda_state *state = call->backend->state;
    vt_fused_graph *graph = &plan->graph;
    const bool has_rival = operation->rival != NULL && !state->cudnn->prefers_plans;
    const vt_fused_needs needs = {.same_bits = state->fixed_choices, .exact = exact};
    vt_fused_plan found[VT_FUSED_MOST_PLANS];
    uint64_t number = 0;
    int count = 0, best = 0;
    bool may_keep = true; /* not what nothing has timed for want of memory */
    const bool is_kept =
        vt_choices_find(call->backend->choices, operation->choice, plan->key, operation->key_numbers, &number, 1);
    if (has_rival && is_kept && number == THE_RIVAL) return;
    vt_fused_graph_begin(state->cudnn->library, state->cudnn->handle, NULL, graph);
    operation->describe(plan->key, graph);
    const int64_t proposal = number == THE_RIVAL ? VT_FUSED_ANY_PROPOSAL : (int64_t)number;
    if (is_kept) count = vt_fused_graph_find_plans(graph, needs, proposal, 1, found);
    const bool is_new = count == 0;
    if (is_new && !(has_rival && state->fixed_choices)) {
        const int most = state->fixed_choices ? 1 : operation->most;
        count = vt_fused_graph_find_plans(graph, needs, VT_FUSED_ANY_PROPOSAL, most, found);
        if (count > 1 || (count > 0 && has_rival))
            may_keep = find_fastest(operation, call, count, found, has_rival, &best);
    }
    if (best < count) {
        graph->plan = found[best].plan;
        graph->workspace_bytes = found[best].workspace_bytes;
        number = (uint64_t)found[best].proposal;
    } else {
        number = THE_RIVAL;
        graph->plan = NULL;
        if (has_rival) vt_fused_graph_close(graph); /* else it says why there is no plan */
    }
    if (is_new && may_keep && (count > 0 || has_rival))
        vt_choices_add(call->backend->choices, operation->choice, plan->key, operation->key_numbers, &number, 1);
}

const vt_graph_plan *vt_graph_plan_find(const vt_graph_operation *operation, const void *key, bool exact,
                                        const vt_graph_call *call)
{
    vt_cuda_state *state = call->backend->state;
    struct vt_cudnn_state *cudnn = state->cudnn;
    const size_t bytes = (size_t)operation->key_numbers * sizeof(int64_t);
    VT_ASSERT(bytes <= sizeof cudnn->plans[0]->key);
    for (size_t i = 0; i < cudnn->plan_count; i++) {
        vt_graph_plan *plan = cudnn->plans[i];
        if (plan->operation == operation && memcmp(plan->key, key, bytes) == 0) return plan;
    }
    if (vt_cuda_ends_recording(state, VT_CUDA_WOULD_WAIT)) return NULL;
    cudnn->plans = vt_grow(cudnn->plans, cudnn->plan_count, sizeof(vt_graph_plan *), "cuDNN's plans");
    vt_graph_plan *plan = cudnn->plans[cudnn->plan_count++] = vt_allocate(1, sizeof *plan, "a plan of cuDNN's");
    plan->operation = operation;
    memcpy(plan->key, key, bytes);
    choose(plan, exact, call);
    return plan;
}

void vt_graph_plans_close(struct vt_cudnn_state *cudnn)
{
    for (size_t i = 0; cudnn != NULL && i < cudnn->plan_count; i++) {
        vt_fused_graph_close(&cudnn->plans[i]->graph);
        free(cudnn->plans[i]);
    }
    if (cudnn != NULL) free(cudnn->plans);
}

#endif
