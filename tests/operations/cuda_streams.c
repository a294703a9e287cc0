/* cuda/backend.c over a stand-in for CUDA's runtime (fake_runtime.h), with the kernels on the host: whole steps run as
 * late, or as early, as the calls of streams, events and graphs allow. One more path for the tests of steps. */
#include "operations/paths.h"
#include "test.h"

#if defined(VT_HAS_CUDA) && defined(VT_HAS_HOST_CUDA)

#define VT_HOST_CUDA /* cuda/cuda.h: kernels on the host */
#include "operations/fake_runtime.h"

#include "backend/times.h"
#include "cuda/state.h"

/* ---- instead of the libraries ---- */

static void linear_gelu_backward(vt_backend *backend, vt_gelu kind, vt_matrix dy, vt_matrix weight, vt_matrix hidden,
                                 vt_matrix dhidden, float *dbias)
{
    const vt_matrix none = {0};
    backend->linear_backward_input(backend, dy, weight, dhidden);
    backend->gelu_backward_bias(backend, kind, hidden, dhidden, dhidden, none, dbias);
}

static vt_status open_products(vt_backend *backend, struct vt_products **products)
{
    *products = NULL;
    backend->linear_gelu_backward = linear_gelu_backward;
    return host_cuda_fill_products(backend);
}

static size_t version_of_products(const struct vt_products *products)
{
    (void)products;
    return 1;
}

/* ---- the file itself ---- */

void vt_host_cuda_hand_to(void (*taker)(void (*run)(const void *), const void *, size_t));

#define vt_products_open open_products
#define vt_products_close(products) (void)(products)
#define vt_products_fill(backend) (void)(backend)
#define vt_products_version version_of_products
#define vt_cudnn_open(backend) NULL
#define vt_cudnn_close(cudnn) (void)(cudnn)
#define vt_cudnn_version(cudnn) ((size_t)0)
#define vt_attention_open(backend) NULL
#define vt_attention_close(attention) (void)(attention)
#define vt_graph_plans_close(cudnn) (void)(cudnn)
#define vt_convolutions_fill(backend) (void)(backend)
#define vt_gelu_products_fill(backend) (void)(backend)
#define vt_cuda_succeeds streams_succeeds
#define vt_backend_open_cuda streams_open
#define vt_backend_choose_gpu streams_choose
vt_status streams_open(int local_rank, bool deterministic, vt_backend **backend);
vt_status streams_choose(int local_rank);
bool streams_succeeds(vt_backend *backend, cudaError_t error, const char *what);
#include "cuda/backend.c"

/* ---- the path ---- */

static void close_streams(vt_backend *backend)
{
    cuda_close(backend);
    vt_host_cuda_hand_to(NULL);
    EXPECT(fake_runtime_is_clean(), "streams, events, graphs or memory were not given back");
    EXPECT(fake_runtime_refused() == NULL, "in the middle of a recording: %s", fake_runtime_refused());
}

bool has_streams(void)
{
    return true;
}

vt_status open_streams_path(vt_cpu_isa path, vt_backend **backend)
{
    vt_status status = VT_OK;
    fake_runtime_begin(path == PATH_STREAMS_COPIES_LATE, path == PATH_STREAMS_COPIES_EARLY);
    vt_host_cuda_hand_to(fake_runtime_do);
    VT_TRY(streams_open(0, true, backend));
    ((vt_cuda_state *)(*backend)->state)->common.exact_float32 = true;
    (*backend)->close = close_streams;
done:
    return status;
}

void refuse_graphs(int count)
{
    fake_runtime_refuse_graphs(count);
}

/* Between two events of the stand-in lies a millisecond. */
TEST(operations_are_timed_by_the_devices_clock)
{
    SCOPED(vt_backend) *backend = NULL;
    void *memory = NULL;
    int count = 0;
    EXPECT_OK(path_open_trainers(PATH_STREAMS_LATE, &backend));
    EXPECT_OK(backend->allocate(backend, VT_MEMORY_WORKSPACE, 256, &memory));
    vt_times_open(backend);
    for (int i = 0; i < 3; i++) backend->zero(backend, memory, 256);
    const vt_operation_time *times = vt_times_sorted(backend, &count);
    EXPECT(count == 1 && strcmp(times[0].operation, "zero") == 0 && times[0].calls == 3);
    EXPECT_NEAR(times[0].seconds, 3e-3, 1e-9);
    vt_times_close(backend);
    backend->release(backend, memory);
    EXPECT_OK(backend->check(backend));
}

/* A pipeline's stage may have dozens of micro-batches, each with blocks of its own. */
TEST(memory_is_taken_in_any_number_of_blocks)
{
    SCOPED(vt_backend) *backend = NULL;
    void *memory = NULL;
    EXPECT_OK(path_open_trainers(PATH_STREAMS_LATE, &backend));
    for (int i = 0; i < 1000; i++) EXPECT_OK(backend->allocate(backend, VT_MEMORY_WORKSPACE, 256, &memory));
    backend->release(backend, memory);
}

#else

bool has_streams(void)
{
    return false;
}

void refuse_graphs(int count)
{
    (void)count;
}

vt_status open_streams_path(vt_cpu_isa path, vt_backend **backend)
{
    (void)path;
    *backend = NULL;
    return vt_error_note(__FILE__, __LINE__, "built without CUDA, or no C++ compiler was found");
}

#endif
