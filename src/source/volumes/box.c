#include "source/volumes/volumes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/whole.h"
#include "storage/npy.h"
#include "storage/output_file.h"
#include "storage/trial.h"

/* Planes that are read and turned together: four rows of one cache line each. */
enum { PLANES = 4, AXES = 3 };

/* ---- opening ---- */

static vt_status check_shape(const vt_box *box, const char *what, const int64_t *points, int64_t channels)
{
    vt_status status = VT_OK;
    VT_CHECK(points[0] == points[1] && points[1] == points[2],
             "%s: %s has %ld × %ld × %ld points, but a box has equal sides", box->path, what, points[0], points[1],
             points[2]);
    VT_CHECK(box->channels >= channels, "%s: %s has %ld channels, but %ld are needed", box->path, what, box->channels,
             channels);
    VT_CHECK(box->side == VT_UNSET_INTEGER || box->side <= box->extent,
             "%s: %s has %ld points along each axis, but box_size says %ld; use a smaller box_size, or None", box->path,
             what, box->extent, box->side);
done:
    return status;
}

static vt_status open_hdf5(vt_box *box, int64_t channels, bool direct)
{
    vt_status status = VT_OK;
    VT_TRY(vt_store_open(box->path, &box->store));
    VT_CHECK(box->store->kind->has_array(box->store, box->name),
             "%s: there is no dataset '%s' (expected Nbody and Hydro, [channels, L, L, L])", box->path, box->name);
    VT_TRY(vt_array_find(box->store, box->name, &box->array));
    const vt_array *array = box->array;
    VT_CHECK(array->rank == 1 + AXES, "%s: '%s' has %d dimensions, expected [channels, L, L, L]", box->path, box->name,
             array->rank);
    const char *held = array->element == VT_ELEMENT_NONE     ? "values that are no numbers"
                       : vt_element_is_float(array->element) ? "floating-point numbers"
                                                             : "whole numbers";
    VT_CHECK(array->element == VT_ELEMENT_FLOAT32 && array->element_size == sizeof(float),
             "%s: '%s' holds %s (%zu bytes each), expected float32; write the file anew with numbers of that type",
             box->path, box->name, held, array->element_size);
    box->channels = array->extent[0];
    box->extent = array->extent[1];
    VT_TRY(check_shape(box, box->name, &array->extent[1], channels));
    VT_TRY(array->store->kind->lay_out(box->array));
    if (direct && array->swapped && array->obstacle == NULL)
        box->array->obstacle = vt_text_format("'%s' has the other byte order", box->name);
    if (!direct || array->obstacle != NULL) {
        box->reach = VT_BOX_LIBRARY;
    } else if (array->layout == VT_LAYOUT_CONTIGUOUS) {
        box->reach = VT_BOX_RUNS;
        box->address = array->address;
    } else {
        box->reach = VT_BOX_CHUNKS;
    }
    box->descriptor = box->store->descriptor;
done:
    return status;
}

static vt_status open_npy(vt_box *box, int64_t channels)
{
    vt_status status = VT_OK;
    vt_npy array;
    char shape[128];
    VT_TRY(vt_npy_look(box->path, &array));
    vt_tensor_shape_text(&array.shape, shape);
    VT_CHECK(array.shape.dimensions == 1 + AXES, "%s: the array's shape is %s, expected [L, L, L, channels]", box->path,
             shape);
    VT_CHECK(array.element_size == sizeof(float),
             "%s: the array's type is '<f8', expected '<f4' (save it with .astype('float32'))", box->path);
    box->channels = box->together = array.shape.shape[AXES];
    box->extent = array.shape.shape[0];
    VT_TRY(check_shape(box, "the array", array.shape.shape, channels));
    box->descriptor = open(box->path, O_RDONLY | O_CLOEXEC);
    VT_CHECK(box->descriptor >= 0, "can't open %s: %s", box->path, strerror(errno));
    box->reach = VT_BOX_RUNS;
    box->address = array.offset;
done:
    return status;
}

