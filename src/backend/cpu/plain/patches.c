#include "backend/cpu/cpu.h"
#include "backend/dropout.h"
#include "base/largest_value.h"

/* Distance between channels, and between points of a row, in one token's patch. */
static void patch_steps(const vt_patch_grid *grid, int64_t *channel_step, int64_t *point_step)
{
    bool channel_first = grid->order == VT_PATCH_CHANNEL_FIRST;
    *channel_step = channel_first ? grid->patch * grid->patch : 1;
    *point_step = channel_first ? 1 : grid->channels;
}

/* Row r of all samples' tokens: its sample's fields, and its top left point in them. */
typedef struct {
    int64_t fields, top, left;
} corner;

static corner patch_corner(const vt_patch_grid *grid, int64_t r)
{
    int64_t across = vt_patch_grid_across(grid), tokens = grid->tokens;
    int64_t token = grid->first_token + r % tokens;
    return (corner){(r / tokens) * grid->field_channels * grid->height * grid->width, token / across * grid->patch,
                    token % across * grid->patch};
}

static float normalised(const vt_patch_grid *grid, float value, float mean, float inverse_std)
{
    if (grid->missing == VT_MISSING_SHOWN) return isnan(value) ? 0.0f : 1.0f;
    if (isnan(value) && grid->missing != VT_MISSING_STAYS) return grid->missing == VT_MISSING_MEAN ? 0 : VT_NO_POINT;
    return fabsf(value) > VT_LARGEST_VALUE ? INFINITY : (value - mean) * inverse_std;
}

/* One token: columns of `to` in the grid's order, from its sample's fields. */
static void load_patch(const vt_patch_grid *grid, corner at, const float *fields, const float *mean,
                       const float *inverse_std, float *to)
{
    int64_t patch = grid->patch, plane = grid->height * grid->width, channel_step, point_step;
    patch_steps(grid, &channel_step, &point_step);
    for (int64_t c = 0; c < grid->channels; c++) {
        for (int64_t row = 0; row < patch; row++) {
            float *target = to + c * channel_step + row * patch * point_step;
            for (int64_t column = 0; column < patch; column++) {
                int64_t point = vt_patch_grid_point(grid, at.top + row, at.left + column);
                float value = point >= 0 ? fields[at.fields + c * plane + point] : 0;
                target[column * point_step] =
                    point >= 0 ? normalised(grid, value, mean[c], inverse_std[c]) : VT_NO_POINT;
            }
        }
    }
}

static void store_patch(const vt_patch_grid *grid, corner at, const float *from, const float *mean,
                        const float *inverse_std, float *fields)
{
    int64_t patch = grid->patch, plane = grid->height * grid->width, channel_step, point_step;
    patch_steps(grid, &channel_step, &point_step);
    for (int64_t c = 0; c < grid->channels; c++) {
        for (int64_t row = 0; row < patch && at.top + row < grid->height; row++) {
            const float *source = from + c * channel_step + row * patch * point_step;
            float *target = fields + at.fields + c * plane + (at.top + row) * grid->width + at.left;
            for (int64_t column = 0; column < patch && at.left + column < grid->width; column++) {
                float value = source[column * point_step];
                target[column] = value == VT_NO_POINT ? NAN : value / inverse_std[c] + mean[c];
            }
        }
    }
}

void vt_plain_patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                           const float *inverse_std, vt_matrix patches)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++)
        load_patch(grid, patch_corner(grid, r), fields, mean, inverse_std, patches.data + r * patches.stride);
}

void vt_plain_patches_store(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, const float *mean,
                            const float *inverse_std, float *fields)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++)
        store_patch(grid, patch_corner(grid, r), patches.data + r * patches.stride, mean, inverse_std, fields);
}

/* One point: the elements of its sample's tokens that show it. */
static double gradient_at(const vt_patch_grid *grid, vt_matrix dpatches, int64_t sample, int64_t channel, int64_t row,
                          int64_t column)
{
    int64_t channel_step, point_step, place;
    double sum = 0;
    vt_patch_views views = vt_patch_views_of(row, column);
    patch_steps(grid, &channel_step, &point_step);
    while (vt_patch_views_next(grid, &views, &place)) {
        const int64_t r = sample * grid->tokens + views.token;
        sum += (double)dpatches.data[r * dpatches.stride + channel * channel_step + place * point_step];
    }
    return sum;
}

void vt_plain_patches_load_backward(vt_backend *backend, const vt_patch_grid *grid, vt_matrix dpatches,
                                    const float *fields, float *dfields)
{
    const int64_t plane = grid->height * grid->width;
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t sample = 0; sample < grid->batch; sample++)
        for (int64_t c = 0; c < grid->channels; c++)
            for (int64_t point = 0; point < plane; point++) {
                const int64_t at = (sample * grid->field_channels + c) * plane + point;
                if (!isnan(fields[at]))
                    dfields[at] +=
                        (float)gradient_at(grid, dpatches, sample, c, point / grid->width, point % grid->width);
            }
}

void vt_plain_scaled_add(vt_backend *backend, vt_matrix x, const float *scale, int64_t channels, vt_matrix base,
                         vt_matrix y)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0, channel = 0; c < x.columns; c++) {
            const float from = base.data != NULL ? base.data[r * base.stride + c] : 0;
            const float own = x.data[r * x.stride + c], by = own == VT_NO_POINT ? 0 : own;
            y.data[r * y.stride + c] = from == VT_NO_POINT ? VT_NO_POINT : from + scale[channel] * by;
            if (++channel == channels) channel = 0; /* a division takes longer than all else here */
        }
}

void vt_plain_limit(vt_backend *backend, vt_matrix x, const float *low, const float *high, int64_t channels,
                    vt_matrix gradient)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0, channel = 0; c < x.columns; c++) {
            float *value = &x.data[r * x.stride + c];
            const float least = low[channel], most = high[channel];
            if (gradient.data == NULL && *value != VT_NO_POINT)
                *value = *value < least ? least : *value > most ? most : *value;
            if (gradient.data != NULL && (*value <= least || *value >= most))
                gradient.data[r * gradient.stride + c] = 0;
            if (++channel == channels) channel = 0;
        }
}

void vt_plain_fields_disturb(vt_backend *backend, const vt_disturbance *how, const uint32_t *step, const float *fields,
                             const float *mean, const float *inverse_std, const float *noise, float *y)
{
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t i = 0; i < how->samples * how->copies; i++)
        for (int64_t c = 0; c < how->channels; c++)
            for (int64_t row = 0; row < how->rows; row++) {
                const int64_t index = i / how->copies;
                const uint32_t sample = how->first_sample + (uint32_t)index;
                const float sign = vt_disturbed_sign(how, step, sample),
                            *from = fields + index * how->sample_stride + (c * how->rows + row) * how->width;
                float *to = y + ((i * how->channels + c) * how->rows + row) * how->width, normals[4];
                for (int64_t column = 0; column < how->width; column++) {
                    if (noise != NULL && column % 4 == 0)
                        vt_disturbed_noise(how, step, sample, (uint32_t)c, (uint32_t)(how->first_row + row),
                                           (uint32_t)(column / 4), normals);
                    to[column] = sign * ((from[column] - mean[c]) * inverse_std[c]);
                    if (noise != NULL) to[column] += noise[c] * normals[column % 4];
                }
            }
}
