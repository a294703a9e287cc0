#define _GNU_SOURCE /* sync_file_range */
#include "source/fields/fields_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5_hl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "storage/hdf5_access.h"
#include "storage/output_file.h"

/* After so many bytes the kernel is asked to start writing them to the disk, instead of at the end. */
#define WRITE_BACK_BYTES (INT64_C(64) << 20)

struct vt_fields_writer {
    vt_fields_shape shape;
    int descriptor;        /* of the same file, besides HDF5's own */
    int64_t waiting_bytes; /* appended since the disk was last told to start */
    char *path, *partial;
    int64_t times; /* written */
    hid_t file, fields, file_space, memory_space;
};

/* Before hours of work. How much compressed storage needs is unknown. */
static vt_status check_space(const vt_fields_writer *writer, const vt_fields_writer_options *options)
{
    vt_status status = VT_OK;
    struct statvfs disk;
    char needed[VT_NUMBER_SIZE], there[VT_NUMBER_SIZE];
    const vt_fields_shape *shape = &writer->shape;
    double bytes = 4.0 * (double)(shape->times * shape->channels) * (double)(shape->height * shape->width);
    if (options->compression > 0 || fstatvfs(writer->descriptor, &disk) != 0) goto done;
    double available = (double)disk.f_bavail * (double)disk.f_frsize;
    VT_CHECK(bytes <= available, "can't write %s: it needs %s, but only %s are free on that disk", writer->path,
             vt_text_bytes(bytes, needed), vt_text_bytes(available, there));
done:
    return status;
}

/* Small channels share a chunk, large ones have their own. */
static hid_t storage_properties(const vt_fields_writer_options *options)
{
    const vt_fields_shape *shape = &options->shape;
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(properties, false); /* the same set is the same bytes */
    if (options->chunk_times == 0) return properties;
    int64_t times = options->chunk_times < shape->times ? options->chunk_times : shape->times;
    int64_t channels = shape->channels * shape->height * shape->width <= 1 << 18 ? shape->channels : 1;
    const hsize_t chunk[4] = {(hsize_t)times, (hsize_t)channels, (hsize_t)shape->height, (hsize_t)shape->width};
    H5Pset_chunk(properties, 4, chunk);
    if (options->compression > 0) {
        H5Pset_shuffle(properties);
        H5Pset_deflate(properties, (unsigned)options->compression);
    }
    return properties;
}

/* The chunks that are being filled must stay in memory: each time adds a slice to all of them. */
static hid_t access_properties(const vt_fields_writer_options *options)
{
    const vt_fields_shape *shape = &options->shape;
    size_t bytes = 4 * (size_t)(options->chunk_times * shape->channels * shape->height * shape->width);
    hid_t properties = H5Pcreate(H5P_DATASET_ACCESS);
    if (options->chunk_times > 0) H5Pset_chunk_cache(properties, 12421, bytes + (1 << 20), 1.0);
    return properties;
}

static vt_status create_fields(vt_fields_writer *writer, const vt_fields_writer_options *options)
{
    vt_status status = VT_OK;
    const vt_fields_shape *shape = &writer->shape;
    const hsize_t extent[4] = {(hsize_t)shape->times, (hsize_t)shape->channels, (hsize_t)shape->height,
                               (hsize_t)shape->width};
    const hsize_t slice[4] = {1, extent[1], extent[2], extent[3]};
    hid_t storage = storage_properties(options), access = access_properties(options);
    writer->file_space = H5Screate_simple(4, extent, NULL);
    writer->memory_space = H5Screate_simple(4, slice, NULL);
    writer->fields =
        H5Dcreate2(writer->file, "fields", H5T_IEEE_F32LE, writer->file_space, H5P_DEFAULT, storage, access);
    VT_CHECK(writer->fields >= 0, "can't write %s: no dataset 'fields': %s", writer->path, vt_hdf5_reason());
done:
    H5Pclose(storage);
    H5Pclose(access);
    return status;
}

static vt_status write_names(const vt_fields_writer *writer, const char *const *names)
{
    vt_status status = VT_OK;
    const hsize_t count = (hsize_t)writer->shape.channels;
    size_t size = 1;
    for (hsize_t c = 0; c < count; c++)
        if (strlen(names[c]) > size) size = strlen(names[c]);
    VT_ASSERT(count > 0);
    char *memory = vt_allocate(count, size, "the names of channels");
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &count, NULL), attribute = H5I_INVALID_HID;
    for (hsize_t c = 0; c < count; c++) memcpy(memory + c * size, names[c], strlen(names[c]));
    H5Tset_size(type, size);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    attribute = H5Acreate2(writer->fields, "channels", type, space, H5P_DEFAULT, H5P_DEFAULT);
    VT_CHECK(attribute >= 0 && H5Awrite(attribute, type, memory) >= 0, "can't write %s: no attribute 'channels': %s",
             writer->path, vt_hdf5_reason());
done:
    if (attribute >= 0) H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    free(memory);
    return status;
}

static vt_status write_coordinate(const vt_fields_writer *writer, const char *name, int64_t count, const double *values)
{
    vt_status status = VT_OK;
    const hsize_t extent = (hsize_t)count;
    hid_t space = H5Screate_simple(1, &extent, NULL), storage = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(storage, false);
    hid_t dataset = H5Dcreate2(writer->file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, storage, H5P_DEFAULT);
    VT_CHECK(dataset >= 0 && H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0,
             "can't write %s: no dataset '%s': %s", writer->path, name, vt_hdf5_reason());
done:
    if (dataset >= 0) H5Dclose(dataset);
    H5Pclose(storage);
    H5Sclose(space);
    return status;
}

