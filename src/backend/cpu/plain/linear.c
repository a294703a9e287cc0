#include "backend/cpu/cpu.h"

void vt_plain_linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias,
                             const uint16_t *rounded, vt_matrix y)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        for (int64_t o = 0; o < y.columns; o++) {
            double sum = bias != NULL ? (double)bias[o] : 0;
            for (int64_t i = 0; i < x.columns; i++)
                sum += (double)x.data[r * x.stride + i] * (double)weight.data[o * weight.stride + i];
            y.data[r * y.stride + o] = (float)sum;
        }
    }
}

void vt_plain_linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < dy.rows; r++) {
        for (int64_t i = 0; i < dx.columns; i++) {
            double sum = 0;
            for (int64_t o = 0; o < dy.columns; o++)
                sum += (double)dy.data[r * dy.stride + o] * (double)weight.data[o * weight.stride + i];
            dx.data[r * dx.stride + i] = (float)sum;
        }
    }
}

void vt_plain_linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < dy.columns; o++) {
        for (int64_t i = 0; i < x.columns; i++) {
            double sum = 0;
            for (int64_t r = 0; r < x.rows; r++)
                sum += (double)dy.data[r * dy.stride + o] * (double)x.data[r * x.stride + i];
            dweight[o * x.columns + i] += (float)sum;
        }
        if (dbias == NULL) continue;
        double sum = 0;
        for (int64_t r = 0; r < x.rows; r++) sum += (double)dy.data[r * dy.stride + o];
        dbias[o] += (float)sum;
    }
}
