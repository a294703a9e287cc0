/* Matrix products by cuBLASLt. Its matrices are column-major: a row-major [rows, columns] with a stride is its
 * columns × rows with that leading dimension, so every product is written with its operands exchanged.
 *
 * Which of the library's algorithms serves a shape is found by timing them, once: the choice is kept
 * (backend/choices.h), so that later runs start at once and give the same bits. With `deterministic` it is the first
 * of the library's proposals that runs, and nothing is timed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "libraries.h"
#include "state.h"

enum { MOST_CHOICES = 8, WORKSPACE_BYTES = 32 << 20 };

/* All that a choice depends on; its key, number by number. */
typedef struct {
    int64_t m, n, k; /* the result is m × n, column-major */
    int64_t leading_a, leading_b, leading_d;
    int64_t transposed_a, transposed_b;
    int64_t type_a, type_b, type_d;          /* vt_type */
    int64_t epilogue;                        /* cublasLtEpilogue_t */
    int64_t type_bias;                       /* of what the epilogue reads or writes */
    int64_t adds;                            /* to what d holds */
    int64_t exact;                           /* no TF32 */
    int64_t aligned_a, aligned_b, aligned_d; /* bytes */
    int64_t aligned_bias;
} product_key;

enum { KEY_NUMBERS = sizeof(product_key) / sizeof(int64_t), ALGORITHM_NUMBERS = sizeof(cublasLtMatmulAlgo_t) / 8 };

typedef struct {
    product_key key;
    bool works; /* false: the library has none */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
} product_plan;

struct vt_products {
    const vt_cublaslt *library;
    cublasLtHandle_t handle;
    void *workspace;
    size_t plan_count, plan_capacity;
    product_plan *plans;
    cublasStatus_t refusal; /* the last one */
};

static struct vt_products *products_of(vt_backend *backend)
{
    return ((vt_cuda_state *)backend->state)->products;
}

static void keep_choice(const vt_backend *backend, const product_plan *plan)
{
    vt_cuda_state *state = backend->state;
    int64_t key[KEY_NUMBERS];
    uint64_t algorithm[ALGORITHM_NUMBERS];
    memcpy(key, &plan->key, sizeof key);
    memcpy(algorithm, &plan->algorithm, sizeof algorithm);
    vt_choices_add(state->choices, "product", key, KEY_NUMBERS, algorithm, ALGORITHM_NUMBERS);
}

/* ---- plans ---- */

static cudaDataType_t library_type(int64_t type)
{
    if (type == VT_FLOAT32) return CUDA_R_32F;
    return type == VT_BFLOAT16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* The largest power of two up to 256 that divides the address. */
static int64_t alignment_of(const void *memory)
{
    uintptr_t address = (uintptr_t)memory | 256;
    return (int64_t)(address & -address);
}

static bool make_descriptors(const vt_cublaslt *library, product_plan *plan)
{
    const product_key *key = &plan->key;
    cublasOperation_t a = key->transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      b = key->transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)key->epilogue;
    int32_t bias = (int32_t)library_type(key->type_bias);
    bool tf32 = key->type_a == VT_FLOAT32 && !key->exact;
    if (library->cublasLtMatmulDescCreate(&plan->operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                          CUDA_R_32F) != CUBLAS_STATUS_SUCCESS)
        return false;
#define SET(attribute, value)                                                                                          \
    (library->cublasLtMatmulDescSetAttribute(plan->operation, attribute, &(value), sizeof(value)) ==                   \
     CUBLAS_STATUS_SUCCESS)
    bool set = SET(CUBLASLT_MATMUL_DESC_TRANSA, a) && SET(CUBLASLT_MATMUL_DESC_TRANSB, b) &&
               SET(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (set && epilogue != CUBLASLT_EPILOGUE_DEFAULT) set = SET(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias);
#undef SET
    int64_t a_rows = key->transposed_a ? key->k : key->m, a_columns = key->transposed_a ? key->m : key->k;
    int64_t b_rows = key->transposed_b ? key->n : key->k, b_columns = key->transposed_b ? key->k : key->n;
    return set &&
           library->cublasLtMatrixLayoutCreate(&plan->a, library_type(key->type_a), (uint64_t)a_rows,
                                               (uint64_t)a_columns, key->leading_a) == CUBLAS_STATUS_SUCCESS &&
           library->cublasLtMatrixLayoutCreate(&plan->b, library_type(key->type_b), (uint64_t)b_rows,
                                               (uint64_t)b_columns, key->leading_b) == CUBLAS_STATUS_SUCCESS &&
           library->cublasLtMatrixLayoutCreate(&plan->d, library_type(key->type_d), (uint64_t)key->m, (uint64_t)key->n,
                                               key->leading_d) == CUBLAS_STATUS_SUCCESS;
}

/* Parts of a sum that several blocks share are added in float32: a 16-bit result may not be where they are added. */
static int find_algorithms(struct vt_products *products, const product_plan *plan,
                           cublasLtMatmulHeuristicResult_t found[MOST_CHOICES])
{
    const vt_cublaslt *library = products->library;
    cublasLtMatmulPreference_t preference = NULL;
    size_t workspace = WORKSPACE_BYTES;
    uint32_t a = (uint32_t)plan->key.aligned_a, b = (uint32_t)plan->key.aligned_b, d = (uint32_t)plan->key.aligned_d;
    uint32_t sums =
        plan->key.type_d == VT_FLOAT32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int count = 0;
    if (library->cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
#define SET(attribute, value)                                                                                          \
    (library->cublasLtMatmulPreferenceSetAttribute(preference, attribute, &(value), sizeof(value)) ==                  \
     CUBLAS_STATUS_SUCCESS)
    bool set = SET(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
               SET(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums) &&
               SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a) &&
               SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b) &&
               SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d) && SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d);