static vt_status create_all(vt_fields_writer *writer, const vt_fields_writer_options *options)
{
    vt_status status = VT_OK;
    hid_t access = vt_hdf5_file_access();
    writer->file = H5Fcreate(writer->partial, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    VT_CHECK(writer->file >= 0, "can't write %s: %s", writer->path, vt_hdf5_reason());
    VT_TRY(create_fields(writer, options));
    VT_TRY(write_names(writer, options->channel_names));
    VT_CHECK(H5LTset_attribute_string(writer->file, "fields", "time_step", options->time_step) >= 0,
             "can't write %s: no attribute 'time_step': %s", writer->path, vt_hdf5_reason());
    VT_CHECK(H5LTset_attribute_string(writer->file, "fields", "planet", "imaginary") >= 0,
             "can't write %s: no attribute 'planet': %s", writer->path, vt_hdf5_reason());
    VT_TRY(write_coordinate(writer, "lat", writer->shape.height, options->latitudes));
    VT_TRY(write_coordinate(writer, "lon", writer->shape.width, options->longitudes));
done:
    H5Pclose(access);
    return status;
}

vt_status vt_fields_writer_open(const char *path, const vt_fields_writer_options *options, vt_fields_writer **result)
{
    vt_status status = VT_OK;
    vt_fields_writer *writer = vt_allocate(1, sizeof *writer, "a file of fields");
    *result = NULL;
    writer->shape = options->shape;
    writer->path = vt_text_copy(path);
    writer->partial = vt_output_partial_path(path);
    writer->file = writer->fields = writer->file_space = writer->memory_space = H5I_INVALID_HID;
    writer->descriptor = open(writer->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    VT_CHECK(writer->descriptor >= 0, "can't write %s: %s", path, strerror(errno));
    VT_TRY(check_space(writer, options));
    vt_hdf5_enter();
    status = create_all(writer, options);
    vt_hdf5_leave();
    if (status != VT_OK) goto done;
    *result = writer;
    writer = NULL;
done:
    vt_fields_writer_close(&writer);
    return status;
}

vt_status vt_fields_writer_append(vt_fields_writer *writer, const float *fields)
{
    vt_status status = VT_OK;
    const vt_fields_shape *shape = &writer->shape;
    const hsize_t start[4] = {(hsize_t)writer->times, 0, 0, 0};
    const hsize_t count[4] = {1, (hsize_t)shape->channels, (hsize_t)shape->height, (hsize_t)shape->width};
    VT_ASSERT(writer->times < shape->times);
    vt_hdf5_enter();
    H5Sselect_hyperslab(writer->file_space, H5S_SELECT_SET, start, NULL, count, NULL);
    errno = 0;
    herr_t written =
        H5Dwrite(writer->fields, H5T_NATIVE_FLOAT, writer->memory_space, writer->file_space, H5P_DEFAULT, fields);
    int error = errno; /* HDF5's message hides it among addresses */
    VT_CHECK(written >= 0, "can't write %s at time %lld: %s", writer->path, (long long)writer->times,
             error != 0 ? strerror(error) : vt_hdf5_reason());
    writer->times++;
    writer->waiting_bytes += 4 * shape->channels * shape->height * shape->width;
    if (writer->waiting_bytes >= WRITE_BACK_BYTES) {
        sync_file_range(writer->descriptor, 0, 0, SYNC_FILE_RANGE_WRITE);
        writer->waiting_bytes = 0;
    }
done:
    vt_hdf5_leave();
    return status;
}

/* Closes what is open; if that fails, the file is incomplete. */
static vt_status close_all(vt_fields_writer *writer)
{
    vt_status status = VT_OK;
    herr_t result = 0;
    errno = 0;
    if (writer->memory_space >= 0) H5Sclose(writer->memory_space);
    if (writer->file_space >= 0) H5Sclose(writer->file_space);
    if (writer->fields >= 0) result |= H5Dclose(writer->fields);
    if (writer->file >= 0) result |= H5Fclose(writer->file);
    int error = errno;
    writer->memory_space = writer->file_space = writer->fields = writer->file = H5I_INVALID_HID;
    VT_CHECK(result >= 0, "can't write %s: %s", writer->path, error != 0 ? strerror(error) : vt_hdf5_reason());
done:
    return status;
}

vt_status vt_fields_writer_finish(vt_fields_writer **pointer)
{
    vt_status status = VT_OK;
    const vt_fields_writer *writer = *pointer;
    VT_ASSERT(writer->times == writer->shape.times);
    vt_hdf5_enter();
    status = close_all(*pointer);
    vt_hdf5_leave();
    if (status == VT_OK) status = vt_output_publish(writer->partial, writer->path);
    vt_fields_writer_close(pointer);
    return status;
}

void vt_fields_writer_close(vt_fields_writer **pointer)
{
    vt_fields_writer *writer = *pointer;
    if (writer == NULL) return;
    *pointer = NULL;
    vt_hdf5_enter();
    close_all(writer); /* the cause has been noted before */
    vt_hdf5_leave();
    unlink(writer->partial); /* which has another name if it was published */
    if (writer->descriptor >= 0) close(writer->descriptor);
    free(writer->path);
    free(writer->partial);
    free(writer);
}
