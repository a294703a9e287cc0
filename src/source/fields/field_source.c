/* Datasets as sources of fields: their type, and how they lie in the file. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/dimensions.h"
#include "source/fields/fields_inside.h"
#include "storage/hdf5_access.h"

/* Decoded chunks that HDF5 keeps: room for those of two neighbouring times, within these bounds. A chunk of several
 * times then is decoded once for an input and its target; small files end up decoded whole. */
#define SMALLEST_CACHE (INT64_C(16) << 20)
#define LARGEST_CACHE (INT64_C(512) << 20)

/* ---- the file ---- */

/* What else a file of weather may be, by its first bytes; "" when it is none of these. */
static const char *other_kind(int descriptor)
{
    static const struct {
        const char *bytes, *kind;
    } kinds[] = {{"CDF\1", "; it is netCDF-3, of which `nccopy -k nc4 in.nc out.nc` makes netCDF-4"},
                 {"CDF\2", "; it is netCDF-3, of which `nccopy -k nc4 in.nc out.nc` makes netCDF-4"},
                 {"CDF\5", "; it is netCDF-3, of which `nccopy -k nc4 in.nc out.nc` makes netCDF-4"},
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

/* The operating system's own words for what it refuses; HDF5's are longer and say less. */
vt_status vt_field_part_open(const char *path, vt_field_part *part)
{
    enum { SIEVE_BYTES = 4096 };
    vt_status status = VT_OK;
    struct stat info;
    hid_t access = H5I_INVALID_HID;
    part->path = vt_text_copy(path);
    part->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    VT_CHECK(part->descriptor >= 0, "can't open %s: %s", path, strerror(errno));
    VT_CHECK(fstat(part->descriptor, &info) == 0, "can't look at %s: %s", path, strerror(errno));
    VT_CHECK(!S_ISDIR(info.st_mode), "%s is a directory, but should be an HDF5 file", path);
    VT_CHECK(S_ISREG(info.st_mode), "%s is a pipe or a device, but should be an HDF5 file", path);
    part->size = info.st_size;
    access = vt_hdf5_file_access();
    H5Pset_sieve_buf_size(access, SIEVE_BYTES); /* 64 KB else, also where a few rows of a field are asked for */
    part->file = H5Fopen(path, H5F_ACC_RDONLY, access);
    VT_CHECK(part->file >= 0, "%s is not a readable HDF5 file (damaged or cut short?): %s%s", path, vt_hdf5_reason(),
             other_kind(part->descriptor));
done:
    if (access >= 0) H5Pclose(access);
    return status;
}

bool vt_field_part_has(const vt_field_part *part, const char *name)
{
    hid_t access = vt_hdf5_link_access(H5P_LINK_ACCESS);
    bool has = H5Lexists(part->file, name, access) > 0 && H5Oexists_by_name(part->file, name, access) > 0;
    H5Pclose(access);
    return has || vt_hdf5_refused_file()[0] != '\0'; /* opening it says why not */
}

/* With the access properties `access`, which come from vt_hdf5_link_access. */
static vt_status open_dataset(const vt_field_part *part, const char *name, hid_t access, hid_t *dataset)
{
    vt_status status = VT_OK;
    *dataset = H5Dopen2(part->file, name, access);
    VT_CHECK(*dataset >= 0 || vt_hdf5_refused_file()[0] == '\0',
             "%s: '%s' is a link into another file, '%s', which is not followed; copy the data into one file (h5copy)",
             part->path, name, vt_hdf5_refused_file());
    const char *reason = *dataset < 0 ? vt_hdf5_reason() : "";
    const bool too_new = strncmp(reason, "bad version number", 18) == 0;
    VT_CHECK(*dataset >= 0, "%s: can't open the dataset '%s': %s%s", part->path, name, reason,
             too_new
                 ? "; if the file is whole, a newer HDF5 wrote it in a form that this one doesn't know: that HDF5's "
                   "h5repack --high=2, or h5py's libver='v110', writes it in an older one"
                 : "");
done:
    return status;
}

/* Before anything else is asked of it: a dataset may name other files, anywhere, that hold its numbers. */
static vt_status check_own_storage(const vt_field_part *part, const char *name, hid_t dataset)
{
    vt_status status = VT_OK;
    hid_t properties = H5Dget_create_plist(dataset);
    VT_CHECK(properties >= 0, "%s: '%s' is damaged: %s", part->path, name, vt_hdf5_reason());
    bool elsewhere = H5Pget_external_count(properties) > 0 || H5Pget_layout(properties) == H5D_VIRTUAL;
    VT_CHECK(!elsewhere,
             "%s: the numbers of '%s' lie in other files, which are not read; 'h5repack -l %s:CONTI' makes one file of "
             "them",
             part->path, name, name);
done:
    if (properties >= 0) H5Pclose(properties);
    return status;
}

vt_status vt_field_part_dataset(const vt_field_part *part, const char *name, hid_t *dataset)
{
    vt_status status = VT_OK;
    hid_t access = vt_hdf5_link_access(H5P_DATASET_ACCESS);
    VT_TRY(open_dataset(part, name, access, dataset));
    VT_TRY(check_own_storage(part, name, *dataset));
done:
    H5Pclose(access);
    return status;
}

/* ---- its type ---- */

static void note_obstacle(vt_field_source *source, char *text)
{
    if (source->obstacle == NULL)
        source->obstacle = text;
    else
        free(text);
}

/* The type that H5Dread converts to, and whether the stored bytes are that type but for their order. */
static vt_status take_type(vt_field_source *source)
{
    vt_status status = VT_OK;
    hid_t type = H5Dget_type(source->dataset), native = H5I_INVALID_HID;
    H5T_class_t class = H5Tget_class(type);
    size_t size = H5Tget_size(type);
    VT_CHECK(class == H5T_FLOAT || class == H5T_INTEGER,
             "%s: '%s' must hold floating-point numbers (float32) or, in netCDF, packed integers, but holds another "
             "type",
             source->part->path, source->name);
    if (class == H5T_FLOAT) {
        source->packing.element = size == 8 ? VT_ELEMENT_FLOAT64 : VT_ELEMENT_FLOAT32;
        native = H5Tcopy(size == 8 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT);
    } else {
        bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
        VT_CHECK(size == 1 || size == 2 || size == 4, "%s: '%s' holds integers of %zu bytes; 1, 2 and 4 can be read",
                 source->part->path, source->name, size);
        vt_element of_size[] = {VT_ELEMENT_INT8, VT_ELEMENT_INT16, VT_ELEMENT_INT32};
        hid_t natives[] = {H5T_NATIVE_INT8,   H5T_NATIVE_UINT8, H5T_NATIVE_INT16,
                           H5T_NATIVE_UINT16, H5T_NATIVE_INT32, H5T_NATIVE_UINT32};
        int index = size == 1 ? 0 : size == 2 ? 1 : 2;
        source->packing.element = (vt_element)(of_size[index] + (is_signed ? 0 : 1));
        native = H5Tcopy(natives[2 * index + (is_signed ? 0 : 1)]);
    }
    source->memory_type = native;
    hid_t turned = H5Tcopy(native);
    H5Tset_order(turned, H5Tget_order(native) == H5T_ORDER_LE ? H5T_ORDER_BE : H5T_ORDER_LE);
    source->packing.swapped = H5Tequal(type, turned) > 0;
    if (!source->packing.swapped && H5Tequal(type, native) <= 0)
        note_obstacle(source, vt_text_format("'%s' is of a type of its own, which HDF5 converts", source->name));
    H5Tclose(turned);
done:
    H5Tclose(type);
    return status;
}

/* ---- its place in the file ---- */

/* gzip, shuffle and fletcher32 are undone here; other filters are HDF5's, some of them (lzf, blosc, zstd, ...) plugins.
 */
static vt_status take_filters(vt_field_source *source, hid_t properties)
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
                 source->part->path, source->name, name, filter);
        bool known = filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32;
        if (!known || i >= VT_FILTERS) {
            note_obstacle(source, vt_text_format("'%s' is compressed with '%s'", source->name, name));
            continue;
        }
        source->pipeline.filters[source->pipeline.count++] = filter == H5Z_FILTER_DEFLATE   ? VT_FILTER_GZIP
                                                             : filter == H5Z_FILTER_SHUFFLE ? VT_FILTER_SHUFFLE
                                                                                            : VT_FILTER_FLETCHER32;
    }
