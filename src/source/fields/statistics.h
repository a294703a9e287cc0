/* Mean and standard deviation of every channel: reading them from `.npy` files, and computing them in one pass. */
#ifndef VT_SOURCE_FIELDS_STATISTICS_H
#define VT_SOURCE_FIELDS_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/about.h"
#include "source/fields/fields_file.h"
#include "source/fields/time_statistics.h"
#include "source/fields/window.h"

/* Reads means, standard deviations or those of changes from a float32 or float64 .npy of shape [1, C, 1, 1]: of the
 * channels of `data`, values [data->about->channels], in whatever order the file has them. What the file says of
 * itself, in the about.json beside it, is compared with the data; without that, or if the file was replaced, a remark
 * says what was assumed. checksum: its CRC-32C. Errors name the option and the channel: a value that is not finite, a
 * standard deviation that is not above 0. */
vt_status vt_statistics_read(const char *path, vt_normalising_file kind, const vt_fields_rules *rules,
                             const vt_fields_side *data, float *values, int64_t *checksum, vt_text *remarks);

/* What the file was made from; *about NULL: that is not known. */
vt_status vt_statistics_about(const char *path, vt_normalising_file kind, vt_fields_about **about);

/* Statistics of fields that come one time after another, in float64: per channel mean and variance, merged time by time
 * (Chan, Golub, LeVeque: "Updating formulae and a pairwise algorithm for computing sample variances", 1979), and the
 * mean over time of every grid point. NaN is a missing value, which they leave out; without any value they are NaN. */
typedef struct vt_statistics {
    int64_t channels, height, width, points;
    int64_t times, left_out;      /* times that were added, and those that a tolerant gathering left out */
    double *count;                /* [channels]: values that were there */
    double *mean;                 /* [channels] */
    double *deviation;            /* [channels]: sum of (x - mean)^2 */
    double *point_sum;            /* [channels, height, width]: sum over the times; exact enough for 1e6 of them */
    int32_t *point_count;         /* [channels, height, width] */
    vt_fields_about *about;       /* what they are of, or NULL; owned */
    struct vt_statistics *values; /* the same in the units of the data; NULL: no channel is transformed */
    vt_time_statistics *by_time;  /* of the same fields; NULL: not wanted */
} vt_statistics;

vt_statistics *vt_statistics_open(int64_t channels, int64_t height, int64_t width);
void vt_statistics_close(vt_statistics **statistics);

/* Adds the fields of one time, [channels, height, width]. */
void vt_statistics_add(vt_statistics *statistics, const float *fields);

double vt_statistics_mean(const vt_statistics *statistics, int64_t channel);
double vt_statistics_std(const vt_statistics *statistics, int64_t channel); /* of the population: divided by n */

typedef struct {
    const char *directory, *option_name; /* of the files *YYYY.h5, and what named it, for messages */
    vt_fields_form form;                 /* what the user says of them */
    vt_window_range range;               /* zeroed: whole fields */
    bool tolerant;                       /* times that can't be read are left out */
    int64_t dt, harmonics;               /* of vt_statistics.by_time; dt 0: not wanted */
} vt_statistics_source;

/* Of all files, in one pass. Values that can't be read, Inf, and NaN unless form.masked are errors, or with `tolerant`
 * warnings in the log. Warns of a channel that is constant or missing everywhere, which can't be normalised. */
vt_status vt_statistics_gather(const vt_statistics_source *source, vt_statistics **statistics);

/* Writes global_means.npy, global_stds.npy ([1, C, 1, 1]) and time_means.npy ([1, C, H, W]), float32, into `directory`,
 * which is made when missing; files of these names are replaced. Where channels are transformed (form.transform), the
 * first two are of what they become, time_means.npy still in the units of the data. */
vt_status vt_statistics_write(const vt_statistics *statistics, const char *directory);

/* Writes the files of statistics->by_time, of which *notes (vt_time_statistics_write) tells, and then about.json, which
 * says what all are of, which `command` made them, and their checksums. Without `all`, means and standard deviations
 * that are there are of other origin. */
vt_status vt_statistics_write_rest(vt_statistics *statistics, const char *command, bool all, const char *directory,
                                   char **notes);

#endif
