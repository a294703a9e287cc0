/* The loss of cosmological fields: one thread handles a point, with all of its fields. */
#include "sums.h"

enum { MOST_BLOCKS = 128 };

/* Of a field that is ln ρ / 14. */
__device__ static inline double density(float field)
{
    return exp(14 * (double)field);
}

/* Block (part, sample) adds one part of a sample's points: partial [batch, gridDim.x, 2]: their sum, and how many
 * numbers there are. */
VT_KERNEL void density_loss_kernel(double lambda, vt_matrix prediction, vt_matrix target, int64_t points,
                                   double *partial)
{
    __shared__ double shared[32];
    double fields = 0, densities = 0, numbers = 0;
    for (int64_t i = vt_thread(); i < points; i += vt_thread_count()) {
        const int64_t p = (blockIdx.y * points + i) * prediction.stride, t = (blockIdx.y * points + i) * target.stride;
        for (int64_t c = 0; c < prediction.columns; c++)
            fields += fabs((double)prediction.data[p + c] - (double)target.data[t + c]);
        numbers += (double)prediction.columns;
        if (lambda > 0) densities += fabs(density(prediction.data[p]) - density(target.data[t]));
    }
    vt_store_pair(fields + lambda * (double)prediction.columns * densities, numbers, shared, partial);
}

void VT_CUDA_NAME(density_loss_sums)(vt_backend *backend, double lambda, int64_t batch, vt_matrix prediction,
                                     vt_matrix target, double *sums)
{
    const int64_t points = prediction.rows / batch, parts = min((int64_t)vt_blocks(points).x, (int64_t)MOST_BLOCKS);
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)(2 * batch * parts) * sizeof *partial);
    if (partial == NULL) return;
    VT_LAUNCH(density_loss_kernel, dim3((unsigned)parts, (unsigned)batch), VT_BLOCK_THREADS, 0, backend, lambda,
              prediction, target, points, partial);
    vt_add_parts(backend, partial, batch, parts, 2, sums);
}

VT_KERNEL void density_loss_backward_kernel(double lambda, vt_matrix prediction, vt_matrix target, double factor,
                                            const double *loss_scale, vt_matrix dprediction)
{
    if (loss_scale != NULL) factor *= *loss_scale;
    const double of_density = factor * (double)prediction.columns * lambda * 14;
    for (int64_t i = vt_thread(); i < prediction.rows; i += vt_thread_count()) {
        for (int64_t c = 0; c < prediction.columns; c++) {
            const float value = prediction.data[i * prediction.stride + c];
            const double difference = (double)value - (double)target.data[i * target.stride + c];
            const double sign = isnan(difference) ? difference : (double)((difference > 0) - (difference < 0));
            const double own = factor + (c == 0 && lambda > 0 ? of_density * density(value) : 0.0);
            vt_set_element(dprediction, i * dprediction.stride + c, (float)(own * sign));
        }
    }
}

void VT_CUDA_NAME(density_loss_backward)(vt_backend *backend, double lambda, int64_t batch, vt_matrix prediction,
                                         vt_matrix target, float scale, const double *loss_scale, vt_matrix dprediction)
{
    const double factor = (double)scale / (double)(prediction.rows / batch * prediction.columns);
    VT_SPREAD(density_loss_backward_kernel, prediction.rows, backend, lambda, prediction, target, factor, loss_scale,
              dprediction);
}