done:
    return status;
}

static void take_chunks(vt_field_source *source, hid_t properties)
{
    hsize_t chunk[4], userblock = 0;
    hid_t type = H5Dget_type(source->dataset), creation = H5Fget_create_plist(source->part->file);
    H5Pget_chunk(properties, source->rank, chunk);
    source->chunk[1] = 1;
    for (int i = 0; i < source->rank; i++) source->chunk[i > 0 ? 4 - source->rank + i : 0] = (int64_t)chunk[i];
    for (int i = 0; i < 4; i++) source->grid[i] = (source->extent[i] + source->chunk[i] - 1) / source->chunk[i];
    source->pipeline.element_size = H5Tget_size(type);
    H5Pget_fill_value(properties, type, source->fill);
    H5Pget_userblock(creation, &userblock);
    if (userblock != 0) /* versions of HDF5 differ in whether addresses of chunks count it */
        note_obstacle(source, vt_text_format("'%s' is chunked, in a file with a user block", source->name));
#if !H5_VERSION_GE(1, 10, 5)
    note_obstacle(source,
                  vt_text_format("'%s' is chunked, and this HDF5 (before 1.10.5) doesn't say where the chunks are",
                                 source->name));
#endif
    H5Pclose(creation);
    H5Tclose(type);
}

