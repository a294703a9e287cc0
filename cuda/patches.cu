/* Fields to tokens and back, normalised on the way. A thread moves the points of one patch row and one channel;
 * neighbouring threads write neighbouring tokens. */
#include "base/largest_value.h"
#include "elements.h"

typedef struct {
    int64_t plane;     /* the channel's field */
    int64_t top, left; /* the first point in the field, perhaps beyond its edge */
    int64_t token;     /* the same point in the patches */
    int64_t step;      /* distance between points in the patches */
    int64_t channel;
} point_span;

__device__ static inline point_span find_span(const vt_patch_grid &grid, int64_t index, int64_t stride)
{
    point_span span;
    int64_t across = vt_patch_grid_across(&grid), row, segment, patch_row;
    vt_split(index, grid.channels * grid.patch, &row, &segment);
    if (grid.order == VT_PATCH_CHANNEL_FIRST) {
        span.channel = segment / grid.patch;
        patch_row = segment % grid.patch;
        span.token = row * stride + segment * grid.patch;
        span.step = 1;
    } else {
        patch_row = segment / grid.channels;
        span.channel = segment % grid.channels;
        span.token = row * stride + patch_row * grid.patch * grid.channels + span.channel;
        span.step = grid.channels;
    }
    int64_t token = grid.first_token + row % grid.tokens;
    span.plane = (row / grid.tokens * grid.field_channels + span.channel) * grid.height * grid.width;
    span.top = token / across * grid.patch + patch_row;
    span.left = token % across * grid.patch;
    return span;
}

/* How many of the points span.left + first … are inside the fields. */
__device__ static inline int count_inside(const vt_patch_grid &grid, const point_span &span, int64_t first)
{
    int64_t left = grid.width - span.left - first;
    if (span.top >= grid.height || left < 0) return 0;
    return left < VT_GROUP ? (int)left : VT_GROUP;
}

/* Loads `count` points from `first` on; `mask` gets 1 where the value is present and 0 where it is missing. */
__device__ static inline void load_points(const vt_patch_grid &grid, const point_span &span, const float *fields,
                                          int64_t first, int count, bool wide, float centre, float scale,
                                          float values[VT_GROUP], float mask[VT_GROUP])
{
    bool inside = count_inside(grid, span, first) >= count;
    if (inside) vt_load_floats(fields + span.plane + span.top * grid.width + span.left + first, count, wide, values);
    for (int j = 0; j < VT_GROUP; j++) {
        int64_t point = inside || j >= count ? 0 : vt_patch_grid_point(&grid, span.top, span.left + first + j);
        if (!inside) values[j] = j < count && point >= 0 ? fields[span.plane + point] : 0.0f;
        bool missing = values[j] != values[j];
        mask[j] = missing ? 0.0f : 1.0f;
        values[j] = fabsf(values[j]) > VT_LARGEST_VALUE ? (float)INFINITY : (values[j] - centre) * scale;
        if (missing && grid.missing != VT_MISSING_STAYS)
            values[j] = grid.missing == VT_MISSING_MEAN ? 0.0f : VT_NO_POINT;
        if (point < 0) values[j] = VT_NO_POINT;
    }
}

VT_KERNEL void patches_load_kernel(vt_patch_grid grid, const float *fields, const float *mean, const float *inverse_std,
                                   vt_matrix patches, bool wide)
{
    for (int64_t i = vt_thread(); i < patches.rows * grid.channels * grid.patch; i += vt_thread_count()) {
        point_span span = find_span(grid, i, patches.stride);
        float centre = mean[span.channel], scale = inverse_std[span.channel], values[VT_GROUP], mask[VT_GROUP];
        int64_t masks = grid.channels * grid.patch * grid.patch; /* offset of the masks from the values */
        for (int64_t first = 0; first < grid.patch; first += VT_GROUP) {
            int count = vt_count(grid.patch, first);
            load_points(grid, span, fields, first, count, wide, centre, scale, values, mask);
            if (span.step == 1) {
                vt_store(patches, span.token + first, count, wide, values);
                if (grid.with_mask) vt_store(patches, span.token + masks + first, count, wide, mask);
            } else {
                for (int j = 0; j < VT_GROUP; j++)
                    if (j < count) vt_set_element(patches, span.token + (first + j) * span.step, values[j]);
            }
        }
    }
}

VT_KERNEL void patches_store_kernel(vt_patch_grid grid, vt_matrix patches, const float *mean, const float *inverse_std,
                                    float *fields, bool wide)
{
    for (int64_t i = vt_thread(); i < patches.rows * grid.channels * grid.patch; i += vt_thread_count()) {
        point_span span = find_span(grid, i, patches.stride);
        float centre = mean[span.channel], scale = inverse_std[span.channel], values[VT_GROUP];
        for (int64_t first = 0; first < grid.patch; first += VT_GROUP) {
            int count = vt_count(grid.patch, first);
            if (span.step == 1) {
                vt_load(patches, span.token + first, count, wide, values);
            } else {
                for (int j = 0; j < VT_GROUP; j++)
                    values[j] = j < count ? vt_element(patches, span.token + (first + j) * span.step) : 0.0f;
            }
            for (int j = 0; j < VT_GROUP; j++)
                values[j] = values[j] == VT_NO_POINT ? (float)NAN : values[j] / scale + centre;
            count = min(count, count_inside(grid, span, first));
            if (count > 0)
                vt_store_floats(fields + span.plane + span.top * grid.width + span.left + first, count, wide, values);
        }
    }
}

/* Every group of eight points begins at a 16-byte boundary, in both. */
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
