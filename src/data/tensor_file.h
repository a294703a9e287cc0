/* HDF5 files of named float32 tensors and attributes: what checkpoints are made of. A tensor is stored in chunks with a
 * checksum each (HDF5's fletcher32), or is virtual: the file then only says in which other file it lies, and readers of
 * HDF5 see it in both. Names may hold groups: "parameters/head.weight". */
#ifndef VT_DATA_TENSOR_FILE_H
#define VT_DATA_TENSOR_FILE_H

#include <stdint.h>

#include "base/status.h"

enum { VT_TENSOR_DIMENSIONS = 8 };

typedef struct {
    int dimensions;
    int64_t shape[VT_TENSOR_DIMENSIONS];
} vt_tensor_shape;

int64_t vt_tensor_count(const vt_tensor_shape *shape);                     /* elements */
void vt_tensor_shape_text(const vt_tensor_shape *shape, char buffer[128]); /* "[16, 3, 4, 4]" */

typedef struct vt_tensor_file vt_tensor_file;

/* ---- writing ---- */

vt_status vt_tensor_file_create(const char *path, vt_tensor_file **file);

/* Stores values [shape]. */
vt_status vt_tensor_file_write(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape,
                               const float *values);

/* A virtual tensor: all of `name` in the file `source`, whose path is relative to this file's directory. */
vt_status vt_tensor_file_link(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape, const char *source);

vt_status vt_tensor_file_set_integers(vt_tensor_file *file, const char *name, int64_t count, const int64_t *values);
vt_status vt_tensor_file_set_real(vt_tensor_file *file, const char *name, double value);
vt_status vt_tensor_file_set_text(vt_tensor_file *file, const char *name, const char *text);

/* Closes it and waits until it is on the disk. *file is NULL then, also after an error. */
vt_status vt_tensor_file_finish(vt_tensor_file **file);

/* ---- reading: errors name the file, and the tensor or attribute ---- */

vt_status vt_tensor_file_open(const char *path, vt_tensor_file **file);

vt_status vt_tensor_file_shape(vt_tensor_file *file, const char *name, vt_tensor_shape *shape);

/* Into values [shape], which must be the tensor's. Fails where a checksum is wrong. A virtual tensor whose source is
 * missing reads as zeros: check the sources first. */
vt_status vt_tensor_file_read(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape, float *values);

/* The names in a group ("parameters"), in the order of the alphabet; each and the list malloc'd. */
vt_status vt_tensor_file_list(vt_tensor_file *file, const char *group, char ***names, int64_t *count);

/* *count: room in values, then how many there are. */
vt_status vt_tensor_file_get_integers(vt_tensor_file *file, const char *name, int64_t *count, int64_t *values);
vt_status vt_tensor_file_get_integer(vt_tensor_file *file, const char *name, int64_t *value);
vt_status vt_tensor_file_get_real(vt_tensor_file *file, const char *name, double *value);
vt_status vt_tensor_file_get_text(vt_tensor_file *file, const char *name, char **text); /* malloc'd */

/* Closes without a promise; for reading, and after an error. NULL is fine. */
void vt_tensor_file_close(vt_tensor_file **file);

#endif
