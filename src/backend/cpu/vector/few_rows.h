/* Linear layers' products over so few rows that reading the weight takes the time: it is read once, as it lies, and not
 * packed. */
#ifndef VT_BACKEND_CPU_VECTOR_FEW_ROWS_H
#define VT_BACKEND_CPU_VECTOR_FEW_ROWS_H

#include "backend/cpu/vector/kernels.h"

enum { FEW_ROWS = 8 };

/* As the operations linear_forward, linear_backward_input and linear_backward_weight, for at most FEW_ROWS rows. */
void VT_KERNEL(vt_few_rows_forward)(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y);
void VT_KERNEL(vt_few_rows_backward_input)(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx);
void VT_KERNEL(vt_few_rows_backward_weight)(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight,
                                            float *dbias);

#endif
