/* How large the errors of forecasts from initial times of the training set are: the root of their mean square, by
 * channel, lead time and point. `vitrain evaluate` dresses forecasts with it, the cheap rival of an ensemble
 * (scores.h), and writes it to a file, from which `vitrain predict` takes it. */
#ifndef VT_FORECAST_TRAINING_ERRORS_H
#define VT_FORECAST_TRAINING_ERRORS_H

#include "forecast/evaluation_report.h"

/* `t` is a copy of the evaluation, whose data become the training set, with as many initial times as
 * options->error_times says, or as before: some of those of find_starts. And takes memory for their errors. */
vt_status vt_training_errors_open(vt_evaluated *t, vt_status (*find_starts)(vt_evaluated *e, int64_t every));
void vt_training_errors_close(vt_evaluated *e);

/* As vt_evaluated.take: adds the errors of a forecast, and of the climatology. Then collective: sums over ranks, and
 * the file `error_stds.nc` of the evaluation. */
vt_status vt_training_errors_add(vt_evaluated *t, int64_t index, int64_t i, int64_t lead, vt_score_fields *fields);
vt_status vt_training_errors_finish(vt_evaluated *t);

/* How large they are at lead 0, 1, … and, behind the last one, those of the climatology: [n_out_channels, height,
 * width]; NaN: none is known. */
const float *vt_training_errors_stds(const vt_evaluated *e, int64_t lead);

/* The same from such a file, which --error_stds names. Errors: it is of another checkpoint or grid, or has not so many
 * lead times. */
vt_status vt_error_stds_read(const char *path, const char *checkpoint, const vt_dataset *dataset,
                             const vt_config *config, int64_t lead, float *stds);

#endif
