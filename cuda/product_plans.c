/* Chooses cuBLASLt's algorithm for a product by timing them once. The choice is kept (backend/choices.h), so that later
 * runs start at once and give the same bits. With `deterministic`, the first of the library's proposals that runs is
 * taken, and nothing is timed. */
#include "product_plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { MOST_CHOICES = 8, WORKSPACE_BYTES = 32 << 20, ALGORITHM_NUMBERS = sizeof(cublasLtMatmulAlgo_t) / 8 };

typedef struct {
    vt_backend *backend;
    vt_product_plan *plan;
    const void *a, *b;
    void *d;
} product_call;

static void keep_choice(const vt_backend *backend, const vt_product_plan *plan)
{
    uint64_t algorithm[ALGORITHM_NUMBERS];
    memcpy(algorithm, &plan->algorithm, sizeof algorithm);
    vt_choices_add(backend->choices, "product", (const int64_t *)&plan->key, VT_PRODUCT_KEY_NUMBERS, algorithm,
                   ALGORITHM_NUMBERS);
}

static cudaDataType_t library_type(int64_t type)
{
    if (type == VT_FLOAT32) return CUDA_R_32F;
    return type == VT_BFLOAT16 ? CUDA_R_16BF : CUDA_R_16F;
}

static bool make_descriptors(const vt_cublaslt *library, vt_product_plan *plan)
{
    const vt_product_key *key = &plan->key;
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

/* Blocks that share a sum add their parts in float32, never in a 16-bit result. */
static int find_algorithms(struct vt_products *products, const vt_product_plan *plan,
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

/* Makes a product_call, in the form that vt_cuda_trial wants. */
static bool run_once(void *context)
{
    const product_call *call = context;
    struct vt_products *products = vt_products_of(call->backend);
    const vt_product_plan *plan = call->plan;
    const float alpha = 1, beta = plan->key.adds ? 1 : 0;
    cublasStatus_t status = products->library->cublasLtMatmul(
        products->handle, plan->operation, &alpha, call->a, plan->a, call->b, plan->b, &beta, call->d, plan->d, call->d,
        plan->d, &plan->algorithm, products->workspace, WORKSPACE_BYTES, (cudaStream_t)call->backend->stream);
    if (status != CUBLAS_STATUS_SUCCESS) products->refusal = status;
    return status == CUBLAS_STATUS_SUCCESS;
}

/* Returns the first proposal that runs, or the fastest; INFINITY: none runs. */
static double try_proposals(product_call *call, int count, const cublasLtMatmulHeuristicResult_t *found,
                            cublasLtMatmulAlgo_t *best)
{
    const bool fixed = ((vt_cuda_state *)call->backend->state)->fixed_choices;
    vt_product_plan plans[MOST_CHOICES];
    product_call calls[MOST_CHOICES];
    vt_cuda_trial trials[MOST_CHOICES];
    double shortest = INFINITY;
    for (int i = 0; i < count; i++) {
        plans[i] = *call->plan;
        plans[i].algorithm = found[i].algo;
        calls[i] = *call;
        calls[i].plan = &plans[i];
        trials[i] = (vt_cuda_trial){run_once, &calls[i], INFINITY};
    }
    if (!fixed) vt_cuda_time_all(call->backend, count, trials);
    for (int i = 0; i < count && !(fixed && shortest < INFINITY); i++) {
        if (fixed && run_once(&calls[i])) trials[i].milliseconds = 0;
        if (trials[i].milliseconds < shortest) {
            shortest = trials[i].milliseconds;
            *best = found[i].algo;
        }
    }
    return shortest;
}

/* Tries the library's proposals on a scratch result: the real one may be added to only once. */
static void choose(product_call *call)
{
    struct vt_products *products = vt_products_of(call->backend);
    vt_product_plan *plan = call->plan;
    cublasLtMatmulHeuristicResult_t found[MOST_CHOICES];
    int count = find_algorithms(products, plan, found);
    bool fixed = ((vt_cuda_state *)call->backend->state)->fixed_choices;
    size_t bytes = (size_t)(plan->key.leading_d * plan->key.n) * vt_type_size((vt_type)plan->key.type_d);
    product_call trial = *call;
    trial.d = NULL;
    if (count > 1 && cudaMalloc(&trial.d, bytes + 256) != cudaSuccess) {
        cudaGetLastError();
        count = 1; /* no memory to try: the library's first choice */
    }
    plan->works = count > 0;
    if (count > 0) plan->algorithm = found[0].algo;
    if (count == 1 && fixed) keep_choice(call->backend, plan);
    if (count <= 1) return;
    char *start = trial.d;
    trial.d = start + (plan->key.aligned_d < 256 ? (size_t)plan->key.aligned_d : 0); /* aligned like the real one */
    plan->works = try_proposals(&trial, count, found, &plan->algorithm) < INFINITY;
    cudaFree(start);
    if (plan->works) keep_choice(call->backend, plan);
}

static bool take_kept_choice(vt_backend *backend, vt_product_plan *plan)
{
    const struct vt_products *products = vt_products_of(backend);
    uint64_t numbers[ALGORITHM_NUMBERS];
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algorithm;
    if (!vt_choices_find(backend->choices, "product", (const int64_t *)&plan->key, VT_PRODUCT_KEY_NUMBERS, numbers,
                         ALGORITHM_NUMBERS))
        return false;
    memcpy(&algorithm, numbers, sizeof algorithm);
    if (products->library->cublasLtMatmulAlgoCheck(products->handle, plan->operation, plan->a, plan->b, plan->d,
                                                   plan->d, &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > WORKSPACE_BYTES)
        return false;
    plan->algorithm = algorithm;
    plan->works = true;
    return true;
}

/* Sets where the epilogue reads its bias. */
static bool set_bias(const vt_cublaslt *library, const vt_product_plan *plan, const void *bias)
{
    return plan->key.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
           library->cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                   sizeof bias) == CUBLAS_STATUS_SUCCESS;
}

/* NULL: no plan for that key yet. */
static vt_product_plan *find_plan(struct vt_products *products, const vt_product_key *key)
{
    for (size_t i = 0; i < products->plan_count; i++)
        if (memcmp(&products->plans[i].key, key, sizeof *key) == 0) return &products->plans[i];
    return NULL;
}

/* A new plan, with its algorithm chosen; it is marked unusable if the library has none. */
static vt_product_plan *add_plan(vt_backend *backend, const vt_product_key *key, const void *a, const void *b, void *d,
                                 const void *bias)
{
    struct vt_products *products = vt_products_of(backend);
    products->plans = vt_grow(products->plans, products->plan_count, sizeof *products->plans, "cuBLASLt's products");
    vt_product_plan *plan = &products->plans[products->plan_count++];
    memset(plan, 0, sizeof *plan);
    plan->key = *key;
    product_call call = {backend, plan, a, b, d};
    if (make_descriptors(products->library, plan) && set_bias(products->library, plan, bias) &&
        !take_kept_choice(backend, plan))
        choose(&call);
    return plan;
}

bool vt_product_multiply(vt_backend *backend, vt_product_key *key, const void *a, const void *b, void *d,
                         const void *bias)
{
    vt_cuda_state *state = backend->state;
    struct vt_products *products = vt_products_of(backend);
    key->exact = state->common.exact_float32 && key->type_a == VT_FLOAT32;
    key->aligned_a = vt_alignment_of(a);
    key->aligned_b = vt_alignment_of(b);
    key->aligned_d = vt_alignment_of(d);
    key->aligned_bias = bias != NULL ? vt_alignment_of(bias) : 0;
    vt_product_plan *plan = find_plan(products, key);
    const bool is_new = plan == NULL;
    if (is_new && vt_cuda_ends_recording(state, VT_CUDA_WOULD_WAIT)) return true;
    if (is_new) plan = add_plan(backend, key, a, b, d, bias);
    if (!plan->works || !set_bias(products->library, plan, bias)) return false;
    const bool done = run_once(&(product_call){backend, plan, a, b, d});
    if (is_new) plan->works = done; /* otherwise it is not tried again */
    return done;
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
        vt_product_plan *plan = &products->plans[i];
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