#undef SET
    cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
    if (set)
        status = library->cublasLtMatmulAlgoGetHeuristic(products->handle, plan->operation, plan->a, plan->b, plan->d,
                                                         plan->d, preference, MOST_CHOICES, found, &count);
    if (status != CUBLAS_STATUS_SUCCESS) {
        products->refusal = status;
        count = 0;
    }
    int useful = 0;
    for (int i = 0; i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS) found[useful++] = found[i];
    library->cublasLtMatmulPreferenceDestroy(preference);
    return useful;
}

typedef struct {
    vt_backend *backend;
    product_plan *plan;
    const void *a, *b;
    void *d;
} product_run;

static bool run_product(void *context)
{
    const product_run *run = context;
    struct vt_products *products = products_of(run->backend);
    const product_plan *plan = run->plan;
    const float alpha = 1, beta = plan->key.adds ? 1 : 0;
    cublasStatus_t status = products->library->cublasLtMatmul(
        products->handle, plan->operation, &alpha, run->a, plan->a, run->b, plan->b, &beta, run->d, plan->d, run->d,
        plan->d, &plan->algorithm, products->workspace, WORKSPACE_BYTES, (cudaStream_t)run->backend->stream);
    if (status != CUBLAS_STATUS_SUCCESS) products->refusal = status;
    return status == CUBLAS_STATUS_SUCCESS;
}

/* Times the library's proposals, with a result of its own: the real one may be added to only once. */
static void choose_by_time(product_run *run)
{
    struct vt_products *products = products_of(run->backend);
    product_plan *plan = run->plan;
    cublasLtMatmulHeuristicResult_t found[MOST_CHOICES];
    int count = find_algorithms(products, plan, found);
    bool fixed = ((vt_cuda_state *)run->backend->state)->fixed_choices;
    double shortest = INFINITY;
    size_t bytes = (size_t)(plan->key.leading_d * plan->key.n) * vt_type_size((vt_type)plan->key.type_d);
    product_run trial = *run;
    trial.d = NULL;
    if (count > 1 && cudaMalloc(&trial.d, bytes + 256) != cudaSuccess) {
        cudaGetLastError();
        count = 1; /* no room to try: the library's first choice */
    }
    plan->works = count > 0;
    if (count > 0) plan->algorithm = found[0].algo;
    if (count == 1 && fixed) keep_choice(run->backend, plan);
    if (count <= 1) return;
    cublasLtMatmulAlgo_t best = found[0].algo;
    size_t offset = plan->key.aligned_d < 256 ? (size_t)plan->key.aligned_d : 0;
    char *start = trial.d;
    trial.d = start + offset; /* aligned as the real one */
    for (int i = 0; i < count && !(fixed && shortest < INFINITY); i++) {
        plan->algorithm = found[i].algo;
        double time = INFINITY;
        if (!fixed)
            time = vt_cuda_time(run->backend, run_product, &trial);
        else if (run_product(&trial))
            time = 0;
        if (time < shortest) {
            shortest = time;
            best = found[i].algo;
        }
    }
    cudaFree(start);
    plan->algorithm = best;
    if (shortest < INFINITY) keep_choice(run->backend, plan);
}

