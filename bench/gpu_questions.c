/* Answers, on a GPU, how fast these are on the reference model's shapes (batch 16, 4050 tokens, embed 384 and 1024,
 * bf16): copies; cuDNN's attention and our own; and products of the MLP with GELU, by cuBLASLt's epilogue (in the tanh
 * form), by cuDNN (exact, in the same kernel), and by cuBLASLt with our own kernel of exact GELU behind it.
 *
 *     build/bench/gpu_questions [--samples=16]
 *
 * Times are the shortest of three runs after a warm-up, by CUDA events. What a library refuses is printed as "refused"
 * and is no failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

#if defined(VT_HAS_CUDA) && defined(VT_HAS_CUDNN)

#include "fused_attention.h"
#include "state.h"

enum { TOKENS = 4050, HEADS = 8 };
static const double peak = 989e12; /* H200, H100 SXM: dense, 16 bits */
static const double bandwidth = 4.8e12;

static void print_time(const char *what, double milliseconds, double flops, double bytes)
{
    if (!(milliseconds < INFINITY)) {
        printf("  %-52s refused\n", what);
        return;
    }
    printf("  %-52s %9.3f ms", what, milliseconds);
    if (flops > 0)
        printf("  %7.1f TFLOP/s (%.0f %% of 989)", 1e-9 * flops / milliseconds, 1e5 * flops / milliseconds / peak);
    if (bytes > 0)
        printf("  %7.0f GB/s (%.0f %% of 4800)", 1e-6 * bytes / milliseconds, 1e5 * bytes / milliseconds / bandwidth);
    printf("\n");
    fflush(stdout);
}

/* Filled with noise: a GPU computes faster on zeros. */
static vt_status room(vt_backend *backend, int64_t rows, int64_t columns, vt_type type, vt_matrix *m)
{
    enum { PATTERN = 1 << 20 };
    vt_status status = VT_OK;
    void *memory = NULL;
    uint16_t *noise = NULL;
    size_t element = type == VT_FLOAT32 ? 4 : 2, bytes = (size_t)(rows * columns) * element;
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &memory));
    *m = vt_matrix_make(memory, rows, columns);
    m->type = type;
    if (type == VT_FLOAT32) goto done;
    noise = malloc(PATTERN * sizeof *noise);
    VT_ASSERT(noise != NULL);
    uint32_t state = 1;
    for (int i = 0; i < PATTERN; i++) { /* sign, exponents of 1/16 … 1, 7 bits */
        state = state * 1664525u + 1013904223u;
        noise[i] = (uint16_t)((state >> 16 & 0x807f) | (uint32_t)(123 + (state >> 29) % 4) << 7);
    }
    for (size_t done = 0; done < bytes; done += PATTERN * sizeof *noise) {
        size_t size = bytes - done < PATTERN * sizeof *noise ? bytes - done : PATTERN * sizeof *noise;
        backend->copy_from_host(backend, (char *)memory + done, noise, size);
    }
    VT_TRY(backend->check(backend));
done:
    free(noise);
    return status;
}

/* ---- copies ---- */

typedef struct {
    vt_backend *backend;
    void *to;
    const void *from;
    size_t bytes;
} copy;

static bool run_copy(void *context)
{
    const copy *c = context;
    return cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDefault, (cudaStream_t)c->backend->stream) ==
           cudaSuccess;
}

static vt_status copies(vt_backend *backend)
{
    vt_status status = VT_OK;
    const size_t bytes = (size_t)1 << 30;
    void *device[2] = {0}, *pinned = NULL, *pageable = malloc(bytes);
    VT_ASSERT(pageable != NULL);
    memset(pageable, 1, bytes);
    for (int i = 0; i < 2; i++) VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &device[i]));
    VT_CHECK(cudaMallocHost(&pinned, bytes) == cudaSuccess, "1 GiB of host memory can't be pinned");
    memset(pinned, 1, bytes);
    copy inside = {backend, device[0], device[1], bytes}, up = {backend, device[0], pinned, bytes};
    copy down = {backend, pinned, device[0], bytes}, slow = {backend, device[0], pageable, bytes};
    printf("copies of 1 GiB (one batch of 16 is 0.66 GB)\n");
    print_time("inside of the GPU (read and written)", vt_cuda_time(backend, run_copy, &inside), 0,
               2.0 * (double)bytes);
    print_time("pinned host memory to the GPU", vt_cuda_time(backend, run_copy, &up), 0, (double)bytes);
    print_time("the GPU to pinned host memory", vt_cuda_time(backend, run_copy, &down), 0, (double)bytes);
    print_time("pageable host memory to the GPU", vt_cuda_time(backend, run_copy, &slow), 0, (double)bytes);
done:
    for (int i = 0; i < 2; i++) backend->release(backend, device[i]);
    if (pinned != NULL) cudaFreeHost(pinned);
    free(pageable);
    return status;
}

