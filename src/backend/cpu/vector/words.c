/* Cross entropy, row by row: a row is read once from memory, and again from a cache. */
#include "backend/cpu/vector/attention_parts.h"

enum { RUN = 64 }; /* vectors whose float32 sums are added before they are widened */

/* The largest of a row's numbers; a NaN stays NaN. */
static float largest_of(const float *row, int64_t count)
{
    vector high[4] = {splat(-INFINITY), splat(-INFINITY), splat(-INFINITY), splat(-INFINITY)};
    int64_t c = 0;
    for (; c + 4 * LANES <= count; c += 4 * LANES)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) high[i] = largest(high[i], load(row + c + i * LANES));
    float lanes[4 * LANES], most = -INFINITY;
    memcpy(lanes, high, sizeof lanes);
    for (int i = 0; i < 4 * LANES; i++) most = most >= lanes[i] ? most : lanes[i];
    for (; c < count; c++) most = most >= row[c] ? most : row[c];
    return most;
}

/* The sum of exp(number - largest). */
static double sum_of_powers(const float *row, int64_t count, float high)
{
    const vector most = splat(high), scale = splat(log2_e);
    double total = 0;
    int64_t c = 0;
    while (c + LANES <= count) {
        const int64_t end = smaller(count - LANES + 1, c + RUN * LANES);
        vector sum = {0};
        for (; c < end; c += LANES) sum += exp2_vector((load(row + c) - most) * scale);
        total += (double)sum_lanes(sum);
    }
    for (; c < count; c++) total += exp((double)row[c] - (double)high);
    return total;
}

void VT_VECTOR(cross_entropy_parts)(vt_backend *backend, const vt_word_rows *words, const int32_t *targets,
                                    vt_matrix scores, float *parts)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < scores.rows; r++) {
        const float *row = scores.data + r * scores.stride;
        const int64_t target = vt_word_here(words, targets[vt_word_place(words, r)]);
        parts[3 * r] = largest_of(row, scores.columns);
        parts[3 * r + 1] = (float)sum_of_powers(row, scores.columns, parts[3 * r]);
        parts[3 * r + 2] = target >= 0 ? row[target] : -INFINITY;
    }
}

void VT_VECTOR(cross_entropy_backward)(vt_backend *backend, const vt_word_rows *words, const int32_t *targets,
                                       vt_matrix scores, const float *log_sum, float scale, const double *loss_scale,
                                       vt_matrix dscores)
{
    const float factor = (float)((double)scale * (loss_scale != NULL ? *loss_scale : 1));
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < scores.rows; r++) {
        const float *row = scores.data + r * scores.stride;
        const int32_t number = targets[vt_word_place(words, r)];
        const int64_t target = vt_word_here(words, number), begin = r * dscores.stride;
        const float at_target = target >= 0 ? row[target] : 0;
        const vector less = splat(log_sum[r]), own = splat(number >= 0 ? factor : 0);
        for (int64_t c = 0; c < scores.columns; c += LANES) {
            const int64_t count = scores.columns - c;
            const vector weight = exp2_vector((load_up_to(row + c, count) - less) * splat(log2_e));
            store_elements_up_to(&dscores, begin + c, own * weight, count);
        }
        if (target >= 0)
            set_element(&dscores, begin + target,
                        (float)((double)factor * expm1((double)at_target - (double)log_sum[r])));
    }
}
