/* HDF5 files as a store: what they hold; where arrays lie, so that they can be read without HDF5's library; reading
 * through it; attributes; and netCDF's dimensions, which are kept as attributes. */
#include <errno.h>
#include <fcntl.h>
#include <hdf5_hl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/hdf5_access.h"
#include "storage/store.h"

typedef struct {
    vt_store store;
    hid_t file;
} hdf5_file;

typedef struct {
    vt_array array;
    hid_t dataset, properties, space;
    hid_t memory_type; /* that H5Dread returns: this machine's form of the array's elements */
    bool plain_edges;  /* chunks that reach beyond the array are stored without filters */
} hdf5_array;

extern const vt_store_kind vt_store_hdf5;

/* ---- the file ---- */

/* What else a file of weather may be, by its first bytes; "" when it is none of these. */
static const char *other_kind(int descriptor)
{
    static const struct {
        const char *bytes, *kind;
    } kinds[] = {{"CDF", "; it is netCDF-3, of which `nccopy -k nc4 in.nc out.nc` makes netCDF-4"},
                 {"GRIB", "; it is GRIB: fetch it as netCDF-4, or `cdo -f nc4 copy in.grib out.nc`"},
                 {"PK\3\4", "; it is a zip archive: unzip it"},
                 {"\x1f\x8b", "; it is compressed as a whole: gunzip it"},
                 {"<!DO", "; it is a web page, perhaps an error of the download"},
                 {"<htm", "; it is a web page, perhaps an error of the download"}};
    char first[5] = "";
    if (pread(descriptor, first, 4, 0) < 2) return "";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strncmp(first, kinds[i].bytes, strlen(kinds[i].bytes)) == 0) return kinds[i].kind;
    return "";
}

/* If the operating system refuses, its message is reported; HDF5's is longer and says less. */
static vt_status open_store(const char *path, vt_store **result)
{
    enum { SIEVE_BYTES = 4096 };
    vt_status status = VT_OK;
    struct stat info;
    hid_t access = H5I_INVALID_HID;
    hdf5_file *own = vt_allocate(1, sizeof *own, "an HDF5 file");
    *own = (hdf5_file){.store = {.kind = &vt_store_hdf5, .path = vt_text_copy(path)}, .file = H5I_INVALID_HID};
    vt_store *store = &own->store;
    vt_hdf5_enter();
    store->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    VT_CHECK(store->descriptor >= 0, "can't open %s: %s", path, strerror(errno));
    VT_CHECK(fstat(store->descriptor, &info) == 0, "can't look at %s: %s", path, strerror(errno));
    VT_CHECK(!S_ISDIR(info.st_mode), "%s is a directory, but should be an HDF5 file", path);
    VT_CHECK(S_ISREG(info.st_mode), "%s is a pipe or a device, but should be an HDF5 file", path);
    store->size = info.st_size;
    access = vt_hdf5_file_access();
    H5Pset_sieve_buf_size(access, SIEVE_BYTES); /* it reads 64 KB otherwise, even for a few rows of a field */
    own->file = H5Fopen(path, H5F_ACC_RDONLY, access);
    VT_CHECK(own->file >= 0 || !vt_hdf5_was_refused(), "can't open %s: %s", path, vt_hdf5_reason());
    VT_CHECK(own->file >= 0, "%s is not a readable HDF5 file (damaged or cut short?): %s%s", path, vt_hdf5_reason(),
             other_kind(store->descriptor));
done:
    if (access >= 0) H5Pclose(access);
    vt_hdf5_leave();
    if (status != VT_OK) vt_store_close(&store);
    *result = store;
    return status;
}

static void close_store(vt_store *store)
{
    hdf5_file *own = (hdf5_file *)store;
    vt_hdf5_enter();
    if (own->file >= 0) H5Fclose(own->file);
    vt_hdf5_leave();
}

static bool has_array(const vt_store *store, const char *name)
{
    const hid_t file = ((const hdf5_file *)store)->file;
    vt_hdf5_enter();
    hid_t access = vt_hdf5_link_access(H5P_LINK_ACCESS);
    bool has = H5Lexists(file, name, access) > 0 && H5Oexists_by_name(file, name, access) > 0;
    H5Pclose(access);
    has = has || vt_hdf5_refused_file()[0] != '\0'; /* opening it says why not */
    vt_hdf5_leave();
    return has;
}

/* ---- an array ---- */

