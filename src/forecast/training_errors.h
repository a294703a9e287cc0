/* How large the errors of forecasts from initial times of the training set are: the root of their mean square, by
 * channel, lead time and point. `vitrain evaluate` dresses forecasts with it, the cheap rival of an ensemble
 * (scores.h), and writes it to a file, from which `vitrain predict` takes it. */
#ifndef VT_FORECAST_TRAINING_ERRORS_H
#define VT_FORECAST_TRAINING_ERRORS_H

#include "forecast/forecaster.h"

/* For each lead time, and behind the last one for the climatology. */
typedef struct {
    int64_t leads, size; /* numbers of a forecast: [n_out_channels, height, width] */
    int64_t start_count; /* initial times that they are from */
    size_t bytes;
    void *memory; /* of storage/output_file.h: float64, [leads + 1, size, 2]; NULL: nothing is known */
} vt_training_errors;

/* Adds the errors of a forecast at lead 0, 1, …, or at `leads` of the climatology; those that are NaN are left out.
 * Then collective: what they are over all ranks. */
void vt_training_errors_add(vt_training_errors *errors, int64_t lead, const float *forecast, const float *target);
void vt_training_errors_finish(vt_training_errors *errors, vt_world *world);

/* How large they are then, [size]; NaN: none was added. NULL: nothing is known. */
const float *vt_training_errors_stds(const vt_training_errors *errors, int64_t lead);

/* The same at lead 0, 1, … from such a file, which --error_stds names, into forecaster->mean. Errors: it is of another
 * checkpoint or other data than the forecasts, or has fewer lead times. */
vt_status vt_error_stds_read(const char *path, const vt_forecaster *forecaster, int64_t lead);

#endif
