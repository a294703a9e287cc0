/* Arrays as sources of fields: their type, and how they are stored. */
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/coordinates.h"

/* Bounds of the bytes of decoded chunks that the library keeps. Within them there is room for two neighbouring times,
 * so that a chunk of several times is decoded once for an input and its target. */
#define SMALLEST_CACHE (INT64_C(16) << 20)
#define LARGEST_CACHE (INT64_C(512) << 20)

/* No file of fields has more; what claims more would take hours to look at. */
#define MOST_TIMES (INT64_C(1) << 24) /* every 30 minutes for 900 years */
#define LONGEST (INT64_C(1) << 20)    /* of levels, rows or columns */
#define MOST_BYTES (INT64_C(1) << 37) /* of a time: 128 GB */

static vt_status take_type(vt_field_source *source)
{
    vt_status status = VT_OK;
    const vt_array *array = source->array;
    source->packing.element = array->element;
    VT_CHECK(array->element != VT_ELEMENT_NONE,
             "%s: '%s' must hold floating-point numbers (float32) or, in netCDF, packed integers, but holds %s",
             source->store->path, source->name, array->type != NULL ? array->type : "another type");
    VT_CHECK(array->element != VT_ELEMENT_INT64 && array->element != VT_ELEMENT_UINT64,
             "%s: '%s' holds integers of %zu bytes; 1, 2 and 4 can be read", source->store->path, source->name,
             array->element_size);
done:
    return status;
}

/* Sizes of an array of rank 2 to 4 as [time, level, lat, lon]. */
static void spread(int rank, const int64_t *sizes, int64_t all[4])
{
    all[0] = all[1] = 1;
    for (int i = 0; i < rank; i++) all[vt_field_dimension(rank, i)] = sizes[i];
}

static vt_status take_extent(vt_field_source *source, bool fixed)
{
    vt_status status = VT_OK;
    vt_dimensions_order(source->array);
    VT_TRY(vt_dimensions_check(source->array, fixed));
    source->rank = source->array->rank;
    spread(source->rank, source->array->extent, source->extent);
    VT_CHECK(source->extent[1] > 0 && source->extent[2] > 0 && source->extent[3] > 0,
             "%s: '%s' is empty: [%ld, %ld, %ld, %ld] (time, channel, lat, lon)", source->store->path, source->name,
             source->extent[0], source->extent[1], source->extent[2], source->extent[3]);
done:
    return status;
}

