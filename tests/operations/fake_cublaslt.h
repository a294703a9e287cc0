/* A stand-in for cuBLASLt that multiplies as the library is documented to (column-major, with its layouts, transposes
 * and epilogues), and refuses what it is documented to refuse. For one test file. */
#ifndef VT_TESTS_OPERATIONS_FAKE_CUBLASLT_H
#define VT_TESTS_OPERATIONS_FAKE_CUBLASLT_H

#include "cuda/libraries.h"
#include "operations/fake_gpu.h"
#include "operations/halves.h"

typedef struct {
    cublasOperation_t transposed_a, transposed_b;
    cublasLtEpilogue_t epilogue;
    int32_t bias_type; /* -1: the result's */
    void *bias;
    bool tf32;
} fake_operation;

typedef struct {
    cudaDataType type;
    int64_t rows, columns, stride;
} fake_layout;

static struct {
    bool refuses_bias;
    const void *bias; /* that was added last */
    int products, rounded_biases, questions;
    uint32_t sums;       /* how parts of a sum may be added, as of the last query */
    int64_t open;        /* descriptors */
    int proposals;       /* how many are made; 0: one */
    int refuses_runs;    /* of the first so many of them */
    int proposal;        /* that ran last */
    const double *times; /* of them */
    int timings;         /* comparisons */
} fake;

