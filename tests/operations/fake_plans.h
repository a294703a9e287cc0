/* cuda/graph_plans.c over a stand-in for cuDNN with four proposals, and a path with our kernels on the host beside it:
 * for the tests of the operations whose plans it chooses. */
#ifndef VT_TESTS_OPERATIONS_FAKE_PLANS_H
#define VT_TESTS_OPERATIONS_FAKE_PLANS_H

#define VT_HOST_CUDA /* cuda/cuda.h: kernels on the host */
#include "operations/fake_cudnn.h"
#include "operations/fake_gpu.h"

static double times[PROPOSALS]; /* of the proposals */
static double rival_time;       /* of another way to the same */

static struct vt_cudnn_state *open_fake_cudnn(void)
{
    struct vt_cudnn_state *cudnn = vt_allocate(1, sizeof *cudnn, "a test");
    cudnn->library = &fake_functions;
    cudnn->handle = (cudnnHandle_t)&fake;
    return cudnn;
}

static void fake_time_all(vt_backend *backend, int count, vt_cuda_trial *trials)
{
    (void)backend;
    for (int i = 0; i < count; i++) {
        const int runs = fake.runs;
        const bool works = trials[i].run(trials[i].context);
        trials[i].milliseconds = !works ? (double)INFINITY : fake.runs > runs ? times[fake.last] : rival_time;
    }
    fake.timings++;
}

/* The file itself, over the stand-in, and with names that begin with FAKE_PLANS, which each includer defines. */
#define FAKE_JOIN(prefix, name) prefix##_##name
#define FAKE_NAME(prefix, name) FAKE_JOIN(prefix, name)
#define vt_cuda_time_all fake_time_all
#define cudaMalloc(memory, bytes) fake_malloc(memory, bytes)
#define cudaFree fake_free
#define cudaGetLastError no_error
#define vt_graph_plans_close FAKE_NAME(FAKE_PLANS, plans_close)
#define vt_graph_plan_find FAKE_NAME(FAKE_PLANS, plan_find)
#define vt_graph_prepare FAKE_NAME(FAKE_PLANS, prepare)
#define vt_graph_run FAKE_NAME(FAKE_PLANS, run)
#include "cuda/graph_plans.c"
void vt_graph_plans_close(struct vt_cudnn_state *cudnn);

/* ---- the path ---- */

typedef struct {
    vt_cuda_state state;
    vt_backend *plain; /* for the includer; NULL: it has no use for one */
} own_state;

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
    close_fake_gpu(backend);
    vt_backend_close(&own->plain);
    free(own);
}

/* Our kernels on the host, with the plans of the stand-in; the caller fills in what uses these. */
static vt_backend *open_path_of_cudnn(void)
{
    vt_backend *backend = vt_allocate(1, sizeof *backend, "a test");
    own_state *own = vt_allocate(1, sizeof *own, "a test");
    memset(&fake, 0, sizeof fake);
    for (int i = 0; i < PROPOSALS; i++) fake.notes[i] = CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
    *backend = (vt_backend){.state = own, .check = check_path, .zero = zero, .close = close_path_of_cudnn};
    open_fake_gpu(backend);
    vt_cuda_fill_kernels(backend);
    own->state.cudnn = open_fake_cudnn();
    return backend;
}

#endif
