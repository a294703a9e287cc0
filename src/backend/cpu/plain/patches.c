#include "backend/cpu/cpu.h"
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
                if (grid->with_mask) target[grid->channels * channel_step + column] = isnan(value) ? 0.0f : 1.0f;
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
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++)
        load_patch(grid, patch_corner(grid, r), fields, mean, inverse_std, patches.data + r * patches.stride);
}

void vt_plain_patches_store(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, const float *mean,
                            const float *inverse_std, float *fields)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++)
        store_patch(grid, patch_corner(grid, r), patches.data + r * patches.stride, mean, inverse_std, fields);
}
