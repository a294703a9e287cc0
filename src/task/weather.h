/* The task of forecasting the weather: fields on a grid, normalised channel by channel, scored by the RMSE of each
 * channel with rows weighted by the cosine of their latitude. The baseline is persistence, the forecast that nothing
 * changes. */
#ifndef VT_TASK_WEATHER_H
#define VT_TASK_WEATHER_H

#include "task/task.h"
#include "task/weather/seasonal.h"

extern const vt_task_kind vt_task_weather;

/* Opens the task where no data sets are at hand: means and standard deviations of the data's channels, and the
 * latitudes of the rows in degrees (NULL: all rows count alike). */
vt_task *vt_weather_open(const vt_config *config, const float *means, const float *stds, const double *latitudes);

/* Takes the standard deviations of the channels' changes, if the configuration needs them, for channel_weights: auto,
 * predict: tendency and input_noise: from the climatology `seasonal`, where the model sees departures from it, else
 * (NULL) from time_diff_stds_path. Until then they are those of the channels. */
vt_status vt_weather_read_changes(vt_task *task, const vt_seasonal *seasonal);

/* stds [channels of the data]: standard deviations of input_noise, in the units of the data. */
void vt_weather_noise(const vt_task *task, float *stds);

#endif
