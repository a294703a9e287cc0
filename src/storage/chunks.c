/* Chunks of arrays: where they lie in the file, and their decoded bytes. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "storage/store.h"

vt_status vt_array_find_chunk(vt_array *array, const int64_t *first, vt_chunk_place *found)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the places of all arrays */
    vt_status status = VT_OK;
    int64_t number = 0, count = 1;
    *found = (vt_chunk_place){0};
    if (array->store->kind->locate_chunk == NULL) return VT_OK;
    for (int d = 0; d < array->rank; d++) {
        const int64_t along = (array->extent[d] + array->chunk[d] - 1) / array->chunk[d];
        number = number * along + first[d] / array->chunk[d];
        count *= along;
    }
    pthread_mutex_lock(&lock);
    if (array->places == NULL) array->places = calloc((size_t)count, sizeof *array->places);
    VT_CHECK(array->places != NULL, "out of memory for the places of %lld chunks", (long long)count);
    vt_chunk_place *place = &array->places[number];
    if (place->size == 0 && place->address >= 0) VT_TRY(array->store->kind->locate_chunk(array, first, place));
    *found = *place;
done:
    pthread_mutex_unlock(&lock);
    return status;
}

void vt_array_fill(const vt_array *array, size_t bytes, unsigned char *memory)
{
    for (size_t i = 0; i < bytes; i += array->element_size) memcpy(memory + i, array->fill, array->element_size);
}

static vt_status read_stored(const vt_store *store, const vt_chunk_place *place, unsigned char *stored)
{
    vt_status status = VT_OK;
    struct stat info = {0};
    const int64_t got = vt_file_read_at(store->descriptor, stored, place->size, place->address);
    if (got == place->size) return VT_OK;
    VT_CHECK(errno == 0, "%s", strerror(errno));
    fstat(store->descriptor, &info);
    VT_FAIL("the file ends before it (it had %lld bytes when it was opened, now %lld; was it cut short?)",
            (long long)store->size, (long long)info.st_size);
done:
    return status;
}

vt_status vt_array_load_chunk(const vt_array *array, const int64_t *first, const vt_chunk_place *place,
                              vt_decoder *decoder, size_t bytes, void *to, unsigned char **decoded)
{
    vt_status status = VT_OK;
    const vt_store_kind *kind = array->store->kind;
    unsigned char *stored = to;
    if (kind->load_chunk != NULL) return kind->load_chunk(array, first, decoder, bytes, to, decoded);
    if (place->address >= 0 || to == NULL)
        VT_TRY(vt_decoder_reserve(&decoder->stored, place->address >= 0 ? place->size : bytes, &stored));
    *decoded = stored;
    if (place->address < 0) {
        vt_array_fill(array, bytes, stored);
        goto done;
    }
    VT_TRY(read_stored(array->store, place, stored));
    if (vt_decode(decoder, &array->pipeline, place->skipped_filters, stored, place->size, bytes, to, decoded) != VT_OK)
        status = vt_error_context("the chunk at byte %lld is damaged", (long long)place->address);
done:
    return status;
}
