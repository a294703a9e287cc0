#include "data/fields_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "data/hdf5_access.h"
#include "report/log.h"

/* Decoded chunks kept: room for those of two neighbouring times, within these bounds. A chunk of several times then is
 * decoded once for an input and its target; small files end up decoded whole. */
#define SMALLEST_CACHE (INT64_C(16) << 20)
#define LARGEST_CACHE (INT64_C(512) << 20)

struct vt_fields_file {
    char *path;
    vt_fields_shape shape;
    char **channel_names; /* [shape.channels], or NULL */
    double *latitudes;    /* [shape.height], or NULL */
    double *longitudes;   /* [shape.width], or NULL */
    int64_t cache_bytes;
    hid_t file, fields, fields_space;
    hid_t window_space; /* of the last window read: [channels, height, width] */
    hsize_t window[4];
};

/* The operating system's own words for what it refuses; HDF5's are longer and say less. */
static vt_status check_readable(const char *path)
{
    vt_status status = VT_OK;
    struct stat info;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    VT_CHECK(descriptor >= 0, "can't open %s: %s", path, strerror(errno));
    VT_CHECK(fstat(descriptor, &info) == 0, "can't look at %s: %s", path, strerror(errno));
    VT_CHECK(!S_ISDIR(info.st_mode), "%s is a directory, but should be an HDF5 file", path);
    VT_CHECK(S_ISREG(info.st_mode), "%s is a pipe or a device, but should be an HDF5 file", path);
done:
    if (descriptor >= 0) close(descriptor);
    return status;
}

static bool has_object(hid_t file, const char *name)
{
    return H5Lexists(file, name, H5P_DEFAULT) > 0 && H5Oexists_by_name(file, name, H5P_DEFAULT) > 0;
}

/* Bytes of the chunks that cover one time, and their number; 0 when the storage has no chunks. */
static int64_t chunk_bytes_of_a_time(hid_t fields, const vt_fields_shape *shape, int64_t *count)
{
    hsize_t chunk[4];
    int64_t bytes = 0;
    hid_t type = H5Dget_type(fields);
    hid_t properties = H5Dget_create_plist(fields);
    *count = 0;
    if (H5Pget_layout(properties) == H5D_CHUNKED && H5Pget_chunk(properties, 4, chunk) == 4) {
        const int64_t extent[3] = {shape->channels, shape->height, shape->width};
        *count = 1;
        for (int i = 0; i < 3; i++) *count *= (extent[i] + (int64_t)chunk[i + 1] - 1) / (int64_t)chunk[i + 1];
        bytes = *count * (int64_t)(chunk[0] * chunk[1] * chunk[2] * chunk[3] * H5Tget_size(type));
    }
    H5Pclose(properties);
    H5Tclose(type);
    return bytes;
}

/* gzip, shuffle and fletcher32 are part of the library; others (lzf, blosc, zstd, ...) are plugins. */
static vt_status check_filters(const vt_fields_file *file)
{
    vt_status status = VT_OK;
    hid_t properties = H5Dget_create_plist(file->fields);
    int count = H5Pget_nfilters(properties);
    for (int i = 0; i < count; i++) {
        char name[64] = "";
        unsigned flags = 0, config = 0;
        size_t values = 0;
        int filter = (int)H5Pget_filter2(properties, (unsigned)i, &flags, &values, NULL, sizeof name, name, &config);
        VT_CHECK(H5Zfilter_avail(filter) > 0,
                 "%s: 'fields' is compressed with '%s' (HDF5 filter %d), which this HDF5 library can't decode; "
                 "where the filter is there, h5repack -f fields:GZIP=1 writes the file with gzip",
                 file->path, name, filter);
    }
done:
    H5Pclose(properties);
    return status;
}

/* Opens `fields` again with a chunk cache that fits its chunks: the library's 1 MiB would decode a chunk of several
 * times once for each of them. */