/* With the access properties `access`, which come from vt_hdf5_link_access. */
static vt_status open_dataset(const vt_store *store, const char *name, hid_t access, hid_t *dataset)
{
    vt_status status = VT_OK;
    *dataset = H5Dopen2(((const hdf5_file *)store)->file, name, access);
    VT_CHECK(*dataset >= 0 || vt_hdf5_refused_file()[0] == '\0',
             "%s: '%s' is a link into another file, '%s', which is not followed; copy the data into one file (h5copy)",
             store->path, name, vt_hdf5_refused_file());
    const char *reason = *dataset < 0 ? vt_hdf5_reason() : "";
    const bool too_new = strncmp(reason, "bad version number", 18) == 0;
    VT_CHECK(*dataset >= 0, "%s: can't open the dataset '%s': %s%s", store->path, name, reason,
             too_new
                 ? "; if the file is whole, a newer HDF5 wrote it in a form that this one doesn't know: that HDF5's "
                   "h5repack --high=2, or h5py's libver='v110', writes it in an older one"
                 : "");
done:
    return status;
}

/* Must come first: a dataset may name any other files that hold its numbers. */
static vt_status take_properties(hdf5_array *own)
{
    vt_status status = VT_OK;
    const char *path = own->array.store->path, *name = own->array.name;
    own->properties = H5Dget_create_plist(own->dataset);
    VT_CHECK(own->properties >= 0, "%s: '%s' is damaged: %s", path, name, vt_hdf5_reason());
    const H5D_layout_t layout = H5Pget_layout(own->properties);
    VT_CHECK(H5Pget_external_count(own->properties) <= 0 && layout != H5D_VIRTUAL,
             "%s: the numbers of '%s' lie in other files, which are not read; `h5repack -l %s:CONTI IN OUT` makes one "
             "file of them, in which zeros or another constant stand for a file that is missing",
             path, name, name);
    own->array.layout = layout == H5D_CHUNKED      ? VT_LAYOUT_CHUNKED
                        : layout == H5D_CONTIGUOUS ? VT_LAYOUT_CONTIGUOUS
                                                   : VT_LAYOUT_OTHER;
done:
    return status;
}

/* What is read of a stored type: of an odd one, such as half precision, a usual one, which the library makes of it. */
static vt_element element_of(hid_t type)
{
    const H5T_class_t class = H5Tget_class(type);
    const size_t size = H5Tget_size(type);
    const vt_element whole = size == 1   ? VT_ELEMENT_INT8
                             : size == 2 ? VT_ELEMENT_INT16
                             : size == 4 ? VT_ELEMENT_INT32
                                         : VT_ELEMENT_INT64;
    if (class == H5T_FLOAT) return size == 8 ? VT_ELEMENT_FLOAT64 : VT_ELEMENT_FLOAT32;
    return class == H5T_INTEGER ? (vt_element)(whole + (H5Tget_sign(type) != H5T_SGN_2)) : VT_ELEMENT_NONE;
}

static void take_type(hdf5_array *own)
{
    /* in the order of vt_element */
    const hid_t natives[] = {H5I_INVALID_HID,  H5I_INVALID_HID,   H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE,
                             H5T_NATIVE_INT8,  H5T_NATIVE_UINT8,  H5T_NATIVE_INT16, H5T_NATIVE_UINT16,
                             H5T_NATIVE_INT32, H5T_NATIVE_UINT32, H5T_NATIVE_INT64, H5T_NATIVE_UINT64};
    vt_array *array = &own->array;
    hid_t type = H5Dget_type(own->dataset);
    array->element = element_of(type);
    array->element_size = H5Tget_size(type);
    own->memory_type = natives[array->element];
    if (own->memory_type >= 0) {
        hid_t turned = H5Tcopy(own->memory_type);
        H5Tset_order(turned, H5Tget_order(own->memory_type) == H5T_ORDER_LE ? H5T_ORDER_BE : H5T_ORDER_LE);
        array->swapped = H5Tequal(type, turned) > 0;
        if (!array->swapped && H5Tequal(type, own->memory_type) <= 0)
            array->obstacle = vt_text_format("'%s' is of a type of its own, which HDF5 converts", array->name);
        H5Tclose(turned);
    }
    H5Tclose(type);
}

static void take_extent(hdf5_array *own)
{
    hsize_t extent[H5S_MAX_RANK] = {0};
    vt_array *array = &own->array;
    own->space = H5Dget_space(own->dataset);
    array->rank = H5Sget_simple_extent_ndims(own->space);
    if (array->rank > 0) H5Sget_simple_extent_dims(own->space, extent, NULL);
    for (int i = 0; i < array->rank && i < VT_ARRAY_RANK; i++) array->extent[i] = (int64_t)extent[i];
}

static void close_array(vt_array *array)
{
    hdf5_array *own = (hdf5_array *)array;
    vt_hdf5_enter();
    if (own->space >= 0) H5Sclose(own->space);
    if (own->properties >= 0) H5Pclose(own->properties);
    if (own->dataset >= 0) H5Dclose(own->dataset);
    vt_hdf5_leave();
}

