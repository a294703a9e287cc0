/* What forecasts are measured against: the mean fields over time (time_means_path) and the seasonal climatology
 * (climatology_path), for the window of a set. */
#ifndef VT_FORECAST_CLIMATOLOGIES_H
#define VT_FORECAST_CLIMATOLOGIES_H

#include "config/config.h"
#include "source/fields/dataset.h"
#include "task/weather/seasonal.h"

typedef struct {
    float *mean;           /* [n_out_channels, height, width], or NULL */
    vt_seasonal *seasonal; /* or NULL */
} vt_climatologies;

/* starts [count]: the samples that forecasts of `rollout` steps begin with. That a file isn't there, or that the dates
 * of the set aren't known, is a remark only (printed if `speaks`), unless a flag names the file; one that doesn't fit
 * is an error. */
vt_status vt_climatologies_open(const vt_config *config, const vt_dataset *dataset, const int64_t *starts,
                                int64_t count, int64_t rollout, bool speaks, vt_climatologies *climatologies);
void vt_climatologies_close(vt_climatologies *climatologies);

#endif
