#include "backend/cpu/cpu.h"

/* The field is the logarithm of the density divided by this. */
static const double logarithm = 14;

static double density(float field)
{
    return exp(logarithm * (double)field);
}

void vt_plain_density_loss_sums(vt_backend *backend, double lambda, int64_t batch, vt_matrix prediction,
                                vt_matrix target, double *sums)
{
    enum { PARTS = 64 }; /* of a sample, added in order: the same bits for any number of threads */
    const int64_t points = prediction.rows / batch, columns = prediction.columns;
    for (int64_t sample = 0; sample < batch; sample++) {
        double part_sums[PARTS];
#pragma omp parallel for schedule(static)
        for (int64_t part = 0; part < PARTS; part++) {
            double fields = 0, densities = 0;
            for (int64_t i = points * part / PARTS; i < points * (part + 1) / PARTS; i++) {
                const int64_t r = sample * points + i;
                const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
                for (int64_t c = 0; c < columns; c++) fields += fabs((double)p[c] - (double)t[c]);
                if (lambda > 0) densities += fabs(density(p[0]) - density(t[0]));
            }
            part_sums[part] = fields + lambda * (double)columns * densities;
        }
        sums[2 * sample] = 0;
        for (int part = 0; part < PARTS; part++) sums[2 * sample] += part_sums[part];
        sums[2 * sample + 1] = (double)(points * columns);
    }
}

static double sign_of(double difference)
{
    return isnan(difference) ? difference : (double)((difference > 0) - (difference < 0));
}

void vt_plain_density_loss_backward(vt_backend *backend, double lambda, int64_t batch, vt_matrix prediction,
                                    vt_matrix target, float scale, const double *loss_scale, vt_matrix dprediction)
{
    const int64_t points = prediction.rows / batch, columns = prediction.columns;
    const double factor = (double)scale * (loss_scale != NULL ? *loss_scale : 1) / (double)(points * columns);
    const double of_density = factor * (double)columns * lambda * logarithm;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < prediction.rows; r++) {
        const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
        float *to = dprediction.data + r * dprediction.stride;
        const double sign = sign_of((double)p[0] - (double)t[0]);
        const double first = factor * sign + (lambda > 0 ? of_density * density(p[0]) * sign : 0);
        for (int64_t c = 1; c < columns; c++) to[c] = (float)(factor * sign_of((double)p[c] - (double)t[c]));
        to[0] = (float)first;
    }
}
