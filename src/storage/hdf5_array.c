/* What HDF5 says of an array: where it lies, so that it can be read without HDF5's library; its attributes; and
 * netCDF's dimensions, which are kept as attributes. */
#include <hdf5_hl.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/text.h"
#include "storage/hdf5_inside.h"

/* ---- where it lies ---- */

static void note_obstacle(vt_array *array, char *text)
{
    if (array->obstacle == NULL)
        array->obstacle = text;
    else
        free(text);
}

/* gzip, shuffle and fletcher32 are undone here; other filters are HDF5's, some of them (lzf, blosc, zstd, ...) plugins.
 */
static vt_status take_filters(vt_array *array, hid_t properties)
{
    vt_status status = VT_OK;
    int count = H5Pget_nfilters(properties);
    for (int i = 0; i < count; i++) {
        char name[64] = "";
        unsigned flags = 0, config = 0;
        size_t values = 0;
        int filter = (int)H5Pget_filter2(properties, (unsigned)i, &flags, &values, NULL, sizeof name, name, &config);
        VT_CHECK(H5Zfilter_avail(filter) > 0,
                 "%s: '%s' is compressed with '%s' (HDF5 filter %d), which this HDF5 library can't decode; "
                 "HDF5_PLUGIN_PATH names the folder of its plugin, or write the file anew with gzip (docs/data.md, "
                 "\"Filters\")",
                 array->store->path, array->name, name, filter);
        const vt_filter kind = filter == H5Z_FILTER_DEFLATE      ? VT_FILTER_DEFLATE
                               : filter == H5Z_FILTER_SHUFFLE    ? VT_FILTER_SHUFFLE
                               : filter == H5Z_FILTER_FLETCHER32 ? VT_FILTER_FLETCHER32
                                                                 : VT_FILTER_KINDS;
        if (kind == VT_FILTER_KINDS || i >= VT_FILTERS)
            note_obstacle(array, vt_text_format("'%s' is compressed with '%s'", array->name, name));
        else
            array->pipeline.filters[array->pipeline.count++] = kind;
    }
done:
    return status;
}

static void take_chunks(vt_array *array, hid_t properties)
{
    hsize_t chunk[H5S_MAX_RANK], userblock = 0;
    hid_t type = H5Dget_type(((vt_hdf5_array *)array)->dataset);
    hid_t creation = H5Fget_create_plist(((const vt_hdf5_file *)array->store)->file);
    H5Pget_chunk(properties, H5S_MAX_RANK, chunk);
    int64_t stride = 1;
    for (int i = (array->rank < VT_ARRAY_RANK ? array->rank : VT_ARRAY_RANK) - 1; i >= 0; i--) {
        array->chunk[i] = (int64_t)chunk[i];
        array->stride[i] = stride;
        stride = (int64_t)((uint64_t)stride * chunk[i]); /* of a damaged file, anything */
    }
    array->pipeline.element_size = array->element_size;
    H5Pget_fill_value(properties, type, array->fill);
    unsigned chunk_options = 0;
    H5Pget_chunk_opts(properties, &chunk_options);
    ((vt_hdf5_array *)array)->plain_edges = (chunk_options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
    H5Pget_userblock(creation, &userblock);
    if (userblock != 0) /* versions of HDF5 differ in whether addresses of chunks count it */
        note_obstacle(array, vt_text_format("'%s' is chunked, in a file with a user block", array->name));
    H5Pclose(creation);
    H5Tclose(type);
}

vt_status vt_hdf5_lay_out(vt_array *array)
{
    vt_status status = VT_OK;
    const hid_t dataset = ((vt_hdf5_array *)array)->dataset;
    vt_hdf5_enter();
    hid_t properties = H5Dget_create_plist(dataset);
    array->stored_bytes = (int64_t)H5Dget_storage_size(dataset);
    VT_TRY(take_filters(array, properties));
    if (array->layout == VT_LAYOUT_CHUNKED) {
        take_chunks(array, properties);
    } else if (array->layout == VT_LAYOUT_CONTIGUOUS) {
        const haddr_t address = H5Dget_offset(dataset);
        array->address = address == HADDR_UNDEF ? -1 : (int64_t)address;
        if (array->address < 0) note_obstacle(array, vt_text_format("'%s' was never written", array->name));
    } else {
        note_obstacle(array, vt_text_format("'%s' is stored within the header", array->name));
    }
done:
    H5Pclose(properties);
    vt_hdf5_leave();
    return status;
}

vt_status vt_hdf5_locate_chunk(const vt_array *array, const int64_t *first, vt_chunk_place *entry)
{
    vt_status status = VT_OK;
    const vt_hdf5_array *own = (const vt_hdf5_array *)array;
    hsize_t at[VT_ARRAY_RANK], size = 0;
    bool is_partial = false;
    unsigned skipped = 0;
    haddr_t address = HADDR_UNDEF;
    for (int i = 0; i < array->rank; i++) {
        at[i] = (hsize_t)first[i];
        is_partial = is_partial || first[i] + array->chunk[i] > array->extent[i];
    }
    vt_hdf5_enter();
    VT_CHECK(H5Dget_chunk_info_by_coord(own->dataset, at, &skipped, &address, &size) >= 0, "%s", vt_hdf5_reason());
    entry->address = address == HADDR_UNDEF ? -1 : (int64_t)address;
    entry->size = (uint32_t)size;
    entry->skipped_filters = is_partial && own->plain_edges ? UINT32_MAX : skipped;
done:
    vt_hdf5_leave();
    return status;
}

int64_t vt_hdf5_chunks_written(const vt_array *array)
{
    int64_t count = -1;
    const vt_hdf5_array *own = (const vt_hdf5_array *)array;
    hsize_t written = 0;
    vt_hdf5_enter();
    if (H5Dget_num_chunks(own->dataset, own->space, &written) >= 0) count = (int64_t)written;
    vt_hdf5_leave();
    return count;
}

/* ---- attributes ---- */

int vt_hdf5_attribute_numbers(const vt_array *array, const char *name, int most, double *values, bool *is_float)
{
    return vt_hdf5_numbers(((const vt_hdf5_array *)array)->dataset, name, H5T_NATIVE_DOUBLE, most, values, is_float);
}

bool vt_hdf5_attribute_texts(const vt_array *array, const char *name, vt_names *texts)
{
    return vt_hdf5_texts(((const vt_hdf5_array *)array)->dataset, name, texts);
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
