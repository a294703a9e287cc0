/* Forecasts from one initial time, or from several, into a NetCDF file: `vitrain predict`. */
#ifndef VT_FORECAST_PREDICTION_H
#define VT_FORECAST_PREDICTION_H

#include "data/source.h"
#include "forecast/members.h"
#include "parallel/launch.h"

typedef struct {
    vt_members members;
    vt_set set;       /* that holds the initial times */
    const char *time; /* "2003-01-05T06:00", UTC; or several, "2003-01-01/2003-12-31/12h" */
    int64_t steps;
    const char *forcing_path;     /* files of the variables that are forcings, or NULL */
    const char *error_stds;       /* the file of errors that `vitrain evaluate` writes, or NULL */
    const char *output, *command; /* command: for the file's history */
} vt_prediction_options;

/* Errors: a time that is no date, or that is not in the files (the message says which are). */
vt_status vt_predict(const vt_prediction_options *options, const vt_launch *launch);

#endif