/* ---- attention ---- */

typedef struct {
    vt_backend *backend;
    vt_attention_shape shape;
    vt_matrix qkv, out, dout, dqkv;
    float *log_sum;
} attention;

static vt_matrix third(vt_matrix m, int i)
{
    return vt_matrix_columns(m, i * m.columns / 3, m.columns / 3);
}

static bool run_forward(void *context)
{
    const attention *a = context;
    a->backend->attention_forward(a->backend, &a->shape, third(a->qkv, 0), third(a->qkv, 1), third(a->qkv, 2), a->out,
                                  a->log_sum);
    return cudaPeekAtLastError() == cudaSuccess;
}

static bool run_backward(void *context)
{
    const attention *a = context;
    a->backend->attention_backward(a->backend, &a->shape, third(a->qkv, 0), third(a->qkv, 1), third(a->qkv, 2), a->out,
                                   a->log_sum, a->dout, third(a->dqkv, 0), third(a->dqkv, 1), third(a->dqkv, 2));
    return cudaPeekAtLastError() == cudaSuccess;
}

/* Each choice has a back end of its own, because a back end keeps its plans by shape. */
static vt_status time_attention(int64_t samples, int64_t embed, vt_attention_choice choice)
{
    vt_status status = VT_OK;
    vt_backend *backend = NULL;
    vt_matrix log_sum;
    VT_TRY(vt_backend_open_cuda(0, false, &backend));
    attention a = {
        .backend = backend,
        .shape = {.batch = samples, .heads = HEADS, .head_dim = embed / HEADS, .queries = TOKENS, .keys = TOKENS}};
    bool has_cudnn = ((vt_cuda_state *)backend->state)->fused_attention != NULL;
    vt_fused_attention_prefer(backend, choice);
    VT_TRY(room(backend, samples * TOKENS, 3 * embed, VT_BFLOAT16, &a.qkv));
    VT_TRY(room(backend, samples * TOKENS, 3 * embed, VT_BFLOAT16, &a.dqkv));
    VT_TRY(room(backend, samples * TOKENS, embed, VT_BFLOAT16, &a.out));
    VT_TRY(room(backend, samples * TOKENS, embed, VT_BFLOAT16, &a.dout));
    VT_TRY(room(backend, samples * TOKENS, HEADS, VT_FLOAT32, &log_sum));
    a.log_sum = log_sum.data;
    const char *name = choice == VT_ATTENTION_OWN ? "own"
                       : has_cudnn                ? "cuDNN (where it has a plan, else own)"
                                                  : "own, no cuDNN";
    double flops = 4.0 * TOKENS * TOKENS * (double)(embed * samples);
    char what[128];
    snprintf(what, sizeof what, "head size %lld, forward, %s", (long long)(embed / HEADS), name);
    print_time(what, vt_cuda_time(backend, run_forward, &a), flops, 0);
    snprintf(what, sizeof what, "head size %lld, backward, %s", (long long)(embed / HEADS), name);
    print_time(what, vt_cuda_time(backend, run_backward, &a), 2.5 * flops, 0);
    VT_TRY(backend->check(backend));
    if (choice == VT_ATTENTION_CUDNN)
        printf("  cuDNN served %d of 2 %s\n", vt_fused_attention_served(backend), vt_fused_attention_failure(backend));
done:
    vt_backend_close(&backend);
    return status;
}

/* ---- products with GELU ---- */

typedef struct {
    vt_backend *backend;
    vt_matrix x, weight, hidden, active;
    float *bias;
    const vt_cublaslt *library;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    void *workspace;
} product;

enum { WORKSPACE = 64 << 20 };

static bool run_plain_product(void *context)
{
    const product *p = context;
    p->backend->linear_forward(p->backend, p->x, p->weight, p->bias, p->hidden);
    return cudaPeekAtLastError() == cudaSuccess;
}

static bool run_own(void *context)
{
    const product *p = context;
    p->backend->linear_gelu_forward(p->backend, VT_GELU_ERF, p->x, p->weight, p->bias, p->hidden, p->active);
    return cudaPeekAtLastError() == cudaSuccess;
}

static bool run_epilogue(void *context)
{
    const product *p = context;
    const float one = 1, zero = 0;
    return p->library->cublasLtMatmul(p->handle, p->operation, &one, p->weight.data, p->a, p->x.data, p->b, &zero,
                                      p->active.data, p->d, p->active.data, p->d, &p->algorithm, p->workspace,
                                      WORKSPACE, (cudaStream_t)p->backend->stream) == CUBLAS_STATUS_SUCCESS;
}

