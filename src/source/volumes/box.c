#include "source/volumes/box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/volumes/shared_box.h"
#include "storage/npy.h"
#include "storage/trial.h"

/* Points along the first axis of a part that is read in runs: four rows of one cache line each. */
enum { PLANES = 4, AXES = 3 };

/* ---- opening ---- */

static vt_status check_shape(const vt_box *box, const char *what, const int64_t *points, int64_t channels)
{
    vt_status status = VT_OK;
    VT_CHECK(points[0] == points[1] && points[1] == points[2],
             "%s: %s has %lld × %lld × %lld points, but a box has equal sides", box->path, what, (long long)points[0],
             (long long)points[1], (long long)points[2]);
    VT_CHECK(box->channels >= channels, "%s: %s has %lld channels, but %lld are needed", box->path, what,
             (long long)box->channels, (long long)channels);
    VT_CHECK(box->side == VT_UNSET_INTEGER || box->side <= box->extent,
             "%s: %s has %lld points along each axis, but box_size says %lld; use a smaller box_size, or None",
             box->path, what, (long long)box->extent, (long long)box->side);
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
    static const char *const held[] = {[VT_NUMBERS_NONE] = "values that are no numbers",
                                       [VT_NUMBERS_FLOAT] = "floating-point numbers",
                                       [VT_NUMBERS_INTEGER] = "whole numbers"};
    VT_CHECK(array->numbers == VT_NUMBERS_FLOAT && array->element_size == sizeof(float),
             "%s: '%s' holds %s (%zu bytes each), expected float32; write the file anew with numbers of that type",
             box->path, box->name, held[array->numbers], array->element_size);
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
    box->channels_last = true;
    box->channels = array.shape.shape[AXES];
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

typedef struct {
    int64_t point[AXES], field; /* strides, in numbers */
} strides;

static strides strides_of(const vt_box *box)
{
    const int64_t n = box->extent, inner = box->channels_last ? box->channels : 1;
    return (strides){{n * n * inner, n * inner, inner}, box->channels_last ? 1 : n * n * n};
}

static vt_status read_bytes(const vt_box *box, int64_t offset, int64_t bytes, void *to)
{
    vt_status status = VT_OK;
    const int64_t got = vt_file_read_at(box->descriptor, to, bytes, offset);
    VT_CHECK(got == bytes, "can't read %s at byte %lld: %s", box->path, (long long)(offset + got),
             errno == 0 ? "the file ends before" : strerror(errno));
done:
    return status;
}

/* ---- runs ---- */

/* The rows of a part: in each of `planes` (a point of the first axis, of one field or of all), side rows. Rows that lie
 * near one another are read as one run. */
typedef struct {
    int64_t first_plane, plane_count, fields; /* fields: that are read one after another; 1 where they lie together */
    int64_t row, pitch, rows;                 /* numbers of a row, from one row to the next, rows of a run */
    int64_t runs;                             /* of a plane */
} run_plan;

static run_plan runs_of(const vt_box *box, const vt_box_cube *cube, int64_t part)
{
    enum { NEAR = 512 }; /* numbers that cost less to read than another call */
    const int64_t inner = box->channels_last ? box->channels : 1, left = cube->side - part * PLANES;
    run_plan plan = {.first_plane = part * PLANES,
                     .plane_count = left < PLANES ? left : PLANES,
                     .fields = box->channels_last ? 1 : cube->channels,
                     .row = cube->side * inner,
                     .pitch = cube->side * inner,
                     .rows = 1,
                     .runs = cube->side};
    if ((box->extent - cube->side) * inner > NEAR) return plan;
    plan.pitch = box->extent * inner;
    plan.rows = cube->side;
    plan.runs = 1;
    return plan;
}

/* The index-th run: where it lies in the file; false behind the last one. */
static bool find_run(const vt_box *box, const vt_box_cube *cube, const run_plan *plan, int64_t index, int64_t *offset,
                     int64_t *bytes)
{
    const strides s = strides_of(box);
    const int64_t run = index % plan->runs, plane = index / plan->runs % plan->plane_count;
    const int64_t field = index / plan->runs / plan->plane_count;
    if (field >= plan->fields) return false;
    *offset = box->address + (int64_t)sizeof(float) *
                                 (field * s.field + (cube->corner[0] + plan->first_plane + plane) * s.point[0] +
                                  (cube->corner[1] + run * plan->rows) * s.point[1] + cube->corner[2] * s.point[2]);
    *bytes = (int64_t)sizeof(float) * ((plan->rows - 1) * plan->pitch + plan->row);
    return true;
}

static vt_status read_runs(vt_box *box, const vt_box_cube *cube, int64_t part, vt_decoder *decoder, vt_cube_part *place)
{
    vt_status status = VT_OK;
    const run_plan plan = runs_of(box, cube, part);
    const int64_t plane = cube->side * plan.pitch;
    int64_t offset = 0, bytes = 0;
    unsigned char *room = NULL;
    VT_TRY(
        vt_decoder_reserve(&decoder->turned, (size_t)(plan.fields * plan.plane_count * plane) * sizeof(float), &room));
    for (int64_t i = 0; find_run(box, cube, &plan, i, &offset, &bytes); i++)
        VT_TRY(read_bytes(box, offset, bytes,
                          room + (size_t)(i / plan.runs * plane + i % plan.runs * plan.pitch) * sizeof(float)));
    *place = (vt_cube_part){.values = (const float *)(const void *)room,
                            .first = {plan.first_plane, 0, 0},
                            .count = {plan.plane_count, cube->side, cube->side},
                            .stride = {plane, plan.pitch, box->channels_last ? box->channels : 1},
                            .fields = cube->channels,
                            .field_stride = box->channels_last ? 1 : plan.plane_count * plane};
done:
    return status;
}

/* ---- chunks ---- */

/* The chunks that a cube touches: the first one along each dimension, fields first, and how many. */
static int64_t chunks_of(const vt_box *box, const vt_box_cube *cube, int64_t first[1 + AXES], int64_t count[1 + AXES])
{
    int64_t all = 1;
    for (int d = 0; d <= AXES; d++) {
        const int64_t begin = d == 0 ? 0 : cube->corner[d - 1], size = d == 0 ? cube->channels : cube->side;
        const int64_t chunk = box->array->chunk[d];
        first[d] = begin / chunk;
        count[d] = (begin + size - 1) / chunk - first[d] + 1;
        all *= count[d];
    }
    return all;
}

/* The `part`-th of them: its first element, and where it lies in the file. */
static vt_status find_chunk(vt_box *box, const vt_box_cube *cube, int64_t part, int64_t at[1 + AXES],
                            vt_chunk_place *found)
{
    int64_t first[1 + AXES], count[1 + AXES];
    chunks_of(box, cube, first, count);
    for (int d = AXES; d >= 0; part /= count[d--]) at[d] = (first[d] + part % count[d]) * box->array->chunk[d];
    if (vt_array_find_chunk(box->array, at, found) == VT_OK) return VT_OK;
    return vt_error_context("%s: '%s'", box->path, box->name);
}

static int64_t chunk_bytes(const vt_box *box)
{
    int64_t bytes = sizeof(float);
    for (int d = 0; d <= AXES; d++) bytes *= box->array->chunk[d];
    return bytes;
}

static vt_status read_chunk(vt_box *box, const vt_box_cube *cube, int64_t part, vt_decoder *decoder,
                            vt_cube_part *place)
{
    vt_status status = VT_OK;
    int64_t at[1 + AXES], stride[1 + AXES];
    vt_chunk_place entry;
    unsigned char *bytes = NULL;
    const int64_t *chunk = box->array->chunk;
    const size_t size = (size_t)chunk_bytes(box);
    VT_TRY(find_chunk(box, cube, part, at, &entry));
    VT_TRY(vt_decoder_reserve(&decoder->turned, size, &bytes));
    if (vt_array_load_chunk(box->array, at, &entry, decoder, size, bytes) != VT_OK) {
        status = vt_error_context("%s: can't read '%s'", box->path, box->name);
        goto done;
    }
    stride[AXES] = 1;
    for (int d = AXES; d > 0; d--) stride[d - 1] = stride[d] * chunk[d];
    const float *values = (const float *)(const void *)bytes;
    *place = (vt_cube_part){.first_field = at[0], .fields = chunk[0], .field_stride = stride[0]};
    for (int a = 0; a < AXES; a++) {
        const int64_t begin = at[1 + a] > cube->corner[a] ? at[1 + a] : cube->corner[a];
        int64_t end = at[1 + a] + chunk[1 + a];
        if (end > cube->corner[a] + cube->side) end = cube->corner[a] + cube->side;
        place->first[a] = begin - cube->corner[a];
        place->count[a] = end - begin;
        place->stride[a] = stride[1 + a];
        values += (begin - at[1 + a]) * stride[1 + a];
    }
    place->values = values;
done:
    return status;
}

/* ---- the library, and memory ---- */

static vt_status read_through_library(vt_box *box, const vt_box_cube *cube, int64_t part, vt_decoder *decoder,
                                      vt_cube_part *place)
{
    vt_status status = VT_OK;
    (void)part; /* the only one */
    const int64_t n = cube->side, start[] = {0, cube->corner[0], cube->corner[1], cube->corner[2]};
    const int64_t count[] = {cube->channels, n, n, n};
    unsigned char *room = NULL;
    VT_TRY(vt_decoder_reserve(&decoder->turned, (size_t)(cube->channels * n * n * n) * sizeof(float), &room));
    status = box->store->kind->read(box->array, start, count, false, room);
    if (status != VT_OK) vt_error_context("%s: '%s' can't be read", box->path, box->name);
    *place = (vt_cube_part){.values = (const float *)(const void *)room,
                            .count = {n, n, n},
                            .stride = {n * n, n, 1},
                            .fields = cube->channels,
                            .field_stride = n * n * n};
done:
    return status;
}

static vt_status find_in_memory(vt_box *box, const vt_box_cube *cube, int64_t part, vt_decoder *decoder,
                                vt_cube_part *place)
{
    const strides s = strides_of(box);
    const int64_t first = part * PLANES, left = cube->side - first;
    (void)decoder;
    *place = (vt_cube_part){.values = box->memory + first * s.point[0],
                            .first = {first, 0, 0},
                            .count = {left < PLANES ? left : PLANES, cube->side, cube->side},
                            .fields = cube->channels,
                            .field_stride = s.field};
    for (int a = 0; a < AXES; a++) {
        place->stride[a] = s.point[a];
        place->values += cube->corner[a] * s.point[a];
    }
    return VT_OK;
}

int64_t vt_box_parts(const vt_box *box, const vt_box_cube *cube)
{
    int64_t first[1 + AXES], count[1 + AXES];
    if (box->reach == VT_BOX_LIBRARY) return 1;
    return box->reach == VT_BOX_CHUNKS ? chunks_of(box, cube, first, count) : (cube->side + PLANES - 1) / PLANES;
}

vt_status vt_box_read(vt_box *box, const vt_box_cube *cube, int64_t part, const vt_cube_fields *fields,
                      vt_decoder *decoder, float *to)
{
    static vt_status (*const readers[])(vt_box *, const vt_box_cube *, int64_t, vt_decoder *,
                                        vt_cube_part *) = {[VT_BOX_RUNS] = read_runs,
                                                           [VT_BOX_CHUNKS] = read_chunk,
                                                           [VT_BOX_LIBRARY] = read_through_library,
                                                           [VT_BOX_MEMORY] = find_in_memory};
    vt_status status = VT_OK;
    vt_decoder own = {0};
    vt_cube_part place;
    VT_TRY(readers[box->reach](box, cube, part, decoder != NULL ? decoder : &own, &place));
    vt_turn_part(fields, cube->side, &place, to);
done:
    vt_decoder_close(&own);
    return status;
}

vt_file_extent vt_box_extent(vt_box *box, const vt_box_cube *cube, int64_t part, int64_t index)
{
    vt_file_extent extent = {.descriptor = box->descriptor};
    int64_t at[1 + AXES];
    vt_chunk_place entry;
    if (box->reach == VT_BOX_RUNS) {
        const run_plan plan = runs_of(box, cube, part);
        if (!find_run(box, cube, &plan, index, &extent.offset, &extent.bytes)) extent.bytes = -1;
        return extent;
    }
    if (index > 0) return (vt_file_extent){.bytes = -1};
    if (box->reach != VT_BOX_CHUNKS || find_chunk(box, cube, part, at, &entry) != VT_OK || entry.address < 0) {
        vt_error_clear();
        return (vt_file_extent){.descriptor = -1};
    }
    extent.offset = entry.address;
    extent.bytes = entry.size;
    if (entry.skipped_filters == 0 && vt_pipeline_is_gzip(&box->array->pipeline)) extent.inflated = chunk_bytes(box);
    return extent;
}

/* ---- in memory ---- */

/* In the file's own order; a layer of chunks after another, so that each is decoded once. */
static vt_status fill(void *memory, void *context)
{
    vt_status status = VT_OK;
    vt_box *box = context;
    const int64_t n = box->extent, count = n * n * n * box->channels;
    float *values = memory;
    if (box->reach == VT_BOX_RUNS) return read_bytes(box, box->address, count * (int64_t)sizeof(float), memory);
    const int64_t layer = box->array->layout == VT_LAYOUT_CHUNKED ? box->array->chunk[1] : 1;
    for (int64_t c = 0; c < box->channels; c++)
        for (int64_t x = 0; x < n; x += layer) {
            const int64_t start[] = {c, x, 0, 0}, size[] = {1, n - x < layer ? n - x : layer, n, n};
            status = box->store->kind->read(box->array, start, size, false, values + (c * n + x) * n * n);
            if (status != VT_OK) vt_error_context("%s: '%s' can't be read", box->path, box->name);
            if (status != VT_OK) goto done;
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
    key = vt_text_format("%llu %llu %lld %lld.%09ld %s %lld", (unsigned long long)info.st_dev,
                         (unsigned long long)info.st_ino, (long long)info.st_size, (long long)info.st_mtim.tv_sec,
                         (long)info.st_mtim.tv_nsec, box->name != NULL ? box->name : "", (long long)box->channels);
    VT_TRY(vt_shared_box_open(key, (size_t)(n * n * n * box->channels) * sizeof(float), fill, box, &box->shared));
    box->memory = vt_shared_box_memory(box->shared);
    box->reach = VT_BOX_MEMORY;
done:
    free(key);
    return status;
}
