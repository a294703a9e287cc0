/* Attention on Hopper's warpgroup products (wgmma) and tensor memory accelerator, in bfloat16, without mask and
 * dropout. Results have the same bits every time. */
#ifndef VT_CUDA_WGMMA_ATTENTION_H
#define VT_CUDA_WGMMA_ATTENTION_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernels serve these operands; those of backward have data NULL for forward. Heads of 128 columns have no
 * backward: dk and dv do not fit into the registers. */
static inline bool vt_wgmma_attention_fits(const vt_attention_shape *shape, const vt_matrix *operands, int count,
                                           bool backward)
{
    const int64_t dim = shape->head_dim, most = (int64_t)1 << 30, blocks = (shape->queries + shape->keys) / 64 + 2;
    bool fits = dim == 32 || dim == 48 || dim == 64 || dim == 96 || (dim == 128 && !backward);
    fits = fits && shape->dropout.rate <= 0 && vt_attention_seen(shape, 0) >= shape->keys;
    fits = fits && shape->queries > 0 && shape->keys > 0 && shape->queries < most && shape->keys < most;
    fits = fits && shape->batch * shape->heads > 0 && blocks < most / (shape->batch * shape->heads);
    for (int i = 0; i < count; i++) /* as copies by the tensor memory accelerator and pairs of numbers need them */
        fits = fits &&
               (operands[i].data == NULL || (operands[i].type == VT_BFLOAT16 && (uintptr_t)operands[i].data % 16 == 0 &&
                                             operands[i].stride % 8 == 0 && operands[i].columns == shape->heads * dim));
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
