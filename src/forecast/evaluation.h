/* Forecasts from every initial time of a data set, scored against what came: `vitrain evaluate`. */
#ifndef VT_FORECAST_EVALUATION_H
#define VT_FORECAST_EVALUATION_H

#include "config/config.h"
#include "forecast/members.h"
#include "forecast/place.h"
#include "parallel/launch.h"

typedef struct {
    vt_members members;
    bool test;                       /* the test set, else the validation set */
    int64_t rollout;                 /* steps of each forecast */
    int64_t every;                   /* use every N-th initial time */
    int64_t error_times;             /* of the training set, for training_errors.h; 0: none; below: VT_UNSET_INTEGER */
    vt_place place;                  /* of the files */
    const char *channel;             /* that the maps show; NULL: t2m, or the last one */
    const char *forecasts, *command; /* the file that gets all forecasts, with the command in its history; NULL: none */
} vt_evaluation_options;

/* Collective. Prints the loss and a table on standard output, and writes loss.csv, scores.csv and map-….png. Ranks
 * share out the initial times. */
vt_status vt_evaluate(vt_evaluation_options *options, const vt_launch *launch);

#endif
