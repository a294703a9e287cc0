/* Mean and standard deviation of every channel: `.npy` files as NumPy writes them, and the pass that computes them. */
#ifndef VT_DATA_STATISTICS_H
#define VT_DATA_STATISTICS_H

#include <stdint.h>

#include "base/status.h"

/* Reads a float32 or float64 .npy of shape [1, C, 1, 1] with C >= channels; values [channels] gets the first ones.
 * option_name ("global_means_path") is named in messages. */
vt_status vt_statistics_read(const char *path, const char *option_name, int64_t channels, float *values);

/* Both files, checked together: means finite, standard deviations finite and above 0 (the message names the channel).
 */
vt_status vt_statistics_read_pair(const char *means_path, const char *stds_path, int64_t channels, float *means,
                                  float *stds);

/* One pass over all files *YYYY.h5 of `directory` (Welford, float64), then global_means.npy, global_stds.npy
 * ([1, C, 1, 1]) and time_means.npy ([1, C, H, W]), float32, in `output_directory`, which is made when missing. */
vt_status vt_statistics_compute(const char *directory, const char *output_directory);

#endif
