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

/* Where a block begins, and its means. */
typedef struct {
    int64_t channel, row, column;
    double members[VT_MOST_MEMBERS], truth;
    double points, weight; /* how many are there, and their weights' sum */
} vt_crps_block;

VT_ON_DEVICE_TOO static inline int64_t vt_crps_block_count(const vt_crps *how, int scale)
{
    const int64_t side = how->sides[scale];
    return how->grid.channels * (how->grid.height / side) * (how->grid.width / side);
}

/* Where a number of member m stands. */
VT_ON_DEVICE_TOO static inline int64_t vt_crps_at(const vt_crps *how, int64_t sample, int64_t m, int64_t token,
                                                  int64_t column, int64_t stride)
{
    return ((sample * how->members + m) * how->grid.tokens + token) * stride + column;
}

/* Point `point` of a block: its token and column of the patches. False: it is missing, which it is for all members, or
 * another rank's. prediction [samples, members, tokens], target [samples, tokens] rows. */
VT_ON_DEVICE_TOO static inline bool vt_crps_point(const vt_crps *how, const vt_crps_block *block, int64_t side,
                                                  int64_t point, int64_t sample, const vt_matrix *prediction,
                                                  const vt_matrix *target, int64_t *token, int64_t *column)
{
    const vt_patch_grid *grid = &how->grid;
    const int64_t y = block->row + point / side, x = block->column + point % side, patch = grid->patch;
    *token = y / patch * vt_patch_grid_across(grid) + x / patch - grid->first_token;
    *column = (y % patch * patch + x % patch) * grid->channels + block->channel;
    if (*token < 0 || *token >= grid->tokens) return false;
    return target->data[(sample * grid->tokens + *token) * target->stride + *column] != VT_NO_POINT &&
           prediction->data[vt_crps_at(how, sample, 0, *token, *column, prediction->stride)] != VT_NO_POINT;
}

/* Block `index` of a sample. weights: [tokens] rows. */
VT_ON_DEVICE_TOO static inline vt_crps_block vt_crps_block_of(const vt_crps *how, int scale, int64_t sample,
                                                              int64_t index, const vt_matrix *prediction,
                                                              const vt_matrix *target, const vt_matrix *weights)
{
    const vt_patch_grid *grid = &how->grid;
    const int64_t side = how->sides[scale], across = grid->width / side, down = grid->height / side;
    vt_crps_block block = {0};
    block.channel = index / (across * down);
    block.row = index / across % down * side;
    block.column = index % across * side;
    for (int64_t point = 0; point < side * side; point++) {
        int64_t token, column;
        if (!vt_crps_point(how, &block, side, point, sample, prediction, target, &token, &column)) continue;
        block.points += 1;
        block.weight += weights->data != NULL ? (double)weights->data[token * weights->stride + column] : 1;
        block.truth += (double)target->data[(sample * grid->tokens + token) * target->stride + column];
        for (int64_t m = 0; m < how->members; m++)
            block.members[m] += (double)prediction->data[vt_crps_at(how, sample, m, token, column, prediction->stride)];
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

/* The factor of a sample's gradient, from its whole sums. */
VT_ON_DEVICE_TOO static inline double vt_crps_factor(const double sums[2], float scale, const double *loss_scale)
{
    return sums[1] > 0 ? (double)scale * (loss_scale != NULL ? *loss_scale : 1) / sums[1] : 0;
}

#endif