/* a * b, both at least 1; -1 if the product overflows, as a damaged file may make it, or if a is -1 already. */
static int64_t times_or_none(int64_t a, int64_t b)
{
    int64_t product = -1;
    return a < 1 || b < 1 || __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

/* Checks the size of what is stored: HDF5 1.10 doesn't, and reads past the end of a file that is too short. */
static vt_status take_layout(vt_field_source *source)
{
    vt_status status = VT_OK;
    vt_array *array = source->array;
    const size_t size = array->element_size;
    const int64_t *extent = source->extent;
    VT_CHECK(size == 1 || size == 2 || size == 4 || size == 8 || size == 16,
             "%s: '%s' is damaged: its numbers have %zu bytes each", source->store->path, source->name, size);
    int64_t bytes = (int64_t)size;
    for (int i = 0; i < 4; i++) bytes = times_or_none(bytes, extent[i] > 0 ? extent[i] : 1);
    bool within = extent[0] <= MOST_TIMES && bytes / (extent[0] > 0 ? extent[0] : 1) <= MOST_BYTES;
    for (int i = 1; i < 4; i++) within = within && extent[i] <= LONGEST;
    VT_CHECK(within || bytes < 0,
             "%s: '%s' is [%ld, %ld, %ld, %ld] (time, channel, lat, lon), more than can be read; is its shape right?",
             source->store->path, source->name, extent[0], extent[1], extent[2], extent[3]);
    VT_CHECK(bytes > 0 && bytes < INT64_MAX / 8, "%s: '%s' is damaged: [%ld, %ld, %ld, %ld] (time, channel, lat, lon)",
             source->store->path, source->name, extent[0], extent[1], extent[2], extent[3]);
    VT_TRY(source->store->kind->lay_out(array));
    const int64_t stored = array->stored_bytes;
    const bool is_chunked = array->layout == VT_LAYOUT_CHUNKED;
    VT_CHECK(is_chunked || stored == 0 || extent[0] == 0 || stored >= bytes,
             "%s: '%s' is damaged: %ld bytes are stored, %ld expected", source->store->path, source->name, stored,
             bytes);
    if (is_chunked) spread(source->rank, array->chunk, source->chunk);
    if (is_chunked) spread(source->rank, array->stride, source->stride);
    source->packing.swapped = array->swapped;
    for (int i = 0; i < 4 && is_chunked; i++)
        source->grid[i] = (source->extent[i] + source->chunk[i] - 1) / source->chunk[i];
done:
    return status;
}

vt_status vt_field_source_open(const vt_store *store, const char *name, const vt_fields_form *form,
                               vt_field_source *source)
{
    vt_status status = VT_OK;
    *source = (vt_field_source){.name = vt_text_copy(name), .store = store, .packing = {.scale = 1}};
    VT_TRY(vt_array_find(store, name, &source->array));
    VT_TRY(take_type(source));
    VT_TRY(take_extent(source, form->fixed));
    VT_TRY(take_layout(source));
    source->key = vt_array_key(source->array);
    VT_TRY(vt_coordinates_open(source, form->coordinates, &source->coordinates));
    source->sampled = vt_allocate((size_t)source->extent[1], sizeof *source->sampled, "the levels of a file");
done:
    return status;
}

void vt_field_source_close(vt_field_source *source)
{
    vt_coordinates_close(&source->coordinates);
    vt_array_close(&source->array);
    free(source->sampled);
    free(source->name);
}

vt_status vt_field_source_enlarge_cache(vt_field_source *source, int64_t *cache_bytes)
{
    vt_status status = VT_OK;
    const vt_store_kind *kind = source->store->kind;
    if (source->array->layout != VT_LAYOUT_CHUNKED || kind->keep_decoded == NULL) return VT_OK;
    int64_t chunks = 1, bytes = (int64_t)source->array->pipeline.element_size;
    for (int i = 1; i < 4; i++) chunks = times_or_none(chunks, source->grid[i]);
    for (int i = 0; i < 4; i++) bytes = times_or_none(bytes, source->chunk[i]);
    bytes = times_or_none(bytes, chunks);
    VT_CHECK(bytes > 0, "%s: '%s' is damaged: its chunks are larger than can be", source->store->path, source->name);
    *cache_bytes = bytes > LARGEST_CACHE ? bytes : 2 * bytes;
    if (*cache_bytes < SMALLEST_CACHE) *cache_bytes = SMALLEST_CACHE;
    if (*cache_bytes > LARGEST_CACHE) {
        char size[VT_NUMBER_SIZE];
        vt_log_warning("%s: the chunks of one time hold %s, too much to keep decoded, so reading will be slow; chunks "
                       "of one time and one channel are best (h5repack -l %s:CHUNK=1x%s%ldx%ld)",
                       source->store->path, vt_text_bytes((double)bytes, size), source->name,
                       source->rank == 4 ? "1x" : "", source->extent[2], source->extent[3]);
        *cache_bytes = LARGEST_CACHE;
    }
    VT_TRY(kind->keep_decoded(source->array, chunks, *cache_bytes));
done:
    return status;
}

vt_status vt_field_source_find_chunk(const vt_field_source *source, int64_t index, int64_t at[4], vt_chunk_place *place)
{
    int64_t own[4];
    for (int i = 3; i >= 0; index /= source->grid[i--]) at[i] = index % source->grid[i] * source->chunk[i];
    vt_field_own_dimensions(source, at, own);
    if (vt_array_find_chunk(source->array, own, place) == VT_OK) return VT_OK;
    return vt_error_context("%s: can't find where '%s' at time %ld is stored (damaged or cut short?)",
                            source->store->path, source->name, at[0]);
}