static vt_status open_again(const char *path, const char *name, int64_t channels, int64_t side, bool direct,
                            vt_box **result)
{
    vt_status status = VT_OK;
    vt_box *box = vt_allocate(1, sizeof *box, "a box");
    box->path = vt_text_copy(path);
    box->name = name;
    box->side = side;
    box->descriptor = -1;
    box->together = 1;
    VT_TRY(name != NULL ? open_hdf5(box, channels, direct) : open_npy(box, channels));
    if (box->side == VT_UNSET_INTEGER) box->side = box->extent;
done:
    if (status != VT_OK) vt_box_close(&box);
    *result = box;
    return status;
}

/* ---- the first try ---- */

/* Does what HDF5 will do later: opens the box, looks up its first and last chunk, and reads its first and last point.
 */
static void try_out(const char *const *words, int64_t count)
{
    vt_box *box = NULL;
    VT_ASSERT(count == 2);
    if (open_again(words[0], words[1], 0, VT_UNSET_INTEGER, true, &box) != VT_OK) return;
    const int64_t last[] = {box->channels - 1, box->extent - 1, box->extent - 1, box->extent - 1};
    const int64_t first[1 + AXES] = {0}, one[] = {1, 1, 1, 1};
    const vt_store_kind *kind = box->store->kind;
    float value;
    vt_chunk_place entry;
    for (int i = 0; i < 2; i++) {
        const int64_t *point = i == 0 ? first : last;
        int64_t at[1 + AXES];
        for (int d = 0; d <= AXES && box->reach == VT_BOX_CHUNKS; d++)
            at[d] = point[d] / box->array->chunk[d] * box->array->chunk[d];
        if (box->reach == VT_BOX_CHUNKS) vt_array_find_chunk(box->array, at, &entry);
        kind->read(box->array, point, one, false, &value);
    }
    vt_box_close(&box);
}

vt_status vt_box_open(const char *path, const char *name, int64_t channels, int64_t side, bool direct, vt_box **result)
{
    vt_status status = VT_OK;
    *result = NULL;
    if (name != NULL) VT_TRY(vt_trial(path, 0, try_out, (const char *[]){path, name}, 2));
    VT_TRY(open_again(path, name, channels, side, direct, result));
    if ((*result)->array != NULL) VT_TRY(vt_array_check_written((*result)->array));
done:
    if (status != VT_OK) vt_box_close(result);
    return status;
}

void vt_box_close(vt_box **pointer)
{
    vt_box *box = *pointer;
    if (box == NULL) return;
    if (box->name == NULL && box->descriptor >= 0) close(box->descriptor);
    vt_shared_box_close(&box->shared);
    vt_array_close(&box->array);
    vt_store_close(&box->store);
    free(box->path);
    free(box);
    *pointer = NULL;
}

/* ---- how the array lies ---- */

static vt_status read_bytes(const vt_box *box, int64_t offset, int64_t bytes, void *to)
{
    vt_status status = VT_OK;
    const int64_t got = vt_file_read_at(box->descriptor, to, bytes, offset);
    VT_CHECK(got == bytes, "can't read %s at byte %ld: %s", box->path, offset + got,
             errno == 0 ? "the file ends before" : strerror(errno));
done:
    return status;
}

/* ---- runs: the rows of a plane, of one field or of all that lie together ---- */

/* Does so little lie between the rows that they are read at once? Then a plane is one run, else each row is. */
static bool is_near(const vt_box *box, const vt_cube *cube)
{
    enum { NEAR = 512 }; /* numbers that cost less to read than another call */
    return (box->extent - cube->side) * box->together <= NEAR;
}

/* Fields that lie one behind another. */
static int64_t fields_apart(const vt_box *box, const vt_cube *cube)
{
    return box->together > 1 ? 1 : cube->fields;
}

