/* Attributes of HDF5's datasets, and netCDF's dimensions, which are kept as attributes. */
#include <hdf5_hl.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/hdf5_inside.h"

int vt_hdf5_attribute_numbers(const vt_array *array, const char *name, int most, double *values, bool *is_float)
{
    const hid_t dataset = ((const vt_hdf5_array *)array)->dataset;
    int count = 0;
    vt_hdf5_enter();
    if (H5Aexists(dataset, name) > 0) {
        hid_t attribute = H5Aopen(dataset, name, H5P_DEFAULT);
        hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
        const H5T_class_t class = H5Tget_class(type);
        const hssize_t found = H5Sget_simple_extent_npoints(space);
        bool is_numbers = (class == H5T_FLOAT || class == H5T_INTEGER) && found >= 1 && found <= most;
        if (is_numbers) is_numbers = H5Aread(attribute, H5T_NATIVE_DOUBLE, values) >= 0;
        *is_float = class == H5T_FLOAT;
        count = is_numbers ? (int)found : -1;
        H5Sclose(space);
        H5Tclose(type);
        H5Aclose(attribute);
    }
    vt_hdf5_leave();
    return count;
}

/* Texts of fixed length lie one after another; of variable length there are pointers, to be freed by HDF5. */
static vt_status read_texts(const vt_array *array, const char *name, hid_t attribute, hid_t stored_type, int64_t count,
                            char **texts)
{
    vt_status status = VT_OK;
    bool variable = H5Tis_variable_str(stored_type) > 0;
    size_t size = variable ? sizeof(char *) : H5Tget_size(stored_type) + 1;
    hid_t type = H5Tcopy(H5T_C_S1);
    char *memory = vt_allocate((size_t)count, size, "the texts of a file");
    H5Tset_size(type, variable ? H5T_VARIABLE : size);
    H5Tset_cset(type, H5Tget_cset(stored_type));
    VT_CHECK(H5Aread(attribute, type, memory) >= 0, "%s: can't read the attribute '%s' of '%s': %s", array->store->path,
             name, array->name, vt_hdf5_reason());
    for (int64_t c = 0; c < count; c++) {
        char *text = memory + (size_t)c * size;
        if (variable) memcpy(&text, memory + (size_t)c * size, sizeof text);
        texts[c] = vt_text_copy(text != NULL ? text : "");
    }
done:
    for (int64_t c = 0; variable && c < count; c++) H5free_memory(((char **)(void *)memory)[c]);
    free(memory);
    H5Tclose(type);
    return status;
}

vt_status vt_hdf5_attribute_texts(const vt_array *array, const char *name, char ***texts, int64_t *count)
{
    vt_status status = VT_OK;
    const hid_t dataset = ((const vt_hdf5_array *)array)->dataset;
    hid_t attribute = H5I_INVALID_HID, type = H5I_INVALID_HID, space = H5I_INVALID_HID;
    *texts = NULL;
    *count = 0;
    vt_hdf5_enter();
    if (H5Aexists(dataset, name) <= 0) goto done;
    attribute = H5Aopen(dataset, name, H5P_DEFAULT);
    VT_CHECK(attribute >= 0, "%s: can't open the attribute '%s' of '%s': %s", array->store->path, name, array->name,
             vt_hdf5_reason());
    type = H5Aget_type(attribute);
    space = H5Aget_space(attribute);
    *count = H5Tget_class(type) == H5T_STRING ? (int64_t)H5Sget_simple_extent_npoints(space) : -1;
    if (*count <= 0) goto done;
    *texts = vt_allocate((size_t)*count, sizeof **texts, "the texts of a file");
    VT_TRY(read_texts(array, name, attribute, type, *count, *texts));
done:
    if (status != VT_OK) {
        free(*texts);
        *texts = NULL;
        *count = 0;
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (attribute >= 0) H5Aclose(attribute);
    vt_hdf5_leave();
    return status;
}

bool vt_hdf5_fill_value(const vt_array *array, double *value)
{
    H5D_fill_value_t is_defined = H5D_FILL_VALUE_UNDEFINED;
    vt_hdf5_enter();
    hid_t properties = H5Dget_create_plist(((const vt_hdf5_array *)array)->dataset);
    const bool known = H5Pfill_value_defined(properties, &is_defined) >= 0 &&
                       is_defined == H5D_FILL_VALUE_USER_DEFINED &&
                       H5Pget_fill_value(properties, H5T_NATIVE_DOUBLE, value) >= 0;
    H5Pclose(properties);
    vt_hdf5_leave();
    return known;
}

/* ---- netCDF's dimensions ---- */

enum { PATH_SIZE = 256 };

/* The first scale of a dimension ends the iteration. */
static herr_t take_name(hid_t dataset, unsigned dimension, hid_t scale, void *context)
{
    (void)dataset, (void)dimension;
    H5Iget_name(scale, context, PATH_SIZE);
    return 1;
}

void vt_hdf5_dimension_name(const vt_array *array, int dimension, char *name, size_t size)
{
    const hid_t dataset = ((const vt_hdf5_array *)array)->dataset;
    char path[PATH_SIZE] = "";
    vt_hdf5_enter();
    if (H5Aexists(dataset, "DIMENSION_LIST") > 0 && H5DSget_num_scales(dataset, (unsigned)dimension) >= 1)
        H5DSiterate_scales(dataset, (unsigned)dimension, NULL, take_name, path);
    vt_hdf5_leave();
    snprintf(name, size, "%s", vt_file_name(path));
}

bool vt_hdf5_is_scale_of(const vt_array *scale, const vt_array *array, int dimension)
{
    const hid_t dataset = ((const vt_hdf5_array *)scale)->dataset;
    vt_hdf5_enter();
    const bool is_scale =
        array == NULL ? H5DSis_scale(dataset) > 0
                      : H5DSis_attached(((const vt_hdf5_array *)array)->dataset, dataset, (unsigned)dimension) > 0;
    vt_hdf5_leave();
    return is_scale;
}
