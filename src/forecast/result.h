/* The file that a checkpoint's forecasts go to: the names, the units and the grid are those of the data, and it says
 * which checkpoint and which command made it. */
#ifndef VT_FORECAST_RESULT_H
#define VT_FORECAST_RESULT_H

#include "forecast/forecast_file.h"
#include "forecast/states.h"

typedef struct {
    const char *option, *path; /* option: that names the path */
    const char *command;       /* for the file's history */
    const char *checkpoint;
    const vt_members *members;
    const vt_config *config;
    vt_dataset *dataset;
    const vt_fields_about *about; /* of the data at the initial times */
    const int64_t *starts;        /* the initial times: samples, [start_count] */
    int64_t start_count, steps;
    bool archive;  /* with one initial time, too; start_count 0: of standard deviations alone, for the data of starts[0]
                    */
    bool has_stds; /* VT_FORECAST_STD */
} vt_result_options;

/* Is the path one of a NetCDF file (.nc) that can be written, and is nothing there, unless `force`? */
vt_status vt_result_check_path(const char *option, const char *path, bool force);

/* Error: an archive of steps of months, or without dates. */
vt_status vt_result_open(const vt_result_options *options, vt_forecast_file **file);

/* "step 360, crc32c 0123abcd": what such a file calls the checkpoint; malloc'd. */
vt_status vt_result_identity(const char *checkpoint, vt_weights weights, char **identity);

/* Points that are missing in the newest time of the input, such as land in data of the ocean, get no forecast. */
void vt_result_leave_out_missing(const vt_states *states);

#endif
