/* y and dx of convolutions of float32 over few points (convolution_few.c). */
#ifndef VT_BACKEND_CPU_AMX_CONVOLUTION_FEW_H
#define VT_BACKEND_CPU_AMX_CONVOLUTION_FEW_H

#include "backend/cpu/vector/kernels.h"

/* Whether it takes these operands: x or dy; y or dx. */
bool VT_KERNEL(vt_few_points_suit)(const vt_convolution *shape, vt_matrix from, vt_matrix weight, vt_matrix to);
void VT_KERNEL(vt_few_points_convolve)(vt_backend *backend, const vt_convolution *shape, vt_matrix from,
                                       vt_matrix weight, vt_matrix to, bool forward);

#endif
