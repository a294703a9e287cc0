#include "backend/cpu/cpu.h"

static void squared_norms(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target, double *squares)
{
    (void)backend;
    int64_t tokens = prediction.rows / batch;
#pragma omp parallel for schedule(static)
    for (int64_t sample = 0; sample < batch; sample++) {
        double difference_squares = 0, target_squares = 0;
        for (int64_t r = sample * tokens; r < (sample + 1) * tokens; r++) {
            const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
            for (int64_t c = 0; c < target.columns; c++) {
                double difference = (double)p[c] - (double)t[c];
                difference_squares += difference * difference;
                target_squares += (double)t[c] * (double)t[c];
            }
        }
        squares[2 * sample] = difference_squares;
        squares[2 * sample + 1] = target_squares;
    }
}

static void relative_l2(vt_backend *backend, int64_t batch, const double *squares, float *losses, double *sum)
{
    (void)backend;
    for (int64_t sample = 0; sample < batch; sample++) {
        losses[sample] = (float)sqrt(squares[2 * sample] / squares[2 * sample + 1]);
        if (sum != NULL) *sum += (double)losses[sample];
    }
}

static void relative_l2_backward(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target,
                                 const double *squares, float scale, const double *loss_scale, vt_matrix dprediction)
{
    (void)backend;
    if (loss_scale != NULL) scale *= (float)*loss_scale;
    int64_t tokens = prediction.rows / batch;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < prediction.rows; r++) {
        const double *square = squares + 2 * (r / tokens);
        float difference_norm = (float)sqrt(square[0]), target_norm = (float)sqrt(square[1]);
        float factor = scale / (difference_norm * target_norm);
        if (difference_norm == 0) factor = 0; /* a perfect forecast has no gradient */
        const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
        float *to = dprediction.data + r * dprediction.stride;
#pragma omp simd
        for (int64_t c = 0; c < target.columns; c++) to[c] = factor * (p[c] - t[c]);
    }
}

static double weighted_squares(const vt_patch_grid *grid, int64_t sample, int64_t channel, vt_matrix prediction,
                               vt_matrix target, const float *latitude_weights)
{
    int64_t across = grid->width / grid->patch, tokens = vt_patch_grid_tokens(grid);
    double sum = 0;
    for (int64_t token = 0; token < tokens; token++) {
        int64_t r = sample * tokens + token, top = (grid->first_token + token) / across * grid->patch;
        for (int64_t point = 0; point < grid->patch * grid->patch; point++) {
            int64_t column = point * grid->channels + channel;
            double difference = (double)prediction.data[r * prediction.stride + column] -
                                (double)target.data[r * target.stride + column];
            sum += (double)latitude_weights[top + point / grid->patch] * difference * difference;
        }
    }
    return sum;
}

static void channel_squares(vt_backend *backend, const vt_patch_grid *grid, vt_matrix prediction, vt_matrix target,
                            const float *latitude_weights, double *squares)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < grid->batch * grid->channels; i++)
        squares[i] =
            weighted_squares(grid, i / grid->channels, i % grid->channels, prediction, target, latitude_weights);
}

void vt_plain_loss_fill(vt_backend *backend)
{
    backend->squared_norms = squared_norms;
    backend->relative_l2 = relative_l2;
    backend->relative_l2_backward = relative_l2_backward;
    backend->channel_squares = channel_squares;
}
