#include "sums.h"

#include "backend/loss_measure.h"

enum { MOST_BLOCKS = 128 };

__device__ static inline bool is_there(float prediction, float target)
{
    return prediction != VT_NO_POINT && target != VT_NO_POINT;
}

/* The weights of a group of columns; without memory all are 1. */
__device__ static inline void widen_weights(const vt_matrix &weights, const vt_raw &raw, float values[VT_GROUP])
{
    if (weights.data != NULL)
        vt_widen_eight(weights.type, raw, values);
    else
        for (int j = 0; j < VT_GROUP; j++) values[j] = 1;
}

__device__ static inline vt_raw fetch_weights(const vt_matrix &weights, int64_t token, int64_t column, int count,
                                              bool wide)
{
    const vt_raw none = {};
    return weights.data != NULL ? vt_fetch(weights, token * weights.stride + column, count, wide) : none;
}

/* partial [batch, gridDim.x, 2]; block (part, sample). WEIGHTED: `weights` may have memory. */
template <vt_loss_measure MEASURE, bool WEIGHTED>
VT_KERNEL void loss_sums_kernel(vt_matrix prediction, vt_matrix target, vt_matrix weights, int64_t tokens,
                                double *partial, bool wide)
{
    __shared__ double shared[32];
    double errors = 0, sizes = 0;
    vt_each_group(tokens, target.columns, [&](int64_t token, int64_t column, int count) {
        int64_t row = token + blockIdx.y * tokens;
        float p[VT_GROUP], t[VT_GROUP], w[VT_GROUP];
        vt_raw forecast = vt_fetch(prediction, row * prediction.stride + column, count, wide), weight = {};
        vt_raw truth = vt_fetch(target, row * target.stride + column, count, wide);
        if (WEIGHTED) weight = fetch_weights(weights, token, column, count, wide);
        vt_widen_eight(prediction.type, forecast, p);
        vt_widen_eight(target.type, truth, t);
        if (WEIGHTED) widen_weights(weights, weight, w);
        for (int j = 0; j < VT_GROUP; j++) {
            if (j >= count || !is_there(p[j], t[j])) continue;
            double error = vt_measure_error(MEASURE, (double)p[j] - (double)t[j]);
            double size = vt_measure_size(MEASURE, (double)t[j]);
            errors += WEIGHTED ? (double)w[j] * error : error;
            sizes += WEIGHTED ? (double)w[j] * size : size;
        }
    });
    vt_store_pair(errors, sizes, shared, partial);
}

void VT_CUDA_NAME(loss_sums)(vt_backend *backend, vt_loss_measure measure, int64_t batch, vt_matrix prediction,
                             vt_matrix target, vt_matrix weights, double *sums)
{
    int64_t tokens = prediction.rows / batch, parts = vt_blocks(tokens * vt_groups(target.columns)).x;
    if (parts > MOST_BLOCKS) parts = MOST_BLOCKS;
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)(2 * batch * parts) * sizeof *partial);
    if (partial == NULL) return;
    const dim3 blocks((unsigned)parts, (unsigned)batch);
    bool wide = vt_is_wide(prediction, target, weights);
    const auto kernel = measure == VT_MEASURE_ABSOLUTE ? loss_sums_kernel<VT_MEASURE_ABSOLUTE, true>
                        : measure == VT_MEASURE_SQUARE ? loss_sums_kernel<VT_MEASURE_SQUARE, true>
                        : weights.data != NULL         ? loss_sums_kernel<VT_MEASURE_RELATIVE, true>
                                                       : loss_sums_kernel<VT_MEASURE_RELATIVE, false>;
    VT_LAUNCH(kernel, blocks, VT_BLOCK_THREADS, 0, backend, prediction, target, weights, tokens, partial, wide);
    vt_add_parts(backend, partial, batch, parts, 2, sums);
}

/* One block: a batch is small, and the order of its sum is fixed. */
VT_KERNEL void loss_values_kernel(vt_loss_measure measure, int64_t batch, const double *sums, float *losses,
                                  double *total)
{
    for (int64_t i = threadIdx.x; i < batch; i += blockDim.x) losses[i] = vt_measure_loss(measure, sums + 2 * i);
    __syncthreads();
    if (threadIdx.x != 0 || total == NULL) return;
    double sum = *total;
    for (int64_t i = 0; i < batch; i++) sum += (double)losses[i];
    *total = sum;
}

void VT_CUDA_NAME(loss_values)(vt_backend *backend, vt_loss_measure measure, int64_t batch, const double *sums,
                               float *losses, double *total)
{
    VT_LAUNCH(loss_values_kernel, 1, VT_BLOCK_THREADS, 0, backend, measure, batch, sums, losses, total);
}

