/* What tensor_file.c (writing, attributes), tensor_read.c and tensor_trial.c share; nobody else includes it. */
#ifndef VT_STORAGE_TENSOR_FILE_INSIDE_H
#define VT_STORAGE_TENSOR_FILE_INSIDE_H

#include "storage/hdf5_access.h"
#include "storage/tensor_file.h"

/* Shards kept open while an index is read: few compared with a process's limit of open files. */
enum { VT_TENSOR_OPEN_SOURCES = 64, VT_TENSOR_LONGEST_TEXT = 16 << 20 };

typedef struct {
    char *name; /* NULL: a free place */
    vt_tensor_file *file;
    uint64_t last_use;
} vt_tensor_source;

struct vt_tensor_file {
    char *path;
    hid_t file;
    vt_tensor_source sources[VT_TENSOR_OPEN_SOURCES];
    uint64_t use_clock;
};

/* A space of `shape` with the box `box`, whose coordinates count from `origin` (NULL: zeros), selected. */
hid_t vt_tensor_select(const vt_tensor_shape *shape, const int64_t *origin, const vt_tensor_box *box);

void vt_tensor_close_source(vt_tensor_source *source);

/* For the trial: lets HDF5 read all of a tensor but its numbers, and of those the first and the last. Errors don't
 * matter there. */
void vt_tensor_visit(vt_tensor_file *file, const char *name);

#endif
