/* Ensembles that a model makes itself: their noise, and the loss that compares their members (crps_measure.h). */
#include "sums.h"

#include "backend/crps_measure.h"
#include "backend/dropout.h"

enum { MOST_BLOCKS = 128 };

/* A thread makes four neighbouring numbers, which share a block of random bits. */
VT_KERNEL void noise_draw_kernel(vt_noise how, const uint32_t *step, const uint32_t *keys, vt_matrix z)
{
    const int64_t quads = (how.numbers + 3) / 4;
    for (int64_t i = vt_thread(); i < z.rows * 2 * quads; i += vt_thread_count()) {
        int64_t half, quad, row, part, index, token;
        vt_split(i, quads, &half, &quad);
        vt_split(half, 2, &row, &part);
        vt_split(row, how.tokens, &index, &token);
        float normals[4];
        vt_noise_normals(&how, step, keys, index, part == 0 ? VT_NOISE_WHOLE : (uint32_t)(how.first_token + token),
                         (uint32_t)quad, normals);
        for (int j = 0; j < 4; j++)
            if (4 * quad + j < how.numbers)
                vt_set_element(z, row * z.stride + part * how.numbers + 4 * quad + j, normals[j]);
    }
}

void VT_CUDA_NAME(noise_draw)(vt_backend *backend, const vt_noise *how, const uint32_t *step, const uint32_t *keys,
                              vt_matrix z)
{
    VT_SPREAD(noise_draw_kernel, z.rows * 2 * ((how->numbers + 3) / 4), backend, *how, step, keys, z);
}

/* partial [samples, gridDim.x, 2]; block (part, sample). */
VT_KERNEL void crps_sums_kernel(vt_crps_operands of, double *partial)
{
    __shared__ double shared[32];
    double sums[2] = {0, 0};
    for (int scale = 0; scale < of.how.scale_count; scale++)
        for (int64_t i = vt_thread(); i < vt_crps_block_count(&of.how, scale); i += vt_thread_count())
            vt_crps_add(&of, scale, blockIdx.y, i, sums);
    vt_store_pair(sums[0], sums[1], shared, partial);
}

void VT_CUDA_NAME(crps_sums)(vt_backend *backend, const vt_crps *how, vt_matrix prediction, vt_matrix target,
                             vt_matrix weights, const float *units, double *sums)
{
    const vt_crps_operands of = {*how, prediction, target, weights, units};
    const int64_t batch = how->grid.batch;
    const int64_t parts = min((int64_t)vt_blocks(vt_crps_block_count(how, 0)).x, (int64_t)MOST_BLOCKS);
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)(2 * batch * parts) * sizeof *partial);
    if (partial == NULL) return;
    VT_LAUNCH(crps_sums_kernel, dim3((unsigned)parts, (unsigned)batch), VT_BLOCK_THREADS, 0, backend, of, partial);
    vt_add_parts(backend, partial, batch, parts, 2, sums);
}

/* Of blocks of one size, which share no point: a thread adds the gradient of a block. */
VT_KERNEL void crps_backward_kernel(vt_crps_operands of, int scale, const double *sums, float factor,
                                    const double *loss_scale, vt_matrix dprediction)
{
    const int64_t count = vt_crps_block_count(&of.how, scale);
    for (int64_t i = vt_thread(); i < of.how.grid.batch * count; i += vt_thread_count()) {
        int64_t sample, index;
        vt_split(i, count, &sample, &index);
        vt_crps_add_gradient(&of, scale, sample, index, vt_crps_factor(sums + 2 * sample, factor, loss_scale),
                             &dprediction);
    }
}

void VT_CUDA_NAME(crps_backward)(vt_backend *backend, const vt_crps *how, vt_matrix prediction, vt_matrix target,
                                 vt_matrix weights, const float *units, const double *sums, float scale,
                                 const double *loss_scale, vt_matrix dprediction)
{
    const vt_crps_operands of = {*how, prediction, target, weights, units};
    vt_matrix_clear(backend, dprediction);
    for (int k = 0; k < how->scale_count; k++)
        VT_SPREAD(crps_backward_kernel, how->grid.batch * vt_crps_block_count(how, k), backend, of, k, sums, scale,
                  loss_scale, dprediction);
}