static vt_file_extent run_at(const vt_box *box, const vt_cube *cube, int64_t field, int64_t plane, int64_t run)
{
    const int64_t n = box->extent, point_bytes = box->together * (int64_t)sizeof(float);
    const int64_t row = (field * n + cube->corner[0] + plane) * n + cube->corner[1] + run;
    const int64_t points = cube->side + (is_near(box, cube) ? (cube->side - 1) * n : 0);
    return (vt_file_extent){.descriptor = box->descriptor,
                            .offset = box->address + (row * n + cube->corner[2]) * point_bytes,
                            .bytes = points * point_bytes};
}

static vt_status read_runs(const vt_box *box, const vt_cube *cube, int64_t first, int64_t planes, float *to)
{
    vt_status status = VT_OK;
    const int64_t runs = is_near(box, cube) ? 1 : cube->side;
    const int64_t pitch = (is_near(box, cube) ? box->extent * cube->side : cube->side) * box->together;
    for (int64_t i = 0; i < fields_apart(box, cube) * planes * runs; i++, to += pitch) {
        const vt_file_extent run = run_at(box, cube, i / runs / planes, first + i / runs % planes, i % runs);
        VT_TRY(read_bytes(box, run.offset, run.bytes, to));
    }
done:
    return status;
}

/* ---- chunks ---- */

/* The first element of the `part`-th of the chunks that a cube touches, fields first; returns how many those are. */
static int64_t chunk_at(const vt_box *box, const vt_cube *cube, int64_t part, int64_t at[1 + AXES])
{
    int64_t all = 1;
    for (int d = AXES; d >= 0; d--) {
        const int64_t begin = d == 0 ? 0 : cube->corner[d - 1], size = d == 0 ? cube->fields : cube->side;
        const int64_t chunk = box->array->chunk[d], first = begin / chunk;
        const int64_t count = (begin + size - 1) / chunk - first + 1;
        at[d] = (first + part / all % count) * chunk;
        all *= count;
    }
    return all;
}

/* Where that one lies in the file. */
static vt_status find_chunk(vt_box *box, const vt_cube *cube, int64_t part, int64_t at[1 + AXES], vt_chunk_place *found)
{
    chunk_at(box, cube, part, at);
    if (vt_array_find_chunk(box->array, at, found) == VT_OK) return VT_OK;
    return vt_error_context("%s: '%s'", box->path, box->name);
}

static int64_t chunk_bytes(const vt_box *box)
{
    int64_t bytes = sizeof(float);
    for (int d = 0; d <= AXES; d++) bytes *= box->array->chunk[d];
    return bytes;
}

static vt_status read_chunk(vt_box *box, const vt_cube *cube, int64_t part, vt_decoder *decoder, vt_cube_part *place)
{
    vt_status status = VT_OK;
    int64_t at[1 + AXES];
    vt_chunk_place entry;
    unsigned char *bytes = NULL;
    const int64_t *chunk = box->array->chunk, *stride = box->array->stride;
    const size_t size = (size_t)chunk_bytes(box);
    VT_TRY(find_chunk(box, cube, part, at, &entry));
    VT_TRY(vt_decoder_reserve(&decoder->turned, size, &bytes));
    if (vt_array_load_chunk(box->array, at, &entry, decoder, size, bytes) != VT_OK) {
        status = vt_error_context("%s: can't read '%s'", box->path, box->name);
        goto done;
    }
    const float *values = (const float *)(const void *)bytes;
    *place = (vt_cube_part){.first_field = at[0], .fields = chunk[0], .field_stride = stride[0]};
    for (int a = 0; a < AXES; a++) {
        const int64_t begin = at[1 + a] > cube->corner[a] ? at[1 + a] : cube->corner[a];
        const int64_t end = vt_smaller(at[1 + a] + chunk[1 + a], cube->corner[a] + cube->side);
        place->first[a] = begin - cube->corner[a];
        place->count[a] = end - begin;
        place->stride[a] = stride[1 + a];
        values += (begin - at[1 + a]) * stride[1 + a];
    }
    place->values = values;
done:
    return status;
}

/* ---- a cube ---- */

