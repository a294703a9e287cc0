#include "backend/cpu/cpu.h"
#include "backend/loss_measure.h"

static bool is_there(float prediction, float target)
{
    return prediction != VT_NO_POINT && target != VT_NO_POINT;
}

/* The weights of row r; NULL: all are 1. */
static const float *weights_of(vt_matrix weights, int64_t r)
{
    return weights.data != NULL ? weights.data + r % weights.rows * weights.stride : NULL;
}

void vt_plain_loss_sums(vt_backend *backend, vt_loss_measure measure, int64_t batch, vt_matrix prediction,
                        vt_matrix target, vt_matrix weights, double *sums)
{
    int64_t tokens = prediction.rows / batch;
#pragma omp parallel for schedule(static)
    for (int64_t sample = 0; sample < batch; sample++) {
        double errors = 0, sizes = 0;
        for (int64_t r = sample * tokens; r < (sample + 1) * tokens; r++) {
            const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
            const float *w = weights_of(weights, r);
            for (int64_t c = 0; c < target.columns; c++) {
                if (!is_there(p[c], t[c])) continue;
                const double weight = w != NULL ? (double)w[c] : 1;
                errors += weight * vt_measure_error(measure, (double)p[c] - (double)t[c]);
                sizes += weight * vt_measure_size(measure, (double)t[c]);
            }
        }
        sums[2 * sample] = errors;
        sums[2 * sample + 1] = sizes;
    }
}

void vt_plain_loss_values(vt_backend *backend, vt_loss_measure measure, int64_t batch, const double *sums,
                          float *losses, double *total)
{
    for (int64_t sample = 0; sample < batch; sample++) {
        losses[sample] = vt_measure_loss(measure, sums + 2 * sample);
        if (total != NULL) *total += (double)losses[sample];
    }
}

void vt_plain_loss_backward(vt_backend *backend, vt_loss_measure measure, int64_t batch, vt_matrix prediction,
                            vt_matrix target, vt_matrix weights, const double *sums, float scale,
                            const double *loss_scale, vt_matrix dprediction)
{
    if (loss_scale != NULL) scale *= (float)*loss_scale;
    int64_t tokens = prediction.rows / batch;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < prediction.rows; r++) {
        const float factor = vt_measure_factor(measure, sums + 2 * (r / tokens), scale);
        const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
        const float *w = weights_of(weights, r);
        float *to = dprediction.data + r * dprediction.stride;
        for (int64_t c = 0; c < target.columns; c++) {
            const float weighted = w != NULL ? w[c] * factor : factor;
            to[c] = is_there(p[c], t[c]) ? weighted * vt_measure_direction(measure, p[c] - t[c]) : 0;
        }
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
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < grid->batch * grid->channels; i++)
        weighted_squares(grid, i / grid->channels, i % grid->channels, prediction, target, row_weights,
                         squares + 2 * i);
}
