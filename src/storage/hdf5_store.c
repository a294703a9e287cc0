/* HDF5 files as a store: what they hold, and reading through HDF5's own library. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "storage/hdf5_inside.h"

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
static vt_status open_file(const char *path, vt_hdf5_file *own)
{
    enum { SIEVE_BYTES = 4096 };
    vt_status status = VT_OK;
    struct stat info;
    hid_t access = H5I_INVALID_HID;
    vt_store *store = &own->store;
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
    return status;
}

static void close_store(vt_store *store)
{
    vt_hdf5_file *own = (vt_hdf5_file *)store;
    vt_hdf5_enter();
    if (own->file >= 0) H5Fclose(own->file);
    vt_hdf5_leave();
    if (store->descriptor >= 0) close(store->descriptor);
    free(store->path);
    free(own);
}

static vt_status open_store(const char *path, vt_store **store)
{
    vt_hdf5_file *own = vt_allocate(1, sizeof *own, "an HDF5 file");
    *own = (vt_hdf5_file){.store = {.kind = &vt_store_hdf5, .path = vt_text_copy(path), .descriptor = -1},
                          .file = H5I_INVALID_HID};
    *store = &own->store;
    vt_hdf5_enter();
    vt_status status = open_file(path, own);
    vt_hdf5_leave();
    if (status != VT_OK) vt_store_close(store);
    return status;
}

static bool has_array(const vt_store *store, const char *name)
{
    const hid_t file = ((const vt_hdf5_file *)store)->file;
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
    *dataset = H5Dopen2(((const vt_hdf5_file *)store)->file, name, access);
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
static vt_status check_own_storage(const vt_store *store, const char *name, hid_t dataset)
{
    vt_status status = VT_OK;
    hid_t properties = H5Dget_create_plist(dataset);
    VT_CHECK(properties >= 0, "%s: '%s' is damaged: %s", store->path, name, vt_hdf5_reason());
    bool elsewhere = H5Pget_external_count(properties) > 0 || H5Pget_layout(properties) == H5D_VIRTUAL;
    VT_CHECK(!elsewhere,
             "%s: the numbers of '%s' lie in other files, which are not read; `h5repack -l %s:CONTI IN OUT` makes one "
             "file of them, in which zeros or another constant stand for a file that is missing",
             store->path, name, name);
done:
    if (properties >= 0) H5Pclose(properties);
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

static void take_type(vt_hdf5_array *own)
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

/* The array takes over the dataset. */
static vt_hdf5_array *make_array(const vt_store *store, const char *name, hid_t dataset)
{
    hsize_t extent[H5S_MAX_RANK] = {0};
    vt_hdf5_array *own = vt_allocate(1, sizeof *own, "an array of a file");
    *own = (vt_hdf5_array){.array = {.store = store, .name = vt_text_copy(name)}, .dataset = dataset};
    vt_array *array = &own->array;
    take_type(own);
    hid_t properties = H5Dget_create_plist(dataset);
    H5D_fill_value_t fill = H5D_FILL_VALUE_UNDEFINED;
    const H5D_layout_t layout = H5Pget_layout(properties);
    H5Pfill_value_defined(properties, &fill);
    if (array->element != VT_ELEMENT_NONE && fill == H5D_FILL_VALUE_USER_DEFINED)
        H5Pget_fill_value(properties, H5T_NATIVE_DOUBLE, &array->fill_value);
    own->space = H5Dget_space(dataset);
    array->rank = H5Sget_simple_extent_ndims(own->space);
    if (array->rank > 0) H5Sget_simple_extent_dims(own->space, extent, NULL);
    for (int i = 0; i < array->rank && i < VT_ARRAY_RANK; i++) array->extent[i] = (int64_t)extent[i];
    array->layout = layout == H5D_CHUNKED      ? VT_LAYOUT_CHUNKED
                    : layout == H5D_CONTIGUOUS ? VT_LAYOUT_CONTIGUOUS
                                               : VT_LAYOUT_OTHER;
    H5Pclose(properties);
    return own;
}

static void close_array(vt_array *array)
{
    vt_hdf5_array *own = (vt_hdf5_array *)array;
    vt_hdf5_enter();
    if (own->space >= 0) H5Sclose(own->space);
    if (own->dataset >= 0) H5Dclose(own->dataset);
    vt_hdf5_leave();
    free(array->obstacle);
    free(array->name);
    free(own);
}

static vt_status find_array(const vt_store *store, const char *name, vt_array **array)
{
    vt_status status = VT_OK;
    hid_t dataset = H5I_INVALID_HID;
    *array = NULL;
    vt_hdf5_enter();
    hid_t access = vt_hdf5_link_access(H5P_DATASET_ACCESS);
    VT_TRY(open_dataset(store, name, access, &dataset));
    VT_TRY(check_own_storage(store, name, dataset));
    *array = &make_array(store, name, dataset)->array;
    dataset = H5I_INVALID_HID;
done:
    if (dataset >= 0) H5Dclose(dataset);
    H5Pclose(access);
    vt_hdf5_leave();
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
    const hid_t file = ((const vt_hdf5_file *)store)->file;
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

/* ---- reading ---- */

/* Opens the dataset again with a chunk cache that fits its chunks: with the library's 1 MiB, a chunk of several times
 * would be decoded once for each of them. */
static vt_status keep_decoded(vt_array *array, int64_t chunks, int64_t bytes)
{
    vt_hdf5_array *own = (vt_hdf5_array *)array;
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
    const vt_hdf5_array *own = (const vt_hdf5_array *)array;
    hsize_t from[VT_ARRAY_RANK], size[VT_ARRAY_RANK];
    VT_ASSERT(array->rank <= VT_ARRAY_RANK);
    for (int i = 0; i < array->rank; i++) {
        from[i] = (hsize_t)start[i];
        size[i] = (hsize_t)count[i];
    }
    vt_hdf5_enter();
    hid_t space = array->rank > 0 ? H5Screate_simple(array->rank, size, NULL) : H5Screate(H5S_SCALAR);
    if (array->rank > 0) H5Sselect_hyperslab(own->space, H5S_SELECT_SET, from, NULL, size, NULL);
    VT_CHECK(H5Dread(own->dataset, as_doubles ? H5T_NATIVE_DOUBLE : own->memory_type, space, own->space, H5P_DEFAULT,
                     values) >= 0,
             "%s", vt_hdf5_reason());
done:
    H5Sclose(space);
    vt_hdf5_leave();
    return status;
}

const vt_store_kind vt_store_hdf5 = {.name = "hdf5",
                                     .open = open_store,
                                     .close = close_store,
                                     .has_array = has_array,
                                     .list = list,
                                     .find_array = find_array,
                                     .close_array = close_array,
                                     .lay_out = vt_hdf5_lay_out,
                                     .locate_chunk = vt_hdf5_locate_chunk,
                                     .chunks_written = vt_hdf5_chunks_written,
                                     .keep_decoded = keep_decoded,
                                     .read = read_box,
                                     .attribute_numbers = vt_hdf5_attribute_numbers,
                                     .attribute_texts = vt_hdf5_attribute_texts,
                                     .dimension_name = vt_hdf5_dimension_name,
                                     .is_scale_of = vt_hdf5_is_scale_of};

const char *vt_hdf5_name(char name[VT_HDF5_NAME])
{
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    snprintf(name, VT_HDF5_NAME, "HDF5 %u.%u.%u", major, minor, release);
    return name;
}
