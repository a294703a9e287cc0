/* Attention with heads of more than 128 columns: attention_wide.cu. The arguments are those of attention_forward and
 * attention_backward in backend/backend.h; delta [batch, heads, queries] = sum of out * dout over the head's columns.
 */
#ifndef VT_CUDA_ATTENTION_WIDE_H
#define VT_CUDA_ATTENTION_WIDE_H

#include "language.h"

#include "cuda.h"

void VT_CUDA_NAME(wide_attention_forward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q,
                                          vt_matrix k, vt_matrix v, vt_matrix out, float *log_sum);
void VT_CUDA_NAME(wide_attention_backward)(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q,
                                           vt_matrix k, vt_matrix v, const float *log_sum, const float *delta,
                                           vt_matrix dout, vt_matrix dq, vt_matrix dk, vt_matrix dv);

#endif
