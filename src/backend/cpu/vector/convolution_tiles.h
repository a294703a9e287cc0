/* Convolutions by tiles of 2 × 2 × 2 points of y, with 27 products where plain sums need 64 (convolution_values.h). The
 * cubes' side must be even. The arguments are those of the operations. */
#ifndef VT_BACKEND_CPU_VECTOR_CONVOLUTION_TILES_H
#define VT_BACKEND_CPU_VECTOR_CONVOLUTION_TILES_H

#include "backend/cpu/vector/kernels.h"

void VT_KERNEL(vt_tiled_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                 vt_matrix y);
void VT_KERNEL(vt_tiled_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                        vt_matrix weight, vt_matrix dx);
void VT_KERNEL(vt_tiled_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                         float *dweight);

#endif
