/* What operations have to do, and the back end that only counts it (dry/). */
#ifndef VT_BACKEND_WORK_H
#define VT_BACKEND_WORK_H

#include "backend/backend.h"

/* Operations that memory bounds, not arithmetic, by what they are: for what a step costs (planning/cost.h). */
typedef enum {
    VT_WORK_NORM,      /* LayerNorm, also with the residual's addition in it */
    VT_WORK_GELU,      /* forward and backward */
    VT_WORK_RESIDUAL,  /* additions, dropout, positions, conversions, copies */
    VT_WORK_PATCHES,   /* cutting fields into patches; loss and metrics */
    VT_WORK_OPTIMIZER, /* update, norm of the gradients, clearing them */
    VT_WORK_COUNT
} vt_work;

/* What one call of an operation has to do. */
typedef struct {
    bool is_product;              /* of matrices */
    int64_t rows, columns, depth; /* of its result, and the length of its sums */
    double product_bytes;         /* of operands and result, once each; also attention's */
    double attention_flops;       /* of an operation of attention */
    vt_work kind;
    double moved; /* bytes that it reads and writes; 0 for products and attention, which arithmetic bounds */
} vt_operation_work;

/* A multiply-add is two. */
static inline double vt_operation_flops(const vt_operation_work *work)
{
    return work->attention_flops + 2.0 * (double)work->rows * (double)work->columns * (double)work->depth;
}

/* Matrix products of one size. */
typedef struct {
    double flops, bytes; /* of one: operands and result, once each */
    int64_t calls;
} vt_dry_product;

/* Bytes and FLOPs that a back end of the same calls would have needed. */
enum { VT_DRY_PRODUCTS = 64 };
typedef struct {
    size_t bytes[VT_MEMORY_CATEGORY_COUNT];
    double flops;           /* a multiply-add is two; attention's included */
    double attention_flops; /* 2 products forward, 4 backward */
    vt_dry_product products[VT_DRY_PRODUCTS];
    int product_count;
    double moved[VT_WORK_COUNT]; /* bytes read and written, each operand once */
    int64_t operations;          /* calls of all kinds */
} vt_dry_count;

/* Allocations get addresses that must not be used; operations do nothing but count. */
vt_status vt_backend_open_dry(vt_backend **backend);
const vt_dry_count *vt_backend_dry_count(const vt_backend *backend);

#endif
