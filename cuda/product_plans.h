/* Plans of cuBLASLt's products: descriptors and an algorithm for each key. Used by products.c. */
#ifndef VT_CUDA_PRODUCT_PLANS_H
#define VT_CUDA_PRODUCT_PLANS_H

#include "libraries.h"
#include "state.h"

/* All that a choice depends on; its key, number by number. */
typedef struct {
    int64_t m, n, k; /* the result is m × n, column-major */
    int64_t leading_a, leading_b, leading_d;
    int64_t transposed_a, transposed_b;
    int64_t type_a, type_b, type_d;          /* vt_type */
    int64_t epilogue;                        /* cublasLtEpilogue_t */
    int64_t type_bias;                       /* the type of the epilogue's operand */
    int64_t adds;                            /* the result is added to d */
    int64_t exact;                           /* no TF32 */
    int64_t aligned_a, aligned_b, aligned_d; /* bytes */
    int64_t aligned_bias;
} vt_product_key;

enum { VT_PRODUCT_KEY_NUMBERS = sizeof(vt_product_key) / sizeof(int64_t) };

typedef struct {
    vt_product_key key;
    bool works; /* false: the library has none that runs */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
} vt_product_plan;

struct vt_products {
    const vt_cublaslt *library;
    cublasLtHandle_t handle;
    void *workspace;
    size_t plan_count;
    vt_product_plan *plans;
    cublasStatus_t refusal; /* the last one */
};

static inline struct vt_products *vt_products_of(vt_backend *backend)
{
    return ((vt_cuda_state *)backend->state)->products;
}

/* The largest power of two up to 256 that divides the address. */
static inline int64_t vt_alignment_of(const void *memory)
{
    uintptr_t address = (uintptr_t)memory | 256;
    return (int64_t)(address & -address);
}

/* d = op(a) op(b), or d += …; completes the key. False: the library has no such product, and nothing was done. */
bool vt_product_multiply(vt_backend *backend, vt_product_key *key, const void *a, const void *b, void *d,
                         const void *bias);

#endif
