#include "storage/tensor_file_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/whole.h"
#include "storage/output_file.h"

/* ---- opening and closing ---- */

static vt_tensor_file *new_file(const char *path)
{
    vt_tensor_file *file = vt_allocate(1, sizeof *file, "a checkpoint's file");
    file->path = vt_text_copy(path);
    file->file = H5I_INVALID_HID;
    return file;
}

vt_status vt_tensor_file_create(const char *path, vt_tensor_file **result)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = new_file(path);
    vt_hdf5_enter();
    hid_t access = vt_hdf5_file_access();
    hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(creation, false);                          /* the same tensors are the same bytes */
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_LATEST); /* checksums on all of HDF5's own structures */
    file->file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    VT_CHECK(file->file >= 0, "can't write %s: %s", path, vt_hdf5_reason());
done:
    H5Pclose(creation);
    H5Pclose(access);
    vt_hdf5_leave();
    if (status != VT_OK) vt_tensor_file_close(&file);
    *result = file;
    return status;
}

vt_status vt_tensor_file_open(const char *path, vt_tensor_file **result)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = new_file(path);
    FILE *regular = NULL;
    vt_hdf5_enter();
    hid_t access = vt_hdf5_file_access();
    VT_TRY(vt_file_open(path, &regular, &file->bytes));
    file->file = H5Fopen(path, H5F_ACC_RDONLY, access);
    VT_CHECK(file->file >= 0, "can't read %s: %s", path, vt_hdf5_reason());
done:
    if (regular != NULL) fclose(regular);
    H5Pclose(access);
    vt_hdf5_leave();
    if (status != VT_OK) vt_tensor_file_close(&file);
    *result = file;
    return status;
}

vt_status vt_tensor_file_finish(vt_tensor_file **file)
{
    vt_status status = VT_OK;
    vt_tensor_file *f = *file;
    vt_hdf5_enter();
    herr_t closed = H5Fclose(f->file);
    if (closed < 0) status = vt_error_note(__FILE__, __LINE__, "can't write %s: %s", f->path, vt_hdf5_reason());
    f->file = H5I_INVALID_HID;
    vt_hdf5_leave();
    if (status == VT_OK) status = vt_output_synchronise(f->path);
    vt_tensor_file_close(file);
    return status;
}

void vt_tensor_file_close(vt_tensor_file **file)
{
    vt_tensor_file *f = *file;
    if (f == NULL) return;
    vt_tensor_close_sources(f);
    if (f->file >= 0) {
        vt_hdf5_enter();
        H5Fclose(f->file);
        vt_hdf5_leave();
    }
    free(f->path);
    free(f);
    *file = NULL;
}

/* ---- tensors ---- */

/* Makes the groups of the name that don't exist yet. A failure shows when the dataset is made. */
static void make_groups(vt_tensor_file *file, const char *name)
{
    hid_t properties = H5Pcreate(H5P_GROUP_CREATE);
    H5Pset_obj_track_times(properties, false);
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        char *group = vt_text_format("%.*s", (int)(slash - name), name);
        if (H5Lexists(file->file, group, H5P_DEFAULT) <= 0)
            H5Gclose(H5Gcreate2(file->file, group, H5P_DEFAULT, properties, H5P_DEFAULT));
        free(group);
    }
    H5Pclose(properties);
}

void vt_tensor_chunk(const vt_tensor_shape *shape, hsize_t chunk[VT_TENSOR_DIMENSIONS])
{
    enum { CHUNK_BYTES = 1 << 20 }; /* large enough for the disk, small enough that damage affects little of a tensor */
    int64_t inner = (int64_t)sizeof(float);
    for (int i = shape->dimensions - 1; i >= 0; i--) {
        const int64_t fit = CHUNK_BYTES / inner;
        chunk[i] = (hsize_t)(fit < 1 ? 1 : fit > shape->shape[i] ? shape->shape[i] : fit);
        inner *= shape->shape[i];
    }
}

static void store_here(const vt_tensor_shape *shape, hid_t storage)
{
    hsize_t chunk[VT_TENSOR_DIMENSIONS];
    vt_tensor_chunk(shape, chunk);
    H5Pset_chunk(storage, shape->dimensions, chunk);
    H5Pset_fletcher32(storage);
    H5Pset_fill_time(storage, H5D_FILL_TIME_NEVER);
}