static vt_status find_array(const vt_store *store, const char *name, vt_array **array)
{
    vt_status status = VT_OK;
    hdf5_array *own = vt_allocate(1, sizeof *own, "an array of a file");
    *own = (hdf5_array){.array = {.store = store, .name = vt_text_copy(name)},
                        .dataset = H5I_INVALID_HID,
                        .properties = H5I_INVALID_HID,
                        .space = H5I_INVALID_HID};
    *array = &own->array;
    vt_hdf5_enter();
    hid_t access = vt_hdf5_link_access(H5P_DATASET_ACCESS);
    VT_TRY(open_dataset(store, name, access, &own->dataset));
    VT_TRY(take_properties(own));
    take_type(own);
    take_extent(own);
done:
    H5Pclose(access);
    vt_hdf5_leave();
    if (status != VT_OK) vt_array_close(array);
    return status;
}

static herr_t note_dataset(hid_t group, const char *name, const H5L_info_t *info, void *names)
{
    (void)info;
    hid_t access = vt_hdf5_link_access(H5P_LINK_ACCESS), object = H5Oopen(group, name, access);
    if (object >= 0 && H5Iget_type(object) == H5I_DATASET) vt_names_add(names, name);
    if (object >= 0) H5Oclose(object);
    H5Pclose(access);
    return 0;
}

