#include "backend/cpu/cpu.h"

static bool is_there(float prediction, float target)
{
    return prediction != VT_NO_POINT && target != VT_NO_POINT;
}

void vt_plain_squared_norms(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target, double *squares)
{
    (void)backend;
    int64_t tokens = prediction.rows / batch;
#pragma omp parallel for schedule(static)
    for (int64_t sample = 0; sample < batch; sample++) {
        double difference_squares = 0, target_squares = 0;
        for (int64_t r = sample * tokens; r < (sample + 1) * tokens; r++) {
            const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
            for (int64_t c = 0; c < target.columns; c++) {
                if (!is_there(p[c], t[c])) continue;
                double difference = (double)p[c] - (double)t[c];
                difference_squares += difference * difference;
                target_squares += (double)t[c] * (double)t[c];
            }
        }
        squares[2 * sample] = difference_squares;
        squares[2 * sample + 1] = target_squares;
    }
}

void vt_plain_relative_l2(vt_backend *backend, int64_t batch, const double *squares, float *losses, double *sum)
{
    (void)backend;
    for (int64_t sample = 0; sample < batch; sample++) {
        const double *square = squares + 2 * sample;
        losses[sample] = square[0] == 0 && square[1] == 0 ? 0 : (float)sqrt(square[0] / square[1]);
        if (sum != NULL) *sum += (double)losses[sample];
    }
}

void vt_plain_relative_l2_backward(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target,
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
        for (int64_t c = 0; c < target.columns; c++) to[c] = is_there(p[c], t[c]) ? factor * (p[c] - t[c]) : 0;
    }
}

static void weighted_squares(const vt_patch_grid *grid, int64_t sample, int64_t channel, vt_matrix prediction,
                             vt_matrix target, const float *row_weights, double sums[2])
{
    int64_t across = vt_patch_grid_across(grid), tokens = grid->tokens, patch = grid->patch;
    sums[0] = sums[1] = 0;
    for (int64_t token = 0; token < tokens; token++) {
        int64_t r = sample * tokens + token, number = grid->first_token + token;
        for (int64_t point = 0; point < patch * patch; point++) {
            int64_t row = number / across * patch + point / patch, place = number % across * patch + point % patch;
            if (row >= grid->height || place >= grid->width) continue;
            int64_t column = point * grid->channels + channel;
            float p = prediction.data[r * prediction.stride + column], t = target.data[r * target.stride + column];
            double difference = (double)p - (double)t;
            if (is_there(p, t))
                sums[0] += (double)row_weights[row] * difference * difference;
            else
                sums[1] += (double)row_weights[row];
        }
    }
}

void vt_plain_channel_squares(vt_backend *backend, const vt_patch_grid *grid, vt_matrix prediction, vt_matrix target,
                              const float *row_weights, double *squares)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < grid->batch * grid->channels; i++)
        weighted_squares(grid, i / grid->channels, i % grid->channels, prediction, target, row_weights,
                         squares + 2 * i);
}