static vt_status read_by_library(const vt_box *box, const int64_t *start, const int64_t *count, float *to)
{
    if (box->store->kind->read(box->array, start, count, false, to) == VT_OK) return VT_OK;
    return vt_error_context("%s: '%s' can't be read", box->path, box->name);
}

/* *place: where planes first … first + planes - 1 of the cube lie: in the box's memory, or, read, in the decoder's. */
static vt_status read_planes(const vt_box *box, const vt_cube *cube, int64_t first, int64_t planes, vt_decoder *decoder,
                             vt_cube_part *place)
{
    vt_status status = VT_OK;
    const bool in_memory = box->reach == VT_BOX_MEMORY, by_runs = box->reach == VT_BOX_RUNS;
    const int64_t n = cube->side, all = box->extent, channels = fields_apart(box, cube) * box->together;
    const int64_t depth = in_memory ? all : planes, rows = in_memory ? all : n;
    const int64_t columns = in_memory || (by_runs && is_near(box, cube)) ? all : n;
    const int64_t start[] = {0, cube->corner[0] + first, cube->corner[1], cube->corner[2]};
    const int64_t count[] = {channels, planes, n, n};
    unsigned char *room = NULL;
    *place = (vt_cube_part){.values = box->memory,
                            .first = {first, 0, 0},
                            .count = {planes, n, n},
                            .stride = {rows * columns * box->together, columns * box->together, box->together},
                            .fields = cube->fields,
                            .field_stride = box->together > 1 ? 1 : depth * rows * columns};
    for (int a = 0; a < AXES && in_memory; a++) place->values += start[1 + a] * place->stride[a];
    if (in_memory) return VT_OK;
    VT_TRY(vt_decoder_reserve(&decoder->turned, (size_t)(channels * planes * n * columns) * sizeof(float), &room));
    float *values = (float *)(void *)room;
    place->values = values;
    VT_TRY(by_runs ? read_runs(box, cube, first, planes, values) : read_by_library(box, start, count, values));
done:
    return status;
}

vt_status vt_box_read(vt_box *box, const vt_cube *cube, vt_decoder *decoder, float *to)
{
    vt_status status = VT_OK;
    vt_cube_part place;
    const bool by_chunks = box->reach == VT_BOX_CHUNKS;
    const int64_t planes = box->reach == VT_BOX_LIBRARY ? cube->side : PLANES; /* the library decodes chunks once */
    for (int64_t i = 0; by_chunks && i < vt_box_runs(box, cube); i++) {
        VT_TRY(read_chunk(box, cube, i, decoder, &place));
        vt_turn_part(cube, &place, to);
    }
    for (int64_t first = 0; !by_chunks && first < cube->side; first += planes) {
        VT_TRY(read_planes(box, cube, first, vt_smaller(planes, cube->side - first), decoder, &place));
        vt_turn_part(cube, &place, to);
    }
done:
    return status;
}

int64_t vt_box_runs(const vt_box *box, const vt_cube *cube)
{
    int64_t at[1 + AXES];
    const int64_t planes = fields_apart(box, cube) * cube->side;
    if (box->reach == VT_BOX_RUNS) return is_near(box, cube) ? planes : planes * cube->side;
    return box->reach == VT_BOX_CHUNKS ? chunk_at(box, cube, 0, at) : 1;
}

vt_file_extent vt_box_run(vt_box *box, const vt_cube *cube, int64_t run)
{
    int64_t at[1 + AXES];
    vt_chunk_place entry;
    const int64_t n = cube->side, runs = is_near(box, cube) ? 1 : n; /* of a plane */
    if (box->reach == VT_BOX_RUNS) return run_at(box, cube, run / runs / n, run / runs % n, run % runs);
    if (box->reach != VT_BOX_CHUNKS || find_chunk(box, cube, run, at, &entry) != VT_OK || entry.address < 0) {
        vt_error_clear();
        return (vt_file_extent){.descriptor = -1};
    }
    const bool is_gzip = entry.skipped_filters == 0 && vt_pipeline_is_gzip(&box->array->pipeline);
    return (vt_file_extent){.descriptor = box->descriptor,
                            .offset = entry.address,
                            .bytes = entry.size,
                            .inflated = is_gzip ? chunk_bytes(box) : 0};
}

