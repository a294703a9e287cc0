#include "backend/cpu/cpu.h"

void vt_plain_layer_norm_forward(vt_backend *backend, vt_matrix x, const float *weight, const float *bias,
                                 float epsilon, vt_matrix y, float *mean, float *rstd)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *row = x.data + r * x.stride;
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < x.columns; c++) sum += (double)row[c];
        double centre = sum / (double)x.columns;
        for (int64_t c = 0; c < x.columns; c++) squares += ((double)row[c] - centre) * ((double)row[c] - centre);
        double scale = 1 / sqrt(squares / (double)x.columns + (double)epsilon);
        for (int64_t c = 0; c < x.columns; c++)
            y.data[r * y.stride + c] = (float)(((double)row[c] - centre) * scale * (double)weight[c] + (double)bias[c]);
        mean[r] = (float)centre;
        rstd[r] = (float)scale;
    }
}

/* With h = (x - mean) * rstd and g = dy * weight: dx += rstd * (g - mean(g) - h * mean(g * h)). */
void vt_plain_layer_norm_backward(vt_backend *backend, vt_matrix x, const float *weight, const float *mean,
                                  const float *rstd, vt_matrix dy, vt_matrix dx, vt_matrix rounded, float *dweight,
                                  float *dbias)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *x_row = x.data + r * x.stride, *dy_row = dy.data + r * dy.stride;
        double centre = (double)mean[r], scale = (double)rstd[r], sum = 0, product = 0;
        for (int64_t c = 0; c < x.columns; c++) {
            double g = (double)dy_row[c] * (double)weight[c];
            sum += g;
            product += g * ((double)x_row[c] - centre) * scale;
        }
        sum /= (double)x.columns;
        product /= (double)x.columns;
        for (int64_t c = 0; c < x.columns; c++) {
            double g = (double)dy_row[c] * (double)weight[c], h = ((double)x_row[c] - centre) * scale;
            dx.data[r * dx.stride + c] += (float)(scale * (g - sum - h * product));
        }
    }
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < x.columns; c++) {
        double weight_sum = 0, bias_sum = 0;
        for (int64_t r = 0; r < x.rows; r++) {
            double gradient = (double)dy.data[r * dy.stride + c];
            weight_sum += gradient * ((double)x.data[r * x.stride + c] - (double)mean[r]) * (double)rstd[r];
            bias_sum += gradient;
        }
        dweight[c] += (float)weight_sum;
        dbias[c] += (float)bias_sum;
    }
    if (rounded.data != NULL) backend->convert(backend, dx, rounded);
}

void vt_plain_residual_layer_norm(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                  const float *weight, const float *bias, float epsilon, vt_matrix y, vt_matrix normed,
                                  float *mean, float *rstd)
{
    backend->residual_add(backend, x, branch, mask, y);
    backend->layer_norm_forward(backend, y, weight, bias, epsilon, normed, mean, rstd);
}
