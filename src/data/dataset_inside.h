/* The inside of a vt_dataset, for dataset.c, which opens it, and dataset_read.c, which reads from it. */
#ifndef VT_DATA_DATASET_INSIDE_H
#define VT_DATA_DATASET_INSIDE_H

#include <pthread.h>

#include "data/dataset.h"
#include "data/file_list.h"
#include "data/frame_cache.h"

typedef struct {
    vt_fields_file *file; /* NULL while closed */
    uint64_t last_use;
    int64_t users; /* frames of plans that hold it open */
    bool tried;    /* it was opened before */
} vt_yearly_file;

/* Times of a file without a gap: no sample reaches beyond them. Of a file whose times are not known, all. */
typedef struct {
    int64_t file, first_time, times;
    int64_t first_sample; /* samples of the stretches before it */
    int64_t first_frame;  /* times of the stretches before it that samples use */
    bool dated;
    vt_date date; /* of the first time */
} vt_set_stretch;

struct vt_dataset {
    char *directory, *option_name, *variables;
    vt_dataset_options options;
    vt_file_list list;
    vt_yearly_file *files; /* [list.groups] */
    vt_set_stretch *stretches;
    int64_t stretch_count;
    int64_t minutes_a_time; /* 0: the files don't say */
    struct {
        int64_t gaps, overlaps, too_short; /* files; of each kind the first one is told, and the number */
    } told;
    int64_t sample_count;
    int64_t whole_count;   /* without sample_limit */
    vt_fields_shape shape; /* of every file, but for the times */
    char **channel_names;  /* [shape.channels], or NULL */
    double *latitudes;     /* [options.height] */
    double *stored[2];     /* latitudes [options.height] and longitudes [options.width] as files have them, or NULL */
    char *obstacle;        /* of the first file that has one */
    char *time_doubt;      /* why a file's times are not known though it has a coordinate, or NULL */
    int64_t frame_count;   /* times that samples use, of all files */
    vt_chunk_cache cache;
    vt_frame_cache *kept; /* NULL: none is wished; guarded by `lock` */
    vt_read_plan *plan;   /* of vt_dataset_read */
    vt_decoder decoder;
    pthread_mutex_t lock; /* guards what follows, and `files` */
    int64_t open_files, open_limit;
    uint64_t use_clock;
};

/* Channels of one time of the input. */
static inline int64_t vt_dataset_window_channels(const vt_dataset_options *options)
{
    return options->in_channels / (options->history + 1);
}

static inline const char *vt_dataset_group_path(const vt_dataset *dataset, int64_t index)
{
    return dataset->list.paths[dataset->list.first[index]];
}

/* The open file `index`; when too many are open, the one unused for longest is closed. With the lock, or before there
 * are threads. */
vt_status vt_dataset_use_file(vt_dataset *dataset, int64_t index, vt_fields_file **file);

#endif