static vt_status enlarge_chunk_cache(vt_fields_file *file)
{
    vt_status status = VT_OK;
    hid_t access = H5I_INVALID_HID;
    int64_t chunks = 0;
    int64_t bytes = chunk_bytes_of_a_time(file->fields, &file->shape, &chunks);
    if (bytes == 0) goto done;
    file->cache_bytes = 2 * bytes < SMALLEST_CACHE ? SMALLEST_CACHE : 2 * bytes;
    if (file->cache_bytes > LARGEST_CACHE) {
        char size[VT_NUMBER_SIZE];
        vt_log_warning("%s: the chunks of one time hold %s, too much to keep decoded, so reading will be slow; chunks "
                       "of one time and one channel are best (h5repack -l fields:CHUNK=1x1x%lldx%lld)",
                       file->path, vt_text_bytes((double)bytes, size), (long long)file->shape.height,
                       (long long)file->shape.width);
        file->cache_bytes = LARGEST_CACHE;
    }
    /* the library advises a prime of about 100 slots a chunk; the slots are pointers */
    size_t slots = (size_t)(200 * chunks < 12421 ? 12421 : 200 * chunks + 1);
    access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, slots, (size_t)file->cache_bytes, H5D_CHUNK_CACHE_W0_DEFAULT);
    H5Dclose(file->fields);
    file->fields = H5Dopen2(file->file, "fields", access);
    VT_CHECK(file->fields >= 0, "%s: can't open the dataset 'fields': %s", file->path, vt_hdf5_reason());
done:
    if (access >= 0) H5Pclose(access);
    return status;
}

static vt_status open_fields(vt_fields_file *file)
{
    vt_status status = VT_OK;
    hid_t type = H5I_INVALID_HID;
    hsize_t extent[4];
    VT_CHECK(has_object(file->file, "fields"),
             "%s has no dataset 'fields'; expected float32 'fields' [time, channel, lat, lon], see docs/data.md",
             file->path);
    file->fields = H5Dopen2(file->file, "fields", H5P_DEFAULT);
    VT_CHECK(file->fields >= 0, "%s: can't open the dataset 'fields': %s", file->path, vt_hdf5_reason());
    type = H5Dget_type(file->fields);
    VT_CHECK(H5Tget_class(type) == H5T_FLOAT,
             "%s: 'fields' must hold floating-point numbers (float32), but holds another type; packed integers have to "
             "be unpacked with their scale and offset first",
             file->path);
    file->fields_space = H5Dget_space(file->fields);
    int rank = H5Sget_simple_extent_ndims(file->fields_space);
    VT_CHECK(rank == 4, "%s: 'fields' has %d dimensions, expected 4: [time, channel, lat, lon]", file->path, rank);
    H5Sget_simple_extent_dims(file->fields_space, extent, NULL);
    file->shape = (vt_fields_shape){(int64_t)extent[0], (int64_t)extent[1], (int64_t)extent[2], (int64_t)extent[3]};
    VT_CHECK(extent[1] > 0 && extent[2] > 0 && extent[3] > 0,
             "%s: 'fields' is empty: [%lld, %lld, %lld, %lld] (time, channel, lat, lon)", file->path,
             (long long)extent[0], (long long)extent[1], (long long)extent[2], (long long)extent[3]);
    VT_TRY(check_filters(file));
    VT_TRY(enlarge_chunk_cache(file));
done:
    if (type >= 0) H5Tclose(type);
    return status;
}

/* Without the blanks round it that some writers pad with. */
static char *trimmed_copy(const char *string)
{
    string += strspn(string, " \t");
    size_t length = strlen(string);
    while (length > 0 && (string[length - 1] == ' ' || string[length - 1] == '\t')) length--;
    return vt_text_format("%.*s", (int)length, string);
}

/* Names of fixed length lie one after another; of variable length there are pointers, to be freed by HDF5. */
static vt_status read_names(vt_fields_file *file, hid_t attribute, hid_t stored_type, int64_t count)
{
    vt_status status = VT_OK;
    char **names = NULL;
    VT_ASSERT(count > 0 && file->shape.channels > 0);
    bool variable = H5Tis_variable_str(stored_type) > 0;
    size_t size = variable ? sizeof(char *) : H5Tget_size(stored_type) + 1;
    hid_t type = H5Tcopy(H5T_C_S1);
    char *memory = calloc((size_t)count, size);
    H5Tset_size(type, variable ? H5T_VARIABLE : size);
    H5Tset_cset(type, H5Tget_cset(stored_type));
    VT_CHECK(memory != NULL, "out of memory for %lld channel names", (long long)count);
    VT_CHECK(H5Aread(attribute, type, memory) >= 0, "%s: can't read the attribute 'channels' of 'fields': %s",
             file->path, vt_hdf5_reason());
    names = calloc((size_t)file->shape.channels, sizeof *names);
    VT_CHECK(names != NULL, "out of memory for channel names");
    for (int64_t c = 0; c < file->shape.channels; c++) {
        char *name = "";
        if (c < count && variable) memcpy(&name, memory + (size_t)c * size, sizeof name);
        if (c < count && !variable) name = memory + (size_t)c * size;
        names[c] = trimmed_copy(name != NULL ? name : "");
    }
    file->channel_names = names;
done:
    for (int64_t c = 0; variable && memory != NULL && c < count; c++) H5free_memory(((char **)(void *)memory)[c]);
    free(memory);
    H5Tclose(type);
    return status;
}

