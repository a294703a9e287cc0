/* The inside of an HDF5 store, for hdf5_store.c (files and reading) and hdf5_array.c (how arrays lie in the file, and
 * their attributes). */
#ifndef VT_STORAGE_HDF5_INSIDE_H
#define VT_STORAGE_HDF5_INSIDE_H

#include "storage/hdf5_access.h"
#include "storage/store.h"

typedef struct {
    vt_store store;
    hid_t file;
} vt_hdf5_file;

typedef struct {
    vt_array array;
    hid_t dataset, space;
    hid_t memory_type; /* that H5Dread returns: this machine's form of the array's elements */
    bool plain_edges;  /* chunks that reach beyond the array are stored without filters */
} vt_hdf5_array;

extern const vt_store_kind vt_store_hdf5;

/* See vt_store_kind. */
vt_status vt_hdf5_lay_out(vt_array *array);
vt_status vt_hdf5_locate_chunk(const vt_array *array, const int64_t *first, vt_chunk_place *entry);
int64_t vt_hdf5_chunks_written(const vt_array *array);
int vt_hdf5_attribute_numbers(const vt_array *array, const char *name, int most, double *values, bool *is_float);
bool vt_hdf5_attribute_texts(const vt_array *array, const char *name, vt_names *texts);
void vt_hdf5_dimension_name(const vt_array *array, int dimension, char *name, size_t size);
bool vt_hdf5_is_scale_of(const vt_array *scale, const vt_array *array, int dimension);

#endif