VT_KERNEL void loss_backward_kernel(vt_loss_measure measure, vt_matrix prediction, vt_matrix target, vt_matrix weights,
                                    int64_t tokens, const double *sums, float scale, const double *loss_scale,
                                    vt_matrix dprediction, bool wide)
{
    if (loss_scale != NULL) scale *= (float)*loss_scale;
    vt_each_group(prediction.rows, target.columns, [&](int64_t row, int64_t column, int count) {
        float factor = vt_measure_factor(measure, sums + 2 * (row / tokens), scale);
        float p[VT_GROUP], t[VT_GROUP], w[VT_GROUP];
        vt_raw forecast = vt_fetch(prediction, row * prediction.stride + column, count, wide);
        vt_raw truth = vt_fetch(target, row * target.stride + column, count, wide);
        vt_raw weight = fetch_weights(weights, row % tokens, column, count, wide);
        vt_widen_eight(prediction.type, forecast, p);
        vt_widen_eight(target.type, truth, t);
        widen_weights(weights, weight, w);
        for (int j = 0; j < VT_GROUP; j++)
            p[j] = is_there(p[j], t[j]) ? w[j] * factor * vt_measure_direction(measure, p[j] - t[j]) : 0.0f;
        vt_store(dprediction, row * dprediction.stride + column, count, wide, p);
    });
}

void VT_CUDA_NAME(loss_backward)(vt_backend *backend, vt_loss_measure measure, int64_t batch, vt_matrix prediction,
                                 vt_matrix target, vt_matrix weights, const double *sums, float scale,
                                 const double *loss_scale, vt_matrix dprediction)
{
    bool wide = vt_is_wide(prediction, target, dprediction, weights);
    VT_SPREAD(loss_backward_kernel, prediction.rows * vt_groups(target.columns), backend, measure, prediction, target,
              weights, prediction.rows / batch, sums, scale, loss_scale, dprediction, wide);
}

/* partial [batch, gridDim.x, channels, 2]; block (part, sample, group of VT_BLOCK_THREADS channels). Every thread
 * handles one channel; if there are few channels, several threads share one, each with some of the points. */
VT_KERNEL void channel_squares_kernel(vt_patch_grid grid, vt_matrix prediction, vt_matrix target,
                                      const float *row_weights, double *partial)
{
    __shared__ double shared[2 * VT_BLOCK_THREADS];
    int64_t first_channel = (int64_t)blockIdx.z * VT_BLOCK_THREADS, across = vt_patch_grid_across(&grid);
    int64_t points = grid.patch * grid.patch;
    int channels = (int)min(grid.channels - first_channel, (int64_t)VT_BLOCK_THREADS);
    int shares = VT_BLOCK_THREADS / channels, channel = (int)threadIdx.x % channels;
    int share = (int)threadIdx.x / channels;
    double sum = 0, missing = 0;
    for (int64_t token = blockIdx.x; share < shares && token < grid.tokens; token += gridDim.x) {
        int64_t row = blockIdx.y * grid.tokens + token, top = (grid.first_token + token) / across * grid.patch;
        int64_t left = (grid.first_token + token) % across * grid.patch;
        for (int64_t point = share; point < points; point += shares) {
            int64_t column = point * grid.channels + first_channel + channel, field_row = top + point / grid.patch;
            if (field_row >= grid.height || left + point % grid.patch >= grid.width) continue;
            float p = vt_element(prediction, row * prediction.stride + column);
            float t = vt_element(target, row * target.stride + column);
            double difference = (double)p - (double)t, weight = (double)row_weights[field_row];
            if (is_there(p, t))
                sum += weight * difference * difference;
            else
                missing += weight;
        }
    }
    shared[2 * threadIdx.x] = sum;
    shared[2 * threadIdx.x + 1] = missing;
    __syncthreads();
    if ((int)threadIdx.x >= channels) return;
    sum = missing = 0;
    for (int s = 0; s < shares; s++) {
        sum += shared[2 * (s * channels + channel)];
        missing += shared[2 * (s * channels + channel) + 1];
    }
    double *own =
        partial + 2 * (((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * grid.channels + first_channel + channel);
    own[0] = sum;
    own[1] = missing;
}

void VT_CUDA_NAME(channel_squares)(vt_backend *backend, const vt_patch_grid *grid, vt_matrix prediction,
                                   vt_matrix target, const float *row_weights, double *squares)
{
    int64_t parts = min(grid->tokens, (int64_t)MOST_BLOCKS), count = 2 * grid->batch * grid->channels;
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)(parts * count) * sizeof *partial);
    if (partial == NULL) return;
    dim3 blocks((unsigned)parts, (unsigned)grid->batch,
                (unsigned)((grid->channels + VT_BLOCK_THREADS - 1) / VT_BLOCK_THREADS));
    VT_LAUNCH(channel_squares_kernel, blocks, VT_BLOCK_THREADS, 0, backend, *grid, prediction, target, row_weights,
              partial);
    vt_add_parts(backend, partial, grid->batch, parts, 2 * grid->channels, squares);
}