static vt_status open_channel_names(vt_fields_file *file)
{
    vt_status status = VT_OK;
    hid_t attribute = H5I_INVALID_HID, type = H5I_INVALID_HID, space = H5I_INVALID_HID;
    if (H5Aexists(file->fields, "channels") <= 0) goto done;
    attribute = H5Aopen(file->fields, "channels", H5P_DEFAULT);
    VT_CHECK(attribute >= 0, "%s: can't open the attribute 'channels' of 'fields': %s", file->path, vt_hdf5_reason());
    type = H5Aget_type(attribute);
    space = H5Aget_space(attribute);
    VT_CHECK(H5Tget_class(type) == H5T_STRING, "%s: the attribute 'channels' of 'fields' must hold strings, the names",
             file->path);
    int64_t count = (int64_t)H5Sget_simple_extent_npoints(space);
    if (count > 0) VT_TRY(read_names(file, attribute, type, count));
done:
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (attribute >= 0) H5Aclose(attribute);
    return status;
}

/* A 1-D dataset of `length` degrees within ±limit, if it is there: *values is malloc'd, or NULL. */
static vt_status open_coordinate(const vt_fields_file *file, const char *name, int64_t length, double limit,
                                 double **values)
{
    vt_status status = VT_OK;
    double *memory = NULL;
    hsize_t extent = 0;
    hid_t dataset = H5I_INVALID_HID, space = H5I_INVALID_HID;
    *values = NULL;
    VT_ASSERT(length > 0);
    if (!has_object(file->file, name)) goto done;
    dataset = H5Dopen2(file->file, name, H5P_DEFAULT);
    VT_CHECK(dataset >= 0, "%s: can't open the dataset '%s': %s", file->path, name, vt_hdf5_reason());
    space = H5Dget_space(dataset);
    int rank = H5Sget_simple_extent_ndims(space);
    VT_CHECK(rank == 1, "%s: '%s' has %d dimensions, expected 1", file->path, name, rank);
    H5Sget_simple_extent_dims(space, &extent, NULL);
    VT_CHECK((int64_t)extent == length, "%s: '%s' has %lld values, but 'fields' has %lld along that dimension",
             file->path, name, (long long)extent, (long long)length);
    memory = malloc((size_t)length * sizeof *memory);
    VT_CHECK(memory != NULL, "out of memory for %lld values of '%s'", (long long)length, name);
    VT_CHECK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory) >= 0, "%s: can't read '%s': %s",
             file->path, name, vt_hdf5_reason());
    for (int64_t i = 0; i < length; i++)
        VT_CHECK(isfinite(memory[i]) && fabs(memory[i]) <= limit + 1e-3,
                 "%s: '%s' holds %g at index %lld, expected "
                 "degrees from %g to %g",
                 file->path, name, memory[i], (long long)i, -limit, limit);
    *values = memory;
    memory = NULL;
done:
    free(memory);
    if (space >= 0) H5Sclose(space);
    if (dataset >= 0) H5Dclose(dataset);
    return status;
}

static vt_status open_all(vt_fields_file *file)
{
    vt_status status = VT_OK;
    enum { SIEVE_BYTES = 4096 };
    hid_t access = vt_hdf5_file_access();
    H5Pset_sieve_buf_size(access, SIEVE_BYTES); /* 64 KB else, also where a few rows of a field are asked for */
    file->file = H5Fopen(file->path, H5F_ACC_RDONLY, access);
    VT_CHECK(file->file >= 0, "%s is not a readable HDF5 file (damaged or cut short?): %s", file->path,
             vt_hdf5_reason());
    VT_TRY(open_fields(file));
    VT_TRY(open_channel_names(file));
    VT_TRY(open_coordinate(file, "lat", file->shape.height, 90, &file->latitudes));
    VT_TRY(open_coordinate(file, "lon", file->shape.width, 360, &file->longitudes));
done:
    if (access >= 0) H5Pclose(access);
    return status;
}

vt_status vt_fields_file_open(const char *path, vt_fields_file **result)
{
    vt_status status = VT_OK;
    vt_fields_file *file = NULL;
    *result = NULL;
    VT_TRY(check_readable(path));
    file = calloc(1, sizeof *file);
    VT_CHECK(file != NULL, "out of memory");
    file->path = vt_text_copy(path);
    file->file = file->fields = file->fields_space = file->window_space = H5I_INVALID_HID;
    vt_hdf5_enter();
    status = open_all(file);
    vt_hdf5_leave();
    if (status != VT_OK) goto done;
    *result = file;
    file = NULL;
done:
    vt_fields_file_close(&file);
    return status;
}