static cublasStatus_t fake_create(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t)&fake;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_destroy(cublasLtHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

static const char *fake_text(cublasStatus_t status)
{
    (void)status;
    return "a status";
}

static size_t fake_version(void)
{
    return 130000;
}

static cublasStatus_t fake_operation_create(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                            cudaDataType_t scale)
{
    fake_operation *o = vt_allocate(1, sizeof *o, "a test");
    EXPECT(scale == CUDA_R_32F && (compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32));
    *o = (fake_operation){.epilogue = CUBLASLT_EPILOGUE_DEFAULT, .bias_type = -1};
    o->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    *made = (cublasLtMatmulDesc_t)o;
    fake.open++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_operation_destroy(cublasLtMatmulDesc_t operation)
{
    free(operation);
    fake.open--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_operation_set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name,
                                         const void *value, size_t bytes)
{
    fake_operation *o = (fake_operation *)operation;
    void *place = NULL;
    size_t size = sizeof(int32_t);
    if (name == CUBLASLT_MATMUL_DESC_TRANSA) place = &o->transposed_a;
    if (name == CUBLASLT_MATMUL_DESC_TRANSB) place = &o->transposed_b;
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE) place = &o->epilogue;
    if (name == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) place = &o->bias_type;
    if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER) place = &o->bias, size = sizeof(void *);
    if (place == NULL || bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(place, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_layout_create(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                         uint64_t columns, int64_t stride)
{
    fake_layout *l = vt_allocate(1, sizeof *l, "a test");
    *l = (fake_layout){type, (int64_t)rows, (int64_t)columns, stride};
    *made = (cublasLtMatrixLayout_t)l;
    fake.open++;
    return stride >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t fake_layout_destroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    fake.open--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference_create(cublasLtMatmulPreference_t *made)
{
    *made = (cublasLtMatmulPreference_t)&fake;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference_destroy(cublasLtMatmulPreference_t preference)
{
    (void)preference;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference_set(cublasLtMatmulPreference_t preference,
                                          cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes)
{
    (void)preference;
    if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) memcpy(&fake.sums, value, sizeof fake.sums);
    const bool is_size = name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    return bytes == (is_size ? sizeof(uint64_t) : sizeof(uint32_t)) ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_INVALID_VALUE;
}

static bool has_bias(const fake_operation *o)
{
    return o->epilogue == CUBLASLT_EPILOGUE_BIAS;
}

static bool is_supported(const fake_operation *o, const fake_layout *a, const fake_layout *b, const fake_layout *d)
{
    int64_t a_rows = o->transposed_a ? a->columns : a->rows, inner = o->transposed_a ? a->rows : a->columns;
    int64_t b_rows = o->transposed_b ? b->columns : b->rows, b_columns = o->transposed_b ? b->rows : b->columns;
    EXPECT(a_rows == d->rows && b_columns == d->columns && inner == b_rows, "the sizes don't go together");
    EXPECT(!o->tf32 || a->type == CUDA_R_32F);
    if (a->type != b->type) return false;
    return !has_bias(o) || (!fake.refuses_bias && o->bias_type == (int32_t)d->type);
}

static int64_t alignment(const void *memory)
{
    uintptr_t address = (uintptr_t)memory | 256;
    return (int64_t)(address & -address);
}

static cublasStatus_t fake_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                     cublasLtMatmulPreference_t preference, int most,
                                     cublasLtMatmulHeuristicResult_t found[], int *count)
{
    const fake_operation *o = (const fake_operation *)operation;
    (void)handle, (void)preference;
    fake.questions++;
    *count = 0;
    EXPECT(c == d && most > 0);
    const uint32_t wide = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* the others add in the result's type */
    EXPECT(fake.sums == wide || (((const fake_layout *)d)->type == CUDA_R_32F && (fake.sums & wide) != 0));
    fake.sums = 0;
    if (!is_supported(o, (const fake_layout *)a, (const fake_layout *)b, (const fake_layout *)d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *count = fake.proposals > 0 ? fake.proposals : 1;
    EXPECT(*count <= most);
    memset(found, 0, (size_t)*count * sizeof found[0]);
    for (int i = 0; i < *count; i++) {
        found[i].algo.data[0] = has_bias(o) ? (uint64_t)alignment(o->bias) : 1; /* "depends on its value" */
        found[i].algo.data[1] = (uint64_t)i;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                 const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)algorithm;
    memset(result, 0, sizeof *result);
    return CUBLAS_STATUS_SUCCESS;
}

static vt_type type_of(int32_t type)
{
    return type == CUDA_R_32F ? VT_FLOAT32 : type == CUDA_R_16BF ? VT_BFLOAT16 : VT_FLOAT16;
}

static double number(const void *memory, int32_t type, int64_t at)
{
    if (type == CUDA_R_32F) return (double)((const float *)memory)[at];
    return (double)vt_half_widen(type_of(type), ((const uint16_t *)memory)[at]);
}

static double element(const void *memory, const fake_layout *l, bool transposed, int64_t row, int64_t column)
{
    return number(memory, (int32_t)l->type, transposed ? row * l->stride + column : column * l->stride + row);
}

static cublasStatus_t fake_matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha,
                                  const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
                                  cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
                                  cublasLtMatrixLayout_t layout_c, void *d, cublasLtMatrixLayout_t layout_d,
                                  const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                                  cudaStream_t stream)
{
    const fake_operation *o = (const fake_operation *)operation;
    const fake_layout *la = (const fake_layout *)layout_a, *lb = (const fake_layout *)layout_b;
    const fake_layout *ld = (const fake_layout *)layout_d;
    const int64_t inner = o->transposed_a ? la->rows : la->columns;
    const bool adds = *(const float *)beta != 0;
    (void)handle, (void)stream;
    EXPECT(*(const float *)alpha == 1 && c == d && layout_c == layout_d && workspace != NULL && workspace_bytes > 0);
    if (!is_supported(o, la, lb, ld)) return CUBLAS_STATUS_NOT_SUPPORTED;
    fake.proposal = (int)algorithm->data[1];
    if (fake.proposal < fake.refuses_runs) return CUBLAS_STATUS_NOT_SUPPORTED;
    EXPECT(!has_bias(o) || alignment(o->bias) >= (int64_t)algorithm->data[0],
           "a bias less aligned than what was chosen");
    fake.products++;
    if (has_bias(o)) fake.bias = o->bias;
    fake.rounded_biases += has_bias(o) && o->bias_type != CUDA_R_32F;
    for (int64_t n = 0; n < ld->columns; n++) {
        for (int64_t m = 0; m < ld->rows; m++) {
            double sum = adds ? element(d, ld, false, m, n) : 0;
            for (int64_t k = 0; k < inner; k++)
                sum += element(a, la, o->transposed_a, m, k) * element(b, lb, o->transposed_b, k, n);
            if (has_bias(o)) sum += number(o->bias, o->bias_type, m);
            if (ld->type == CUDA_R_32F)
                ((float *)d)[n * ld->stride + m] = (float)sum;
            else
                ((uint16_t *)d)[n * ld->stride + m] = vt_half_round(type_of((int32_t)ld->type), (float)sum);
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

static vt_status fake_library(const vt_cublaslt **library)
{
    static const vt_cublaslt functions = {.cublasLtCreate = fake_create,
                                          .cublasLtDestroy = fake_destroy,
                                          .cublasLtGetVersion = fake_version,
                                          .cublasLtGetStatusString = fake_text,
                                          .cublasLtMatmulDescCreate = fake_operation_create,
                                          .cublasLtMatmulDescDestroy = fake_operation_destroy,
                                          .cublasLtMatmulDescSetAttribute = fake_operation_set,
                                          .cublasLtMatrixLayoutCreate = fake_layout_create,
                                          .cublasLtMatrixLayoutDestroy = fake_layout_destroy,
                                          .cublasLtMatmulPreferenceCreate = fake_preference_create,
                                          .cublasLtMatmulPreferenceDestroy = fake_preference_destroy,
                                          .cublasLtMatmulPreferenceSetAttribute = fake_preference_set,
                                          .cublasLtMatmulAlgoGetHeuristic = fake_heuristic,
                                          .cublasLtMatmulAlgoCheck = fake_check,
                                          .cublasLtMatmul = fake_matmul};
    *library = &functions;
    return VT_OK;
}

/* Timings come from `times`. Products run only for timing are not counted. */
static void fake_time_all(vt_backend *backend, int count, vt_cuda_trial *trials)
{
    (void)backend;
    const int products = fake.products;
    for (int i = 0; i < count; i++) {
        const bool works = trials[i].run(trials[i].context);
        const double time = fake.times != NULL ? fake.times[fake.proposal] : i;
        trials[i].milliseconds = works ? time : (double)INFINITY;
    }
    fake.products = products;
    fake.timings++;
}

#endif
