#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "source/fields/dataset.h"
#include "task/weather.h"

/* Adds the squares of the changes of one channel's block means: sums[0] += them, sums[1] += how many. */
static void add_squares(const float *before, const float *after, const int64_t size[2], int64_t side, double sums[2])
{
    for (int64_t top = 0; top < size[0]; top += side)
        for (int64_t left = 0; left < size[1]; left += side) {
            double change = 0, points = 0;
            for (int64_t i = 0; i < side * side; i++) {
                const int64_t at = (top + i / side) * size[1] + left + i % side;
                const double own = (double)after[at] - (double)before[at];
                if (isnan(own)) continue;
                change += own;
                points += 1;
            }
            if (points == 0) continue;
            sums[0] += change / points * (change / points);
            sums[1] += 1;
        }
}

vt_status vt_block_change_stds(const vt_config *config, const vt_source *training, int count, const int64_t *sides,
                               double *const *stds)
{
    vt_status status = VT_OK;
    const int64_t *size = config->img_size, plane = size[0] * size[1], out = config->n_out_channels;
    const int64_t held = vt_config_channels_a_time(config), numbers = (config->n_in_channels + out) * plane;
    const int64_t most = (INT64_C(1) << 30) / (numbers * (int64_t)sizeof(float)) + 1, all = training->sample_count;
    float *input = vt_allocate((size_t)numbers, sizeof *input, "the changes of blocks");
    float *target = input + config->n_in_channels * plane;
    double(*sums)[2] = vt_allocate((size_t)(count * out), sizeof *sums, "the changes of blocks");
    for (int64_t i = 0; i < all && i < most; i++) {
        const int64_t sample = all <= most ? i : vt_random_permuted(0, 0, all, i);
        VT_TRY(vt_dataset_read(vt_dataset_of(training), sample, input, target));
        for (int64_t c = 0; c < out && c < held; c++)
            for (int k = 0; k < count; k++)
                add_squares(input + c * plane, target + c * plane, size, sides[k], sums[k * out + c]);
    }
    for (int64_t i = 0; i < count * out; i++)
        if (sums[i][0] > 0) stds[i / out][i % out] = sqrt(sums[i][0] / sums[i][1]);
done:
    free(sums);
    free(input);
    return status;
}
