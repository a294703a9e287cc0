/* Attention on Hopper's warpgroup products (wgmma) and tensor memory accelerator, in bfloat16, without mask. Results
 * may be float32, as a ring of ranks adds them. They have the same bits every time. */
#ifndef VT_CUDA_WGMMA_ATTENTION_H
#define VT_CUDA_WGMMA_ATTENTION_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernels serve these operands: q, k, v, out and, of backward, dout, dq, dk, dv. Heads of 128 columns have
 * no backward: dk and dv do not fit into the registers. */
static inline bool vt_wgmma_attention_fits(const vt_attention_shape *shape, const vt_matrix operands[8], bool backward)
{
    const int64_t dim = shape->head_dim, most = (int64_t)1 << 30, blocks = (shape->queries + shape->keys) / 64 + 2;
    bool fits = dim == 32 || dim == 48 || dim == 64 || dim == 96 || (dim == 128 && !backward);
    fits = fits && vt_attention_seen(shape, 0) >= shape->keys;
    fits = fits && shape->queries > 0 && shape->keys > 0 && shape->queries < most && shape->keys < most;
    fits = fits && shape->batch * shape->heads > 0 && blocks < most / (shape->batch * shape->heads);
    for (int i = 0; i < (backward ? 8 : 4); i++) { /* as the tensor memory accelerator and pairs of numbers need them */
        const vt_matrix *m = &operands[i];
        const bool is_result = backward ? i >= 5 : i == 3;
        fits = fits && (m->type == VT_BFLOAT16 || (is_result && m->type == VT_FLOAT32)) &&
               (uintptr_t)m->data % 16 == 0 && m->stride % 8 == 0 && m->columns == shape->heads * dim;
    }
    return fits;
}

/* As the operations of the table; false: the driver refuses, or there is no workspace. log_sum [batch, heads, queries]
 * is that of all engines. */
bool VT_CUDA_NAME(wgmma_attention_forward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q,
                                           vt_matrix k, vt_matrix v, vt_matrix out, float *log_sum);
bool VT_CUDA_NAME(wgmma_attention_backward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q,
                                            vt_matrix k, vt_matrix v, vt_matrix out, const float *log_sum,
                                            vt_matrix dout, vt_matrix dq, vt_matrix dk, vt_matrix dv);

#ifdef __cplusplus
}
#endif

#endif
