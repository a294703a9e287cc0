/* Matrix products by cuBLASLt (product_plans.h). Its matrices are column-major: a row-major [rows, columns] with a
 * stride is its columns × rows with that leading dimension, so every product is written with its operands exchanged. */
#include <stdio.h>

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
 * to take a bias of the result's type only. Its kernels may read 16 bytes of the bias at a time, whatever its address,
 * so a copy replaces a bias with a smaller alignment, or one that is not there in that type. */
static bool add_bias_in_product(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias,
                                const uint16_t *rounded, vt_matrix y)
{
    const void *own = vt_type_is_half(y.type) ? (const void *)rounded : bias;
    vt_product_key key = forward_key(x, weight, y);
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
    vt_product_key key = forward_key(x, weight, y);
    if (bias != NULL && add_bias_in_product(backend, x, weight, bias, rounded, y)) return;
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
    if (dbias != NULL) VT_CUDA_NAME(column_sums)(backend, dy, dbias);
    if (!vt_product_multiply(backend, &key, x.data, dy.data, dweight, NULL)) fail(backend, "weight gradient", &key);
}

/* The product adds the bias if the library can, otherwise GELU's kernel does. (The library's own GELU is the tanh
 * form.) */
void vt_product_then_gelu(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                          const uint16_t *rounded, vt_matrix hidden, vt_matrix active)
{
    vt_product_key key = forward_key(x, weight, hidden);
    if (add_bias_in_product(backend, x, weight, bias, rounded, hidden)) {
        VT_CUDA_NAME(bias_gelu)(backend, kind, hidden, NULL, active);
        return;
    }
    if (!vt_product_multiply(backend, &key, weight.data, x.data, hidden.data, NULL))
        fail(backend, "product", &key);
    else
        VT_CUDA_NAME(bias_gelu)(backend, kind, hidden, bias, active);
}

void vt_products_fill(vt_backend *backend)
{
    backend->linear_forward = linear_forward;
    backend->linear_backward_input = linear_backward_input;
    backend->linear_backward_weight = linear_backward_weight;
    backend->linear_gelu_forward = vt_product_then_gelu;
}