void vt_fields_file_close(vt_fields_file **pointer)
{
    vt_fields_file *file = *pointer;
    if (file == NULL) return;
    *pointer = NULL;
    vt_hdf5_enter();
    if (file->window_space >= 0) H5Sclose(file->window_space);
    if (file->fields_space >= 0) H5Sclose(file->fields_space);
    if (file->fields >= 0) H5Dclose(file->fields);
    if (file->file >= 0) H5Fclose(file->file);
    vt_hdf5_leave();
    for (int64_t c = 0; file->channel_names != NULL && c < file->shape.channels; c++) free(file->channel_names[c]);
    free(file->channel_names);
    free(file->latitudes);
    free(file->longitudes);
    free(file->path);
    free(file);
}

const char *vt_fields_file_path(const vt_fields_file *file)
{
    return file->path;
}

vt_fields_shape vt_fields_file_shape(const vt_fields_file *file)
{
    return file->shape;
}

const char *const *vt_fields_file_channel_names(const vt_fields_file *file)
{
    return (const char *const *)file->channel_names;
}

const double *vt_fields_file_latitudes(const vt_fields_file *file)
{
    return file->latitudes;
}

const double *vt_fields_file_longitudes(const vt_fields_file *file)
{
    return file->longitudes;
}

int64_t vt_fields_file_cache_bytes(const vt_fields_file *file)
{
    return file->cache_bytes;
}

static vt_status read_window(vt_fields_file *file, int64_t time, int64_t first_row, const hsize_t window[4],
                             float *values)
{
    vt_status status = VT_OK;
    const hsize_t start[4] = {(hsize_t)time, 0, (hsize_t)first_row, 0};
    if (file->window_space < 0 || memcmp(window, file->window, sizeof file->window) != 0) {
        if (file->window_space >= 0) H5Sclose(file->window_space);
        file->window_space = H5Screate_simple(4, window, NULL);
        memcpy(file->window, window, sizeof file->window);
    }
    H5Sselect_hyperslab(file->fields_space, H5S_SELECT_SET, start, NULL, window, NULL);
    VT_CHECK(H5Dread(file->fields, H5T_NATIVE_FLOAT, file->window_space, file->fields_space, H5P_DEFAULT, values) >= 0,
             "%s: can't read 'fields' at time %lld (damaged or cut short?): %s", file->path, (long long)time,
             vt_hdf5_reason());
done:
    return status;
}

/* x - x is 0 for a finite x and NaN for others; the sum stays 0 exactly, in any order. */
static bool all_finite(const float *values, int64_t count)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += values[i] - values[i];
    return sum == 0;
}

static vt_status check_finite(const vt_fields_file *file, int64_t time, int64_t first_row, const hsize_t window[4],
                              const float *values)
{
    vt_status status = VT_OK;
    const int64_t width = (int64_t)window[3];
    const int64_t points = (int64_t)window[2] * width;
    for (int64_t c = 0; c < (int64_t)window[1]; c++) {
        const float *channel = values + c * points;
        if (all_finite(channel, points)) continue;
        int64_t i = 0;
        while (i < points - 1 && isfinite(channel[i])) i++;
        const char *name = file->channel_names != NULL ? file->channel_names[c] : "";
        VT_FAIL("%s: 'fields' is %s at time %lld, channel %lld%s%s%s, row %lld, column %lld; the training needs finite "
                "values everywhere",
                file->path, isnan(channel[i]) ? "NaN" : "infinite", (long long)time, (long long)c,
                name[0] != '\0' ? " (" : "", name, name[0] != '\0' ? ")" : "", (long long)(first_row + i / width),
                (long long)(i % width));
    }
done:
    return status;
}

vt_status vt_fields_file_read(vt_fields_file *file, int64_t time, int64_t channels, int64_t first_row, int64_t rows,
                              int64_t width, float *values)
{
    const hsize_t window[4] = {1, (hsize_t)channels, (hsize_t)rows, (hsize_t)width};
    VT_ASSERT(time >= 0 && time < file->shape.times && channels <= file->shape.channels && first_row >= 0 && rows > 0 &&
              first_row + rows <= file->shape.height && width <= file->shape.width);
    vt_hdf5_enter();
    vt_status status = read_window(file, time, first_row, window, values);
    vt_hdf5_leave();
    if (status == VT_OK) status = check_finite(file, time, first_row, window, values);
    return status;
}
