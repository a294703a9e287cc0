/* The CUDA back end without a GPU: its messages, and the parts that can run. */
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "test.h"

static bool has_gpu(void)
{
    vt_backend *backend = NULL;
    bool has = vt_backend_open_cuda(0, true, &backend) == VT_OK;
    vt_backend_close(&backend);
    vt_error_clear();
    return has;
}

TEST(without_a_gpu_auto_is_the_cpu_and_cuda_an_error)
{
    if (has_gpu()) {
        vt_test_skip("this machine has a GPU");
        return;
    }
    vt_config *config = NULL;
    vt_backend *backend = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    EXPECT_OK(vt_backend_open(config, 0, 0, &backend));
    EXPECT(backend != NULL && strncmp(backend->name, "CPU", 3) == 0);
    vt_backend_close(&backend);
    EXPECT_OK(vt_config_set(config, "device", "cuda"));
    EXPECT_ERROR(vt_backend_open(config, 0, 0, &backend), "--device=cpu");
    EXPECT(backend == NULL);
    vt_config_close(&config);
}

#if defined(VT_HAS_CUDA) && defined(VT_HAS_CUDNN)

#include <dlfcn.h>
#include <unistd.h>

#include "cuda/convolution.h"
#include "cuda/fused_attention.h"
#include "cuda/state.h"

/* What cuDNN says of an H200. */
static const char *const h200 =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":150109880320,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
    "\"multiProcessorCount\":132,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"deviceName\":\"NVIDIA H200\"}";

/* cuDNN compiles and loads its kernels through the driver's library. Where there is no driver, a stand-in beside this
 * program (tests/gpu/driver.c) is enough for that. */
static bool load_driver(void)
{
    char path[512] = "";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 40);
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL) return true;
    if (length <= 0) return false;
    strcpy(strrchr(path, '/'), "/driver/libcuda.so.1");
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL;
}

/* NULL: cuDNN's plans can't be tried here; the test is skipped. */
static const vt_cudnn *library_for_plans(void)
{
    const vt_cudnn *library = NULL;
    if (load_driver() && vt_library_cudnn(&library) == VT_OK && library->cudnnGetVersion() >= 91501) return library;
    vt_test_skip("no libcuda, nor a stand-in, or no cuDNN 9.15.1 or newer: %s", vt_error_text());
    vt_error_clear();
    return NULL;
}

/* The reference model's attention: the library takes the graphs and compiles kernels for them. */
TEST(cudnn_has_kernels_for_attention)
{
    const vt_cudnn *library = library_for_plans();
    for (int kind = 0; library != NULL && kind < 4; kind++) {
        int backward = kind % 2;
        vt_type type = kind < 2 ? VT_BFLOAT16 : VT_FLOAT16;
        vt_fused_shape shape = {16, 8, 48, 4050, 4050, 384, 384, 384, 384, 384, 384, 384, 384, backward, type};
        vt_fused_graph graph;
        EXPECT(vt_fused_graph_open(library, NULL, h200, &shape, &graph), "backward %d, type %d: %s", backward, type,
               graph.failure);
        EXPECT(graph.operation_count == (backward ? 18 : 10), "%d operations", graph.operation_count);
        EXPECT(graph.proposals > 0 && graph.plan != NULL);
        vt_fused_graph_close(&graph);
    }
}

/* The U-Net's layers at width 64, of every type: level 0 of the joined matrices and down to the last points. */
TEST(cudnn_has_kernels_for_convolutions)
{
    static const int64_t shapes[][5] = {{32, 4, 64, 4, 128},     {32, 8, 128, 8, 128},     {16, 64, 128, 128, 256},
                                        {8, 128, 256, 256, 512}, {4, 256, 512, 512, 1024}, {2, 512, 512, 1024, 1024},
                                        {1, 512, 512, 1024, 512}};
    const vt_cudnn *library = library_for_plans();
    for (size_t i = 0; library != NULL && i < sizeof shapes / sizeof *shapes; i++) {
        for (int64_t variant = 0; variant < 18; variant++) {
            const int64_t *s = shapes[i];
            const vt_type type = (vt_type)(variant / 6);
            const int64_t in = s[1] == 4 && type != VT_FLOAT32 ? 8 : s[1]; /* 16-byte pieces */
            const vt_convolution_key key = {variant % 3, type, 2, s[0], in, s[2], s[3] == s[1] ? in : s[3], s[4]};
            const vt_fused_needs needs = {.same_bits = variant / 3 % 2 == 0,
                                          .exact = type == VT_FLOAT32 && variant < 3};
            vt_fused_graph graph;
            vt_fused_plan found[VT_FUSED_MOST_PLANS];
            vt_convolution_describe(library, NULL, h200, &key, &graph);
            EXPECT(vt_fused_graph_find_plans(&graph, needs, VT_FUSED_ANY_PROPOSAL, 1, found) == 1,
                   "shape %zu, variant %d: %s", i, (int)variant, graph.failure);
            vt_fused_graph_close(&graph);
        }
    }
}

