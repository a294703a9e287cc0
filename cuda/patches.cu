/* Fields to tokens and back, normalised on the way. A thread moves the points of one patch row and one channel;
 * neighbouring threads write neighbouring tokens. */
#include "backend/dropout.h"
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

/* Loads `count` points from `first` on. */
__device__ static inline void load_points(const vt_patch_grid &grid, const point_span &span, const float *fields,
                                          int64_t first, int count, bool wide, float centre, float scale,
                                          float values[VT_GROUP])
{
    bool inside = count_inside(grid, span, first) >= count;
    if (inside) vt_load_floats(fields + span.plane + span.top * grid.width + span.left + first, count, wide, values);
    for (int j = 0; j < VT_GROUP; j++) {
        int64_t point = inside || j >= count ? 0 : vt_patch_grid_point(&grid, span.top, span.left + first + j);
        if (!inside) values[j] = j < count && point >= 0 ? fields[span.plane + point] : 0.0f;
        bool missing = values[j] != values[j];
        values[j] = fabsf(values[j]) > VT_LARGEST_VALUE ? (float)INFINITY : (values[j] - centre) * scale;
        if (missing && grid.missing != VT_MISSING_STAYS)
            values[j] = grid.missing == VT_MISSING_MEAN ? 0.0f : VT_NO_POINT;
        if (grid.missing == VT_MISSING_SHOWN) values[j] = missing ? 0.0f : 1.0f;
        if (point < 0) values[j] = VT_NO_POINT;
    }
}

