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
 * The standard deviation of the errors, NAME_error_std, depends on the lead time alone: [time, lat, lon], or in an
 * archive [prediction_timedelta, latitude, longitude]. An archive may hold nothing else. */
#ifndef VT_FORECAST_FORECAST_FILE_H
#define VT_FORECAST_FORECAST_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/fields_file.h"
#include "task/weather/calendar.h"

typedef struct {
    int64_t times, height, width, channels;
    bool archive;    /* else a forecast from one initial time */
    int64_t starts;  /* initial times of an archive; 0: it holds no forecasts */
    int64_t step;    /* minutes from one time of an archive to the next */
    int64_t members; /* of an ensemble; 0: none */
    bool has_stds;
    const double *latitudes, *longitudes; /* degrees, [height], [width]; NULL: a dimension without a coordinate */
    bool rotated;                         /* degrees of a rotated pole's grid */
    const char *const *channel_names;     /* [channels], or NULL; "" where there is none */
    const vt_channel_meaning *meanings;   /* [channels]: from the data */
    const vt_date *dates;                 /* [1 + times]: the initial time, then those of the forecasts; or [starts] */
    const vt_time_axis *time_axis;        /* gives the units and the calendar; NULL: hours since dates[0] */
    const char *title, *source, *history; /* global attributes; history: when, and by which command */
    const char *checkpoint, *about;       /* likewise: which made it, and the data that it begins from, as JSON */
    bool masked;                          /* fields may have missing points: NaN, which is then _FillValue */
} vt_forecast_file_options;

typedef struct vt_forecast_file vt_forecast_file;

/* The file gets its name when it is finished. */
vt_status vt_forecast_file_open(const char *path, const vt_forecast_file_options *options, vt_forecast_file **file);

/* The name of a channel's variable, with "", "_mean" or "_error_std" behind it: letters, digits and underscores, a
 * letter first, which every reader of NetCDF accepts. channel: its own name, or NULL. malloc'd. */
char *vt_forecast_file_variable(const char *channel, int64_t number, const char *suffix);

/* The fields [channels, height, width] at time 0, 1, … of a member (0 without an ensemble), or of the members' mean,
 * from initial time `start` (0 without an archive), or the standard deviations; each once, in any order. */
enum { VT_FORECAST_MEAN = -1, VT_FORECAST_STD = -2 };
vt_status vt_forecast_file_write(vt_forecast_file *file, int64_t start, int64_t member, int64_t time,
                                 const float *fields);

/* After the last one: closes the file and gives it its name, in the place of another file of that name. */
vt_status vt_forecast_file_finish(vt_forecast_file **file);

/* Gives up, and removes what was written. */
void vt_forecast_file_close(vt_forecast_file **file);

#endif