/* ---- cuDNN's attention on a GPU, against our own kernels, which other tests compare with the oracle ---- */

typedef struct {
    vt_backend *backend;
    vt_matrix qkv, out, dout, dqkv; /* of 16 bits, in its memory */
    float *log_sum;
} gpu_attention;

static vt_matrix gpu_matrix(vt_backend *backend, vt_type type, int64_t rows, int64_t columns, uint64_t seed)
{
    size_t bytes = (size_t)(rows * columns) * sizeof(uint16_t);
    uint16_t *host = vt_test_owned(malloc(bytes));
    float *values = vt_test_owned(malloc(2 * bytes));
    void *memory = NULL;
    fill_random(values, rows * columns, seed, 1);
    for (int64_t i = 0; i < rows * columns; i++) host[i] = vt_half_round(type, values[i]);
    EXPECT_OK(backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &memory));
    backend->copy_from_host(backend, memory, host, bytes);
    EXPECT_OK(backend->check(backend));
    return (vt_matrix){.half = memory, .rows = rows, .columns = columns, .stride = columns, .type = type};
}

static gpu_attention open_gpu_attention(vt_attention_choice choice, vt_type type, int64_t rows, int64_t width,
                                        int64_t heads)
{
    gpu_attention a = {0};
    void *memory = NULL;
    EXPECT_OK(vt_backend_open_cuda(0, false, &a.backend));
    vt_fused_attention_prefer(a.backend, choice);
    a.qkv = gpu_matrix(a.backend, type, rows, 3 * width, 1);
    a.dout = gpu_matrix(a.backend, type, rows, width, 2);
    a.out = gpu_matrix(a.backend, type, rows, width, 3);
    a.dqkv = gpu_matrix(a.backend, type, rows, 3 * width, 4);
    EXPECT_OK(a.backend->allocate(a.backend, VT_MEMORY_WORKSPACE, (size_t)(rows * heads) * sizeof(float), &memory));
    a.log_sum = memory;
    return a;
}

/* `from`: the forward pass that backward continues from. */
static void backward_from(const gpu_attention *a, const vt_attention_shape *shape, const gpu_attention *from)
{
    int64_t width = a->out.columns;
    a->backend->attention_backward(a->backend, shape, vt_matrix_columns(a->qkv, 0, width),
                                   vt_matrix_columns(a->qkv, width, width), vt_matrix_columns(a->qkv, 2 * width, width),
                                   from->out, from->log_sum, a->dout, vt_matrix_columns(a->dqkv, 0, width),
                                   vt_matrix_columns(a->dqkv, width, width),
                                   vt_matrix_columns(a->dqkv, 2 * width, width));
    EXPECT_OK(a->backend->check(a->backend));
}

static void forward(const gpu_attention *a, const vt_attention_shape *shape)
{
    int64_t width = a->out.columns;
    a->backend->attention_forward(a->backend, shape, vt_matrix_columns(a->qkv, 0, width),
                                  vt_matrix_columns(a->qkv, width, width), vt_matrix_columns(a->qkv, 2 * width, width),
                                  a->out, a->log_sum);
    EXPECT_OK(a->backend->check(a->backend));
}