static vt_status take_layout(vt_field_source *source)
{
    vt_status status = VT_OK;
    hid_t properties = H5Dget_create_plist(source->dataset);
    H5D_layout_t layout = H5Pget_layout(properties);
    VT_TRY(take_filters(source, properties));
    if (layout == H5D_CHUNKED) {
        source->layout = VT_LAYOUT_CHUNKED;
        take_chunks(source, properties);
    } else if (layout == H5D_CONTIGUOUS) {
        haddr_t address = H5Dget_offset(source->dataset);
        source->layout = VT_LAYOUT_CONTIGUOUS;
        source->address = (int64_t)address;
        if (address == HADDR_UNDEF) note_obstacle(source, vt_text_format("'%s' was never written", source->name));
    } else {
        note_obstacle(source, vt_text_format("'%s' is stored within the header", source->name));
    }
done:
    H5Pclose(properties);
    return status;
}

static vt_status take_extent(vt_field_source *source)
{
    vt_status status = VT_OK;
    hsize_t extent[4];
    char *names = NULL;
    source->space = H5Dget_space(source->dataset);
    source->rank = H5Sget_simple_extent_ndims(source->space);
    names = vt_dimension_names(source->dataset);
    VT_CHECK(source->rank == 3 || source->rank == 4,
             "%s: '%s' has %d dimensions%s, expected 4: [time, channel, lat, lon], or in netCDF 3: [time, lat, lon]%s",
             source->part->path, source->name, source->rank, names, vt_dimension_advice(source->dataset));
    H5Sget_simple_extent_dims(source->space, extent, NULL);
    source->extent[1] = 1;
    for (int i = 0; i < source->rank; i++) source->extent[i > 0 ? 4 - source->rank + i : 0] = (int64_t)extent[i];
    VT_CHECK(source->extent[1] > 0 && source->extent[2] > 0 && source->extent[3] > 0,
             "%s: '%s' is empty: [%lld, %lld, %lld, %lld] (time, channel, lat, lon)", source->part->path, source->name,
             (long long)source->extent[0], (long long)source->extent[1], (long long)source->extent[2],
             (long long)source->extent[3]);
    VT_TRY(vt_dimensions_check(source));
done:
    free(names);
    return status;
}