VT_KERNEL void patches_load_kernel(vt_patch_grid grid, const float *fields, const float *mean, const float *inverse_std,
                                   vt_matrix patches, bool wide)
{
    for (int64_t i = vt_thread(); i < patches.rows * grid.channels * grid.patch; i += vt_thread_count()) {
        point_span span = find_span(grid, i, patches.stride);
        float centre = mean[span.channel], scale = inverse_std[span.channel], values[VT_GROUP];
        for (int64_t first = 0; first < grid.patch; first += VT_GROUP) {
            int count = vt_count(grid.patch, first);
            load_points(grid, span, fields, first, count, wide, centre, scale, values);
            if (span.step == 1) {
                vt_store(patches, span.token + first, count, wide, values);
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

/* A thread adds up the elements that show one point. */
VT_KERNEL void patches_load_backward_kernel(vt_patch_grid grid, vt_matrix dpatches, const float *fields, float *dfields)
{
    const int64_t plane = grid.height * grid.width;
    for (int64_t i = vt_thread(); i < grid.batch * grid.channels * plane; i += vt_thread_count()) {
        int64_t field, point, sample, channel, place;
        vt_split(i, plane, &field, &point);
        vt_split(field, grid.channels, &sample, &channel);
        const int64_t at = (sample * grid.field_channels + channel) * plane + point;
        if (fields[at] != fields[at]) continue;
        float sum = 0;
        vt_patch_views views = vt_patch_views_of(point / grid.width, point % grid.width);
        while (vt_patch_views_next(&grid, &views, &place)) {
            const int64_t column = grid.order == VT_PATCH_CHANNEL_FIRST ? channel * grid.patch * grid.patch + place
                                                                        : place * grid.channels + channel;
            sum += vt_element(dpatches, (sample * grid.tokens + views.token) * dpatches.stride + column);
        }
        dfields[at] += sum;
    }
}

VT_KERNEL void scaled_add_kernel(vt_matrix x, const float *scale, int64_t channels, vt_matrix base, vt_matrix y)
{
    for (int64_t i = vt_thread(); i < x.rows * x.columns; i += vt_thread_count()) {
        int64_t row, column;
        vt_split(i, x.columns, &row, &column);
        const float from = base.data != NULL ? vt_element(base, row * base.stride + column) : 0.0f;
        const float own = vt_element(x, row * x.stride + column);
        const float sum = from + scale[column % channels] * (own == VT_NO_POINT ? 0.0f : own);
        vt_set_element(y, row * y.stride + column, from == VT_NO_POINT ? VT_NO_POINT : sum);
    }
}

VT_KERNEL void limit_kernel(vt_matrix x, const float *low, const float *high, int64_t channels, vt_matrix gradient)
{
    for (int64_t i = vt_thread(); i < x.rows * x.columns; i += vt_thread_count()) {
        int64_t row, column;
        vt_split(i, x.columns, &row, &column);
        const float value = vt_element(x, row * x.stride + column);
        const float least = low[column % channels], most = high[column % channels];
        if (gradient.data != NULL) {
            if (value <= least || value >= most) vt_set_element(gradient, row * gradient.stride + column, 0.0f);
        } else if (value != VT_NO_POINT && (value < least || value > most)) {
            vt_set_element(x, row * x.stride + column, value < least ? least : most);
        }
    }
}

/* A thread makes four neighbouring points, which share a block of random numbers. */
VT_KERNEL void fields_disturb_kernel(vt_disturbance how, const uint32_t *step, const float *fields, const float *mean,
                                     const float *inverse_std, const float *noise, float *y)
{
    const int64_t quads = (how.width + 3) / 4;
    const int64_t lines = how.samples * how.copies * how.channels * how.rows;
    for (int64_t i = vt_thread(); i < lines * quads; i += vt_thread_count()) {
        int64_t line, quad, field, row, index, channel;
        vt_split(i, quads, &line, &quad);
        vt_split(line, how.rows, &field, &row);
        vt_split(field, how.channels, &index, &channel);
        index /= how.copies;
        const uint32_t sample = how.first_sample + (uint32_t)index;
        const float sign = vt_disturbed_sign(&how, step, sample);
        const float *from = fields + index * how.sample_stride + (channel * how.rows + row) * how.width;
        float normals[4] = {0, 0, 0, 0};
        if (noise != NULL)
            vt_disturbed_noise(&how, step, sample, (uint32_t)channel, (uint32_t)(how.first_row + row), (uint32_t)quad,
                               normals);
        for (int64_t column = 4 * quad; column < 4 * quad + 4 && column < how.width; column++) {
            const float value = sign * ((from[column] - mean[channel]) * inverse_std[channel]);
            y[line * how.width + column] = noise != NULL ? value + noise[channel] * normals[column % 4] : value;
        }
    }
}

/* Every group of eight points begins at a 16-byte boundary, in both. */
static bool is_wide(const vt_patch_grid *grid, const float *fields, vt_matrix patches)
{
    return grid->patch % VT_GROUP == 0 && grid->width % VT_GROUP == 0 && vt_is_wide(fields, patches);
}

void VT_CUDA_NAME(patches_load)(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                                const float *inverse_std, vt_matrix patches)
{
    VT_SPREAD(patches_load_kernel, patches.rows * grid->channels * grid->patch, backend, *grid, fields, mean,
              inverse_std, patches, is_wide(grid, fields, patches));
}

void VT_CUDA_NAME(patches_store)(vt_backend *backend, const vt_patch_grid *grid, vt_matrix patches, const float *mean,
                                 const float *inverse_std, float *fields)
{
    VT_SPREAD(patches_store_kernel, patches.rows * grid->channels * grid->patch, backend, *grid, patches, mean,
              inverse_std, fields, is_wide(grid, fields, patches));
}

void VT_CUDA_NAME(patches_load_backward)(vt_backend *backend, const vt_patch_grid *grid, vt_matrix dpatches,
                                         const float *fields, float *dfields)
{
    VT_SPREAD(patches_load_backward_kernel, grid->batch * grid->channels * grid->height * grid->width, backend, *grid,
              dpatches, fields, dfields);
}

void VT_CUDA_NAME(scaled_add)(vt_backend *backend, vt_matrix x, const float *scale, int64_t channels, vt_matrix base,
                              vt_matrix y)
{
    VT_SPREAD(scaled_add_kernel, x.rows * x.columns, backend, x, scale, channels, base, y);
}

void VT_CUDA_NAME(limit)(vt_backend *backend, vt_matrix x, const float *low, const float *high, int64_t channels,
                         vt_matrix gradient)
{
    VT_SPREAD(limit_kernel, x.rows * x.columns, backend, x, low, high, channels, gradient);
}

void VT_CUDA_NAME(fields_disturb)(vt_backend *backend, const vt_disturbance *how, const uint32_t *step,
                                  const float *fields, const float *mean, const float *inverse_std, const float *noise,
                                  float *y)
{
    VT_SPREAD(fields_disturb_kernel, how->samples * how->copies * how->channels * how->rows * ((how->width + 3) / 4),
              backend, *how, step, fields, mean, inverse_std, noise, y);
}
