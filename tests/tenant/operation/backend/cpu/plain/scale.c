#include "backend/cpu/cpu.h"

void vt_plain_scale(vt_backend *backend, float a, vt_matrix x, vt_matrix y)
{
    (void)backend;
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0; c < x.columns; c++) y.data[r * y.stride + c] = a * x.data[r * x.stride + c];
}
