/* What tensor_file.c (writing, attributes), tensor_read.c and tensor_trial.c share; nobody else includes it. */
#ifndef VT_STORAGE_TENSOR_FILE_INSIDE_H
#define VT_STORAGE_TENSOR_FILE_INSIDE_H

#include "storage/hdf5_access.h"
#include "storage/tensor_file.h"

/* Shards kept open while an index is read: few compared with a process's limit of open files. */
enum { VT_TENSOR_OPEN_SOURCES = 64 };

/* What no checkpoint reaches: names in a group; and names in a path, as in "optimizer/moment1/head.weight". */
enum { VT_TENSOR_MOST_NAMES = 1 << 17, VT_TENSOR_DEPTH = 3 };

struct vt_tensor_file {
    char *path;
    hid_t file;
    int64_t bytes;                                   /* its size when it was opened for reading */
    vt_tensor_file *sources[VT_TENSOR_OPEN_SOURCES]; /* shards that its tensors lie in */
    int source_count;
};

void vt_tensor_close_sources(vt_tensor_file *file);

/* How every tensor is stored: chunks of as many rows as fit into a megabyte, each with a checksum. */
void vt_tensor_chunk(const vt_tensor_shape *shape, hsize_t chunk[VT_TENSOR_DIMENSIONS]);

/* For the trial: lets HDF5 do what reading the tensor asks of it, except that of the numbers only the first and the
 * last are read. Errors don't matter there. */
void vt_tensor_visit(vt_tensor_file *file, const char *name);

#endif
