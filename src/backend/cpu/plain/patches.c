#include "backend/cpu/cpu.h"

/* Distance between channels, and between points of a row, in one token's patch. */
static void patch_steps(const vt_patch_grid *grid, int64_t *channel_step, int64_t *point_step)
{
    bool channel_first = grid->order == VT_PATCH_CHANNEL_FIRST;
    *channel_step = channel_first ? grid->patch * grid->patch : 1;
    *point_step = channel_first ? 1 : grid->channels;
}

/* The top left point, in channel 0, of the patch of row r of all samples' tokens. */
static int64_t patch_start(const vt_patch_grid *grid, int64_t r)
{
    int64_t across = grid->width / grid->patch, tokens = vt_patch_grid_tokens(grid);
    int64_t token = grid->first_token + r % tokens;
    int64_t corner = (token / across) * grid->patch * grid->width + (token % across) * grid->patch;
    return (r / tokens) * grid->field_channels * grid->height * grid->width + corner;
}

/* One token: columns of `to` in the grid's order, from the patch whose top left point is `from`. */
static void load_patch(const vt_patch_grid *grid, const float *from, const float *mean, const float *inverse_std,
                       float *to)
{
    int64_t patch = grid->patch, plane = grid->height * grid->width, channel_step, point_step;
    patch_steps(grid, &channel_step, &point_step);
    for (int64_t c = 0; c < grid->channels; c++) {
        for (int64_t row = 0; row < patch; row++) {
            const float *source = from + c * plane + row * grid->width;
            float *target = to + c * channel_step + row * patch * point_step;
            for (int64_t column = 0; column < patch; column++)
                target[column * point_step] = (source[column] - mean[c]) * inverse_std[c];
        }
    }
}

static void store_patch(const vt_patch_grid *grid, const float *from, const float *mean, const float *inverse_std,
                        float *to)
{
    int64_t patch = grid->patch, plane = grid->height * grid->width, channel_step, point_step;
    patch_steps(grid, &channel_step, &point_step);
    for (int64_t c = 0; c < grid->channels; c++) {
        for (int64_t row = 0; row < patch; row++) {
            const float *source = from + c * channel_step + row * patch * point_step;
            float *target = to + c * plane + row * grid->width;
            for (int64_t column = 0; column < patch; column++)
                target[column] = source[column * point_step] / inverse_std[c] + mean[c];
        }
    }
}

static void patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                         const float *inverse_std, vt_matrix patches)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++)
        load_patch(grid, fields + patch_start(grid, r), mean, inverse_std, patches.data + r * patches.stride);
}

static void patches_store(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, const float *mean,
                          const float *inverse_std, float *fields)
{
    (void)backend;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++)
        store_patch(grid, patches.data + r * patches.stride, mean, inverse_std, fields + patch_start(grid, r));
}

void vt_plain_patches_fill(vt_backend *backend)
{
    backend->patches_load = patches_load;
    backend->patches_store = patches_store;
}
