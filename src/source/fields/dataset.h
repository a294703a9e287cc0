/* Samples from a directory of files, or from a store: which files there are, which (file, time) each sample is, and its
 * fields, not normalised. docs/data.md describes the layout of a data directory. */
#ifndef VT_SOURCE_FIELDS_DATASET_H
#define VT_SOURCE_FIELDS_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "source/fields/about.h"
#include "source/fields/index.h"
#include "source/fields/known_fields.h"
#include "source/fields/reading.h"
#include "task/weather/calendar.h"
#include "task/weather/transforms.h"

enum { VT_REACH_INPUT = -1 }; /* samples are inputs that need no target */

/* The texts must outlive the dataset. */
typedef struct {
    vt_set set;
    const char *directory;   /* of files, or a store */
    const char *option_name; /* the option that named it, for messages: "train_data_path" */
    int64_t height, width;   /* the window: at the top left, or where `range` is, which must then have this size */
    vt_window_range range;
    int64_t first_row, rows; /* of the window: what this rank reads; rows 0: all of the height */
    int64_t in_channels;     /* channels of the input: channels of the file times (history + 1) */
    int64_t out_channels;
    int64_t forcing_channels; /* behind those of input and target: forcings (VT_TENSOR_FORCINGS) that files hold */
    int64_t history;          /* earlier times stacked in the input */
    int64_t dt;               /* time steps between input and target */
    int64_t targets;          /* steps of forecast that a sample has targets of; 0: 1 */
    int64_t reach;            /* how many of these targets the files must hold for each sample, or VT_REACH_…; 0: 1 */
    int64_t sample_limit;     /* only the first of them; VT_UNSET_INTEGER: all */
    vt_fields_form form;      /* what the user says of the files */
    bool round;               /* the window must go round the globe; checked if longitudes are known */
    bool files_apart;        /* no sample reaches from one file into the next, even if their times follow one another */
    bool direct;             /* reads without the HDF5 library where the files allow it */
    bool insists;            /* the user asks for `direct` by name: the log warns if a file doesn't allow it */
    bool tolerant;           /* a file that has changed is still read, as far as possible */
    bool unchecked;          /* most values that are only copied are not looked at (vt_read_manner), but for
                                vt_source_kind.check */
    bool quiet;              /* opening it warns of nothing */
    bool whole;              /* all channels, points of the range and times, without samples: for statistics */
    const char *climatology; /* a file (seasonal.h): samples are departures from it; NULL: values as in the files */
    vt_known_options known;  /* what else the model sees */
    bool known_in_frames;    /* frames, which caches keep, hold that as well */
    bool synthetic;          /* no files: noise, the same in every batch; sample_limit or a year of samples */
    uint64_t seed;           /* of the noise */
} vt_dataset_options;

/* To be read only; dataset*.c and fields.c make it. */
typedef struct {
    vt_source source;           /* what loader and training see of it */
    vt_dataset_options options; /* those it was opened with, `rows` spelled out: the sizes of a sample */
    vt_fields_about *about;     /* of what samples use; `step` 0: neither the files nor time_step say it */
    /* [options.height], degrees that weigh the rows, whatever first_row and rows are: those of the files; 0, which
     * weighs all rows alike, if the files say that rows run along no latitudes; else evenly from 90 to -90 over the
     * rows of the file, both ends included. vt_dataset_log_coordinates tells which. */
    double *latitudes;
    double *longitudes; /* [options.width] as files have them, or NULL */
    vt_text remarks;    /* what of its files differs, or isn't known */
    char *grid_doubt;   /* why latitudes are unknown although there is something, or NULL */
    char *time_doubt;   /* why a file's times are unknown although it has a coordinate, or NULL */
    int64_t gaps;       /* files with gaps; the log names the first one, and how many there are */
    vt_fields_index index;
    vt_transform *transforms; /* [about->channels]: what channels become, and where forecasts stay; NULL: nothing */
    vt_seasonal *seasonal;    /* of which samples are departures, [vt_dataset_frame_channels, rows, width], or NULL */
    vt_known_fields *known;   /* what else the model sees, for any date; NULL: nothing */
    vt_fields_reading reading;
} vt_dataset;

/* What a sample of this configuration is, and where those of the set are: window, channels, directory, times. The
 * caller adds how to read it. */
vt_dataset_options vt_fields_options(const vt_config *config, vt_set set);

/* Looks at every file (shapes, channel names, latitudes), reads no fields. Errors: no such directory, no files, a file
 * that can't be read, `fields` missing, not 4-D float, too small for the window or the channels, files that differ in
 * channels; fewer than one sample. */
