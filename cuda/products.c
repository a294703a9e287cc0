/* Matrix products by cuBLASLt (product_plans.h). Its matrices are column-major: a row-major [rows, columns] with a
 * stride is its columns × rows with that leading dimension, so every product is written with its operands exchanged. */
#include <stdio.h>

#include "product_plans.h"

static void fail(vt_backend *backend, const vt_product_key *key)
{
    const struct vt_products *products = vt_products_of(backend);
    char sentence[400];
    snprintf(sentence, sizeof sentence,
             "cuBLASLt has no %s of %ld × %ld × %ld numbers (types %d, %d, %d; rows of %ld, %ld, %ld; aligned to "
             "%ld, %ld, %ld bytes): %s; report it, and use --device=cpu",
             key->adds ? "weight gradient" : "product", key->m, key->n, key->k, (int)key->type_a, (int)key->type_b,
             (int)key->type_d, key->leading_a, key->leading_b, key->leading_d, key->aligned_a, key->aligned_b,
             key->aligned_d, products->library->cublasLtGetStatusString(products->refusal));
    ((vt_cuda_common *)backend->state)->fail(backend, sentence);
}

/* d = b a, of which one may be transposed. */
static vt_product_key key_of(vt_matrix a, bool transposed_a, vt_matrix b, bool transposed_b, vt_matrix d)
{
    return (vt_product_key){.m = d.columns,
                            .n = d.rows,
                            .k = transposed_b ? b.rows : b.columns,
                            .leading_a = a.stride,
                            .leading_b = b.stride,
                            .leading_d = d.stride,
                            .transposed_a = transposed_a,
                            .transposed_b = transposed_b,
                            .type_a = a.type,
                            .type_b = b.type,
                            .type_d = d.type,
                            .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
}

/* False, and the operation fails: the library has no such product. */
static bool multiply(vt_backend *backend, vt_product_key key, vt_matrix a, vt_matrix b, vt_matrix d)
{
    const bool done = vt_product_multiply(backend, &key, a.data, b.data, d.data, NULL);
    if (!done) fail(backend, &key);
    return done;
}

/* ---- the operations ---- */

/* y = x weightᵀ + bias in one call if the library can: otherwise false, and nothing was done. The library is documented
 * to take a bias of the result's type only. Its kernels may read 16 bytes of the bias at a time, whatever its address,
 * so a copy replaces a bias with a smaller alignment, or one that is not there in that type. */
static bool add_bias_in_product(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias,
                                const uint16_t *rounded, vt_matrix y)
{
    const void *own = vt_type_is_half(y.type) ? (const void *)rounded : bias;
    vt_product_key key = key_of(weight, true, x, false, y);
    key.epilogue = CUBLASLT_EPILOGUE_BIAS;
    key.type_bias = y.type;
    if (own == NULL || vt_alignment_of(own) < 16) {
        vt_cuda_common *common = backend->state;
        vt_matrix copy = {.rows = 1, .columns = y.columns, .stride = y.columns, .type = y.type};
        copy.data = common->workspace(backend, (size_t)y.columns * sizeof *copy.data);
        if (copy.data == NULL) return false;
        backend->convert(backend, vt_matrix_make((float *)bias, 1, y.columns), copy);
        own = copy.data;
    }
    return vt_product_multiply(backend, &key, weight.data, x.data, y.data, own);
}

static void linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias,
                           const uint16_t *rounded, vt_matrix y)
{
    if (bias != NULL && add_bias_in_product(backend, x, weight, bias, rounded, y)) return;
    if (multiply(backend, key_of(weight, true, x, false, y), weight, x, y) && bias != NULL)
        backend->position_add(backend, y, vt_matrix_make((float *)bias, 1, y.columns));
}

static void linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    multiply(backend, key_of(weight, false, dy, false, dx), weight, dy, dx);
}

static void linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    const vt_matrix sums = vt_matrix_make(dweight, dy.columns, x.columns);
    vt_product_key key = key_of(x, false, dy, true, sums);
    key.adds = 1;
    if (dbias != NULL) VT_CUDA_NAME(column_sums)(backend, dy, dbias);
    multiply(backend, key, x, dy, sums);
}

/* The product adds the bias if the library can, otherwise GELU's kernel does. (The library's own GELU is the tanh
 * form.) */
void vt_product_then_gelu(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                          const uint16_t *rounded, vt_matrix hidden, vt_matrix active)
{
    const bool has_bias = add_bias_in_product(backend, x, weight, bias, rounded, hidden);
    if (has_bias || multiply(backend, key_of(weight, true, x, false, hidden), weight, x, hidden))
        VT_CUDA_NAME(bias_gelu)(backend, kind, hidden, has_bias ? NULL : bias, active);
}

void vt_products_fill(vt_backend *backend)
{
    backend->linear_forward = linear_forward;
    backend->linear_backward_input = linear_backward_input;
    backend->linear_backward_weight = linear_backward_weight;
    backend->linear_gelu_forward = vt_product_then_gelu;
}
