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

/* to [columns, rows] = the transpose of from [rows, columns], in squares; the last ones overlap those before them. */
static void put_transposed(const float *from, int64_t rows, int64_t columns, float *to)
{
    if (columns < LANES || rows < LANES) {
        for (int64_t column = 0; column < columns; column++)
            for (int64_t row = 0; row < rows; row++) to[column * rows + row] = from[row * columns + column];
        return;
    }
    for (int64_t i = 0; i < columns; i += LANES) {
        for (int64_t j = 0; j < rows; j += LANES) {
            int64_t column = i + LANES <= columns ? i : columns - LANES;
            int64_t row = j + LANES <= rows ? j : rows - LANES;
            vector square[LANES];
            for (int k = 0; k < LANES; k++) square[k] = load(from + (row + k) * columns + column);
            transpose(square);
            for (int k = 0; k < LANES; k++) store(to + (column + k) * rows + row, square[k]);
        }
    }
}

/* Whether all points of a token are points of the fields; and the first one's place in them. */
static bool lies_within(const vt_patch_grid *grid, int64_t token, int64_t *corner)
{
    const int64_t down = token / vt_patch_grid_across(grid), right = token % vt_patch_grid_across(grid);
    *corner = (down * grid->width + right) * grid->patch;
    return down < grid->height / grid->patch && right < grid->width / grid->patch;
}

void VT_VECTOR(patches_load)(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                             const float *inverse_std, vt_matrix patches)
{
    int64_t count = patches.columns, points = grid->channels * grid->patch * grid->patch;
    bool in_place = patches.type == VT_FLOAT32 && grid->order == VT_PATCH_CHANNEL_FIRST;
    if (!vt_cpu_scratch_reserve(backend, 2 * (size_t)count * sizeof(float))) return;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++) {
        int64_t sample = r / grid->tokens, token = grid->first_token + r % grid->tokens, corner;
        const float *from = fields + sample * grid->field_channels * grid->height * grid->width;
        float *scratch = vt_cpu_scratch(backend), *values = in_place ? patches.data + r * patches.stride : scratch;
        if (lies_within(grid, token, &corner))
            load_token(grid, from + corner, mean, inverse_std, values);
        else
            gather_beyond(grid, from, token, mean, inverse_std, values);
        if (grid->missing != VT_MISSING_STAYS) fill_missing(grid, points, values);
        if (grid->order == VT_PATCH_CHANNEL_LAST) {
            values = patches.type == VT_FLOAT32 ? patches.data + r * patches.stride : scratch + count;
            put_transposed(scratch, grid->channels, grid->patch * grid->patch, values);
        }
        if (patches.type != VT_FLOAT32)
            vt_half_round_row(patches.type, values, count, patches.half + r * patches.stride);
    }
}

/* ---- backward ---- */

/* dfields += values [channel, point] at the points of a token, where fields has numbers. */
static void add_token(const vt_patch_grid *grid, const float *values, const float *fields, float *dfields)
{
    const int64_t plane = grid->height * grid->width, patch = grid->patch;
    for (int64_t c = 0; c < grid->channels; c++)
        for (int64_t row = 0; row < patch; row++, values += patch) {
            const float *field = fields + c * plane + row * grid->width;
            float *sum = dfields + c * plane + row * grid->width;
#pragma omp simd
            for (int64_t i = 0; i < patch; i++) sum[i] += field[i] == field[i] ? values[i] : 0.0f;
        }
}

/* The same for a token that may reach beyond the fields. */
static void add_beyond(const vt_patch_grid *grid, int64_t token, const float *values, const float *fields,
                       float *dfields)
{
    const int64_t patch = grid->patch, across = vt_patch_grid_across(grid), plane = grid->height * grid->width;
    for (int64_t i = 0; i < patch * patch; i++) {
        const int64_t point =
            vt_patch_grid_point(grid, token / across * patch + i / patch, token % across * patch + i % patch);
        for (int64_t c = 0; point >= 0 && c < grid->channels; c++)
            if (fields[c * plane + point] == fields[c * plane + point])
                dfields[c * plane + point] += values[c * patch * patch + i];
    }
}

/* Row r as float32 [channel, point]: where it lies, or in scratch memory. */
static const float *channels_first(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, int64_t r)
{
    const int64_t points = grid->patch * grid->patch;
    float *scratch = vt_cpu_scratch(backend);
    const float *values = patches.data + r * patches.stride;
    if (patches.type != VT_FLOAT32) {
        vt_half_widen_row(patches.type, patches.half + r * patches.stride, patches.columns, scratch);
        values = scratch;
    }
    if (grid->order == VT_PATCH_CHANNEL_FIRST) return values;
    put_transposed(values, points, grid->channels, scratch + patches.columns);
    return scratch + patches.columns;
}

/* Tokens within the fields share no points, so that all threads can add them; then come those that reach beyond. */
void VT_VECTOR(patches_load_backward)(vt_backend *backend, const vt_patch_grid *grid, vt_matrix dpatches,
                                      const float *fields, float *dfields)
{
    const int64_t volume = grid->field_channels * grid->height * grid->width;
    if (!vt_cpu_scratch_reserve(backend, 2 * (size_t)dpatches.columns * sizeof(float))) return;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < dpatches.rows; r++) {
        const int64_t token = grid->first_token + r % grid->tokens;
        int64_t at = r / grid->tokens * volume, corner;
        if (!lies_within(grid, token, &corner)) continue;
        at += corner;
        add_token(grid, channels_first(backend, grid, dpatches, r), fields + at, dfields + at);
    }
    if (grid->height % grid->patch == 0 && grid->width % grid->patch == 0) return;
#pragma omp parallel for schedule(static)
    for (int64_t sample = 0; sample < grid->batch; sample++)
        for (int64_t r = sample * grid->tokens; r < (sample + 1) * grid->tokens; r++) {
            const int64_t token = grid->first_token + r % grid->tokens, at = sample * volume;
            int64_t corner;
            if (lies_within(grid, token, &corner)) continue;
            add_beyond(grid, token, channels_first(backend, grid, dpatches, r), fields + at, dfields + at);
        }
}

void VT_VECTOR(scaled_add)(vt_backend *backend, vt_matrix x, const float *scale, int64_t channels, vt_matrix base,
                           vt_matrix y)
{
    float *factors = vt_cpu_shared(backend, (size_t)x.columns * sizeof(float)); /* of the columns */
    if (factors == NULL) return;
    for (int64_t c = 0; c < x.columns; c++) factors[c] = scale[c % channels];
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0; c < x.columns; c += LANES) {
            const int64_t count = x.columns - c;
            const vector own = load_elements_up_to(&x, r * x.stride + c, count);
            vector from = splat(0), by = choose(own == VT_NO_POINT, splat(0), own);
            if (base.data != NULL) from = load_elements_up_to(&base, r * base.stride + c, count);
            by = choose(from == VT_NO_POINT, from, from + load_up_to(factors + c, count) * by);
            store_elements_up_to(&y, r * y.stride + c, by, count);
        }
}
