/* Dropout, a vector of random blocks at a time: each block has the numbers of four neighbouring elements. */
#include "backend/cpu/vector/random_vectors.h"

/* A row of y = factors · x. */
INLINE void mask_row(const vt_mask *mask, uint32_t sample, uint32_t token, float path, const vt_matrix *x,
                     const vt_matrix *y, int64_t row)
{
    const float keep = path / (1.0f - mask->elements.rate);
    for (int64_t c = 0; c < x->columns;) {
        const int64_t first = mask->first_column + c, skipped = first % 4;
        const int64_t end = smaller(x->columns, c + 4 * LANES - skipped);
        float factors[4 * LANES];
        vector made[4];
        make_factors(&mask->elements, sample, token, (uint32_t)(first / 4), keep, made);
        memcpy(factors, made, sizeof factors);
        for (const float *at = factors + skipped; c < end; c += LANES, at += LANES) {
            const int64_t count = smaller(end - c, LANES);
            const vector factor = load_up_to(at, count),
                         kept = factor * load_elements_up_to(x, row * x->stride + c, count);
            store_elements_up_to(y, row * y->stride + c, choose(factor == splat(0), splat(0), kept), count);
        }
        c = end;
    }
}

void VT_VECTOR(mask_multiply)(vt_backend *backend, vt_matrix x, const vt_mask *mask, vt_matrix y)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < x.rows; r++) {
        const uint32_t place = (uint32_t)(r / mask->tokens), token = (uint32_t)(mask->first_token + r % mask->tokens);
        const float path = vt_dropout_sample_factor(&mask->path, mask->path.first_sample + place);
        if (mask->elements.rate > 0) {
            mask_row(mask, mask->elements.first_sample + place, token, path, &x, &y, r);
            continue;
        }
        for (int64_t c = 0; c < x.columns; c += LANES) {
            const int64_t count = x.columns - c;
            const vector value = splat(path) * load_elements_up_to(&x, r * x.stride + c, count);
            store_elements_up_to(&y, r * y.stride + c, value, count);
        }
    }
}
