/* Arrays in NumPy's `.npy` format (numpy.lib.format, versions 1.0, 2.0 and 3.0): float32 and float64, C order. */
#ifndef VT_STORAGE_NPY_H
#define VT_STORAGE_NPY_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "storage/tensor_box.h"

typedef struct {
    vt_tensor_shape shape;
    size_t element_size;
    int64_t offset; /* of the values in the file */
    double *values; /* [shape], row-major; NULL: not read */
} vt_npy;

/* Reads the header alone. */
vt_status vt_npy_look(const char *path, vt_npy *array);

/* Reads a whole array; to be closed. Errors: no such file, not .npy, another type or order, cut short. */
vt_status vt_npy_open(const char *path, vt_npy *array);
void vt_npy_close(vt_npy *array);

/* Writes float32 values of the given shape, version 1.0, atomically; a file of that name is replaced. */
vt_status vt_npy_write(const char *path, const float *values, const int64_t *shape, int dimensions);

/* What comes before the values [shape], float32. An error is left in the stream. */
void vt_npy_write_header(FILE *file, const int64_t *shape, int dimensions);

#endif
