/* Samples out of a directory of yearly HDF5 files: which files there are, which (file, time) each sample is, and its
 * fields, unnormalised. See docs/data.md for the layout of a data directory. */
#ifndef VT_SOURCE_FIELDS_DATASET_H
#define VT_SOURCE_FIELDS_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/fields_file.h"
#include "source/fields/read_plan.h"
#include "task/weather/calendar.h"

typedef struct {
    const char *directory;   /* holds *YYYY.h5 */
    const char *option_name; /* the option that named it, for messages: "train_data_path" */
    int64_t height, width;   /* the window: at the top left, or where `range` is, which must hold so many points */
    vt_window_range range;
    int64_t first_row, rows; /* of the window: what this rank reads; rows 0: all of the height */
    int64_t in_channels;     /* channels of the input: channels of the file times (history + 1) */
    int64_t out_channels;
    int64_t history;      /* earlier times stacked in the input */
    int64_t dt;           /* time steps between input and target */
    int64_t sample_limit; /* only the first so many; VT_UNSET_INTEGER: all */
    vt_fields_form form;  /* what the user says of the files */
    bool round;           /* the window goes round the globe: that is checked where longitudes are known */
    bool files_apart;     /* no sample reaches from one file into the next, also where their times follow */
    bool direct;          /* reads past the HDF5 library where the files allow it */
    bool insists;         /* the user asks for `direct` by name: the log warns where the files don't allow it */
    bool tolerant;        /* a file that changed is read on as far as it goes */
    bool unchecked;       /* of plans, values that are only copied aren't looked at: see vt_dataset_check */
    bool quiet;           /* opening it warns of nothing */
    bool synthetic;       /* no files: noise, the same in every batch; sample_limit or a year of samples */
    uint64_t seed;        /* of the noise */
} vt_dataset_options;

typedef struct vt_dataset vt_dataset; /* begins with a vt_source */

/* Looks at every file (shapes, channel names, latitudes), reads no fields. Errors: no such directory, no files, a file
 * that is not HDF5, `fields` missing, not 4-D float, too small for the window or the channels, files that differ in
 * channels; fewer than one sample. */
vt_status vt_dataset_open(const vt_dataset_options *options, vt_dataset **dataset);
void vt_dataset_close(vt_dataset **dataset);

int64_t vt_dataset_sample_count(const vt_dataset *dataset);

/* The dataset as a source, and back: NULL where the source is of another kind, or NULL. */
vt_source *vt_dataset_source(const vt_dataset *dataset);
vt_dataset *vt_dataset_of(const vt_source *source);

/* The options it was opened with, `rows` spelled out: the sizes of a sample. */
const vt_dataset_options *vt_dataset_options_of(const vt_dataset *dataset);

/* The names in the attribute `channels`, or NULL when the files have none. Entry c is "" past the names given. */
const char *const *vt_dataset_channel_names(const vt_dataset *dataset);

/* That validation has the channels of training, in the same order, as far as both have names and use the channels; and
 * that its times are as far apart, as far as both say that. */
vt_status vt_dataset_check_same_channels(const vt_dataset *training, const vt_dataset *validation);

/* Latitudes that weigh all the window's rows, in degrees (height values, whatever first_row and rows): those of the
 * files; else evenly from 90 to -90 over the rows of the file, both ends included; 0, which weighs all alike, where the
 * files say that rows run along no latitudes. vt_dataset_log_coordinates tells which. */
const double *vt_dataset_latitudes(const vt_dataset *dataset);

/* The window of the files' grid, all rows of it; and whether their grid has this size. */
const vt_frame_window *vt_dataset_window(const vt_dataset *dataset);
bool vt_dataset_has_grid(const vt_dataset *dataset, int64_t height, int64_t width);

/* Latitudes [height] or longitudes [width] of the window as files say them, or NULL where none does. */
const double *vt_dataset_known_coordinate(const vt_dataset *dataset, bool longitudes);

/* "…/2013.h5, time 17": where a sample's input ends. */
void vt_dataset_describe(const vt_dataset *dataset, int64_t sample, char *buffer, int64_t size);