/* hidden = x weightᵀ + bias, active = gelu_tanh(hidden), by the fastest of the library's proposals. */
static double time_epilogue(product *p)
{
    const vt_cublaslt *l = p->library;
    cublasOperation_t turned = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    cudaDataType_t half = CUDA_R_16BF;
    int64_t stride = p->hidden.stride;
    uint64_t n = (uint64_t)p->hidden.columns, k = (uint64_t)p->x.columns, m = (uint64_t)p->x.rows;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[8];
    size_t workspace = WORKSPACE;
    int count = 0;
    double shortest = INFINITY;
#define SET(name, value)                                                                                               \
    (l->cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_##name, &(value), sizeof(value)) ==          \
     CUBLAS_STATUS_SUCCESS)
    bool works = l->cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
                 SET(TRANSA, turned) && SET(EPILOGUE, epilogue) && SET(BIAS_POINTER, p->bias) &&
                 SET(BIAS_DATA_TYPE, half) && SET(EPILOGUE_AUX_POINTER, p->hidden.data) &&
                 SET(EPILOGUE_AUX_LD, stride) &&
                 l->cublasLtMatrixLayoutCreate(&p->a, half, k, n, (int64_t)k) == CUBLAS_STATUS_SUCCESS &&
                 l->cublasLtMatrixLayoutCreate(&p->b, half, k, m, (int64_t)k) == CUBLAS_STATUS_SUCCESS &&
                 l->cublasLtMatrixLayoutCreate(&p->d, half, n, m, (int64_t)n) == CUBLAS_STATUS_SUCCESS &&
                 l->cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS &&
                 l->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &workspace, sizeof workspace) == CUBLAS_STATUS_SUCCESS &&
                 l->cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->a, p->b, p->d, p->d, preference, 8,
                                                   found, &count) == CUBLAS_STATUS_SUCCESS;
#undef SET
    for (int i = 0; works && i < count; i++) {
        p->algorithm = found[i].algo;
        shortest = fmin(shortest, vt_cuda_time(p->backend, run_epilogue, p));
    }
    if (preference != NULL) l->cublasLtMatmulPreferenceDestroy(preference);
    if (p->d != NULL) l->cublasLtMatrixLayoutDestroy(p->d);
    if (p->b != NULL) l->cublasLtMatrixLayoutDestroy(p->b);
    if (p->a != NULL) l->cublasLtMatrixLayoutDestroy(p->a);
    if (p->operation != NULL) l->cublasLtMatmulDescDestroy(p->operation);
    return shortest;
}

/* ---- cuDNN's product with bias and exact GELU in one kernel ---- */

enum { X = 1, WEIGHT, BIAS, HIDDEN, ACTIVE };

/* [1, rows, columns]: with a fourth dimension, cuDNN 9.19 proposes nothing. */
static vt_fused_tensor tensor(vt_fused_graph *g, vt_fused_place place, int64_t id, cudnnDataType_t type, int64_t rows,
                              int64_t columns, int64_t row_stride, int64_t column_stride)
{
    const int64_t dims[] = {1, rows, columns}, strides[] = {rows * columns, row_stride, column_stride};
    return vt_fused_tensor_make(g, place, id, type, 3, dims, strides);
}

static void describe_product(vt_fused_graph *g, const product *p)
{
    int64_t rows = p->x.rows, in = p->x.columns, out = p->hidden.columns;
    const cudnnDataType_t half = CUDNN_DATA_BFLOAT16, wide = CUDNN_DATA_FLOAT;
    vt_fused_tensor x = tensor(g, VT_FUSED_IN_MEMORY, X, half, rows, in, in, 1);
    vt_fused_tensor weight = tensor(g, VT_FUSED_IN_MEMORY, WEIGHT, half, in, out, 1, in);
    vt_fused_tensor bias = tensor(g, VT_FUSED_IN_MEMORY, BIAS, wide, 1, out, out, 1);
    vt_fused_tensor hidden = tensor(g, VT_FUSED_IN_MEMORY, HIDDEN, half, rows, out, out, 1);
    vt_fused_tensor active = tensor(g, VT_FUSED_IN_MEMORY, ACTIVE, half, rows, out, out, 1);
    vt_fused_tensor sum = vt_fused_multiply(g, x, weight, tensor(g, VT_FUSED_INSIDE, 0, wide, rows, out, out, 1));
    vt_fused_pointwise(g, CUDNN_POINTWISE_ADD, sum, &bias, hidden);
    vt_fused_pointwise(g, CUDNN_POINTWISE_GELU_FWD, hidden, NULL, active);
}

typedef struct {
    vt_fused_graph graph;
    cudnnBackendDescriptor_t pack;
} fusion;

static bool run_fusion(void *context)
{
    const fusion *f = context;
    return f->graph.library->cudnnBackendExecute(f->graph.handle, f->graph.plan, f->pack) == CUDNN_STATUS_SUCCESS;
}

