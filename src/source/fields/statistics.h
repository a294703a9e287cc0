/* Mean and standard deviation of every channel: reading them from `.npy` files, and computing them in one pass. */
#ifndef VT_SOURCE_FIELDS_STATISTICS_H
#define VT_SOURCE_FIELDS_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/fields_file.h"
#include "source/fields/time_statistics.h"
#include "source/fields/window.h"

/* Reads a float32 or float64 .npy of shape [1, C, 1, 1] with C >= channels; values [channels] gets the first ones.
 * option_name ("global_means_path") is named in messages. */
vt_status vt_statistics_read(const char *path, const char *option_name, int64_t channels, float *values);

/* Both files, checked together: means finite, standard deviations finite and above 0 (the message names the channel).
 */
vt_status vt_statistics_read_pair(const char *means_path, const char *stds_path, int64_t channels, float *means,
                                  float *stds);

/* Statistics of fields that come one time after another, in float64: per channel mean and variance, merged time by time
 * (Chan, Golub, LeVeque: "Updating formulae and a pairwise algorithm for computing sample variances", 1979), and the
 * mean over time of every grid point. NaN is a missing value, which they leave out; without any value they are NaN. */
typedef struct vt_statistics vt_statistics;

vt_statistics *vt_statistics_open(int64_t channels, int64_t height, int64_t width);
void vt_statistics_close(vt_statistics **statistics);

/* Adds the fields of one time, [channels, height, width]. */
void vt_statistics_add(vt_statistics *statistics, const float *fields);

int64_t vt_statistics_channels(const vt_statistics *statistics);
int64_t vt_statistics_times(const vt_statistics *statistics);
double vt_statistics_mean(const vt_statistics *statistics, int64_t channel);
double vt_statistics_std(const vt_statistics *statistics, int64_t channel); /* of the population: divided by n */

typedef struct {
    const char *directory, *option_name; /* of the files *YYYY.h5, and what named it, for messages */
    vt_fields_form form;                 /* what the user says of them */
    vt_window_range range;               /* zeroed: whole fields */
    bool tolerant;                       /* times that can't be read are left out */
    vt_time_statistics *times;           /* gathered in the same pass; NULL: not wanted */
} vt_statistics_source;

/* Of all files, in one pass. Values that can't be read, Inf, and NaN unless form.masked are errors, or with `tolerant`
 * warnings in the log. Warns of a channel that is constant or missing everywhere, which can't be normalised. */
vt_status vt_statistics_gather(const vt_statistics_source *source, vt_statistics **statistics);

/* Times that a tolerant gathering left out. */
int64_t vt_statistics_left_out(const vt_statistics *statistics);

/* The name in the files, "" when there is none. */
const char *vt_statistics_channel_name(const vt_statistics *statistics, int64_t channel);

/* Writes global_means.npy, global_stds.npy ([1, C, 1, 1]) and time_means.npy ([1, C, H, W]), float32, into `directory`,
 * which is made when missing; files of these names are replaced. */
vt_status vt_statistics_write(const vt_statistics *statistics, const char *directory);

#endif
