/* What data are: their channels, their grid, when they are, and how they are normalised. Statistics, climatologies,
 * checkpoints and forecasts carry the description of the data that they were made from, as JSON that people can read
 * (docs/data.md); vt_fields_compare says whether two of them go together. A description knows nothing of files. */
#ifndef VT_SOURCE_FIELDS_ABOUT_H
#define VT_SOURCE_FIELDS_ABOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "source/fields/window.h"
#include "task/weather/calendar.h"
#include "task/weather/channels.h"

/* Times that follow one another without a gap, both ends included. */
typedef struct {
    vt_date first, last;
} vt_time_span;

/* The files of numbers that normalise, whose checksums a description keeps. */
typedef enum {
    VT_FILE_OF_MEANS,
    VT_FILE_OF_STDS,
    VT_FILE_OF_CHANGES,
    VT_FILE_OF_TIME_MEANS,
    VT_FILE_OF_CLIMATOLOGY,
    VT_NORMALISING_FILES
} vt_normalising_file;

/* "global_means.npy", in a directory of statistics. */
extern const char *const vt_normalising_names[VT_NORMALISING_FILES];

/* What fields are normalised with: (value - mean) / std of each channel. */
typedef struct {
    bool of_departures;   /* from the seasonal climatology; else of the values */
    double *means, *stds; /* [channels]; NULL: there is no normalisation, or it is not known */
    double *change_stds;  /* [channels], of the changes over dt; NULL: not known */
    /* The same of means over blocks of sides × sides points (crps_scales), behind the last one 0. */
    int64_t block_sides[VT_MOST_SCALES + 1];
    double *block_change_stds[VT_MOST_SCALES];
    int64_t checksums[VT_NORMALISING_FILES]; /* CRC-32C of the files; -1: not known */
} vt_fields_normalisation;

/* What is not known is NULL, 0 or false, never guessed. */
typedef struct vt_fields_about {
    int64_t channels;
    char **names;                   /* [channels], or NULL */
    vt_channel_meaning *meanings;   /* [channels], or NULL */
    int64_t rows, columns;          /* of the whole grid */
    double *latitudes, *longitudes; /* degrees, [rows], from north to south, and [columns]; or NULL */
    bool rotated;                   /* they are those of a rotated pole */
    bool imaginary;                 /* they are those of an imaginary planet; JSON doesn't tell */
    bool no_latitudes;              /* rows run along no latitudes, as the files say */
    bool turned;                    /* rows of some files run from south to north, and are turned round */
    bool unplaced;                  /* some files don't say where their rows are */
    vt_frame_window window;         /* what is used of the grid */
    bool dated;                     /* a time coordinate says when they are, in `calendar` */
    vt_calendar calendar;
    int64_t step;          /* length (calendar.h) between two times */
    const char *step_from; /* what says so: "file", "time_step" or "assumed" */
    int64_t dt;            /* times between input and target, or over which changes were measured */
    vt_time_span *spans;   /* [span_count], in order; by the names of files where no coordinate says them */
    int64_t span_count, times;
    bool masked; /* values may be missing: NaN */
    vt_fields_normalisation normalisation;
    /* where they come from */
    char *files; /* "1979.h5 … 2015.h5", without directories */
    int64_t file_count;
    char *made_by; /* the program's version and its command */
    char *date;    /* of that, UTC */
} vt_fields_about;

vt_fields_about *vt_fields_about_make(void);
void vt_fields_about_close(vt_fields_about **about);

/* Of channels that have nothing but names. */
vt_fields_about *vt_fields_about_of_names(const char *const *names, int64_t count);

/* "2026-11-28T04:38:00Z": now, or the time that SOURCE_DATE_EPOCH says (reproducible-builds.org). */
enum { VT_NOW_SIZE = 32 };
const char *vt_fields_about_now(char text[VT_NOW_SIZE]);

/* The channels first, first + 1, … first + count - 1 alone. */
void vt_fields_about_limit(vt_fields_about *about, int64_t first, int64_t count);

/* For another file of the same data: takes the coordinates that `about` lacks from `other`, and its remarks on the
 * grid (rotated, no_latitudes, …). */
void vt_fields_about_add_grid(vt_fields_about *about, vt_fields_about *other);

