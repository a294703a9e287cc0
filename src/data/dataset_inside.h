/* The inside of a vt_dataset, for dataset.c, which opens it, and dataset_read.c, which reads from it. */
#ifndef VT_DATA_DATASET_INSIDE_H
#define VT_DATA_DATASET_INSIDE_H

#include <pthread.h>

#include "data/dataset.h"
#include "data/file_list.h"
#include "data/frame_cache.h"

typedef struct {
    vt_fields_file *file; /* NULL while closed */
    int64_t times;
    int64_t first_sample; /* samples of the files before it */
    int64_t first_frame;  /* times of the files before it that samples use */
    uint64_t last_use;
    int64_t users; /* frames of plans that hold it open */
    bool tried;    /* it was opened before */
} vt_yearly_file;

struct vt_dataset {
    char *directory, *option_name, *variables;
    vt_dataset_options options;
    vt_file_list list;
    vt_yearly_file *files; /* [list.groups] */
    int64_t sample_count;
    vt_fields_shape shape; /* of every file, but for the times */
    char **channel_names;  /* [shape.channels], or NULL */
    double *latitudes;     /* [options.height] */
    char *obstacle;        /* of the first file that has one */
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
