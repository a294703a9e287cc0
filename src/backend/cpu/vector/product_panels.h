/* Linear layers' products over some rows and a weight that is much larger. */
#ifndef VT_BACKEND_CPU_VECTOR_PRODUCT_PANELS_H
#define VT_BACKEND_CPU_VECTOR_PRODUCT_PANELS_H

#include "backend/cpu/vector/kernels.h"
#include "backend/cpu/vector/product_parts.h"

/* Whether vt_panels_multiply is faster for these rows and `columns` columns of the result. */
static inline bool panels_suit(const vt_matrix *left, int64_t columns)
{
    /* faster with 64 and 512 rows and weights of 8 to 67 MB; more rows and smaller weights were not tried */
    enum { MOST = 512, LEAST_WEIGHT = 1 << 20 };
    return left->rows <= MOST && left->columns * columns >= LEAST_WEIGHT && columns >= left->rows;
}

/* to = left weightᵀ if `across`, else left weight. The sums have the bits that they have without panels. */
void VT_KERNEL(vt_panels_multiply)(vt_backend *backend, vt_matrix left, vt_matrix weight, bool across,
                                   product_result to);

#endif