/* ---- in memory ---- */

/* Planes that are read together, so that each chunk is decoded once. */
static int64_t layer_of(const vt_box *box)
{
    return box->array->layout == VT_LAYOUT_CHUNKED ? box->array->chunk[1] : 1;
}

/* In the file's own order. */
static vt_status fill(void *memory, void *context)
{
    vt_status status = VT_OK;
    vt_box *box = context;
    const int64_t n = box->extent, count = n * n * n * box->channels;
    float *values = memory;
    if (box->reach == VT_BOX_RUNS) return read_bytes(box, box->address, count * (int64_t)sizeof(float), memory);
    const int64_t layer = layer_of(box);
    for (int64_t c = 0; c < box->channels; c++)
        for (int64_t x = 0; x < n; x += layer) {
            const int64_t start[] = {c, x, 0, 0}, size[] = {1, n - x < layer ? n - x : layer, n, n};
            VT_TRY(read_by_library(box, start, size, values + (c * n + x) * n * n));
        }
done:
    return status;
}

vt_status vt_box_keep(vt_box *box)
{
    vt_status status = VT_OK;
    struct stat info;
    char *key = NULL;
    const int64_t n = box->extent;
    VT_CHECK(fstat(box->descriptor, &info) == 0, "can't look at %s: %s", box->path, strerror(errno));
    key = vt_text_format("%llu %llu %ld %ld.%09ld %s %ld", (unsigned long long)info.st_dev,
                         (unsigned long long)info.st_ino, info.st_size, info.st_mtim.tv_sec, (long)info.st_mtim.tv_nsec,
                         box->name != NULL ? box->name : "", box->channels);
    VT_TRY(vt_shared_box_open(key, (size_t)(n * n * n * box->channels) * sizeof(float), fill, box, &box->shared));
    box->memory = (const float *)(const void *)box->shared->memory;
    box->reach = VT_BOX_MEMORY;
done:
    free(key);
    return status;
}

/* ---- as a .npy file ---- */

vt_status vt_box_convert(const char *from, const char *name, const char *to)
{
    vt_status status = VT_OK;
    vt_box *box = NULL;
    FILE *file = NULL;
    float *layer = NULL, *turned = NULL;
    VT_TRY(vt_box_open(from, name, 1, VT_UNSET_INTEGER, false, &box));
    const int64_t n = box->extent, channels = box->channels, plane = n * n;
    int64_t deep = layer_of(box);
    const int64_t shape[] = {n, n, n, channels};
    layer = vt_allocate((size_t)(channels * deep * plane), sizeof *layer, "a layer of a box");
    turned = vt_allocate((size_t)(channels * plane), sizeof *turned, "a layer of a box");
    VT_TRY(vt_output_open(to, &file));
    vt_npy_write_header(file, shape, 4);
    for (int64_t x = 0; x < n; x += deep) {
        if (deep > n - x) deep = n - x;
        const int64_t start[] = {0, x, 0, 0}, count[] = {channels, deep, n, n};
        VT_TRY(read_by_library(box, start, count, layer));
        for (int64_t p = 0; p < deep; p++) {
            for (int64_t i = 0; i < plane; i++)
                for (int64_t c = 0; c < channels; c++) turned[i * channels + c] = layer[(c * deep + p) * plane + i];
            VT_CHECK(fwrite(turned, sizeof *turned, (size_t)(channels * plane), file) == (size_t)(channels * plane),
                     "can't write %s: %s", to, strerror(errno));
        }
    }
done:
    if (file != NULL && status == VT_OK) {
        status = vt_output_close(file, to);
    } else if (file != NULL) {
        char *partial = vt_output_partial_path(to);
        fclose(file);
        remove(partial);
        free(partial);
    }
    free(layer);
    free(turned);
    vt_box_close(&box);
    return status;
}
