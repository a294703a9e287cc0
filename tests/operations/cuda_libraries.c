/* The CUDA back end without a GPU: its messages, and the parts that can run. */
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "settings.h"
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
    if (has_gpu()) return vt_test_skip("this machine has a GPU");
    vt_backend *backend = NULL;
    SCOPED(vt_config) *config = default_config();
    EXPECT_OK(vt_backend_open(config, 0, 0, &backend));
    EXPECT(backend != NULL && strncmp(backend->name, "CPU", 3) == 0);
    vt_backend_close(&backend);
    EXPECT_OK(vt_config_set(config, "device", "cuda"));
    EXPECT_ERROR(vt_backend_open(config, 0, 0, &backend), "--device=cpu");
    EXPECT(backend == NULL);
}

#if defined(VT_HAS_CUDA) && defined(VT_HAS_CUDNN)

#include <dlfcn.h>
#include <unistd.h>

#include "cuda/fused_attention.h"
#include "cuda/graph_plans.h"
#include "cuda/state.h"
#include "operations/gelu_case.h"
#include "operations/mirror.h"

/* What cuDNN says of an H200; smCountOrigin, oversizedSharedMemoryPerBlock and memoryBusWidth are 9.28's. */
static const char *const h200 =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":150109880320,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
    "\"multiProcessorCount\":132,\"smCountOrigin\":0,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"oversizedSharedMemoryPerBlock\":0,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"memoryBusWidth\":6144,"
    "\"l2CacheSize\":62914560,\"deviceName\":\"NVIDIA H200\"}";

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

/* The reference model's attention, and a language model's: the library takes the graphs and compiles kernels for them.
 */
TEST(cudnn_has_kernels_for_attention)
{
    const vt_cudnn *library = library_for_plans();
    for (int kind = 0; library != NULL && kind < 6; kind++) {
        static const int operations[] = {10, 18, 17};
        const int pass = kind % 3, causal = kind / 3;
        const vt_type type = (pass + causal) % 2 == 0 ? VT_BFLOAT16 : VT_FLOAT16;
        vt_attention_key shape = {16,  8,   48,  4050, 4050, 384,    384,  384,   384, 384,
                                  384, 384, 384, pass, type, causal, type, false, 0};
        if (causal) shape.queries = shape.keys = 256;
        SCOPED(vt_fused_graph) graph;
        EXPECT(vt_attention_graph_open(library, NULL, h200, &shape, &graph), "pass %d, type %d, causal %d: %s", pass,
               type, causal, graph.failure);
        EXPECT(graph.operation_count == operations[pass] + 4 * causal, "%d operations", graph.operation_count);
        EXPECT(graph.plan != NULL);
        /* all gradients of scores in 16 bits, of whole tiles: 4.3 GB at this batch, a sixteenth of an H100's memory */
        if (pass == VT_ATTENTION_REPEATABLE && !causal)
            EXPECT(graph.workspace_bytes > 2LL * 16 * 8 * 4050 * 4050 && graph.workspace_bytes < (80LL << 30) / 16,
                   "%ld bytes", graph.workspace_bytes);
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
            SCOPED(vt_fused_graph) graph;
            vt_fused_plan found[VT_FUSED_MOST_PLANS];
            vt_fused_graph_begin(library, NULL, h200, &graph);
            vt_convolution_describe(&key, &graph);
            EXPECT(vt_fused_graph_find_plans(&graph, needs, VT_FUSED_ANY_PROPOSAL, 1, found) == 1,
                   "shape %zu, variant %d: %s", i, (int)variant, graph.failure);
        }
    }
}

/* The reference model's layers of an MLP, and those of one of 1024 columns. */
TEST(cudnn_has_kernels_for_products_with_gelu)
{
    const vt_cudnn *library = library_for_plans();
    for (int variant = 0; library != NULL && variant < 3; variant++) {
        const int64_t is_backward = variant % 2, in = variant < 2 ? 384 : 1024;
        const vt_gelu_product_key key = {.is_backward = is_backward,
                                         .gelu = variant < 2 ? VT_GELU_ERF : VT_GELU_TANH,
                                         .type = variant < 2 ? VT_BFLOAT16 : VT_FLOAT16,
                                         .rows = 16 * 4050,
                                         .in = in,
                                         .out = 4 * in,
                                         .x_stride = in,
                                         .weight_stride = is_backward ? 4 * in : in,
                                         .hidden_stride = 4 * in,
                                         .result_stride = 4 * in};
        const vt_fused_needs needs = {.same_bits = true};
        SCOPED(vt_fused_graph) graph;
        vt_fused_plan found[VT_FUSED_MOST_PLANS];
        vt_fused_graph_begin(library, NULL, h200, &graph);
        vt_gelu_product_describe(&key, &graph);
        EXPECT(vt_fused_graph_find_plans(&graph, needs, VT_FUSED_ANY_PROPOSAL, 1, found) == 1, "variant %d: %s",
               variant, graph.failure);
    }
}