static bool take_kept_choice(const vt_backend *backend, product_plan *plan)
{
    const vt_cuda_state *state = backend->state;
    const struct vt_products *products = state->products;
    int64_t key[KEY_NUMBERS];
    uint64_t numbers[ALGORITHM_NUMBERS];
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algorithm;
    memcpy(key, &plan->key, sizeof key);
    if (!vt_choices_find(state->choices, "product", key, KEY_NUMBERS, numbers, ALGORITHM_NUMBERS)) return false;
    memcpy(&algorithm, numbers, sizeof algorithm);
    if (products->library->cublasLtMatmulAlgoCheck(products->handle, plan->operation, plan->a, plan->b, plan->d,
                                                   plan->d, &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > WORKSPACE_BYTES)
        return false;
    plan->algorithm = algorithm;
    plan->works = true;
    return true;
}

static product_plan *find_plan(struct vt_products *products, const product_key *key)
{
    for (size_t i = 0; i < products->plan_count; i++)
        if (memcmp(&products->plans[i].key, key, sizeof *key) == 0) return &products->plans[i];
    return NULL;
}

static product_plan *make_plan(struct vt_products *products, const product_key *key)
{
    if (products->plan_count == products->plan_capacity) {
        products->plan_capacity = 2 * products->plan_capacity + 32;
        products->plans =
            vt_reallocate(products->plans, products->plan_capacity, sizeof *products->plans, "cuBLASLt's products");
    }
    product_plan *plan = &products->plans[products->plan_count++];
    memset(plan, 0, sizeof *plan);
    plan->key = *key;
    return plan;
}

/* d = op(a) op(b), or d += …; `bias` is what the epilogue reads or writes. False: the library has no such product, and
 * nothing was done. */
static bool multiply(vt_backend *backend, product_key *key, const void *a, const void *b, void *d, const void *bias)
{
    vt_cuda_state *state = backend->state;
    struct vt_products *products = products_of(backend);
    const vt_cublaslt *library = products->library;
    key->exact = state->common.exact_float32 && key->type_a == VT_FLOAT32;
    key->aligned_a = alignment_of(a);
    key->aligned_b = alignment_of(b);
    key->aligned_d = alignment_of(d);
    key->aligned_bias = bias != NULL ? alignment_of(bias) : 0;
    product_plan *plan = find_plan(products, key);
    bool is_new = plan == NULL;
    if (is_new && state->recording) { /* choosing waits for the GPU */
        state->recording_lacks = true;
        return true;
    }
    if (is_new) plan = make_plan(products, key);
    product_run run = {backend, plan, a, b, d};
    if (is_new && !make_descriptors(library, plan)) return false;
    if (!is_new && !plan->works) return false;
    if (key->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
        library->cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                sizeof bias) != CUBLAS_STATUS_SUCCESS)
        return false;
    if (is_new && !take_kept_choice(backend, plan)) choose_by_time(&run);
    return plan->works && run_product(&run);
}

static void fail(vt_backend *backend, const char *name, const product_key *key)
{
    const struct vt_products *products = products_of(backend);
    char sentence[400];
    snprintf(sentence, sizeof sentence,
             "cuBLASLt has no %s of %lld × %lld × %lld numbers (types %d, %d, %d; rows of %lld, %lld, %lld; aligned to "
             "%lld, %lld, %lld bytes): %s; report it, and use --device=cpu",
             name, (long long)key->m, (long long)key->n, (long long)key->k, (int)key->type_a, (int)key->type_b,
             (int)key->type_d, (long long)key->leading_a, (long long)key->leading_b, (long long)key->leading_d,
             (long long)key->aligned_a, (long long)key->aligned_b, (long long)key->aligned_d,
             products->library->cublasLtGetStatusString(products->refusal));
    ((vt_cuda_common *)backend->state)->fail(backend, sentence);
}

/* ---- the operations ---- */

static product_key forward_key(vt_matrix x, vt_matrix weight, vt_matrix y)
{
    return (product_key){.m = y.columns,
                         .n = y.rows,
                         .k = x.columns,
                         .leading_a = weight.stride,
                         .leading_b = x.stride,
                         .leading_d = y.stride,
                         .transposed_a = 1,
                         .type_a = weight.type,
                         .type_b = x.type,
                         .type_d = y.type,
                         .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
}

/* y = x weightᵀ + bias in one, where the library can: else false, and nothing was done. It is documented to take a bias
 * of the result's type alone, so beside 16 bits a rounded copy serves, unless it takes the float32 one, too. Its
 * kernels may read 16 bytes of the bias at a time, whatever its address, so a copy serves for one that is less aligned,
 * too. */
static bool add_bias_in_product(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    const bool is_aligned = alignment_of(bias) >= 16;
    product_key key = forward_key(x, weight, y);
    key.epilogue = CUBLASLT_EPILOGUE_BIAS;
    key.type_bias = VT_FLOAT32;
    if (is_aligned && multiply(backend, &key, weight.data, x.data, y.data, bias)) return true;
    if (is_aligned && !vt_type_is_half(y.type)) return false;
    vt_cuda_common *common = backend->state;
    vt_matrix copy = {.rows = 1, .columns = y.columns, .stride = y.columns, .type = y.type};
    copy.data = common->workspace(backend, (size_t)y.columns * sizeof *copy.data);
    if (copy.data == NULL) return false;
    backend->convert(backend, vt_matrix_make((float *)bias, 1, y.columns), copy);
    key.type_bias = y.type;
    return multiply(backend, &key, weight.data, x.data, y.data, copy.data);
}

static void linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    product_key key = forward_key(x, weight, y);
    if (bias != NULL && add_bias_in_product(backend, x, weight, bias, y)) return;
    if (!multiply(backend, &key, weight.data, x.data, y.data, NULL)) {
        fail(backend, "product", &key);
        return;
    }
    if (bias != NULL) backend->position_add(backend, y, vt_matrix_make((float *)bias, 1, y.columns));
}