/* a * b, both at least 1; -1 when that is more than can be, as a damaged file may claim, or a is -1 already. */
static int64_t times_or_none(int64_t a, int64_t b)
{
    int64_t product = -1;
    return a < 1 || b < 1 || __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

/* HDF5 1.10 believes a file whose values take less room than their number and type ask for, and reads past its end. */
static vt_status check_storage(const vt_field_source *source)
{
    vt_status status = VT_OK;
    hid_t type = H5Dget_type(source->dataset), properties = H5Dget_create_plist(source->dataset);
    H5D_layout_t layout = H5Pget_layout(properties);
    hsize_t stored = H5Dget_storage_size(source->dataset);
    size_t size = H5Tget_size(type);
    const int64_t *extent = source->extent;
    VT_CHECK(size == 1 || size == 2 || size == 4 || size == 8 || size == 16,
             "%s: '%s' is damaged: its numbers have %zu bytes each", source->part->path, source->name, size);
    int64_t bytes = (int64_t)size;
    for (int i = 0; i < 4; i++) bytes = times_or_none(bytes, extent[i] > 0 ? extent[i] : 1);
    VT_CHECK(bytes > 0 && bytes < INT64_MAX / 8,
             "%s: '%s' is damaged: [%lld, %lld, %lld, %lld] (time, channel, lat, lon)", source->part->path,
             source->name, (long long)extent[0], (long long)extent[1], (long long)extent[2], (long long)extent[3]);
    bool whole = layout == H5D_CHUNKED || stored == 0 || extent[0] == 0 || (int64_t)stored >= bytes;
    VT_CHECK(whole, "%s: '%s' is damaged: %llu bytes are stored, %lld expected", source->part->path, source->name,
             (unsigned long long)stored, (long long)bytes);
done:
    H5Pclose(properties);
    H5Tclose(type);
    return status;
}

vt_status vt_field_source_open(const vt_field_part *part, const char *name, vt_field_source *source)
{
    vt_status status = VT_OK;
    *source = (vt_field_source){.name = vt_text_copy(name),
                                .part = part,
                                .space = H5I_INVALID_HID,
                                .memory_type = H5I_INVALID_HID,
                                .packing = {.scale = 1}};
    VT_TRY(vt_field_part_dataset(part, name, &source->dataset));
    VT_TRY(take_type(source));
    VT_TRY(take_extent(source));
    VT_TRY(check_storage(source));
    VT_TRY(take_layout(source));
    source->sampled = vt_allocate((size_t)source->extent[1], sizeof *source->sampled, "the levels of a file");
done:
    return status;
}

void vt_field_source_close(vt_field_source *source)
{
    if (source->memory_type >= 0) H5Tclose(source->memory_type);
    if (source->space >= 0) H5Sclose(source->space);
    if (source->dataset >= 0) H5Dclose(source->dataset);
    free(source->chunks);
    free(source->sampled);
    free(source->obstacle);
    free(source->name);
}

/* Opens the dataset again with a chunk cache that fits its chunks: the library's 1 MiB would decode a chunk of several
 * times once for each of them. */
vt_status vt_field_source_enlarge_cache(vt_field_source *source, int64_t *cache_bytes)
{
    vt_status status = VT_OK;
    hid_t access = H5I_INVALID_HID;
    if (source->layout != VT_LAYOUT_CHUNKED) return VT_OK;
    int64_t chunks = 1, bytes = (int64_t)source->pipeline.element_size;
    for (int i = 1; i < 4; i++) chunks = times_or_none(chunks, source->grid[i]);
    for (int i = 0; i < 4; i++) bytes = times_or_none(bytes, source->chunk[i]);
    bytes = times_or_none(bytes, chunks);
    VT_CHECK(bytes > 0, "%s: '%s' is damaged: its chunks are larger than can be", source->part->path, source->name);
    *cache_bytes = bytes > LARGEST_CACHE ? bytes : 2 * bytes;
    if (*cache_bytes < SMALLEST_CACHE) *cache_bytes = SMALLEST_CACHE;
    if (*cache_bytes > LARGEST_CACHE) {
        char size[VT_NUMBER_SIZE];
        vt_log_warning("%s: the chunks of one time hold %s, too much to keep decoded, so reading will be slow; chunks "
                       "of one time and one channel are best (h5repack -l %s:CHUNK=1x%s%lldx%lld)",
                       source->part->path, vt_text_bytes((double)bytes, size), source->name,
                       source->rank == 4 ? "1x" : "", (long long)source->extent[2], (long long)source->extent[3]);
        *cache_bytes = LARGEST_CACHE;
    }
    /* the library advises a prime of about 100 slots a chunk; the slots are pointers */
    size_t slots = chunks < 62 ? 12421 : chunks < 5000 ? 200 * (size_t)chunks + 1 : 1000003;
    access = vt_hdf5_link_access(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, slots, (size_t)*cache_bytes, H5D_CHUNK_CACHE_W0_DEFAULT);
    H5Dclose(source->dataset);
    VT_TRY(open_dataset(source->part, source->name, access, &source->dataset));
done:
    if (access >= 0) H5Pclose(access);
    return status;
}

vt_status vt_field_source_find_chunk(vt_field_source *source, int64_t index)
{
    vt_status status = VT_OK;
    if (source->chunks == NULL) {
        int64_t count = source->grid[0] * source->grid[1] * source->grid[2] * source->grid[3];
        source->chunks = calloc((size_t)count, sizeof *source->chunks);
        VT_CHECK(source->chunks != NULL, "out of memory for the places of %lld chunks of %s", (long long)count,
                 source->part->path);
    }
    vt_chunk_entry *entry = &source->chunks[index];
    if (entry->size != 0 || entry->address < 0) goto done;
#if H5_VERSION_GE(1, 10, 5)
    hsize_t first[4], size = 0;
    int64_t rest = index, at[4];
    for (int i = 3; i >= 0; rest /= source->grid[i--]) at[i] = rest % source->grid[i] * source->chunk[i];
    for (int i = 0; i < source->rank; i++) first[i] = (hsize_t)at[i > 0 ? 4 - source->rank + i : 0];
    unsigned skipped = 0;
    haddr_t address = HADDR_UNDEF;
    VT_CHECK(H5Dget_chunk_info_by_coord(source->dataset, first, &skipped, &address, &size) >= 0,
             "%s: can't find where '%s' at time %lld is stored (damaged or cut short?): %s", source->part->path,
             source->name, (long long)at[0], vt_hdf5_reason());
    entry->address = address == HADDR_UNDEF ? -1 : (int64_t)address;
    entry->size = (uint32_t)size;
    entry->skipped_filters = skipped;
#endif
done:
    return status;
}
