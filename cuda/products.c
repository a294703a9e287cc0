/* Matrix products by cuBLASLt (product_plans.h). Its matrices are column-major: a row-major [rows, columns] with a
 * stride is its columns × rows with that leading dimension, so every product is written with its operands exchanged. */
#include <stdio.h>
#include <string.h>

#include "product_plans.h"

static void fail(vt_backend *backend, const char *name, const vt_product_key *key)
{
    const struct vt_products *products = vt_products_of(backend);
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

static vt_product_key forward_key(vt_matrix x, vt_matrix weight, vt_matrix y)
{
    return (vt_product_key){.m = y.columns,
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

/* y = x weightᵀ + bias in one call if the library can: otherwise false, and nothing was done. The library is documented
 * to take a bias of the result's type only, so for a 16-bit result a rounded copy of the bias is used unless float32
 * works, too. Its kernels may read 16 bytes of the bias at a time, whatever its address, so a copy also replaces a bias
 * with a smaller alignment. */
static bool add_bias_in_product(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    const bool is_aligned = vt_alignment_of(bias) >= 16;
    vt_product_key key = forward_key(x, weight, y);
    key.epilogue = CUBLASLT_EPILOGUE_BIAS;
    key.type_bias = VT_FLOAT32;
    if (is_aligned && vt_product_multiply(backend, &key, weight.data, x.data, y.data, bias)) return true;
    if (is_aligned && !vt_type_is_half(y.type)) return false;
    vt_cuda_common *common = backend->state;
    vt_matrix copy = {.rows = 1, .columns = y.columns, .stride = y.columns, .type = y.type};
    copy.data = common->workspace(backend, (size_t)y.columns * sizeof *copy.data);
    if (copy.data == NULL) return false;
    backend->convert(backend, vt_matrix_make((float *)bias, 1, y.columns), copy);
    key.type_bias = y.type;
    return vt_product_multiply(backend, &key, weight.data, x.data, y.data, copy.data);
}

static void linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    vt_product_key key = forward_key(x, weight, y);
    if (bias != NULL && add_bias_in_product(backend, x, weight, bias, y)) return;
    if (!vt_product_multiply(backend, &key, weight.data, x.data, y.data, NULL)) {
        fail(backend, "product", &key);
        return;
    }
    if (bias != NULL) backend->position_add(backend, y, vt_matrix_make((float *)bias, 1, y.columns));
}

static void linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    vt_product_key key = {.m = dx.columns,
                          .n = dx.rows,
                          .k = dy.columns,
                          .leading_a = weight.stride,
                          .leading_b = dy.stride,
                          .leading_d = dx.stride,
                          .type_a = weight.type,
                          .type_b = dy.type,
                          .type_d = dx.type,
                          .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    if (!vt_product_multiply(backend, &key, weight.data, dy.data, dx.data, NULL)) fail(backend, "product", &key);
}

/* ---- the bias's gradient ---- */

/* A weight's gradient, where a kernel sums the bias's gradient. */
typedef struct {
    vt_product_run product;
    vt_matrix dy;
    float *sums;
} separate_run;

static bool run_separately(void *context)
{
    separate_run *run = context;
    vt_cuda_column_sums(run->product.backend, run->dy, run->sums);
    return vt_product_run_once(&run->product);
}

/* Whether it is faster to sum the bias's gradient in the product (`fused`, planned) than by a kernel beside a product
 * without it. Both are tried with scratch results and sums. */
static bool sums_pay(vt_backend *backend, const vt_product_plan *fused, vt_matrix x, vt_matrix dy, float *dweight)
{
    struct vt_products *products = vt_products_of(backend);
    vt_product_plan with = *fused; /* making plans moves them */
    vt_product_key key = with.key;
    const size_t room = (size_t)(key.leading_d * key.n) * sizeof(float) + 512,
                 sums = (size_t)dy.columns * sizeof(float);
    char *memory = NULL;
    key.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    vt_product_complete_key(backend, &key, x.data, dy.data, dweight, NULL);
    const vt_product_plan *plan = vt_product_find_plan(products, &key);
    if (plan == NULL) plan = vt_product_new_plan(backend, &key, x.data, dy.data, dweight, NULL);
    if (plan == NULL || !plan->works) return true;
    if (cudaMalloc((void **)&memory, room + sums) != cudaSuccess) {
        cudaGetLastError();
        return true; /* no memory to try */
    }
    vt_product_plan without = *plan;
    void *d = memory + (key.aligned_d < 256 ? (size_t)key.aligned_d : 0), *to = memory + room / 256 * 256;
    vt_product_run in_one = {backend, &with, x.data, dy.data, d};
    separate_run apart = {{backend, &without, x.data, dy.data, d}, dy, to};
    vt_cuda_trial trials[] = {{vt_product_run_once, &in_one, INFINITY}, {run_separately, &apart, INFINITY}};
    const bool ready = vt_product_set_bias(products->library, &with, to);
    if (ready) vt_cuda_time_all(backend, 2, trials);
    cudaFree(memory);
    return ready && trials[0].milliseconds <= trials[1].milliseconds;
}

/* The first weight gradient of a key: whether the product also sums the bias's gradient is timed, and the choice kept.
 * With fixed choices it does not, unless a checkpoint says so. */
static void choose_sums(vt_backend *backend, const vt_product_key *key, vt_matrix x, vt_matrix dy, float *dweight,
                        const float *sums)
{
    vt_cuda_state *state = backend->state;
    struct vt_products *products = vt_products_of(backend);
    int64_t numbers[VT_PRODUCT_KEY_NUMBERS];
    uint64_t pays = 0;
    memcpy(numbers, key, sizeof numbers);
    const bool kept = vt_choices_find(state->choices, "bias_sums", numbers, VT_PRODUCT_KEY_NUMBERS, &pays, 1);
    if (kept ? pays == 0 : state->fixed_choices) {
        vt_product_add_plan(products, key); /* marked unusable */
        return;
    }
    const vt_product_plan *plan = vt_product_new_plan(backend, key, x.data, dy.data, dweight, sums);
    if (kept || plan == NULL) return;
    pays = sums_pay(backend, plan, x, dy, dweight);
    vt_product_find_plan(products, key)->works = pays != 0;
    vt_choices_add(state->choices, "bias_sums", numbers, VT_PRODUCT_KEY_NUMBERS, &pays, 1);
}

/* dweight and dbias in one product if that is the choice: otherwise false, and nothing was done. The epilogue
 * overwrites, so its sums are added afterwards. */
static bool add_both_gradients(vt_backend *backend, vt_product_key key, vt_matrix x, vt_matrix dy, float *dweight,
                               float *dbias)
{
    vt_cuda_state *state = backend->state;
    const size_t bytes = (size_t)dy.columns * sizeof(float);
    float *sums = state->common.workspace(backend, bytes);
    if (sums == NULL) return true; /* the run fails, or this recording */
    key.epilogue = CUBLASLT_EPILOGUE_BGRADB;
    vt_product_complete_key(backend, &key, x.data, dy.data, dweight, sums);
    if (!state->recording && vt_product_find_plan(vt_products_of(backend), &key) == NULL) {
        choose_sums(backend, &key, x, dy, dweight, sums);
        sums = state->common.workspace(backend, bytes); /* trying may have moved it */
        if (sums == NULL) return true;
    }
    if (!vt_product_multiply(backend, &key, x.data, dy.data, dweight, sums)) return false;
    backend->position_add(backend, vt_matrix_make(dbias, 1, dy.columns), vt_matrix_make(sums, 1, dy.columns));
    return true;
}

static void linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    vt_product_key key = {.m = x.columns,
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
    if (dbias != NULL) {
        if (add_both_gradients(backend, key, x, dy, dweight, dbias)) return;
        vt_cuda_column_sums(backend, dy, dbias);
    }
    if (!vt_product_multiply(backend, &key, x.data, dy.data, dweight, NULL)) fail(backend, "weight gradient", &key);
}

/* The product adds the bias if the library can, otherwise GELU's kernel does. (The library's own GELU is the tanh
 * form.) */
static void linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                vt_matrix hidden, vt_matrix active)
{
    vt_product_key key = forward_key(x, weight, hidden);
    if (add_bias_in_product(backend, x, weight, bias, hidden)) {
        vt_cuda_bias_gelu(backend, kind, hidden, NULL, active);
        return;
    }
    if (!vt_product_multiply(backend, &key, weight.data, x.data, hidden.data, NULL))
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