static void linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    product_key key = {.m = dx.columns,
                       .n = dx.rows,
                       .k = dy.columns,
                       .leading_a = weight.stride,
                       .leading_b = dy.stride,
                       .leading_d = dx.stride,
                       .type_a = weight.type,
                       .type_b = dy.type,
                       .type_d = dx.type,
                       .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    if (!multiply(backend, &key, weight.data, dy.data, dx.data, NULL)) fail(backend, "product", &key);
}

static void linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    product_key key = {.m = x.columns,
                       .n = dy.columns,
                       .k = x.rows,
                       .leading_a = x.stride,
                       .leading_b = dy.stride,
                       .leading_d = x.columns,
                       .transposed_b = 1,
                       .type_a = x.type,
                       .type_b = dy.type,
                       .type_d = VT_FLOAT32,
                       .adds = 1,
                       .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    if (dbias != NULL) { /* the epilogue overwrites: its sums are added afterwards */
        vt_cuda_common *common = backend->state;
        float *sums = common->workspace(backend, (size_t)dy.columns * sizeof *sums);
        if (sums == NULL) return;
        key.epilogue = CUBLASLT_EPILOGUE_BGRADB;
        if (multiply(backend, &key, x.data, dy.data, dweight, sums)) {
            backend->position_add(backend, vt_matrix_make(dbias, 1, dy.columns), vt_matrix_make(sums, 1, dy.columns));
            return;
        }
        vt_cuda_column_sums(backend, dy, dbias);
        key.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    }
    if (!multiply(backend, &key, x.data, dy.data, dweight, NULL)) fail(backend, "weight gradient", &key);
}

/* The bias is added by the product where the library can, else together with GELU. (The library's own GELU is the tanh
 * form.) */
static void linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                vt_matrix hidden, vt_matrix active)
{
    product_key key = forward_key(x, weight, hidden);
    if (add_bias_in_product(backend, x, weight, bias, hidden)) {
        vt_cuda_bias_gelu(backend, kind, hidden, NULL, active);
        return;
    }
    if (!multiply(backend, &key, weight.data, x.data, hidden.data, NULL))
        fail(backend, "product", &key);
    else
        vt_cuda_bias_gelu(backend, kind, hidden, bias, active);
}

void vt_products_fill(vt_backend *backend)
{
    backend->linear_forward = linear_forward;
    backend->linear_backward_input = linear_backward_input;
    backend->linear_backward_weight = linear_backward_weight;
    backend->linear_gelu_forward = linear_gelu_forward;
}

vt_status vt_products_open(vt_backend *backend, struct vt_products **result)
{
    vt_status status = VT_OK;
    struct vt_products *products = vt_allocate(1, sizeof *products, "cuBLASLt's products");
    VT_TRY(vt_library_cublaslt(&products->library));
    cublasStatus_t opened = products->library->cublasLtCreate(&products->handle);
    VT_CHECK(opened == CUBLAS_STATUS_SUCCESS, "cuBLASLt does not start: %s",
             products->library->cublasLtGetStatusString(opened));
    VT_TRY(backend->allocate(backend, VT_MEMORY_WORKSPACE, WORKSPACE_BYTES, &products->workspace));
done:
    if (status != VT_OK) vt_products_close(&products);
    *result = products;
    return status;
}

size_t vt_products_version(const struct vt_products *products)
{
    return products->library->cublasLtGetVersion();
}

void vt_products_close(struct vt_products **result)
{
    struct vt_products *products = *result;
    if (products == NULL) return;
    const vt_cublaslt *library = products->library;
    for (size_t i = 0; i < products->plan_count; i++) {
        product_plan *plan = &products->plans[i];
        if (plan->operation != NULL) library->cublasLtMatmulDescDestroy(plan->operation);
        if (plan->a != NULL) library->cublasLtMatrixLayoutDestroy(plan->a);
        if (plan->b != NULL) library->cublasLtMatrixLayoutDestroy(plan->b);
        if (plan->d != NULL) library->cublasLtMatrixLayoutDestroy(plan->d);
    }
    if (products->handle != NULL) library->cublasLtDestroy(products->handle);
    free(products->plans);
    free(products);
    *result = NULL;
}