static vt_status add_part(const vt_tensor_file *file, const char *name, const vt_tensor_shape *shape,
                          const vt_tensor_part *part, hid_t storage)
{
    vt_status status = VT_OK;
    const vt_tensor_box *box = &part->box;
    VT_ASSERT(box->shape.dimensions == shape->dimensions && strpbrk(part->source, "/%") == NULL);
    for (int i = 0; i < shape->dimensions; i++)
        VT_ASSERT(box->first[i] >= 0 && box->shape.shape[i] > 0 &&
                  box->first[i] + box->shape.shape[i] <= shape->shape[i]);
    hid_t there = vt_hdf5_space(shape->dimensions, shape->shape);
    hid_t here = vt_hdf5_space(shape->dimensions, box->shape.shape);
    char *path = vt_text_format("/%s", part->name_in_source);
    vt_hdf5_select(there, shape->dimensions, box->first, box->shape.shape);
    VT_CHECK(H5Pset_virtual(storage, there, part->source, path, here) >= 0, "can't write %s: /%s from %s: %s",
             file->path, name, part->source, vt_hdf5_reason());
done:
    free(path);
    H5Sclose(here);
    H5Sclose(there);
    return status;
}

/* Makes the dataset: stored here, or virtual when there are parts. */
static vt_status create_dataset(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape,
                                int64_t part_count, const vt_tensor_part *parts, hid_t *dataset)
{
    vt_status status = VT_OK;
    hid_t storage = H5Pcreate(H5P_DATASET_CREATE);
    VT_ASSERT(shape->dimensions > 0 && shape->dimensions <= VT_TENSOR_DIMENSIONS && vt_tensor_count(shape) > 0);
    make_groups(file, name);
    if (part_count == 0) store_here(shape, storage);
    for (int64_t i = 0; i < part_count && status == VT_OK; i++)
        status = add_part(file, name, shape, &parts[i], storage);
    if (status != VT_OK)
        H5Pclose(storage);
    else if (vt_hdf5_make_dataset(file->file, name, H5T_IEEE_F32LE, storage, shape->dimensions, shape->shape,
                                  dataset) != VT_OK)
        status = vt_error_context("can't write %s: no dataset /%s", file->path, name);
    return status;
}

/* Rows of the first dimension from `first` on, as many as lie in one row of chunks; *rows: how many. */
static vt_status write_rows(vt_tensor_file *file, const char *name, hid_t dataset, const vt_tensor_shape *shape,
                            const float *values, int64_t first, int64_t *rows)
{
    hsize_t chunk[VT_TENSOR_DIMENSIONS] = {0};
    const int64_t start[VT_TENSOR_DIMENSIONS] = {first}, stride = vt_tensor_count(shape) / shape->shape[0];
    vt_tensor_shape box = *shape;
    vt_tensor_chunk(shape, chunk);
    *rows = box.shape[0] = vt_smaller(shape->shape[0] - first, (int64_t)chunk[0]);
    if (vt_hdf5_write_box(dataset, shape->dimensions, start, box.shape, values + first * stride) == VT_OK) return VT_OK;
    return vt_error_context("can't write %s: dataset /%s", file->path, name);
}

vt_status vt_tensor_file_write(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape,
                               const float *values)
{
    vt_status status = VT_OK;
    hid_t dataset = H5I_INVALID_HID;
    vt_hdf5_enter();
    VT_TRY(create_dataset(file, name, shape, 0, NULL, &dataset));
    for (int64_t row = 0, rows = 0; row < shape->shape[0]; row += rows) {
        vt_hdf5_let_others(); /* who reads data need not wait for all of it */
        VT_TRY(write_rows(file, name, dataset, shape, values, row, &rows));
    }
    herr_t closed = H5Dclose(dataset); /* chunks may be written only now */
    dataset = H5I_INVALID_HID;
    VT_CHECK(closed >= 0, "can't write %s: dataset /%s: %s", file->path, name, vt_hdf5_reason());
done:
    if (dataset >= 0) H5Dclose(dataset);
    vt_hdf5_leave();
    return status;
}

vt_status vt_tensor_file_link(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape, int64_t part_count,
                              const vt_tensor_part *parts)
{
    VT_ASSERT(part_count > 0);
    hid_t dataset = H5I_INVALID_HID;
    vt_hdf5_enter();
    vt_status status = create_dataset(file, name, shape, part_count, parts, &dataset);
    if (dataset >= 0) H5Dclose(dataset);
    vt_hdf5_leave();
    return status;
}