/* The fastest of the library's proposals; INFINITY: none can be made or run. */
static double time_fusion(const product *p)
{
    const int64_t ids[] = {X, WEIGHT, BIAS, HIDDEN, ACTIVE};
    void *const pointers[] = {p->x.data, p->weight.data, p->bias, p->hidden.data, p->active.data};
    const vt_cudnn *library;
    cudnnHandle_t handle = NULL;
    cudnnBackendDescriptor_t proposals[VT_FUSED_MOST_PROPOSALS];
    fusion f;
    double shortest = INFINITY;
    if (vt_library_cudnn(&library) != VT_OK || library->cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) return INFINITY;
    library->cudnnSetStream(handle, (cudaStream_t)p->backend->stream);
    vt_fused_graph_begin(library, handle, NULL, &f.graph);
    describe_product(&f.graph, p);
    f.pack = vt_fused_pack_open(library, sizeof ids / sizeof *ids, ids, pointers, p->workspace);
    int count = f.pack != NULL ? vt_fused_graph_propose(&f.graph, CUDNN_HEUR_MODE_A, proposals) : 0;
    for (int i = 0; i < count; i++)
        if (vt_fused_graph_try(&f.graph, proposals[i]) && f.graph.workspace_bytes <= WORKSPACE)
            shortest = fmin(shortest, vt_cuda_time(p->backend, run_fusion, &f));
    if (f.pack != NULL) library->cudnnBackendDestroyDescriptor(f.pack);
    vt_fused_graph_close(&f.graph);
    library->cudnnDestroy(handle);
    return shortest;
}

static vt_status products(vt_backend *backend, int64_t samples, int64_t embed)
{
    vt_status status = VT_OK;
    product p = {.backend = backend};
    vt_matrix bias = {0};
    int64_t rows = samples * TOKENS;
    VT_TRY(room(backend, rows, embed, VT_BFLOAT16, &p.x));
    VT_TRY(room(backend, 4 * embed, embed, VT_BFLOAT16, &p.weight));
    VT_TRY(room(backend, rows, 4 * embed, VT_BFLOAT16, &p.hidden));
    VT_TRY(room(backend, rows, 4 * embed, VT_BFLOAT16, &p.active));
    VT_TRY(room(backend, 1, 4 * embed, VT_FLOAT32, &bias));
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, WORKSPACE, &p.workspace));
    p.bias = bias.data;
    VT_TRY(vt_library_cublaslt(&p.library));
    VT_CHECK(p.library->cublasLtCreate(&p.handle) == CUBLAS_STATUS_SUCCESS, "cuBLASLt does not start");
    double flops = 8.0 * (double)rows * (double)(embed * embed);
    printf("the first product of the MLP, embed %lld: %lld x %lld x %lld\n", (long long)embed, (long long)rows,
           (long long)(4 * embed), (long long)embed);
    print_time("cuBLASLt, bias", vt_cuda_time(backend, run_plain_product, &p), flops, 0);
    print_time("cuBLASLt, bias; then a kernel of exact GELU (ours)", vt_cuda_time(backend, run_own, &p), flops, 0);
    print_time("cuBLASLt, bias and GELU in its tanh form", time_epilogue(&p), flops, 0);
    print_time("cuDNN, bias and exact GELU", time_fusion(&p), flops, 0);
    VT_TRY(backend->check(backend));
done:
    if (p.handle != NULL) p.library->cublasLtDestroy(p.handle);
    void *const all[] = {p.x.data, p.weight.data, p.hidden.data, p.active.data, bias.data, p.workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) backend->release(backend, all[i]);
    return status;
}

int main(int argument_count, char **arguments)
{
    vt_status status = VT_OK;
    static const int64_t embeds[] = {384, 1024};
    int64_t samples = 16;
    vt_backend *backend = NULL;
    if (argument_count > 1 && strncmp(arguments[1], "--samples=", 10) == 0) samples = atoll(arguments[1] + 10);
    VT_TRY(vt_backend_open_cuda(0, false, &backend));
    printf("%s\n", backend->name);
    VT_TRY(copies(backend));
    for (int i = 0; i < 2; i++) VT_TRY(products(backend, samples, embeds[i]));
    vt_backend_close(&backend);
    printf("attention of %lld samples (backward: 2.5 times forward's work)\n", (long long)samples);
    for (int i = 0; i < 2; i++) {
        VT_TRY(time_attention(samples, embeds[i], VT_ATTENTION_OWN));
        VT_TRY(time_attention(samples, embeds[i], VT_ATTENTION_CUDNN));
    }
done:
    if (status != VT_OK) fprintf(stderr, "bench/gpu_questions: %s\n", vt_error_text());
    vt_backend_close(&backend);
    return status == VT_OK ? 0 : 1;
}

#else

int main(void)
{
    fprintf(stderr, "bench/gpu_questions: built without CUDA or cuDNN's headers\n");
    return 1;
}

#endif
