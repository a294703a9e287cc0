/* The files of a synthetic universe. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/synthetic/sets.h"
#include "source/volumes/volumes.h"
#include "storage/hdf5_access.h"
#include "storage/output_file.h"

enum { FILES = 2, ARRAYS = 2 };
static const char *const names[FILES] = {"train", "valid"};
static const char *const datasets[ARRAYS] = {"Nbody", "Hydro"};
static const char *const arrays[ARRAYS] = {"data", "label"};
static const int64_t channels_of[ARRAYS] = {VT_UNIVERSE_NBODY, VT_UNIVERSE_HYDRO};

/* The .npy file of an array; array -1: the .h5 file, which holds all of them. malloc'd. */
static char *path_of(const vt_universe_options *options, int file, int array)
{
    if (array < 0) return vt_text_format("%s/%s.h5", options->output.directory, names[file]);
    return vt_text_format("%s/%s_%s.npy", options->output.directory, names[file], arrays[array]);
}

/* Writes `tile` copies of the box along each axis, plane by plane. */
static vt_status write_dataset(hid_t file, const char *name, const float *fields, int64_t channels, int64_t side,
                               int64_t tile)
{
    vt_status status = VT_OK;
    const int64_t whole = side * tile;
    const int64_t extent[] = {channels, whole, whole, whole}, size[] = {1, 1, whole, whole};
    hid_t storage = H5Pcreate(H5P_DATASET_CREATE), dataset;
    float *plane = vt_allocate((size_t)(whole * whole), sizeof *plane, "a plane of a box");
    VT_TRY(vt_hdf5_make_dataset(file, name, H5T_IEEE_F32LE, storage, 4, extent, &dataset));
    for (int64_t i = 0; i < channels * whole; i++) {
        const int64_t c = i / whole, x = i % whole, start[] = {c, x, 0, 0};
        const float *from = fields + (c * side + x % side) * side * side;
        for (int64_t y = 0; y < whole; y++)
            for (int64_t t = 0; t < tile; t++)
                memcpy(plane + y * whole + t * side, from + y % side * side, (size_t)side * sizeof *plane);
        VT_TRY(vt_hdf5_write_box(dataset, 4, start, size, plane));
    }
done:
    if (dataset >= 0) H5Dclose(dataset);
    free(plane);
    return status;
}

static vt_status write_file(const char *path, float *const fields[ARRAYS], int64_t side, int64_t tile)
{
    vt_status status = VT_OK;
    char *partial = vt_output_partial_path(path);
    vt_hdf5_enter();
    hid_t access = vt_hdf5_file_access(), file = H5Fcreate(partial, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    VT_CHECK(file >= 0, "can't write %s: %s", path, vt_hdf5_reason());
    for (int i = 0; i < ARRAYS && status == VT_OK; i++)
        status = write_dataset(file, datasets[i], fields[i], channels_of[i], side, tile);
    if (H5Fclose(file) < 0 && status == VT_OK) status = vt_error_note(__FILE__, __LINE__, "%s", vt_hdf5_reason());
    if (status != VT_OK) vt_error_context("can't write %s", path);
    if (status == VT_OK) status = vt_output_publish(partial, path);
    if (status != VT_OK) unlink(partial);
done:
    vt_hdf5_leave();
    free(partial);
    return status;
}

static vt_status check_absent(const vt_universe_options *options)
{
    vt_status status = VT_OK;
    for (int i = 0; i < FILES * (1 + ARRAYS) && status == VT_OK; i++) {
        char *path = path_of(options, i % FILES, i / FILES - 1);
        if (i < FILES || options->npy) status = vt_output_check_absent(path, options->output.force);
        free(path);
    }
    return status;
}

/* The .h5 file, with the fields that are made for it, or one of its arrays as a .npy file. */
static vt_status write_one(const vt_universe_options *options, int file, int array)
{
    vt_status status = VT_OK;
    const double begin = vt_clock_seconds();
    const int64_t side = options->box_size[file];
    float *fields[ARRAYS] = {NULL, NULL};
    char *volume = path_of(options, file, -1), *path = path_of(options, file, array);
    if (array >= 0) {
        VT_TRY(vt_box_convert(volume, datasets[array], path));
    } else {
        vt_universe_make(side, options->box_size[0], options->output.seed, file, &fields[0], &fields[1]);
        VT_TRY(write_file(path, fields, side, options->tile));
    }
    const int64_t channels = array < 0 ? VT_UNIVERSE_NBODY + VT_UNIVERSE_HYDRO : channels_of[array];
    const double bytes = (double)channels * pow((double)(side * options->tile), 3) * (double)sizeof(float);
    vt_synthetic_report(&options->output, path, 0, "", bytes, begin);
done:
    for (int i = 0; i < ARRAYS; i++) free(fields[i]);
    free(volume);
    free(path);
    return status;
}

vt_status vt_universe_write(const vt_universe_options *options)
{
    vt_status status = VT_OK;
    const int converted = options->npy ? ARRAYS : 0;
    for (int f = 0; f < FILES; f++)
        VT_CHECK(options->box_size[f] % 2 == 0 && options->box_size[f] >= 4,
                 "box_size %ld: expected an even number from 4 on", options->box_size[f]);
    VT_TRY(vt_output_make_directory(options->output.directory));
    VT_TRY(check_absent(options));
    for (int f = 0; f < FILES; f++)
        for (int array = -1; array < converted; array++) VT_TRY(write_one(options, f, array));
done:
    return status;
}
