/* How much means over blocks of points change over dt: the units of loss crps with crps_scales. */
#ifndef VT_TASK_BLOCK_CHANGES_H
#define VT_TASK_BLOCK_CHANGES_H

#include "source/fields/dataset.h"

/* stds [count][channels]: the root of the mean square of the changes of means over sides[i] × sides[i] points, as the
 * data are transformed, or of departures, over samples of the training set: all, or as many, chosen at random and the
 * same ones each time, as have 1 GiB. Points with a missing value are left out. Channels that the input does not hold
 * keep what stands there. Errors as of vt_dataset_read. */
vt_status vt_block_change_stds(const vt_config *config, const vt_source *training, int count, const int64_t *sides,
                               double *const *stds);

#endif