/* Reads sample `sample`: input [in_channels, rows, width] = fields[t], fields[t - dt], … fields[t - history * dt]
 * stacked along the channel, target [out_channels, rows, width] = fields[t + dt], both from the window's row first_row
 * on; other rows are not read, so a NaN there goes unseen. Values as in the file. Errors name the file and the time; a
 * NaN (unless form.masked) or Inf also the channel. One thread at a time (a loader's thread, or the step's). */
vt_status vt_dataset_read(vt_dataset *dataset, int64_t sample, float *input, float *target);

/* For an `unchecked` dataset, when a sample's loss is not finite: is it the data? Reads the sample again, looks at
 * every value, and fails as vt_dataset_read does. One thread at a time. */
vt_status vt_dataset_check(vt_dataset *dataset, int64_t sample);

/* Samples whose times lie in two files or more: they are there where time coordinates say that the files follow one
 * another. */
int64_t vt_dataset_crossing_samples(const vt_dataset *dataset);

/* Where two sets hold the same times, as far as dates are known: a sentence that says which, malloc'd; NULL: they share
 * none. The names ("training", "validation") are those of the sets in it. */
char *vt_dataset_shared_times(const vt_dataset *one, const char *one_name, const vt_dataset *other,
                              const char *other_name);

/* For forecasts of several steps: whether the sample's files reach `steps` steps of dt beyond the input's newest time,
 * and the fields there, [out_channels, rows, width]. Errors as in vt_dataset_read. */
bool vt_dataset_reaches(const vt_dataset *dataset, int64_t sample, int64_t steps);
vt_status vt_dataset_read_later(vt_dataset *dataset, int64_t sample, int64_t steps, float *fields);

/* The date of a sample's newest input: by the file's own coordinate, else by its name. False where neither says it. */
bool vt_dataset_date(const vt_dataset *dataset, int64_t sample, vt_date *date);

/* The length between two times of a file (calendar.h): as its coordinate or time_step says, else 6 hours, which is
 * assumed. */
int64_t vt_dataset_minutes_a_time(const vt_dataset *dataset);
bool vt_dataset_step_is_assumed(const vt_dataset *dataset);

/* What weighs the rows of RMSE, where it isn't the latitudes of the files; else NULL. */
const char *vt_dataset_assumed_weights(const vt_dataset *dataset);

/* A file's channel as the files describe it; texts are "" where they don't. */
const vt_channel_meaning *vt_dataset_meaning(const vt_dataset *dataset, int64_t channel);

/* Logs when the samples are and how their rows are weighed, and what of it is assumed; warns where a set is not what is
 * expected: times that aren't 6 hours apart, a coordinate that can't be read. */
void vt_dataset_log_coordinates(const vt_dataset *dataset);

/* Plans the reads that bring samples: samples [count] go to input [count, in_channels, rows, width] and target [count,
 * out_channels, rows, width]. Any thread. The files are held open until vt_dataset_release; `plan` keeps them. When it
 * fails, nothing is held. Values that stay in memory from here on are looked at even if `unchecked`. */
vt_status vt_dataset_plan(vt_dataset *dataset, const int64_t *samples, int64_t count, float *input, float *target,
                          vt_fields_plan *plan);
void vt_dataset_release(vt_dataset *dataset, vt_fields_plan *plan);

/* Frames: the times that samples use, numbered through all files. Of each the channels that input or target need,
 * [channels, rows, width]: of an input the first in_channels / (history + 1), of a target the first out_channels. */
int64_t vt_dataset_frame_count(const vt_dataset *dataset);
int64_t vt_dataset_frame_channels(const vt_dataset *dataset);

/* frames [history + 2] of a sample: the input's, from the newest time to the oldest, then the target's. */
void vt_dataset_frames(const vt_dataset *dataset, int64_t sample, int64_t *frames);

/* values [channels, rows, width] = frame `frame`. Errors and threads as with vt_dataset_read. */
vt_status vt_dataset_read_frame(vt_dataset *dataset, int64_t frame, float *values);

/* From here on frames stay in memory once they were read, and later samples are copies of them. Before any reading. */
vt_status vt_dataset_keep_frames(vt_dataset *dataset);

/* How many are there. Any thread. */
int64_t vt_dataset_kept_frames(vt_dataset *dataset);

#endif
