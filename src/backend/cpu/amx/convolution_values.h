/* Convolutions of float32 over many points with 27 products of terms (convolution_values.c). The cubes' side must be
 * even. The arguments are those of the operations. */
#ifndef VT_BACKEND_CPU_AMX_CONVOLUTION_VALUES_H
#define VT_BACKEND_CPU_AMX_CONVOLUTION_VALUES_H

#include "backend/cpu/vector/kernels.h"

void VT_KERNEL(vt_tiles_convolution_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                             vt_matrix weight, vt_matrix y);
void VT_KERNEL(vt_tiles_convolution_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                                    vt_matrix weight, vt_matrix dx);
void VT_KERNEL(vt_tiles_convolution_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x,
                                                     vt_matrix dy, float *dweight);

#endif
