#include "backend/cpu/vector/elements.h"
#include "backend/loss_measure.h"

enum { RUN = 16 }; /* rows */

typedef int32_t vector_narrow_bits __attribute__((vector_size(LANES * 2)));

INLINE vector_wide widen(vector_narrow values, vector_narrow_bits there)
{
    return __builtin_convertvector((vector_narrow)((vector_narrow_bits)values & there), vector_wide);
}

/* Adds the terms of WIDE_LANES points to the two sums (loss_measure.h). What is missing is 0 in all of them. */
INLINE void add_points(vt_loss_measure measure, const float *prediction, const float *target, const float *weights,
                       vector_wide *errors, vector_wide *sizes)
{
    const vector_narrow p = load_narrow(prediction), t = load_narrow(target), ones = 1 - (vector_narrow){0};
    const vector_narrow_bits there = (p != VT_NO_POINT) & (t != VT_NO_POINT);
    const vector_wide wanted = widen(t, there), difference = widen(p, there) - wanted;
    vector_wide error = difference * difference, size = wanted * wanted;
    if (measure == VT_MEASURE_ABSOLUTE) error = (vector_wide)((vector_wide_bits)difference & INT64_MAX);
    if (measure != VT_MEASURE_RELATIVE) size = widen(ones, there);
    if (weights == NULL) {
        *errors += error;
        *sizes += size;
    } else {
        const vector_wide weight = widen(load_narrow(weights), there);
        *errors += weight * error;
        *sizes += weight * size;
    }
}

/* The sums of a row, in float64, whose lanes are added in order. */
INLINE void add_row(vt_loss_measure measure, const float *prediction, const float *target, const float *weights,
                    int64_t columns, double sums[2])
{
    vector_wide errors[2] = {{0}}, sizes[2] = {{0}};
    double error_lanes[LANES], size_lanes[LANES];
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
#pragma GCC unroll 2
        for (int64_t i = 0; i < 2; i++) {
            const int64_t at = c + i * WIDE_LANES;
            add_points(measure, prediction + at, target + at, weights != NULL ? weights + at : NULL, &errors[i],
                       &sizes[i]);
        }
    }
    memcpy(error_lanes, errors, sizeof error_lanes);
    memcpy(size_lanes, sizes, sizeof size_lanes);
    for (int64_t i = 0; c + i < columns; i++) {
        if (prediction[c + i] == VT_NO_POINT || target[c + i] == VT_NO_POINT) continue;
        const double wanted = (double)target[c + i], difference = (double)prediction[c + i] - wanted;
        const double weight = weights != NULL ? (double)weights[c + i] : 1;
        error_lanes[i] += weight * vt_measure_error(measure, difference);
        size_lanes[i] += weight * vt_measure_size(measure, wanted);
    }
    for (int64_t i = 0; i < LANES; i++) {
        sums[0] += error_lanes[i];
        sums[1] += size_lanes[i];
    }
}

/* Each measure, with weights and without, has loops of its own. */
static void add_any_row(vt_loss_measure measure, const float *prediction, const float *target, const float *weights,
                        int64_t columns, double sums[2])
{
    if (measure == VT_MEASURE_RELATIVE && weights == NULL)
        add_row(VT_MEASURE_RELATIVE, prediction, target, NULL, columns, sums);
    else if (measure == VT_MEASURE_RELATIVE)
        add_row(VT_MEASURE_RELATIVE, prediction, target, weights, columns, sums);
    else if (measure == VT_MEASURE_SQUARE)
        add_row(VT_MEASURE_SQUARE, prediction, target, weights, columns, sums);
    else
        add_row(VT_MEASURE_ABSOLUTE, prediction, target, weights, columns, sums);
}

/* A sample's rows are divided into ranges of RUN rows, whose sums are added in order: a single sample keeps all threads
 * busy, and the bits do not depend on the number of threads. */
void VT_VECTOR(loss_sums)(vt_backend *backend, vt_loss_measure measure, int64_t batch, vt_matrix prediction,
                          vt_matrix target, vt_matrix weights, double *sums)
{
    int64_t tokens = prediction.rows / batch, runs = (tokens + RUN - 1) / RUN;
    double *partial = vt_cpu_shared(backend, (size_t)(batch * runs * 2) * sizeof(double));
    if (partial == NULL) return;
#pragma omp parallel for schedule(static)
    for (int64_t work = 0; work < batch * runs; work++) {
        int64_t first = work / runs * tokens + work % runs * RUN, end = first + RUN, last = (work / runs + 1) * tokens;
        double own[2] = {0, 0};
        for (int64_t r = first; r < (end < last ? end : last); r++)
            add_any_row(measure, prediction.data + r * prediction.stride, target.data + r * target.stride,
                        weights.data != NULL ? weights.data + r % tokens * weights.stride : NULL, target.columns, own);
        partial[2 * work] = own[0];
        partial[2 * work + 1] = own[1];
    }
    for (int64_t sample = 0; sample < batch; sample++) {
        double *to = sums + 2 * sample;
        to[0] = to[1] = 0;
        for (int64_t run = sample * runs; run < (sample + 1) * runs; run++) {
            to[0] += partial[2 * run];
            to[1] += partial[2 * run + 1];
        }
    }
}

/* The gradient of a row; `factor` and the rest as in loss_measure.h. The difference is 0, or no number, where it has no
 * sign. */
INLINE void slopes(vt_loss_measure measure, float factor, const float *prediction, const float *target,
                   const float *weights, int64_t columns, const vt_matrix *to, int64_t index)
{
    for (int64_t c = 0; c < columns; c += LANES) {
        const int64_t count = columns - c;
        const vector p = load_up_to(prediction + c, count), t = load_up_to(target + c, count), difference = p - t;
        const vector weighted = weights != NULL ? load_up_to(weights + c, count) * factor : splat(factor);
        vector direction = difference;
        if (measure == VT_MEASURE_ABSOLUTE)
            direction = choose(difference > 0, splat(1), choose(difference < 0, splat(-1), difference));
        const vector_bits there = (p != VT_NO_POINT) & (t != VT_NO_POINT);
        store_elements_up_to(to, index + c, choose(there, weighted * direction, splat(0)), count);
    }
}

void VT_VECTOR(loss_backward)(vt_backend *backend, vt_loss_measure measure, int64_t batch, vt_matrix prediction,
                              vt_matrix target, vt_matrix weights, const double *sums, float scale,
                              const double *loss_scale, vt_matrix dprediction)
{
    if (loss_scale != NULL) scale *= (float)*loss_scale;
    const int64_t tokens = prediction.rows / batch;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < prediction.rows; r++) {
        const float factor = vt_measure_factor(measure, sums + 2 * (r / tokens), scale);
        const float *p = prediction.data + r * prediction.stride, *t = target.data + r * target.stride;
        const float *w = weights.data != NULL ? weights.data + r % weights.rows * weights.stride : NULL;
        const int64_t index = r * dprediction.stride;
        if (measure == VT_MEASURE_ABSOLUTE)
            slopes(VT_MEASURE_ABSOLUTE, factor, p, t, w, target.columns, &dprediction, index);
        else /* the two have one direction */
            slopes(VT_MEASURE_SQUARE, factor, p, t, w, target.columns, &dprediction, index);
    }
}
