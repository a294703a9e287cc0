/* Fields to tokens and back, normalised on the way. A thread moves the points that one row of the grid and one channel
 * have in one patch: neighbouring threads are neighbours in the tokens. */
#include "elements.h"

typedef struct {
    int64_t field; /* the first point in the fields */
    int64_t token; /* and in the patches */
    int64_t step;  /* between points in the patches */
    int64_t channel;
} run_of_points;

__device__ static inline run_of_points find_run(const vt_patch_grid &grid, int64_t index, int64_t stride)
{
    run_of_points run;
    int64_t across = grid.width / grid.patch, row, segment, patch_row;
    vt_split(index, grid.channels * grid.patch, &row, &segment);
    if (grid.order == VT_PATCH_CHANNEL_FIRST) {
        run.channel = segment / grid.patch;
        patch_row = segment % grid.patch;
        run.token = row * stride + segment * grid.patch;
        run.step = 1;
    } else {
        patch_row = segment / grid.channels;
        run.channel = segment % grid.channels;
        run.token = row * stride + patch_row * grid.patch * grid.channels + run.channel;
        run.step = grid.channels;
    }
    int64_t token = grid.first_token + row % grid.tokens, plane = row / grid.tokens * grid.field_channels + run.channel;
    int64_t top = token / across * grid.patch + patch_row;
    run.field = (plane * grid.height + top) * grid.width + token % across * grid.patch;
    return run;
}

VT_KERNEL void patches_load_kernel(vt_patch_grid grid, const float *fields, const float *mean, const float *inverse_std,
                                   vt_matrix patches, bool wide)
{
    for (int64_t i = vt_thread(); i < patches.rows * grid.channels * grid.patch; i += vt_thread_count()) {
        run_of_points run = find_run(grid, i, patches.stride);
        float centre = mean[run.channel], scale = inverse_std[run.channel], values[VT_GROUP];
        for (int64_t first = 0; first < grid.patch; first += VT_GROUP) {
            int count = vt_count(grid.patch, first);
            vt_load_floats(fields + run.field + first, count, wide, values);
            for (int j = 0; j < VT_GROUP; j++) values[j] = (values[j] - centre) * scale;
            if (run.step == 1) {
                vt_store(patches, run.token + first, count, wide, values);
            } else {
                for (int j = 0; j < VT_GROUP; j++)
                    if (j < count) vt_set_element(patches, run.token + (first + j) * run.step, values[j]);
            }
        }
    }
}

VT_KERNEL void patches_store_kernel(vt_patch_grid grid, vt_matrix patches, const float *mean, const float *inverse_std,
                                    float *fields, bool wide)
{
    for (int64_t i = vt_thread(); i < patches.rows * grid.channels * grid.patch; i += vt_thread_count()) {
        run_of_points run = find_run(grid, i, patches.stride);
        float centre = mean[run.channel], scale = inverse_std[run.channel], values[VT_GROUP];
        for (int64_t first = 0; first < grid.patch; first += VT_GROUP) {
            int count = vt_count(grid.patch, first);
            if (run.step == 1) {
                vt_load(patches, run.token + first, count, wide, values);
            } else {
                for (int j = 0; j < VT_GROUP; j++)
                    values[j] = j < count ? vt_element(patches, run.token + (first + j) * run.step) : 0.0f;
            }
            for (int j = 0; j < VT_GROUP; j++) values[j] = values[j] / scale + centre;
            vt_store_floats(fields + run.field + first, count, wide, values);
        }
    }
}

/* Every run of eight points begins at a 16-byte boundary, in both. */
static bool is_wide(const vt_patch_grid *grid, const float *fields, vt_matrix patches)
{
    return grid->patch % VT_GROUP == 0 && grid->width % VT_GROUP == 0 && vt_is_wide(fields) && vt_is_wide(patches);
}

static void patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                         const float *inverse_std, vt_matrix patches)
{
    VT_LAUNCH(patches_load_kernel, vt_blocks(patches.rows * grid->channels * grid->patch), VT_BLOCK_THREADS, 0, backend,
              *grid, fields, mean, inverse_std, patches, is_wide(grid, fields, patches));
}

static void patches_store(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, const float *mean,
                          const float *inverse_std, float *fields)
{
    VT_LAUNCH(patches_store_kernel, vt_blocks(patches.rows * grid->channels * grid->patch), VT_BLOCK_THREADS, 0,
              backend, *grid, patches, mean, inverse_std, fields, is_wide(grid, fields, patches));
}

void VT_CUDA_NAME(patches_fill)(vt_backend *backend)
{
    backend->patches_load = patches_load;
    backend->patches_store = patches_store;
}