vt_status vt_dataset_open(const vt_dataset_options *options, vt_dataset **dataset);
void vt_dataset_close(vt_dataset **dataset);

/* The dataset that the source is of; NULL if the source is of another kind, or NULL. */
vt_dataset *vt_dataset_of(const vt_source *source);

/* Adds a file to the description of a set, *set NULL for the first one. Fails where it doesn't go with those before it.
 * Only the first file that calls for remarks adds some. */
vt_status vt_fields_about_add_file(vt_fields_about **set, const vt_fields_file *file, const vt_fields_form *form,
                                   const vt_frame_window *window, vt_text *remarks);

/* What all files of a directory, or a store, say together; option_name names it in messages. */
vt_status vt_fields_about_of_set(const char *directory, const char *option_name, const vt_fields_form *form,
                                 vt_fields_about **about);

/* The names in the attribute `channels`, or NULL when the files have none. Entry c is "" past the names given. */
const char *const *vt_dataset_channel_names(const vt_dataset *dataset);

/* Latitudes [height] or longitudes [width] of the window as the files have them, or NULL. */
const double *vt_dataset_known_coordinate(const vt_dataset *dataset, bool longitudes);

/* Are they degrees of the Earth, and not of a rotated pole or of a planet that `vitrain synth` invented? */
bool vt_dataset_is_of_earth(const vt_dataset *dataset);

/* Reads sample `sample`, transformed and as departures where the options say so, else as the files have it: input
 * [in_channels, rows, width] is the fields of times t, t - dt, … t - history * dt stacked along the channel, target
 * [out_channels, rows, width] those of t + dt, both from the window's row first_row on; other rows are not read, so a
 * NaN there goes unseen. Errors name the file and the time; a NaN (unless form.masked) or Inf also the channel. One
 * thread at a time. */
vt_status vt_dataset_read(vt_dataset *dataset, int64_t sample, float *input, float *target);

/* For forecasts of several steps: whether the sample's files reach `steps` steps of dt beyond the input's newest time,
 * and the fields there, [out_channels, rows, width], in any case as the files have them. Errors as in vt_dataset_read.
 */
bool vt_dataset_reaches(const vt_dataset *dataset, int64_t sample, int64_t steps);
vt_status vt_dataset_read_later(vt_dataset *dataset, int64_t sample, int64_t steps, float *fields);

/* The forcings there, [forcing_channels, rows, width], as samples have them: as departures where the options say so. */
vt_status vt_dataset_read_forcings(vt_dataset *dataset, int64_t sample, int64_t steps, float *fields);

/* The file that holds the sample's newest input, open until something else is read. */
vt_status vt_dataset_open_file(vt_dataset *dataset, int64_t sample, vt_fields_file **file);

/* Fails where a file doesn't say when its times are, which `option` needs. */
vt_status vt_dataset_check_dates(const vt_dataset *dataset, const char *option);

/* The date `steps` times dt after a sample's newest input, which its files must have (vt_dataset_reaches): by the
 * file's own coordinate, else by its name. False if neither says it. */
bool vt_dataset_date(const vt_dataset *dataset, int64_t sample, int64_t steps, vt_date *date);

/* The sample whose newest input is of this date, with steps of months in that month; -1: none is. Looks from sample
 * `from` on first. */
int64_t vt_dataset_find(const vt_dataset *dataset, vt_date date, int64_t from);

/* Files of the forcings alone are transformed as the dataset's are from now on; fails where they don't go with it. */
vt_status vt_dataset_join_forcings(const vt_dataset *dataset, vt_dataset *forcings);

/* What weighs the rows of RMSE if it isn't the latitudes of the files; else NULL. */
const char *vt_dataset_assumed_weights(const vt_dataset *dataset);

/* Logs when the samples are and how their rows are weighed, and what of it is assumed; warns where a set is not what is
 * expected: times that aren't 6 hours apart, a coordinate that can't be read. */
void vt_dataset_log_coordinates(const vt_dataset *dataset);

/* Frames: the times that samples use, numbered through all files. Of each the channels that input or target need,
 * [channels, rows, width]: of an input the first in_channels / (history + 1), of a target the first out_channels,
 * behind both those of the forcings. With known_in_frames the source's frames go on: each with the known fields that
 * change; and behind the last time one frame more with those that don't, where there are some. */
int64_t vt_dataset_frame_channels(const vt_dataset *dataset);

#endif
