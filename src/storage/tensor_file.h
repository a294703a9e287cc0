/* HDF5 files of named float32 tensors and attributes: what checkpoints are made of. A tensor is stored in chunks with a
 * checksum each (HDF5's fletcher32), or is virtual: the file then only says in which other file it lies, and readers of
 * HDF5 see it in both. A tensor may be cut into boxes that lie in several files: each file (shard) holds any number of
 * boxes as tensors of their own, and an index links them to whole virtual tensors. Names may hold groups:
 * "parameters/head.weight". */
#ifndef VT_STORAGE_TENSOR_FILE_H
#define VT_STORAGE_TENSOR_FILE_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "storage/tensor_box.h"

typedef struct vt_tensor_file vt_tensor_file;

/* ---- writing ---- */

vt_status vt_tensor_file_create(const char *path, vt_tensor_file **file);

/* Stores values [shape], at least one: a whole tensor, or a box of one (named e.g. "parameters/head.weight@0"). */
vt_status vt_tensor_file_write(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape,
                               const float *values);

/* Where a box of a virtual tensor lies: all of `name_in_source` in the file `source`, of the same directory. */
typedef struct {
    const char *source, *name_in_source;
    vt_tensor_box box;
} vt_tensor_part;

/* A virtual tensor [shape] made of parts, which should cover it and not overlap. The sources need not exist yet. */
vt_status vt_tensor_file_link(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape, int64_t part_count,
                              const vt_tensor_part *parts);

vt_status vt_tensor_file_set_integers(vt_tensor_file *file, const char *name, int64_t count, const int64_t *values);
vt_status vt_tensor_file_set_real(vt_tensor_file *file, const char *name, double value);
vt_status vt_tensor_file_set_text(vt_tensor_file *file, const char *name, const char *text);

/* Closes it and waits until it is on the disk. *file is NULL then, also after an error. */
vt_status vt_tensor_file_finish(vt_tensor_file **file);

/* ---- reading: errors name the file, and the tensor or attribute ---- */

/* For files that may be a stranger's: goes through those of a directory (name.h5), or a single one, in a process of its
 * own (storage/trial.h, whose conditions hold), so that a crash of HDF5 becomes an error. It is the only error. */
vt_status vt_tensor_files_try(const char *path);

/* The bytes of those files, and so the most that all their tensors can have together. */
int64_t vt_tensor_files_bytes(const char *path);

vt_status vt_tensor_file_open(const char *path, vt_tensor_file **file);

vt_status vt_tensor_file_shape(vt_tensor_file *file, const char *name, vt_tensor_shape *shape);

/* Into values [shape], of as many elements as the tensor. See vt_tensor_file_read_box. */
vt_status vt_tensor_file_read(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape, float *values);

/* Box `box` of the tensor into values [box shape]. Of a virtual tensor the pieces are read from the sources themselves,
 * because HDF5 would silently give zeros if one is missing or damaged; only those that the box touches are opened,
 * in the directory of this file, and some stay open until it is closed. Errors: a wrong checksum; a box that reaches
 * over the tensor's edge, or that the parts don't cover wholly and once; a source that is missing, that holds another
 * shape than the part, whose attribute `id` isn't that of this file (where this file has one), or whose name leads out
 * of the directory. An empty box reads nothing. */
vt_status vt_tensor_file_read_box(vt_tensor_file *file, const char *name, const vt_tensor_box *box, float *values);

/* The names in a group ("parameters"), in alphabetical order; *names is to be closed, also after a failure. */
vt_status vt_tensor_file_list(vt_tensor_file *file, const char *group, vt_names *names);

/* Whether it has the attribute. */
bool vt_tensor_file_has(vt_tensor_file *file, const char *name);

/* *count: room in values, then how many there are. */
vt_status vt_tensor_file_get_integers(vt_tensor_file *file, const char *name, int64_t *count, int64_t *values);
vt_status vt_tensor_file_get_integer(vt_tensor_file *file, const char *name, int64_t *value);
vt_status vt_tensor_file_get_real(vt_tensor_file *file, const char *name, double *value);
vt_status vt_tensor_file_get_text(vt_tensor_file *file, const char *name, char **text); /* malloc'd */

/* Closes without a promise; for reading, and after an error. NULL is fine. */
void vt_tensor_file_close(vt_tensor_file **file);

#endif