/* ---- products with GELU on a GPU ---- */

GPU_TEST(cudnn_gives_products_with_gelu)
{
    static const int64_t sizes[][3] = {{97, 40, 56}, {1013, 64, 48}, {500, 384, 1536}};
    if (!has_gpu()) return vt_test_skip("this machine has no GPU");
    setenv("XDG_CACHE_HOME", vt_test_directory(), 1);
    FOR_EACH_HALF(type)
    for (int i = 0; i < 3; i++) { /* cuDNN compiles four kernels for each */
        vt_backend *b = NULL, *plain = open_path(VT_ISA_PLAIN);
        gelu_case c;
        EXPECT_OK(path_open_timed_gpu(&b));
        struct vt_cudnn_state *cudnn = ((vt_cuda_state *)mirror_inner(b)->state)->cudnn;
        cudnn->prefers_plans = true;
        gelu_case_open(&c, type, (i + (int)type) % 2 == 0 ? VT_GELU_ERF : VT_GELU_TANH, sizes[i][0], sizes[i][1],
                       sizes[i][2], TWINS_ALIGNED);
        gelu_case_run(b, &c);
        EXPECT(cudnn->plan_count == 2, "%zu products", cudnn->plan_count);
        for (size_t k = 0; k < cudnn->plan_count; k++)
            EXPECT(cudnn->plans[k]->graph.plan != NULL, "cuDNN has no such product");
        gelu_case_compare(plain, &c);
        close_path(&b);
        close_path(&plain);
    }
}

/* ---- other engines' attention on a GPU, beside our kernels for every GPU, which have the oracle beside them ---- */

/* Queries, keys and values side by side, as the model has them. */
typedef struct {
    vt_backend *backend;
    twins qkv, dout, out, dqkv, log_sum;
} side;

static side open_side(vt_attention_engine engine, bool deterministic, vt_type type, const vt_attention_shape *s)
{
    const int64_t rows = s->batch * s->queries, width = s->heads * s->head_dim;
    side a = {.qkv = twins_random(type, rows, 3 * width, 1, 1, TWINS_TIGHT),
              .dout = twins_random(type, rows, width, 2, 1, TWINS_TIGHT),
              .out = twins_open(type, rows, width, TWINS_TIGHT),
              .dqkv = twins_open(type, rows, 3 * width, TWINS_TIGHT),
              .log_sum = twins_open(VT_FLOAT32, 1, rows * s->heads, TWINS_TIGHT)};
    EXPECT_OK(deterministic ? path_open(PATH_GPU, &a.backend) : path_open_timed_gpu(&a.backend));
    vt_attention_prefer(mirror_inner(a.backend), engine);
    return a;
}

static vt_matrix third(const twins *t, int i)
{
    return vt_matrix_columns(t->own, i * t->own.columns / 3, t->own.columns / 3);
}

static void forward(const side *a, const vt_attention_shape *s)
{
    a->backend->attention_forward(a->backend, s, third(&a->qkv, 0), third(&a->qkv, 1), third(&a->qkv, 2), a->out.own,
                                  a->log_sum.own.data);
}

/* `from`: the forward pass that backward continues from. */
static void backward_from(const side *a, const vt_attention_shape *s, const side *from)
{
    a->backend->attention_backward(a->backend, s, third(&a->qkv, 0), third(&a->qkv, 1), third(&a->qkv, 2),
                                   from->out.own, from->log_sum.own.data, a->dout.own, third(&a->dqkv, 0),
                                   third(&a->dqkv, 1), third(&a->dqkv, 2));
}

/* May be off by this many roundings of the largest; both round weights and results (cuda_kernels.c). */
static void compare(twins *actual, const twins *expected, double units, const char *name)
{
    for (int64_t i = 0; i < expected->own.rows * expected->own.columns; i++)
        actual->wide.data[i] = vt_half_widen(expected->own.type, expected->own.half[i]);
    twins_compare(actual, units, name);
}

static void compare_log_sums(const twins *actual, const twins *expected)
{
    for (int64_t i = 0; i < expected->own.columns; i++) EXPECT_NEAR(actual->own.data[i], expected->own.data[i], 1e-4);
}

