/* The continuous ranked probability score of a sample's M members x_1 … x_M, whose truth is y, at a point, or of their
 * means over a block of points (Lang et al. 2024, "AIFS-CRPS"):
 *
 *     l         = 1/M sum_i |x_i - y| - (1 - e) / (M (M - 1)) sum_{i<j} |x_i - x_j|,   e = (1 - alpha) / M
 *     dl / dx_i = 1/M sgn(x_i - y) - (1 - e) / (M (M - 1)) sum_{j != i} sgn(x_i - x_j),   sgn 0 = 0
 *
 * alpha 1: the fair score, whose expectation does not depend on M; 0: that of the members as they are. The loss of a
 * sample is the mean of l, times its unit, over blocks, channels and sizes of blocks. A block counts by the sum of its
 * points' weights; points without a target are left out. */
#ifndef VT_BACKEND_CRPS_MEASURE_H
#define VT_BACKEND_CRPS_MEASURE_H

#include "backend/backend.h"
#include "base/random.h" /* VT_ON_DEVICE_TOO */

typedef struct {
    vt_crps how;
    vt_matrix prediction; /* rows [samples, members, tokens] */
    vt_matrix target;     /* rows [samples, tokens] */
    vt_matrix weights;    /* rows [tokens]; without memory all are 1 */
    const float *units;   /* [scales, channels] */
} vt_crps_operands;

/* Where a block begins, and its means. */
typedef struct {
    int64_t sample, side, channel, row, column;
    double members[VT_MOST_MEMBERS], truth;
    double points, weight; /* how many are there, and their weights' sum */
    double unit;
} vt_crps_block;

VT_ON_DEVICE_TOO static inline int64_t vt_crps_block_count(const vt_crps *how, int scale)
{
    const int64_t side = how->sides[scale];
    return how->grid.channels * (how->grid.height / side) * (how->grid.width / side);
}

/* The row of member m in the prediction. */
VT_ON_DEVICE_TOO static inline int64_t vt_crps_row(const vt_crps *how, int64_t sample, int64_t m, int64_t token)
{
    return (sample * how->members + m) * how->grid.tokens + token;
}

/* Point `point` of a block: its token and column of the patches. False: it is missing, which it is for all members, or
 * another rank's. */
VT_ON_DEVICE_TOO static inline bool vt_crps_point(const vt_crps_operands *of, const vt_crps_block *block, int64_t point,
                                                  int64_t *token, int64_t *column)
{
    const vt_patch_grid *grid = &of->how.grid;
    const int64_t y = block->row + point / block->side, x = block->column + point % block->side, patch = grid->patch;
    *token = y / patch * vt_patch_grid_across(grid) + x / patch - grid->first_token;
    *column = (y % patch * patch + x % patch) * grid->channels + block->channel;
    if (*token < 0 || *token >= grid->tokens) return false;
    const int64_t row = vt_crps_row(&of->how, block->sample, 0, *token);
    return of->target.data[(block->sample * grid->tokens + *token) * of->target.stride + *column] != VT_NO_POINT &&
           of->prediction.data[row * of->prediction.stride + *column] != VT_NO_POINT;
}

/* Block `index` of a sample. Channels vary fastest, as they lie side by side in memory. */
VT_ON_DEVICE_TOO static inline vt_crps_block vt_crps_block_of(const vt_crps_operands *of, int scale, int64_t sample,
                                                              int64_t index)
{
    const vt_crps *how = &of->how;
    const int64_t side = how->sides[scale], across = how->grid.width / side;
    vt_crps_block block = {0};
    block.sample = sample;
    block.side = side;
    block.channel = index % how->grid.channels;
    block.column = index / how->grid.channels % across * side;
    block.row = index / how->grid.channels / across * side;
    block.unit = (double)of->units[scale * how->grid.channels + block.channel];
    for (int64_t point = 0; point < side * side; point++) {
        int64_t token, column;
        if (!vt_crps_point(of, &block, point, &token, &column)) continue;
        block.points += 1;
        block.weight += of->weights.data != NULL ? (double)of->weights.data[token * of->weights.stride + column] : 1;
        block.truth += (double)of->target.data[(sample * how->grid.tokens + token) * of->target.stride + column];
        for (int64_t m = 0; m < how->members; m++)
            block.members[m] +=
                (double)of->prediction.data[vt_crps_row(how, sample, m, token) * of->prediction.stride + column];
    }
    for (int64_t m = 0; m < how->members && block.points > 0; m++) block.members[m] /= block.points;
    if (block.points > 0) block.truth /= block.points;
    return block;
}

/* What pairs of members count. */
VT_ON_DEVICE_TOO static inline double vt_crps_of_pairs(const vt_crps *how)
{
    const double members = (double)how->members;
    return how->members > 1 ? (1 - (1 - how->alpha) / members) / (members * (members - 1)) : 0;
}

VT_ON_DEVICE_TOO static inline double vt_crps_value(const vt_crps *how, const vt_crps_block *block)
{
    double errors = 0, pairs = 0;
    for (int64_t i = 0; i < how->members; i++) {
        errors += fabs(block->members[i] - block->truth);
        for (int64_t j = 0; j < i; j++) pairs += fabs(block->members[i] - block->members[j]);
    }
    return errors / (double)how->members - vt_crps_of_pairs(how) * pairs;
}

/* Its derivative by the mean of a member. */
VT_ON_DEVICE_TOO static inline double vt_crps_slope(const vt_crps *how, const vt_crps_block *block, int64_t member)
{
    const double own = block->members[member];
    int pairs = 0;
    if (isnan(own) || isnan(block->truth)) return own - block->truth;
    for (int64_t j = 0; j < how->members; j++) pairs += (own > block->members[j]) - (own < block->members[j]);
    return ((own > block->truth) - (own < block->truth)) / (double)how->members - vt_crps_of_pairs(how) * pairs;
}

/* Adds a block's part to its sample's two sums. */
VT_ON_DEVICE_TOO static inline void vt_crps_add(const vt_crps_operands *of, int scale, int64_t sample, int64_t index,
                                                double sums[2])
{
    const vt_crps_block block = vt_crps_block_of(of, scale, sample, index);
    if (block.points == 0) return;
    sums[0] += block.weight * block.unit * vt_crps_value(&of->how, &block);
    sums[1] += block.weight;
}

/* The factor of a sample's gradient, from its whole sums. */
VT_ON_DEVICE_TOO static inline double vt_crps_factor(const double sums[2], float scale, const double *loss_scale)
{
    return sums[1] > 0 ? (double)scale * (loss_scale != NULL ? *loss_scale : 1) / sums[1] : 0;
}

/* Adds the gradient of a block, where `factor` is its sample's. */
VT_ON_DEVICE_TOO static inline void vt_crps_add_gradient(const vt_crps_operands *of, int scale, int64_t sample,
                                                         int64_t index, double factor, vt_matrix *dprediction)
{
    const vt_crps *how = &of->how;
    const vt_crps_block block = vt_crps_block_of(of, scale, sample, index);
    for (int64_t m = 0; m < how->members && block.points > 0; m++) {
        const float slope = (float)(factor * block.weight / block.points * block.unit * vt_crps_slope(how, &block, m));
        for (int64_t point = 0; point < block.side * block.side; point++) {
            int64_t token, column;
            if (vt_crps_point(of, &block, point, &token, &column))
                dprediction->data[vt_crps_row(how, sample, m, token) * dprediction->stride + column] += slope;
        }
    }
}

#endif
