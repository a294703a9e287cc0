/* Ensembles that a model makes itself: their noise, and the loss that compares their members. */
#include "backend/cpu/cpu.h"
#include "backend/crps_measure.h"
#include "backend/dropout.h"

void vt_plain_noise_draw(vt_backend *backend, const vt_noise *how, const uint32_t *step, const uint32_t *keys,
                         vt_matrix z)
{
    (void)backend;
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
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t sample = 0; sample < how->grid.batch; sample++) {
        double scores = 0, weight = 0;
        for (int scale = 0; scale < how->scale_count; scale++)
            for (int64_t i = 0; i < vt_crps_block_count(how, scale); i++) {
                const vt_crps_block block = vt_crps_block_of(how, scale, sample, i, &prediction, &target, &weights);
                if (block.points == 0) continue;
                const double unit = (double)units[scale * how->grid.channels + block.channel];
                scores += block.weight * unit * vt_crps_value(how, &block);
                weight += block.weight;
            }
        sums[2 * sample] = scores;
        sums[2 * sample + 1] = weight;
    }
}

/* Adds the gradient of one block. */
static void add_gradient(const vt_crps *how, int scale, int64_t sample, const vt_crps_block *block, double factor,
                         const vt_matrix *prediction, const vt_matrix *target, vt_matrix *dprediction)
{
    const int64_t side = how->sides[scale];
    for (int64_t m = 0; m < how->members; m++) {
        const float slope = (float)(factor * vt_crps_slope(how, block, m));
        for (int64_t point = 0; point < side * side; point++) {
            int64_t token, column;
            if (vt_crps_point(how, block, side, point, sample, prediction, target, &token, &column))
                dprediction->data[vt_crps_at(how, sample, m, token, column, dprediction->stride)] += slope;
        }
    }
}

void vt_plain_crps_backward(vt_backend *backend, const vt_crps *how, vt_matrix prediction, vt_matrix target,
                            vt_matrix weights, const float *units, const double *sums, float scale,
                            const double *loss_scale, vt_matrix dprediction)
{
    vt_matrix_clear(backend, dprediction);
#pragma omp parallel for schedule(static)
    for (int64_t sample = 0; sample < how->grid.batch; sample++) {
        const double factor = vt_crps_factor(sums + 2 * sample, scale, loss_scale);
        for (int of = 0; of < how->scale_count; of++)
            for (int64_t i = 0; i < vt_crps_block_count(how, of); i++) {
                const vt_crps_block block = vt_crps_block_of(how, of, sample, i, &prediction, &target, &weights);
                if (block.points == 0) continue;
                const double unit = (double)units[of * how->grid.channels + block.channel];
                add_gradient(how, of, sample, &block, factor * block.weight / block.points * unit, &prediction, &target,
                             &dprediction);
            }
    }
}