static void check_engine(vt_attention_engine engine, bool deterministic, vt_type type, const vt_attention_shape *shape)
{
    side own = open_side(VT_ATTENTION_OWN, deterministic, type, shape);
    side other = open_side(engine, deterministic, type, shape);
    vt_backend *inner = mirror_inner(other.backend);
    forward(&own, shape);
    forward(&other, shape);
    compare(&other.out, &own.out, 4, "the other engine's out");
    compare_log_sums(&other.log_sum, &own.log_sum);
    backward_from(&own, shape, &own);
    backward_from(&other, shape, &other);
    compare(&other.dqkv, &own.dqkv, 8, "the other engine's gradients");
    void *first = vt_test_owned(malloc(other.dqkv.bytes));
    memcpy(first, other.dqkv.memory, other.dqkv.bytes);
    for (int i = 0; i < 8 && deterministic; i++) {
        backward_from(&other, shape, &other);
        EXPECT(memcmp(first, other.dqkv.memory, other.dqkv.bytes) == 0, "other bits the next time");
    }
    backward_from(&own, shape, &other); /* each is chosen for itself */
    compare(&other.dqkv, &own.dqkv, 8, "gradients of the own backward behind the other engine's forward");
    backward_from(&other, shape, &own);
    compare(&other.dqkv, &own.dqkv, 8, "the other engine's gradients behind the own forward");
    const int served = vt_attention_served(inner, engine);
    const char *failure = engine == VT_ATTENTION_CUDNN ? vt_fused_attention_failure(inner) : "";
    printf("    %s, %s, %ld tokens, head size %ld: %s serves %d of forward and backward %s\n", half_name(type),
           deterministic ? "deterministic" : "timed", shape->queries, shape->head_dim,
           engine == VT_ATTENTION_CUDNN ? "cuDNN" : "wgmma", served, failure);
    const bool refused = failure[0] != '\0' || shape->keys % 128 == 64; /* by cuDNN, or attention_choice.c */
    if (engine == VT_ATTENTION_CUDNN) EXPECT(served == 2 || refused, "cuDNN was not asked");
    if (engine == VT_ATTENTION_WGMMA) EXPECT(served == (shape->head_dim == 128 ? 1 : 2));
    close_path(&own.backend);
    close_path(&other.backend);
}

GPU_TEST(cudnn_gives_the_attention_of_the_own_kernels)
{
    static const vt_attention_shape shapes[] = {
        {.batch = 2, .heads = 8, .head_dim = 48, .queries = 333, .keys = 333},
        {.batch = 1, .heads = 3, .head_dim = 64, .queries = 256, .keys = 256},
        {.batch = 1, .heads = 2, .head_dim = 128, .queries = 190, .keys = 190},
        {.batch = 2, .heads = 4, .head_dim = 32, .queries = 256, .keys = 256, .causal = true},
        {.batch = 2, .heads = 8, .head_dim = 48, .queries = 320, .keys = 320},
        {.batch = 1, .heads = 8, .head_dim = 48, .queries = 4050, .keys = 4050}}; /* the full size's tokens */
    if (!has_gpu()) return vt_test_skip("this machine has no GPU");
    vt_test_gpu_used = true;
    FOR_EACH_HALF(type)
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int deterministic = 0; deterministic < 2; deterministic++)
            check_engine(VT_ATTENTION_CUDNN, deterministic, type, &shapes[i]);
}

static bool has_wgmma(void)
{
    vt_backend *backend = NULL;
    const bool has = vt_backend_open_cuda(0, true, &backend) == VT_OK && vt_attention_has(backend, VT_ATTENTION_WGMMA);
    vt_backend_close(&backend);
    vt_error_clear();
    return has;
}

GPU_TEST(wgmma_gives_the_attention_of_the_own_kernels)
{
    static const vt_attention_shape shapes[] = {
        {.batch = 2, .heads = 8, .head_dim = 48, .queries = 333, .keys = 333},
        {.batch = 1, .heads = 3, .head_dim = 64, .queries = 450, .keys = 450},
        {.batch = 1, .heads = 4, .head_dim = 96, .queries = 1000, .keys = 1000},
        {.batch = 1, .heads = 2, .head_dim = 128, .queries = 190, .keys = 190},
        {.batch = 2, .heads = 4, .head_dim = 32, .queries = 257, .keys = 257},
        {.batch = 1, .heads = 8, .head_dim = 48, .queries = 4050, .keys = 4050}}; /* the full size's tokens */
    if (!has_wgmma())
        return vt_test_skip("this machine has no GPU of compute capability 9, or this build has no code for it");
    vt_test_gpu_used = true;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int deterministic = 0; deterministic < 2; deterministic++)
            check_engine(VT_ATTENTION_WGMMA, deterministic, VT_BFLOAT16, &shapes[i]);
}

TEST(a_missing_library_is_named)
{
    const vt_cublaslt *library = NULL;
    if (vt_library_cublaslt(&library) == VT_OK) return;
    EXPECT_PART(vt_error_text(), "libcublasLt.so");
    vt_error_clear();
}

#endif
