/* cuda/graph_plans.c over a stand-in for cuDNN with four proposals, and a path with our kernels on the host beside it:
 * for the tests of the operations whose plans it chooses. */
#ifndef VT_TESTS_OPERATIONS_FAKE_PLANS_H
#define VT_TESTS_OPERATIONS_FAKE_PLANS_H

#define VT_HOST_CUDA /* cuda/cuda.h: kernels on the host */
#include "base/memory.h"
#include "cuda/state.h"
#include "operations/fake_cudnn.h"

enum { PROPOSALS = 4, OWN_BYTES = 1000 };

static struct {
    cudnnBackendNumericalNote_t notes[PROPOSALS];
    double times[PROPOSALS];
    double rival_time; /* of another way to the same */
    bool refuses_plans, refuses_runs, is_full;
    int runs, timings, last; /* last: the proposal that ran last */
} fake;

static cudnnStatus_t fake_get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *value)
{
    fake_descriptor *d = descriptor;
    *count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        const bool is_first = find(d, CUDNN_ATTR_ENGINEHEUR_MODE)->word == CUDNN_HEUR_MODE_A;
        *count = is_first ? PROPOSALS : 1; /* the fallback is that of number 3 */
        for (int i = 0; i < *count && i < most; i++) {
            fake_descriptor *made = ((void **)value)[i];
            made->number = is_first ? i : PROPOSALS - 1;
            fake_set(made, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                     find(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->pointers);
        }
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        (*(fake_descriptor **)value)->number = d->number;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        *(cudnnBackendNumericalNote_t *)value = fake.notes[d->number];
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *(int64_t *)value = OWN_BYTES;
    } else {
        return CUDNN_STATUS_BAD_PARAM;
    }
    (void)type;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_finish(cudnnBackendDescriptor_t descriptor)
{
    const fake_descriptor *d = descriptor;
    return d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && fake.refuses_plans ? CUDNN_STATUS_NOT_SUPPORTED
                                                                                    : CUDNN_STATUS_SUCCESS;
}

static void fake_error(char *text, size_t size)
{
    snprintf(text, size, "the library's own words");
}

/* What a graph computes; whoever includes this file defines it. */
static void fake_compute_graph(const fake_descriptor *graph, const fake_descriptor *pack);

static cudnnStatus_t fake_run(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    const fake_descriptor *proposal = find_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    EXPECT(handle != NULL);
    if (fake.refuses_runs) return CUDNN_STATUS_EXECUTION_FAILED;
    memset(find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->pointers[0], 0xff, OWN_BYTES);
    fake.runs++;
    fake.last = proposal->number;
    fake_compute_graph(find_descriptor(proposal, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), pack);
    return CUDNN_STATUS_SUCCESS;
}

static struct vt_cudnn_state *open_fake_cudnn(void)
{
    static const vt_cudnn functions = {.cudnnGetLastErrorString = fake_error,
                                       .cudnnBackendCreateDescriptor = fake_make,
                                       .cudnnBackendDestroyDescriptor = fake_drop,
                                       .cudnnBackendSetAttribute = fake_set,
                                       .cudnnBackendGetAttribute = fake_get,
                                       .cudnnBackendFinalize = fake_finish,
                                       .cudnnBackendExecute = fake_run};
    struct vt_cudnn_state *cudnn = vt_allocate(1, sizeof *cudnn, "a test");
    cudnn->library = &functions;
    cudnn->handle = (cudnnHandle_t)&fake;
    return cudnn;
}

static void fake_time_all(vt_backend *backend, int count, vt_cuda_trial *trials)
{
    (void)backend;
    for (int i = 0; i < count; i++) {
        const int runs = fake.runs;
        const bool works = trials[i].run(trials[i].context);
        trials[i].milliseconds = !works ? (double)INFINITY : fake.runs > runs ? fake.times[fake.last] : fake.rival_time;
    }
    fake.timings++;
}

static cudaError_t fake_malloc(void **memory, size_t bytes)
{
    *memory = fake.is_full ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *memory != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t fake_free(void *memory)
{
    free(memory);
    return cudaSuccess;
}

static cudaError_t fake_last_error(void)
{
    return cudaSuccess;
}

/* The file itself, over the stand-in, and with names that begin with FAKE_PLANS, which each includer defines. */
#define FAKE_JOIN(prefix, name) prefix##_##name
#define FAKE_NAME(prefix, name) FAKE_JOIN(prefix, name)
#define vt_cuda_time_all fake_time_all
#define cudaMalloc(memory, bytes) fake_malloc(memory, bytes)
#define cudaFree fake_free
#define cudaGetLastError fake_last_error
#define vt_graph_plans_close FAKE_NAME(FAKE_PLANS, plans_close)
#define vt_graph_plan_find FAKE_NAME(FAKE_PLANS, plan_find)
#define vt_graph_prepare FAKE_NAME(FAKE_PLANS, prepare)
#define vt_graph_run FAKE_NAME(FAKE_PLANS, run)
#include "cuda/graph_plans.c"
void vt_graph_plans_close(struct vt_cudnn_state *cudnn);

/* ---- the path ---- */

typedef struct {
    vt_cuda_state state;
    char *workspace;
    vt_backend *plain; /* for the includer; NULL: it has no use for one */
} own_state;

/* Exactly the size requested, and full of NaN. */
static void *take_workspace(vt_backend *backend, size_t bytes)
{
    own_state *own = backend->state;
    free(own->workspace);
    own->workspace = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(own->workspace, 0xff, bytes);
    return own->workspace;
}

static void note_failure(vt_backend *backend, const char *sentence)
{
    ((own_state *)backend->state)->state.failed = true;
    vt_error_note(__FILE__, __LINE__, "%s", sentence);
}

static vt_status check_path(vt_backend *backend)
{
    return ((own_state *)backend->state)->state.failed ? VT_ERROR : VT_OK;
}

static void zero(vt_backend *backend, void *memory, size_t bytes)
{
    (void)backend;
    memset(memory, 0, bytes);
}

static void close_path_of_cudnn(vt_backend *backend)
{
    own_state *own = backend->state;
    vt_graph_plans_close(own->state.cudnn);
    free(own->state.cudnn);
    EXPECT(fake_descriptors == 0, "%d descriptors are left", fake_descriptors);
    vt_choices_close(&own->state.choices);
    vt_backend_close(&own->plain);
    free(own->workspace);
    free(own);
}

/* Our kernels on the host, with the plans of the stand-in; the caller fills in what uses these. */
static vt_backend *open_path_of_cudnn(void)
{
    vt_backend *backend = vt_allocate(1, sizeof *backend, "a test");
    own_state *own = vt_allocate(1, sizeof *own, "a test");
    memset(&fake, 0, sizeof fake);
    for (int i = 0; i < PROPOSALS; i++) fake.notes[i] = CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
    own->state.common = (vt_cuda_common){.workspace = take_workspace, .fail = note_failure, .multiprocessors = 4};
    own->state.choices = vt_choices_open("a test", NULL);
    *backend = (vt_backend){.state = own, .check = check_path, .zero = zero, .close = close_path_of_cudnn};
    vt_cuda_fill_kernels(backend);
    own->state.cudnn = open_fake_cudnn();
    return backend;
}

#endif
