/* The task of forecasting the weather: fields on a grid, normalised channel by channel, scored by the RMSE of each
 * channel with rows weighted by the cosine of their latitude. The baseline is persistence, the forecast that nothing
 * changes. */
#ifndef VT_TASK_WEATHER_H
#define VT_TASK_WEATHER_H

#include "source/fields/seasonal.h"
#include "task/task.h"
#include "task/weather/transforms.h"

extern const vt_task_kind vt_task_weather;

/* What the task needs to know of the data. */
typedef struct {
    const vt_source *training, *validation; /* NULL: no such set is at hand */
    const vt_fields_about *about;
    const char *name;               /* of the data, for messages; it outlives the task */
    const double *latitudes;        /* of the rows, degrees; NULL: all rows count alike */
    const vt_seasonal *seasonal;    /* that the model sees departures from, or NULL */
    const vt_transform *transforms; /* of its channels, or NULL; they outlive the task */
    bool may_be_unread;             /* a checkpoint will say the normalisation: no file needs to */
} vt_weather_data;

/* Reads what normalises the data from the configuration's files, as for training. */
vt_status vt_weather_open(const vt_config *config, const vt_weather_data *data, vt_task **task);

/* Standard deviations of the channels, [task->field_count], in the units of the data; a transformed one's is NaN. */
void vt_weather_stds(const vt_task *task, float *stds);

/* fields [n_out_channels, height, width], which were only transformed, as values in the units of the data within their
 * bounds, in place. */
void vt_weather_restore(const vt_task *task, float *fields);

/* stds [channels of the data]: standard deviations of input_noise, in the units that the model sees. */
void vt_weather_noise(const vt_task *task, float *stds);

/* How much means over blocks of points change over dt, the units of loss crps with crps_scales: stds [count][channels]
 * = the root of the mean square of the changes of means over sides[i] × sides[i] points, as the data are transformed,
 * or of departures, over samples of the training set: all, or as many, chosen at random and the same ones each time, as
 * have 1 GiB. Points with a missing value are left out. Channels that the input does not hold keep what stands there.
 * Errors as of vt_dataset_read. */
vt_status vt_block_change_stds(const vt_config *config, const vt_source *training, int count, const int64_t *sides,
                               double *const *stds);

#endif
