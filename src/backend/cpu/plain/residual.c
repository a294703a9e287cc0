#include "backend/cpu/cpu.h"
#include "backend/dropout.h"

/* The factors of one row's elements, four at a time in `factors`; `path` is the whole sample's factor. */
static void mask_row(const vt_mask *mask, int64_t row, int64_t columns, const float *x, float path, float *y)
{
    uint32_t sample = mask->elements.first_sample + (uint32_t)(row / mask->tokens);
    uint32_t token = (uint32_t)(mask->first_token + row % mask->tokens);
    float keep = path / (1.0f - mask->elements.rate);
    int64_t begin = mask->first_column, end = begin + columns;
    for (int64_t quad = begin / 4; 4 * quad < end; quad++) {
        vt_random_block block = vt_dropout_block(&mask->elements, sample, token, (uint32_t)quad);
        for (int64_t c = 4 * quad < begin ? begin : 4 * quad; c < 4 * quad + 4 && c < end; c++)
            y[c - begin] = vt_random_uniform(block.word[c % 4]) < mask->elements.rate ? 0.0f : keep * x[c - begin];
    }
}

static float path_factor(const vt_mask *mask, int64_t row)
{
    return vt_dropout_sample_factor(&mask->path, mask->path.first_sample + (uint32_t)(row / mask->tokens));
}

void vt_plain_mask_multiply(vt_backend *backend, vt_matrix x, const vt_mask *mask, vt_matrix y)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *from = x.data + r * x.stride;
        float *to = y.data + r * y.stride, path = path_factor(mask, r);
        if (mask->elements.rate > 0) {
            mask_row(mask, r, x.columns, from, path, to);
        } else {
            for (int64_t c = 0; c < x.columns; c++) to[c] = path * from[c];
        }
    }
}

void vt_plain_residual_add(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y)
{
    if (vt_mask_is_active(mask)) backend->mask_multiply(backend, branch, mask, branch);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *a = x.data + r * x.stride, *b = branch.data + r * branch.stride;
        float *to = y.data + r * y.stride;
#pragma omp simd
        for (int64_t c = 0; c < x.columns; c++) to[c] = a[c] + b[c];
    }
}

void vt_plain_position_add(vt_backend *backend, vt_matrix x, vt_matrix position)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const float *from = position.data + (r % position.rows) * position.stride;
        float *to = x.data + r * x.stride;
#pragma omp simd
        for (int64_t c = 0; c < x.columns; c++) to[c] += from[c];
    }
}

void vt_plain_position_backward(vt_backend *backend, vt_matrix dx, vt_matrix dposition)
{
    enum { COLUMNS = 32 }; /* in one piece of work, so that a single token with many columns keeps all threads busy */
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t token = 0; token < dposition.rows; token++) {
        for (int64_t first = 0; first < dx.columns; first += COLUMNS) {
            int64_t count = dx.columns - first < COLUMNS ? dx.columns - first : COLUMNS;
            float *to = dposition.data + token * dposition.stride + first;
            double sum[COLUMNS] = {0};
            for (int64_t r = token; r < dx.rows; r += dposition.rows) {
                const float *from = dx.data + r * dx.stride + first;
#pragma omp simd
                for (int64_t c = 0; c < count; c++) sum[c] += (double)from[c];
            }
            for (int64_t c = 0; c < count; c++) to[c] += (float)sum[c];
        }
    }
}
