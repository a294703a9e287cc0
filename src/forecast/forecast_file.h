/* Forecasts in a NetCDF-4 file by the CF conventions (CF-1.8): ncdump, xarray, Panoply and CDO open it. NetCDF-4 is
 * HDF5 whose dimensions are HDF5's dimension scales (docs.unidata.ucar.edu, "File Structure and Performance":
 * interoperability with HDF5), so HDF5 writes it. Each channel is a variable [time, lat, lon]. The coordinates are
 * time, lat and lon; rlat and rlon of a rotated pole; where they are not known, the dimensions y and x have none. Of an
 * ensemble a channel is a variable [number, time, lat, lon], and NAME_mean [time, lat, lon] is the members' mean.
 *
 * An archive holds forecasts from several initial times, in the form of WeatherBench 2 (weatherbench2.readthedocs.io,
 * "Data format"): a channel is a variable [time, prediction_timedelta, latitude, longitude], of an ensemble [time,
 * number, prediction_timedelta, latitude, longitude], where `time` is the initial time. It has no means.
 *
 * How large errors are, NAME_error_std, depends on the lead time alone: [time, lat, lon], or in an archive
 * [prediction_timedelta, latitude, longitude]. An archive may hold nothing else.
 *
 * The names, the units and the grid are those of the data, and the file says which checkpoint and which command made
 * it.
 */
#ifndef VT_FORECAST_FORECAST_FILE_H
#define VT_FORECAST_FORECAST_FILE_H

#include "forecast/forecaster.h"

typedef struct {
    const char *option, *path;       /* option: that names the path */
    const char *command;             /* for the file's history */
    const vt_forecaster *forecaster; /* whose forecasts these are */
    const vt_fields_about *about;    /* of the data at the initial times */
    int64_t steps;
    bool archive;    /* in the form for many initial times, also where there is one */
    bool has_stds;   /* the standard deviations of errors are written, too (VT_FORECAST_STD) */
    bool stds_alone; /* and no forecasts */
} vt_forecast_file_options;

typedef struct vt_forecast_file vt_forecast_file;

/* Is the path one of a NetCDF file (.nc) that can be written, and is nothing there, unless `force`? */
vt_status vt_forecast_file_check_path(const char *option, const char *path, bool force);

/* The file gets its name when it is finished. Error: an archive of steps of months, or without dates. */
vt_status vt_forecast_file_open(const vt_forecast_file_options *options, vt_forecast_file **file);

/* The name of a channel's variable, which ends in "", "_mean" or "_error_std": letters, digits and underscores, a
 * letter first, which every reader of NetCDF accepts. channel: its own name, or NULL. malloc'd. */
char *vt_forecast_file_variable(const char *channel, int64_t number, const char *suffix);

/* The fields [channels, height, width] at time 0, 1, … of a member (0 without an ensemble), or of the members' mean,
 * from initial time `start` (0 without an archive), or how large errors are; each once, in any order. */
enum { VT_FORECAST_MEAN = -1, VT_FORECAST_STD = -2 };
vt_status vt_forecast_file_write(vt_forecast_file *file, int64_t start, int64_t member, int64_t time,
                                 const float *fields);

/* Collective over the first stages of all models, of which rank 0 has the file: writes all that was forecast in a round
 * for one lead time (vt_forecast_all). Uses forecaster->mean. Points that are missing in the newest time of the input
 * get no forecast. */
vt_status vt_forecast_file_write_lead(vt_forecast_file *file, vt_forecaster *forecaster);

/* After the last one: closes the file and gives it its name, in the place of another file of that name. */
vt_status vt_forecast_file_finish(vt_forecast_file **file);

/* Gives up, and removes what was written. */
void vt_forecast_file_close(vt_forecast_file **file);

#endif