/* ---- attributes ---- */

static vt_status write_attribute(vt_tensor_file *file, const char *name, hid_t type, int64_t count, const void *values)
{
    vt_hdf5_enter();
    vt_status status = vt_hdf5_write_attribute(file->file, name, type, type, count == 1 ? -1 : count, values);
    if (status != VT_OK) vt_error_context("can't write %s: attribute %s", file->path, name);
    vt_hdf5_leave();
    return status;
}

vt_status vt_tensor_file_set_integers(vt_tensor_file *file, const char *name, int64_t count, const int64_t *values)
{
    return write_attribute(file, name, H5T_NATIVE_INT64, count, values);
}

vt_status vt_tensor_file_set_real(vt_tensor_file *file, const char *name, double value)
{
    return write_attribute(file, name, H5T_NATIVE_DOUBLE, 1, &value);
}

vt_status vt_tensor_file_set_text(vt_tensor_file *file, const char *name, const char *text)
{
    vt_hdf5_enter();
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text) + 1);
    H5Tset_cset(type, H5T_CSET_UTF8);
    vt_status status = write_attribute(file, name, type, 1, text);
    H5Tclose(type);
    vt_hdf5_leave();
    return status;
}

static vt_status read_numbers(vt_tensor_file *file, const char *name, hid_t type, int64_t *count, void *values)
{
    vt_status status = VT_OK;
    const int most = (int)*count;
    bool is_float = false;
    *count = vt_hdf5_numbers(file->file, name, type, most, values, &is_float);
    VT_CHECK(*count > 0 && is_float == (type == H5T_NATIVE_DOUBLE),
             "%s holds no attribute '%s' of 1 to %d %snumbers: it is no checkpoint of vitrain, or it is damaged",
             file->path, name, most, type == H5T_NATIVE_DOUBLE ? "" : "whole ");
done:
    return status;
}

static herr_t take_name(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    (void)group, (void)info;
    vt_names *list = context;
    if (list->count == VT_TENSOR_MOST_NAMES) return 1; /* ends it */
    vt_names_add(list, name);
    return 0;
}

/* In the order of the file, as HDF5 1.10 can free what it has not set when it sorts the names of a damaged one. */
vt_status vt_tensor_file_list(vt_tensor_file *file, const char *group, vt_names *names)
{
    vt_status status = VT_OK;
    vt_hdf5_enter();
    hid_t access = vt_hdf5_link_access(H5P_LINK_ACCESS);
    const herr_t ended =
        H5Literate_by_name(file->file, group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, take_name, names, access);
    VT_CHECK(ended >= 0, "%s has no group '%s' that can be read: %s", file->path, group, vt_hdf5_reason());
    VT_CHECK(ended == 0, "%s: the group '%s' holds more than %d names, which no checkpoint does", file->path, group,
             VT_TENSOR_MOST_NAMES);
    vt_names_sort(names);
done:
    H5Pclose(access);
    vt_hdf5_leave();
    return status;
}

bool vt_tensor_file_has(vt_tensor_file *file, const char *name)
{
    vt_hdf5_enter();
    bool has = H5Aexists(file->file, name) > 0;
    vt_hdf5_leave();
    return has;
}

vt_status vt_tensor_file_get_integers(vt_tensor_file *file, const char *name, int64_t *count, int64_t *values)
{
    return read_numbers(file, name, H5T_NATIVE_INT64, count, values);
}

vt_status vt_tensor_file_get_integer(vt_tensor_file *file, const char *name, int64_t *value)
{
    int64_t count = 1;
    return read_numbers(file, name, H5T_NATIVE_INT64, &count, value);
}

vt_status vt_tensor_file_get_real(vt_tensor_file *file, const char *name, double *value)
{
    int64_t count = 1;
    return read_numbers(file, name, H5T_NATIVE_DOUBLE, &count, value);
}

vt_status vt_tensor_file_get_text(vt_tensor_file *file, const char *name, char **text)
{
    vt_status status = VT_OK;
    vt_names texts = {0};
    *text = NULL;
    VT_CHECK(vt_hdf5_texts(file->file, name, &texts) && texts.count == 1,
             "%s holds no attribute '%s' of one text: it is no checkpoint of vitrain, or it is damaged", file->path,
             name);
    *text = texts.names[0];
    texts.names[0] = NULL;
done:
    vt_names_close(&texts);
    return status;
}