/* Adds a span; one that follows the last one within its step makes that longer. */
void vt_fields_about_add_span(vt_fields_about *about, vt_date first, vt_date last);

/* Says who makes what carries the description, and when: "vitrain 1.0 stats". */
void vt_fields_about_sign(vt_fields_about *about, const char *command);

/* Latitudes [window.rows] or longitudes [window.width] of the window, malloc'd; NULL: they are not known. */
double *vt_fields_about_coordinates(const vt_fields_about *about, bool longitudes);

/* How a channel is described; nothing is known of it: "" and 0. */
const vt_channel_meaning *vt_fields_about_meaning(const vt_fields_about *about, int64_t channel);

/* As JSON, malloc'd. The second is for attributes of files, which hold 64 KiB: of a large grid nothing but its size. */
char *vt_fields_about_text(const vt_fields_about *about);
char *vt_fields_about_short_text(const vt_fields_about *about);

/* From JSON. Keys that this version doesn't know are passed over. Errors, which name `path`: no JSON, no description,
 * one of a newer version, lists of other lengths than the channels and the grid. */
vt_status vt_fields_about_parse(const char *text, const char *path, vt_fields_about **about);

/* The file `about.json` of a directory; *about NULL: there is none. */
vt_status vt_fields_about_read(const char *directory, vt_fields_about **about);
vt_status vt_fields_about_write(const char *directory, const vt_fields_about *about);

vt_fields_about *vt_fields_about_copy(const vt_fields_about *about);

/* For people, some lines, each after `indent`. */
void vt_fields_about_print(const vt_fields_about *about, const char *indent);

/* ---- comparisons (about_compare.c) ---- */

/* What is compared with what: the columns of the table of rules. */
typedef enum {
    VT_FILES_OF_A_SET,
    VT_SETS_OF_A_RUN,
    VT_STATISTICS_AND_DATA,
    VT_RESUMED_AND_DATA,
    VT_FORECAST_AND_DATA,
    VT_INITIAL_AND_DATA,
    VT_FIELDS_USES
} vt_fields_use;

/* One side of a comparison: `name` is what messages call it, "the checkpoint runs/…". */
typedef struct {
    const vt_fields_about *about;
    const char *name;
} vt_fields_side;

typedef struct {
    vt_fields_use use;
    const char *accepted; /* the option `accept`, "[grid, units]"; NULL: nothing */
    bool changes_matter;  /* tendencies are normalised: the step of statistics matters */
    bool trains;          /* the data are trained on: all their times should be in the statistics */
    bool any_transform;   /* both are in the units of the data, or nothing says how these will be transformed */
} vt_fields_rules;

/* Compares `data` with `other`: the file, set, statistics or checkpoint that it meets. A difference that is refused,
 * and not accepted, is the error, which has both values and the way on; every other one that counts adds a line to
 * `remarks`, and one more line lists what could not be compared because one side doesn't say it. Sizes and numbers of
 * channels are never accepted. */
vt_status vt_fields_compare(const vt_fields_rules *rules, const vt_fields_side *data, const vt_fields_side *other,
                            vt_text *remarks);

/* The same; what is remarked goes to the log. */
vt_status vt_fields_agree(const vt_fields_rules *rules, const vt_fields_side *data, const vt_fields_side *other);

/* All differences, one a line. */
char *vt_fields_differences(const vt_fields_side *one, const vt_fields_side *other);

/* Do they have times in common, as far as both are known? *shared: the first span of them. */
bool vt_fields_share_times(const vt_fields_about *one, const vt_fields_about *other, vt_time_span *shared);

/* Do names and units of channels agree, as far as both know them? */
bool vt_fields_same_channels(const vt_fields_about *one, const vt_fields_about *other);

/* Where `other` has each of the data's channels, by their names: [channels], malloc'd; NULL: it lacks one, or names are
 * not known. */
int64_t *vt_fields_order(const vt_fields_about *data, const vt_fields_about *other);

/* Do two units mean the same, as UDUNITS has it? Units that it doesn't know are compared as texts. */
bool vt_units_agree(const char *one, const char *other);

/* The table of rules in Markdown, for docs/data.md. */
char *vt_fields_rules_table(void);

#endif
