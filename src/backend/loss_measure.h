/* The losses of a sample whose prediction is p and whose target is t, with weights w, over its points:
 *
 *     VT_MEASURE_RELATIVE   √(Σ w (p - t)² / Σ w t²), the norm of the error over the norm of the target
 *     VT_MEASURE_SQUARE     Σ w (p - t)² / Σ w, the mean of the squared errors
 *     VT_MEASURE_ABSOLUTE   Σ w |p - t| / Σ w, the mean of the errors' sizes
 *
 * Only the ratios of weights count. The two sums are taken first; the rest follows from them. */
#ifndef VT_BACKEND_LOSS_MEASURE_H
#define VT_BACKEND_LOSS_MEASURE_H

#include "backend/backend.h"
#include "base/random.h" /* VT_ON_DEVICE_TOO */

/* A point's terms of the two sums, without its weight. */
VT_ON_DEVICE_TOO static inline double vt_measure_error(vt_loss_measure measure, double difference)
{
    return measure == VT_MEASURE_ABSOLUTE ? fabs(difference) : difference * difference;
}

VT_ON_DEVICE_TOO static inline double vt_measure_size(vt_loss_measure measure, double target)
{
    return measure == VT_MEASURE_RELATIVE ? target * target : 1;
}

/* 0 where no point is there. Of VT_MEASURE_RELATIVE infinite only where the target's norm is 0: an infinite error makes
 * a NaN. */
VT_ON_DEVICE_TOO static inline float vt_measure_loss(vt_loss_measure measure, const double sums[2])
{
    if (sums[0] == 0 && sums[1] == 0) return 0;
    if (measure == VT_MEASURE_RELATIVE && isinf(sums[0])) return NAN;
    return (float)(measure == VT_MEASURE_RELATIVE ? sqrt(sums[0] / sums[1]) : sums[0] / sums[1]);
}

/* The gradient at a point is this factor of its sample, times its weight and vt_measure_direction. */
VT_ON_DEVICE_TOO static inline float vt_measure_factor(vt_loss_measure measure, const double sums[2], float scale)
{
    const float error_norm = (float)sqrt(sums[0]), target_norm = (float)sqrt(sums[1]);
    if (sums[0] == 0) return 0; /* a perfect forecast has no gradient */
    if (measure == VT_MEASURE_RELATIVE) return error_norm == 0 ? 0 : scale / (error_norm * target_norm);
    return (float)((measure == VT_MEASURE_SQUARE ? 2 : 1) * (double)scale / sums[1]);
}

VT_ON_DEVICE_TOO static inline float vt_measure_direction(vt_loss_measure measure, float difference)
{
    if (measure != VT_MEASURE_ABSOLUTE || isnan(difference)) return difference;
    return (float)((difference > 0) - (difference < 0));
}

#endif
