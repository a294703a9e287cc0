#include "elements.h"

enum { MOST_BLOCKS = 128 };

__device__ static inline bool is_there(float prediction, float target)
{
    return prediction != VT_NO_POINT && target != VT_NO_POINT;
}

/* partial [batch, gridDim.x, 2]; block (part, sample). */
VT_KERNEL void squared_norms_kernel(vt_matrix prediction, vt_matrix target, int64_t tokens, double *partial, bool wide)
{
    __shared__ double shared[32];
    int64_t groups = (target.columns + VT_GROUP - 1) / VT_GROUP, row, group;
    double difference_squares = 0, target_squares = 0;
    for (int64_t i = vt_thread(); i < tokens * groups; i += vt_thread_count()) {
        vt_split(i, groups, &row, &group);
        row += blockIdx.y * tokens;
        float p[VT_GROUP], t[VT_GROUP];
        int count = vt_count(target.columns, group * VT_GROUP);
        vt_raw forecast = vt_fetch(prediction, row * prediction.stride + group * VT_GROUP, count, wide);
        vt_raw truth = vt_fetch(target, row * target.stride + group * VT_GROUP, count, wide);
        vt_widen_eight(prediction.type, forecast, p);
        vt_widen_eight(target.type, truth, t);
        for (int j = 0; j < VT_GROUP; j++) {
            if (!is_there(p[j], t[j])) continue;
            double difference = (double)p[j] - (double)t[j];
            difference_squares += difference * difference;
            target_squares += (double)t[j] * (double)t[j];
        }
    }
    difference_squares = vt_block_sum(difference_squares, shared);
    target_squares = vt_block_sum(target_squares, shared);
    if (threadIdx.x != 0) return;
    double *own = partial + 2 * ((int64_t)blockIdx.y * gridDim.x + blockIdx.x);
    own[0] = difference_squares;
    own[1] = target_squares;
}

/* sums [outer, inner] = sums of partial [outer, parts, inner], in order. */
VT_KERNEL void add_parts(const double *partial, int64_t outer, int64_t parts, int64_t inner, double *sums)
{
    for (int64_t i = vt_thread(); i < outer * inner; i += vt_thread_count()) {
        const double *first = partial + i / inner * parts * inner + i % inner;
        double sum = 0;
        for (int64_t p = 0; p < parts; p++) sum += first[p * inner];
        sums[i] = sum;
    }
}

static void squared_norms(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target, double *squares)
{
    int64_t tokens = prediction.rows / batch, parts = vt_blocks(tokens * vt_groups(target.columns)).x;
    if (parts > MOST_BLOCKS) parts = MOST_BLOCKS;
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)(2 * batch * parts) * sizeof *partial);
    if (partial == NULL) return;
    VT_LAUNCH(squared_norms_kernel, dim3((unsigned)parts, (unsigned)batch), VT_BLOCK_THREADS, 0, backend, prediction,
              target, tokens, partial, vt_is_wide(prediction) && vt_is_wide(target));
    VT_LAUNCH(add_parts, vt_blocks(2 * batch), VT_BLOCK_THREADS, 0, backend, partial, batch, parts, 2, squares);
}

/* One block: a batch is small, and the order of its sum is fixed. */
VT_KERNEL void relative_l2_kernel(int64_t batch, const double *squares, float *losses, double *sum)
{
    for (int64_t i = threadIdx.x; i < batch; i += blockDim.x)
        losses[i] =
            squares[2 * i] == 0 && squares[2 * i + 1] == 0 ? 0.0f : (float)sqrt(squares[2 * i] / squares[2 * i + 1]);
    __syncthreads();
    if (threadIdx.x != 0 || sum == NULL) return;
    double total = *sum;
    for (int64_t i = 0; i < batch; i++) total += (double)losses[i];
    *sum = total;
}

static void relative_l2(vt_backend *backend, int64_t batch, const double *squares, float *losses, double *sum)
{
    VT_LAUNCH(relative_l2_kernel, 1, VT_BLOCK_THREADS, 0, backend, batch, squares, losses, sum);
}

VT_KERNEL void relative_l2_backward_kernel(vt_matrix prediction, vt_matrix target, int64_t tokens,
                                           const double *squares, float scale, const double *loss_scale,
                                           vt_matrix dprediction, bool wide)
{
    if (loss_scale != NULL) scale *= (float)*loss_scale;
    int64_t groups = (target.columns + VT_GROUP - 1) / VT_GROUP, row, group;
    for (int64_t i = vt_thread(); i < prediction.rows * groups; i += vt_thread_count()) {
        vt_split(i, groups, &row, &group);
        const double *square = squares + 2 * (row / tokens);
        float difference_norm = (float)sqrt(square[0]), target_norm = (float)sqrt(square[1]);
        float factor = scale / (difference_norm * target_norm);
        if (difference_norm == 0) factor = 0; /* a perfect forecast has no gradient */
        float p[VT_GROUP], t[VT_GROUP];
        int count = vt_count(target.columns, group * VT_GROUP);
        vt_raw forecast = vt_fetch(prediction, row * prediction.stride + group * VT_GROUP, count, wide);
        vt_raw truth = vt_fetch(target, row * target.stride + group * VT_GROUP, count, wide);
        vt_widen_eight(prediction.type, forecast, p);
        vt_widen_eight(target.type, truth, t);
        for (int j = 0; j < VT_GROUP; j++) p[j] = is_there(p[j], t[j]) ? factor * (p[j] - t[j]) : 0.0f;
        vt_store(dprediction, row * dprediction.stride + group * VT_GROUP, count, wide, p);
    }
}

static void relative_l2_backward(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target,
                                 const double *squares, float scale, const double *loss_scale, vt_matrix dprediction)
{
    bool wide = vt_is_wide(prediction) && vt_is_wide(target) && vt_is_wide(dprediction);
    VT_LAUNCH(relative_l2_backward_kernel, vt_blocks(prediction.rows * vt_groups(target.columns)), VT_BLOCK_THREADS, 0,
              backend, prediction, target, prediction.rows / batch, squares, scale, loss_scale, dprediction, wide);
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

static void channel_squares(vt_backend *backend, const vt_patch_grid *grid, vt_matrix prediction, vt_matrix target,
                            const float *row_weights, double *squares)
{
    int64_t parts = min(grid->tokens, (int64_t)MOST_BLOCKS), count = 2 * grid->batch * grid->channels;
    double *partial = (double *)vt_common(backend)->workspace(backend, (size_t)(parts * count) * sizeof *partial);
    if (partial == NULL) return;
    dim3 blocks((unsigned)parts, (unsigned)grid->batch,
                (unsigned)((grid->channels + VT_BLOCK_THREADS - 1) / VT_BLOCK_THREADS));
    VT_LAUNCH(channel_squares_kernel, blocks, VT_BLOCK_THREADS, 0, backend, *grid, prediction, target, row_weights,
              partial);
    VT_LAUNCH(add_parts, vt_blocks(count), VT_BLOCK_THREADS, 0, backend, partial, grid->batch, parts,
              2 * grid->channels, squares);
}

void VT_CUDA_NAME(loss_fill)(vt_backend *backend)
{
    backend->squared_norms = squared_norms;
    backend->relative_l2 = relative_l2;
    backend->relative_l2_backward = relative_l2_backward;
    backend->channel_squares = channel_squares;
}
