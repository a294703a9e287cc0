/* Ensembles that a model makes itself: their noise, and the loss that compares their members. */
#include "backend/cpu/cpu.h"
#include "backend/crps_measure.h"
#include "backend/dropout.h"

void vt_plain_noise_draw(vt_backend *backend, const vt_noise *how, const uint32_t *step, const uint32_t *keys,
                         vt_matrix z)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < z.rows; r++) {
        float normals[4];
        for (int64_t c = 0; c < z.columns; c++) {
            const uint32_t token = (uint32_t)(how->first_token + r % how->tokens);
            const int64_t own = c % how->numbers;
            if (own % 4 == 0)
                vt_noise_normals(how, step, keys, r / how->tokens, c < how->numbers ? VT_NOISE_WHOLE : token,
                                 (uint32_t)(own / 4), normals);
            z.data[r * z.stride + c] = normals[own % 4];
        }
    }
}

void vt_plain_crps_sums(vt_backend *backend, const vt_crps *how, vt_matrix prediction, vt_matrix target,
                        vt_matrix weights, const float *units, double *sums)
{
    const vt_crps_operands of = {*how, prediction, target, weights, units};
#pragma omp parallel for schedule(static)
    for (int64_t sample = 0; sample < how->grid.batch; sample++) {
        double *own = sums + 2 * sample;
        own[0] = own[1] = 0;
        for (int scale = 0; scale < how->scale_count; scale++)
            for (int64_t i = 0; i < vt_crps_block_count(how, scale); i++) vt_crps_add(&of, scale, sample, i, own);
    }
}

void vt_plain_crps_backward(vt_backend *backend, const vt_crps *how, vt_matrix prediction, vt_matrix target,
                            vt_matrix weights, const float *units, const double *sums, float scale,
                            const double *loss_scale, vt_matrix dprediction)
{
    const vt_crps_operands of = {*how, prediction, target, weights, units};
    vt_matrix_clear(backend, dprediction);
#pragma omp parallel for schedule(static)
    for (int64_t sample = 0; sample < how->grid.batch; sample++) {
        const double factor = vt_crps_factor(sums + 2 * sample, scale, loss_scale);
        for (int k = 0; k < how->scale_count; k++)
            for (int64_t i = 0; i < vt_crps_block_count(how, k); i++)
                vt_crps_add_gradient(&of, k, sample, i, factor, &dprediction);
    }
}
