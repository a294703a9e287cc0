#include "backend/cpu/cpu.h"

/* One token: columns of `to` in the grid's order, from the patch whose top left point is `from`. */
static void load_patch(const vt_patch_grid *grid, const float *from, const float *mean, const float *inverse_std,
                       float *to)
{
    int64_t patch = grid->patch, plane = grid->height * grid->width;
    bool channel_first = grid->order == VT_PATCH_CHANNEL_FIRST;
    int64_t channel_step = channel_first ? patch * patch : 1, point_step = channel_first ? 1 : grid->channels;
    for (int64_t c = 0; c < grid->channels; c++) {
        for (int64_t row = 0; row < patch; row++) {
            const float *source = from + c * plane + row * grid->width;
            float *target = to + c * channel_step + row * patch * point_step;
            for (int64_t column = 0; column < patch; column++)
                target[column * point_step] = (source[column] - mean[c]) * inverse_std[c];
        }
    }
}

static void patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                         const float *inverse_std, vt_matrix patches)
{
    (void)backend;
    int64_t across = grid->width / grid->patch, tokens = vt_patch_grid_tokens(grid);
    int64_t sample_size = grid->field_channels * grid->height * grid->width;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < patches.rows; r++) {
        int64_t token = r % tokens;
        int64_t corner = (token / across) * grid->patch * grid->width + (token % across) * grid->patch;
        load_patch(grid, fields + (r / tokens) * sample_size + corner, mean, inverse_std,
                   patches.data + r * patches.stride);
    }
}

void vt_plain_patches_fill(vt_backend *backend)
{
    backend->patches_load = patches_load;
}
