/* Convolutions between at most MOST_THIN channels of x and any number of y on tiles (convolution_thin.c). The cubes'
 * side must be a multiple of 32, and the operands must have the same number of terms. The arguments are those of the
 * operations. */
#ifndef VT_BACKEND_CPU_AMX_CONVOLUTION_THIN_H
#define VT_BACKEND_CPU_AMX_CONVOLUTION_THIN_H

#include "backend/cpu/vector/kernels.h"

enum { MOST_THIN = 8 };

void VT_KERNEL(vt_thin_convolution_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                            vt_matrix weight, vt_matrix y);
void VT_KERNEL(vt_thin_convolution_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                                   vt_matrix weight, vt_matrix dx);
void VT_KERNEL(vt_thin_convolution_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                                    vt_matrix dy, float *dweight);

#endif
