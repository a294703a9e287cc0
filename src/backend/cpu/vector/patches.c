#include <math.h>

#include "backend/cpu/vector/elements.h"
#include "base/largest_value.h"

typedef float quad __attribute__((vector_size(16)));
typedef int32_t quad_bits __attribute__((vector_size(16)));

/* Missing data becomes infinite, so that it shows in the loss. */
INLINE float normalised(float value, float mean, float inverse_std)
{
    return fabsf(value) > VT_LARGEST_VALUE ? INFINITY : (value - mean) * inverse_std;
}

INLINE quad normalised_quad(quad values, float mean, float inverse_std)
{
    const quad infinite = {INFINITY, INFINITY, INFINITY, INFINITY};
    const quad_bits beyond = (values > VT_LARGEST_VALUE) | (values < -VT_LARGEST_VALUE);
    values = (values - mean) * inverse_std;
    return (quad)((beyond & (quad_bits)infinite) | (~beyond & (quad_bits)values));
}

/* The points of one channel of a patch, normalised, one after another, from fields whose rows are `width` apart. The
 * rows of the neighbouring patches are prefetched: a processor does not follow that many rows by itself. */
INLINE void gather_patch(const float *from, int64_t width, int64_t patch, float mean, float inverse_std, float *to)
{
    enum { AHEAD = 32 };
    for (int64_t row = 0; row < patch; row++, from += width, to += patch) {
        int64_t column = 0;
        __builtin_prefetch(from + AHEAD);
        for (; column + 4 <= patch; column += 4) {
            quad values;
            memcpy(&values, from + column, sizeof values);
            values = normalised_quad(values, mean, inverse_std);
            memcpy(to + column, &values, sizeof values);
        }
        for (; column < patch; column++) to[column] = normalised(from[column], mean, inverse_std);
    }
}

/* One token, as [channel, point], in `values`. patch is a constant where this is inlined. */
INLINE void gather_token(const vt_patch_grid *grid, int64_t patch, const float *from, const float *mean,
                         const float *inverse_std, float *values)
{
    int64_t plane = grid->height * grid->width;
    for (int64_t c = 0; c < grid->channels; c++, values += patch * patch)
        gather_patch(from + c * plane, grid->width, patch, mean[c], inverse_std[c], values);
}

static void load_token(const vt_patch_grid *grid, const float *from, const float *mean, const float *inverse_std,
                       float *values)
{
    switch (grid->patch) {
    case 4:
        gather_token(grid, 4, from, mean, inverse_std, values);
        break;
    case 6:
        gather_token(grid, 6, from, mean, inverse_std, values);
        break;
    case 8:
        gather_token(grid, 8, from, mean, inverse_std, values);
        break;
    default:
        gather_token(grid, grid->patch, from, mean, inverse_std, values);
    }
}

/* The same for a token that may reach beyond the fields. */
static void gather_beyond(const vt_patch_grid *grid, const float *fields, int64_t token, const float *mean,
                          const float *inverse_std, float *values)
{
    int64_t patch = grid->patch, across = vt_patch_grid_across(grid), plane = grid->height * grid->width;
    int64_t top = token / across * patch, left = token % across * patch;
    for (int64_t row = 0; row < patch; row++)
        for (int64_t column = 0; column < patch; column++, values++) {
            int64_t point = vt_patch_grid_point(grid, top + row, left + column);
            for (int64_t c = 0; c < grid->channels; c++)
                values[c * patch * patch] =
                    point < 0 ? VT_NO_POINT : normalised(fields[c * plane + point], mean[c], inverse_std[c]);
        }
}

/* Replaces missing values of a token by their substitute, or all values by the mask. */
static void fill_missing(const vt_patch_grid *grid, int64_t count, float *values)
{
    const float fill = grid->missing == VT_MISSING_LEFT_OUT ? VT_NO_POINT : 0;
    if (grid->missing == VT_MISSING_SHOWN)
        for (int64_t i = 0; i < count; i++)
            values[i] = values[i] == VT_NO_POINT ? VT_NO_POINT : (float)(values[i] == values[i]);
    else
        for (int64_t i = 0; i < count; i++) values[i] = values[i] != values[i] ? fill : values[i];
}

/* to [point, channel] = values [channel, point], transposed in squares; the last ones overlap those before them. */
static void put_channels_last(const vt_patch_grid *grid, const float *values, float *to)
{
    int64_t points = grid->patch * grid->patch, channels = grid->channels;
    if (points < LANES || channels < LANES) {
        for (int64_t point = 0; point < points; point++)
            for (int64_t c = 0; c < channels; c++) to[point * channels + c] = values[c * points + point];
        return;
    }
    for (int64_t i = 0; i < points; i += LANES) {
        for (int64_t j = 0; j < channels; j += LANES) {
            int64_t point = i + LANES <= points ? i : points - LANES;
            int64_t channel = j + LANES <= channels ? j : channels - LANES;
            vector square[LANES];
            for (int k = 0; k < LANES; k++) square[k] = load(values + (channel + k) * points + point);
            transpose(square);
            for (int k = 0; k < LANES; k++) store(to + (point + k) * channels + channel, square[k]);
        }
    }
}

static void patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                         const float *inverse_std, vt_matrix patches)
{
    int64_t count = patches.columns, points = grid->channels * grid->patch * grid->patch;
    int64_t across = vt_patch_grid_across(grid), whole = grid->width / grid->patch, down = grid->height / grid->patch;
    bool in_place = patches.type == VT_FLOAT32 && grid->order == VT_PATCH_CHANNEL_FIRST;
    if (!vt_cpu_scratch_reserve(backend, 2 * (size_t)count * sizeof(float))) return;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++) {
        int64_t sample = r / grid->tokens, token = grid->first_token + r % grid->tokens;
        const float *from = fields + sample * grid->field_channels * grid->height * grid->width;
        int64_t corner = token / across * grid->patch * grid->width + token % across * grid->patch;
        float *scratch = vt_cpu_scratch(backend), *values = in_place ? patches.data + r * patches.stride : scratch;
        if (token / across < down && token % across < whole)
            load_token(grid, from + corner, mean, inverse_std, values);
        else
            gather_beyond(grid, from, token, mean, inverse_std, values);
        if (grid->missing != VT_MISSING_STAYS) fill_missing(grid, points, values);
        if (grid->order == VT_PATCH_CHANNEL_LAST) {
            values = patches.type == VT_FLOAT32 ? patches.data + r * patches.stride : scratch + count;
            put_channels_last(grid, scratch, values);
        }
        if (patches.type != VT_FLOAT32)
            vt_half_round_row(patches.type, values, count, patches.half + r * patches.stride);
    }
}

void VT_KERNEL(vt_vector_patches_fill)(vt_backend *backend)
{
    backend->patches_load = patches_load;
}