/* May be off by this many roundings of the largest; both round weights and results (cuda_kernels.c). */
static void compare_halves(const gpu_attention *a, const gpu_attention *b, bool gradients, double units)
{
    const vt_matrix *const both[] = {gradients ? &a->dqkv : &a->out, gradients ? &b->dqkv : &b->out};
    int64_t count = both[0]->rows * both[0]->columns;
    double largest = 0, worst = 0;
    uint16_t *values[2];
    for (int i = 0; i < 2; i++) {
        vt_backend *backend = i == 0 ? a->backend : b->backend;
        values[i] = vt_test_owned(malloc((size_t)count * sizeof(uint16_t)));
        VT_ASSERT(values[i] != NULL);
        backend->copy_to_host(backend, values[i], both[i]->half, (size_t)count * sizeof(uint16_t));
    }
    for (int64_t i = 0; i < count; i++) {
        double one = (double)vt_half_widen(both[0]->type, values[0][i]);
        double other = (double)vt_half_widen(both[0]->type, values[1][i]);
        largest = fmax(largest, fabs(one));
        worst = fabs(one - other) <= worst ? worst : fabs(one - other); /* a NaN counts as worst */
    }
    EXPECT(worst <= units * half_unit(both[0]->type) * largest, "%s in %s: off by %g of %g",
           gradients ? "gradients" : "out", half_name(both[0]->type), worst, largest);
}

static void compare_log_sums(const gpu_attention *a, const gpu_attention *b, int64_t count)
{
    float *values = vt_test_owned(malloc(2 * (size_t)count * sizeof *values));
    a->backend->copy_to_host(a->backend, values, a->log_sum, (size_t)count * sizeof *values);
    b->backend->copy_to_host(b->backend, values + count, b->log_sum, (size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) EXPECT_NEAR(values[count + i], values[i], 1e-4 * (1 + fabs((double)values[i])));
}

static void close_gpu_attention(gpu_attention *a)
{
    void *const memory[] = {a->qkv.data, a->out.data, a->dout.data, a->dqkv.data, a->log_sum};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) a->backend->release(a->backend, memory[i]);
    vt_backend_close(&a->backend);
}

static void check_cudnn(vt_type type, const vt_attention_shape *shape)
{
    int64_t rows = shape->batch * shape->queries, width = shape->heads * shape->head_dim;
    gpu_attention own = open_gpu_attention(VT_ATTENTION_OWN, type, rows, width, shape->heads);
    gpu_attention cudnn = open_gpu_attention(VT_ATTENTION_CUDNN, type, rows, width, shape->heads);
    forward(&own, shape);
    forward(&cudnn, shape);
    compare_halves(&own, &cudnn, false, 4);
    compare_log_sums(&own, &cudnn, rows * shape->heads);
    backward_from(&own, shape, &own);
    backward_from(&cudnn, shape, &cudnn);
    compare_halves(&own, &cudnn, true, 8);
    backward_from(&own, shape, &cudnn); /* each is chosen for itself */
    compare_halves(&own, &cudnn, true, 8);
    printf("    %s, %lld tokens, head size %lld: cuDNN serves %d of forward and backward %s\n", half_name(type),
           (long long)shape->queries, (long long)shape->head_dim, vt_fused_attention_served(cudnn.backend),
           vt_fused_attention_failure(cudnn.backend));
    close_gpu_attention(&own);
    close_gpu_attention(&cudnn);
}

GPU_TEST(cudnn_gives_the_attention_of_the_own_kernels)
{
    static const vt_attention_shape shapes[] = {
        {.batch = 2, .heads = 8, .head_dim = 48, .queries = 333, .keys = 333},
        {.batch = 1, .heads = 3, .head_dim = 64, .queries = 256, .keys = 256},
        {.batch = 1, .heads = 2, .head_dim = 128, .queries = 190, .keys = 190},
        {.batch = 2, .heads = 8, .head_dim = 48, .queries = 4050, .keys = 4050}};
    if (!has_gpu()) {
        vt_test_skip("this machine has no GPU");
        return;
    }
    vt_test_gpu_used = true;
    FOR_EACH_HALF(type)
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_cudnn(type, &shapes[i]);
}

TEST(a_missing_library_is_named)
{
    const vt_cublaslt *library = NULL;
    if (vt_library_cublaslt(&library) == VT_OK) return;
    EXPECT(strstr(vt_error_text(), "libcublasLt.so") != NULL, "%s", vt_error_text());
    vt_error_clear();
}

#endif
