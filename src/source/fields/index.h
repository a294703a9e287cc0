/* The times of a set: which (file, time) each sample, each earlier time of its input and each step of its forecast is.
 * Arithmetic on dates and numbers of files: nothing is opened, locked, or changed once the index is joined. */
#ifndef VT_SOURCE_FIELDS_INDEX_H
#define VT_SOURCE_FIELDS_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "source/fields/time_axis.h"

/* What a sample is, in times. */
typedef struct {
    int64_t history, dt; /* earlier times of the input; how far apart they, and the steps of the forecast, are */
    int64_t reach;       /* steps of the forecast that the files must hold */
    int64_t limit;       /* only the first samples are used; VT_UNSET_INTEGER: all */
    bool files_apart;    /* no sample reaches from one file into the next, even if their times follow one another */
} vt_index_rule;

/* A file of the set, and its times that are used. */
typedef struct {
    int64_t times;
    int64_t *places;      /* [times]: where each is among the times of the file; NULL: all are used */
    int64_t *dates;       /* [times]: minutes of each date, by the file's time coordinate; NULL: none says it */
    int64_t last_by_name; /* without a coordinate: the last minute of what the file's name says, or INT64_MAX */
    int64_t pieces;       /* that its times are cut into */
    bool serves;          /* one of them is part of a sample */
} vt_set_file;

/* Times of a file without a gap; all of a file whose times are unknown. */
typedef struct {
    int64_t file, first_time, times; /* first_time: of the file's */
    int64_t first;                   /* of the stretch's times, the first one here */
    bool dated;
    bool proven;  /* the date is from the file's time coordinate, not from its name */
    vt_date date; /* of the first time; only counts from 0 where it isn't known */
} vt_set_piece;

/* Pieces whose times follow one another without a gap, mostly one: no sample reaches beyond them. */
typedef struct {
    int64_t first_piece, pieces;
    int64_t times;
    int64_t first_sample; /* samples of the stretches before it */
    int64_t first_frame;  /* times of the stretches before it that samples use */
    int64_t used;         /* its own times that samples use, from its first one on */
} vt_set_stretch;

typedef struct {
    vt_index_rule rule;
    int64_t step; /* between two times (calendar.h); 0: unknown */
    vt_set_file *files;
    int64_t file_count;
    vt_set_piece *pieces; /* in the order of the files and their times */
    int64_t piece_count;
    vt_set_stretch *stretches;
    int64_t stretch_count;
    int64_t samples, frames; /* in all; frames: times that samples within the limit use */
    int64_t crossing;        /* samples that reach from one file into the next */
} vt_fields_index;

/* Adds the next file, cut into pieces, and returns how many. Takes copies of its places (or NULL) and dates. */
int64_t vt_index_add_file(vt_fields_index *index, int64_t times, const int64_t *places, const vt_time_axis *axis);

/* After the last file: the pieces become stretches and samples. A step that is unknown is found, if the pieces are of
 * one time each: their dates tell it if most of them are as far apart, or a calendar month at about the same day, as
 * monthly means are. */
void vt_index_join(vt_fields_index *index);
void vt_index_close(vt_fields_index *index);

/* The length between two times; 6 hours if it is unknown. */
int64_t vt_index_minutes(const vt_fields_index *index);

/* Times between the first time of an input and its last target. */
int64_t vt_index_span(const vt_index_rule *rule);

/* The stretch of a sample, and the time of that stretch that is the input's newest. */
const vt_set_stretch *vt_index_sample(const vt_fields_index *index, int64_t sample, int64_t *time);

/* The piece of a stretch that holds its time `time`, and where that is among the times of the piece's file. */
const vt_set_piece *vt_index_piece(const vt_fields_index *index, const vt_set_stretch *stretch, int64_t time,
                                   int64_t *place);

/* The stretch of a frame. */
const vt_set_stretch *vt_index_frame(const vt_fields_index *index, int64_t frame);

/* The date of a piece's time 0, 1, … */
vt_date vt_index_date_in(const vt_fields_index *index, const vt_set_piece *piece, int64_t time);

/* The date of a time of a stretch. False: it isn't known, and *date only counts the times from 0. */
bool vt_index_date(const vt_fields_index *index, const vt_set_stretch *stretch, int64_t time, vt_date *date);

/* Times that two sets both use, or that two files of one set both hold. */
typedef struct {
    int64_t count; /* of such spans of time; 0: none, and nothing else is set */
    vt_date from, to;
    bool has_gaps;    /* between from and to */
    int64_t files[2]; /* of the first such times: of one and the other, or the earlier and the later one of a set */
} vt_index_overlap;

vt_index_overlap vt_index_shared(const vt_fields_index *one, const vt_fields_index *other);
/* from and to are the first such span. */
vt_index_overlap vt_index_repeated(const vt_fields_index *index);

#endif
