#include "graph_plans.h"

#ifdef VT_HAS_CUDNN

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fused_attention.h"
#include "state.h"

#define THE_RIVAL UINT64_MAX /* as a kept choice; the others are numbers of cuDNN's proposals */

struct vt_graph_plans {
    const vt_cudnn *library;
    cudnnHandle_t handle;
    bool preferred; /* to their rivals */
    size_t count;
    vt_graph_plan **all;
};

static struct vt_graph_plans *plans_of(const vt_backend *backend)
{
    return ((vt_cuda_state *)backend->state)->graph_plans;
}

bool vt_graph_run(void *call)
{
    const vt_graph_call *c = call;
    const struct vt_graph_plans *plans = plans_of(c->backend);
    int64_t ids[VT_GRAPH_MOST_OPERANDS];
    void *pointers[VT_GRAPH_MOST_OPERANDS];
    for (int i = 0; i < c->count; i++) {
        ids[i] = 1 + i;
        pointers[i] = vt_graph_memory(c, i);
    }
    return vt_fused_plan_run(plans->library, plans->handle, c->plan, c->count, ids, pointers, c->workspace + c->bytes);
}

bool vt_graph_prepare(vt_graph_call *call, const vt_graph_plan *plan)
{
    call->plan = plan->plan;
    call->workspace =
        ((vt_cuda_common *)call->backend->state)->workspace(call->backend, call->bytes + (size_t)plan->own_bytes + 1);
    return call->workspace != NULL;
}

/* Which candidate is the fastest; `count`: the rival is. Where there is no memory to time them, the rival is taken, or
 * else the first candidate. */
static int fastest(const vt_graph_operation *operation, const vt_graph_call *call, int count,
                   const vt_fused_plan *found, bool has_rival)
{
    vt_cuda_trial trials[VT_FUSED_MOST_PLANS + 1];
    vt_graph_call calls[VT_FUSED_MOST_PLANS + 1];
    int64_t most = 0;
    int best = has_rival ? count : 0;
    void *memory = NULL;
    for (int i = 0; i < count; i++)
        if (found[i].workspace_bytes > most) most = found[i].workspace_bytes;
    if (cudaMalloc(&memory, call->bytes + (size_t)most + 1) != cudaSuccess) {
        cudaGetLastError();
        return best;
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
        if (trials[i].milliseconds < trials[best].milliseconds) best = i;
    cudaFree(memory);
    return best;
}

static void choose(vt_graph_plan *plan, bool exact, const vt_graph_call *call)
{
    const vt_graph_operation *operation = plan->operation;
    const vt_cuda_state *state = call->backend->state;
    const struct vt_graph_plans *plans = state->graph_plans;
    const bool has_rival = operation->rival != NULL && !plans->preferred;
    const vt_fused_needs needs = {.same_bits = state->fixed_choices, .exact = exact};
    vt_fused_plan found[VT_FUSED_MOST_PLANS];
    uint64_t number = 0;
    int count = 0, best = 0;
    const bool is_kept =
        vt_choices_find(state->choices, operation->choice, plan->key, operation->key_numbers, &number, 1);
    if (has_rival && is_kept && number == THE_RIVAL) return;
    vt_fused_graph_begin(plans->library, plans->handle, NULL, &plan->graph);
    operation->describe(plan->key, &plan->graph);
    if (is_kept) count = vt_fused_graph_find_plans(&plan->graph, needs, (int64_t)number, 1, found);
    const bool is_new = count == 0;
    if (is_new && !(has_rival && state->fixed_choices)) {
        const int most = state->fixed_choices ? 1 : operation->most;
        count = vt_fused_graph_find_plans(&plan->graph, needs, VT_FUSED_ANY_PROPOSAL, most, found);
        if (count > 1 || (count > 0 && has_rival)) best = fastest(operation, call, count, found, has_rival);
    }
    if (best < count) {
        plan->plan = found[best].plan;
        plan->own_bytes = found[best].workspace_bytes;
        number = (uint64_t)found[best].proposal;
    } else {
        number = THE_RIVAL;
        if (has_rival) vt_fused_graph_close(&plan->graph); /* else it says why there is no plan */
    }
    if (is_new && (count > 0 || has_rival))
        vt_choices_add(state->choices, operation->choice, plan->key, operation->key_numbers, &number, 1);
}

const vt_graph_plan *vt_graph_plan_find(const vt_graph_operation *operation, const void *key, bool exact,
                                        const vt_graph_call *call)
{
    vt_cuda_state *state = call->backend->state;
    struct vt_graph_plans *plans = state->graph_plans;
    const size_t bytes = (size_t)operation->key_numbers * sizeof(int64_t);
    VT_ASSERT(bytes <= sizeof plans->all[0]->key);
    for (size_t i = 0; i < plans->count; i++)
        if (plans->all[i]->operation == operation && memcmp(plans->all[i]->key, key, bytes) == 0) return plans->all[i];
    if (state->recording) { /* choosing waits for the GPU */
        state->recording_lacks = true;
        return NULL;
    }
    plans->all = vt_grow(plans->all, plans->count, sizeof(vt_graph_plan *), "cuDNN's plans");
    vt_graph_plan *plan = plans->all[plans->count++] = vt_allocate(1, sizeof *plan, "a plan of cuDNN's");
    plan->operation = operation;
    memcpy(plan->key, key, bytes);
    choose(plan, exact, call);
    return plan;
}

void vt_graph_plans_prefer(vt_backend *backend)
{
    plans_of(backend)->preferred = true;
}

int vt_graph_plans_count(const vt_backend *backend)
{
    const struct vt_graph_plans *plans = plans_of(backend);
    int count = 0;
    for (size_t i = 0; i < plans->count; i++) count += plans->all[i]->plan != NULL;
    return count;
}

struct vt_graph_plans *vt_graph_plans_open(vt_backend *backend)
{
    struct vt_graph_plans *plans = vt_allocate(1, sizeof *plans, "cuDNN's plans");
    vt_fused_attention_library(backend, &plans->library, &plans->handle);
    return plans;
}

void vt_graph_plans_close(struct vt_graph_plans **result)
{
    struct vt_graph_plans *plans = *result;
    if (plans == NULL) return;
    for (size_t i = 0; i < plans->count; i++) {
        vt_fused_graph_close(&plans->all[i]->graph);
        free(plans->all[i]);
    }
    free(plans->all);
    free(plans);
    *result = NULL;
}

#endif