static void list(const vt_store *store, const char *group, bool deeper, vt_names *names)
{
    const hid_t file = ((const hdf5_file *)store)->file;
    vt_hdf5_enter();
    hid_t access = vt_hdf5_link_access(H5P_LINK_ACCESS);
    if (group[0] == '\0') group = "/";
    if (deeper)
        H5Lvisit_by_name(file, group, H5_INDEX_NAME, H5_ITER_NATIVE, note_dataset, names, access);
    else
        H5Literate_by_name(file, group, H5_INDEX_NAME, H5_ITER_INC, NULL, note_dataset, names, access);
    H5Pclose(access);
    vt_hdf5_leave();
}

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
static vt_status take_filters(vt_array *array)
{
    vt_status status = VT_OK;
    const hid_t properties = ((const hdf5_array *)array)->properties;
    const int count = H5Pget_nfilters(properties);
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

static void take_chunks(vt_array *array)
{
    hdf5_array *own = (hdf5_array *)array;
    hsize_t chunk[H5S_MAX_RANK], userblock = 0;
    hid_t type = H5Dget_type(own->dataset);
    hid_t creation = H5Fget_create_plist(((const hdf5_file *)array->store)->file);
    H5Pget_chunk(own->properties, H5S_MAX_RANK, chunk);
    int64_t stride = 1;
    for (int i = (array->rank < VT_ARRAY_RANK ? array->rank : VT_ARRAY_RANK) - 1; i >= 0; i--) {
        array->chunk[i] = (int64_t)chunk[i];
        array->stride[i] = stride;
        stride = (int64_t)((uint64_t)stride * chunk[i]); /* of a damaged file, anything */
    }
    array->pipeline.element_size = array->element_size;
    H5Pget_fill_value(own->properties, type, array->fill);
    unsigned chunk_options = 0;
    H5Pget_chunk_opts(own->properties, &chunk_options);
    own->plain_edges = (chunk_options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
    H5Pget_userblock(creation, &userblock);
    if (userblock != 0) /* versions of HDF5 differ in whether addresses of chunks count it */
        note_obstacle(array, vt_text_format("'%s' is chunked, in a file with a user block", array->name));
    H5Pclose(creation);
    H5Tclose(type);
}

static vt_status lay_out(vt_array *array)
{
    vt_status status = VT_OK;
    const hid_t dataset = ((hdf5_array *)array)->dataset;
    vt_hdf5_enter();
    array->stored_bytes = (int64_t)H5Dget_storage_size(dataset);
    VT_TRY(take_filters(array));
    if (array->layout == VT_LAYOUT_CHUNKED) {
        take_chunks(array);
    } else if (array->layout == VT_LAYOUT_CONTIGUOUS) {
        const haddr_t address = H5Dget_offset(dataset);
        array->address = address == HADDR_UNDEF ? -1 : (int64_t)address;
        if (array->address < 0) note_obstacle(array, vt_text_format("'%s' was never written", array->name));
    } else {
        note_obstacle(array, vt_text_format("'%s' is stored within the header", array->name));
    }
done:
    vt_hdf5_leave();
    return status;
}

static vt_status locate_chunk(const vt_array *array, const int64_t *first, vt_chunk_place *entry)
{
    vt_status status = VT_OK;
    const hdf5_array *own = (const hdf5_array *)array;
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

static int64_t chunks_written(const vt_array *array)
{
    int64_t count = -1;
    const hdf5_array *own = (const hdf5_array *)array;
    hsize_t written = 0;
    vt_hdf5_enter();
    if (H5Dget_num_chunks(own->dataset, own->space, &written) >= 0) count = (int64_t)written;
    vt_hdf5_leave();
    return count;
}

/* ---- reading ---- */

/* Opens the dataset again with a chunk cache that fits its chunks: with the library's 1 MiB, a chunk of several times
 * would be decoded once for each of them. */
static vt_status keep_decoded(vt_array *array, int64_t chunks, int64_t bytes)
{
    hdf5_array *own = (hdf5_array *)array;
    /* the library advises a prime of about 100 slots a chunk; the slots are pointers */
    const size_t slots = chunks < 62 ? 12421 : chunks < 5000 ? 200 * (size_t)chunks + 1 : 1000003;
    vt_hdf5_enter();
    hid_t access = vt_hdf5_link_access(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, slots, (size_t)bytes, H5D_CHUNK_CACHE_W0_DEFAULT);
    H5Dclose(own->dataset);
    const vt_status status = open_dataset(array->store, array->name, access, &own->dataset);
    H5Pclose(access);
    vt_hdf5_leave();
    return status;
}

static vt_status read_box(const vt_array *array, const int64_t *start, const int64_t *count, bool as_doubles,
                          void *values)
{
    vt_status status = VT_OK;
    const hdf5_array *own = (const hdf5_array *)array;
    VT_ASSERT(array->rank <= VT_ARRAY_RANK);
    vt_hdf5_enter();
    hid_t space = vt_hdf5_space(array->rank, count);
    if (array->rank > 0) vt_hdf5_select(own->space, array->rank, start, count);
    VT_CHECK(H5Dread(own->dataset, as_doubles ? H5T_NATIVE_DOUBLE : own->memory_type, space, own->space, H5P_DEFAULT,
                     values) >= 0,
             "%s", vt_hdf5_reason());
done:
    H5Sclose(space);
    vt_hdf5_leave();
    return status;
}

/* ---- attributes ---- */

static int attribute_numbers(const vt_array *array, const char *name, int most, double *values, bool *is_float)
{
    return vt_hdf5_numbers(((const hdf5_array *)array)->dataset, name, H5T_NATIVE_DOUBLE, most, values, is_float);
}

static bool attribute_texts(const vt_array *array, const char *name, vt_names *texts)
{
    return vt_hdf5_texts(((const hdf5_array *)array)->dataset, name, texts);
}

static double fill_value(const vt_array *array)
{
    const hid_t properties = ((const hdf5_array *)array)->properties;
    H5D_fill_value_t chosen = H5D_FILL_VALUE_UNDEFINED;
    double value = 0;
    vt_hdf5_enter();
    H5Pfill_value_defined(properties, &chosen);
    if (chosen == H5D_FILL_VALUE_USER_DEFINED) H5Pget_fill_value(properties, H5T_NATIVE_DOUBLE, &value);
    vt_hdf5_leave();
    return value;
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

static void dimension_name(const vt_array *array, int dimension, char *name, size_t size)
{
    const hid_t dataset = ((const hdf5_array *)array)->dataset;
    char path[PATH_SIZE] = "";
    vt_hdf5_enter();
    if (H5Aexists(dataset, "DIMENSION_LIST") > 0 && H5DSget_num_scales(dataset, (unsigned)dimension) >= 1)
        H5DSiterate_scales(dataset, (unsigned)dimension, NULL, take_name, path);
    vt_hdf5_leave();
    snprintf(name, size, "%s", vt_file_name(path));
}

static bool is_scale_of(const vt_array *scale, const vt_array *array, int dimension)
{
    const hid_t dataset = ((const hdf5_array *)scale)->dataset;
    vt_hdf5_enter();
    const bool is_scale = array == NULL
                              ? H5DSis_scale(dataset) > 0
                              : H5DSis_attached(((const hdf5_array *)array)->dataset, dataset, (unsigned)dimension) > 0;
    vt_hdf5_leave();
    return is_scale;
}

const vt_store_kind vt_store_hdf5 = {.name = "hdf5",
                                     .open = open_store,
                                     .close = close_store,
                                     .has_array = has_array,
                                     .list = list,
                                     .find_array = find_array,
                                     .close_array = close_array,
                                     .lay_out = lay_out,
                                     .locate_chunk = locate_chunk,
                                     .chunks_written = chunks_written,
                                     .keep_decoded = keep_decoded,
                                     .read = read_box,
                                     .attribute_numbers = attribute_numbers,
                                     .attribute_texts = attribute_texts,
                                     .fill_value = fill_value,
                                     .dimension_name = dimension_name,
                                     .is_scale_of = is_scale_of};

const char *vt_hdf5_name(char name[VT_HDF5_NAME])
{
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    snprintf(name, VT_HDF5_NAME, "HDF5 %u.%u.%u", major, minor, release);
    return name;
}
