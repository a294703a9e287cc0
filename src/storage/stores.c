#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "config/kinds.def"
#include "storage/store.h"

#define DECLARE(name, help) extern const vt_store_kind vt_store_##name;
VT_STORES(DECLARE)

#define ROW(name, help) &vt_store_##name,
static const vt_store_kind *const kinds[] = {VT_STORES(ROW)};

/* The first row takes what no other row takes. */
static const vt_store_kind *kind_of(const char *path)
{
    const vt_store_kind *taker = kinds[0];
    for (size_t i = 1; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i]->takes(path)) taker = kinds[i];
    return taker;
}

vt_status vt_store_open(const char *path, vt_store **store)
{
    return kind_of(path)->open(path, store);
}

bool vt_store_is_directory(const char *path)
{
    return kind_of(path)->is_directory;
}

void vt_store_close(vt_store **store)
{
    vt_store *own = *store;
    if (own == NULL) return;
    if (own->kind->close != NULL) own->kind->close(own);
    if (own->descriptor >= 0) close(own->descriptor);
    free(own->path);
    free(own->oddity);
    free(own);
    *store = NULL;
}

vt_status vt_store_read(const vt_store *store, int64_t offset, int64_t bytes, void *memory, int64_t *got)
{
    vt_status status = VT_OK;
    struct stat info = {0};
    *got = vt_file_read_at(store->descriptor, memory, bytes, offset);
    if (*got == bytes) return VT_OK;
    VT_CHECK(errno == 0, "%s", strerror(errno));
    fstat(store->descriptor, &info);
    VT_FAIL("the file ends before it (it had %ld bytes when it was opened, now %ld; was it cut short?)", store->size,
            info.st_size);
done:
    return status;
}

vt_status vt_array_find(const vt_store *store, const char *name, vt_array **array)
{
    return store->kind->find_array(store, name, array);
}

void vt_array_close(vt_array **array)
{
    vt_array *own = *array;
    if (own == NULL) return;
    if (own->store->kind->close_array != NULL) own->store->kind->close_array(own);
    free(own->places);
    free(own->storage);
    free(own->obstacle);
    free(own->name);
    free(own);
    *array = NULL;
}

vt_status vt_array_check_written(const vt_array *array)
{
    vt_status status = VT_OK;
    const bool is_chunked = array->layout == VT_LAYOUT_CHUNKED;
    const int64_t known = is_chunked ? array->store->kind->chunks_written(array) : -1;
    int64_t chunks = 1;
    for (int d = 0; d < array->rank && is_chunked; d++)
        chunks *= (array->extent[d] + array->chunk[d] - 1) / array->chunk[d];
    const int64_t written = known >= 0 ? known : chunks;
    const bool is_empty = is_chunked ? written == 0 : array->layout == VT_LAYOUT_CONTIGUOUS && array->address < 0;
    VT_CHECK(!is_empty, "%s: '%s' has a shape, but no value of it was ever written; make the file again",
             array->store->path, array->name);
    if (written < chunks)
        vt_log_warning("%s: only %ld of the %ld chunks of '%s' were ever written, the others read as the fill value; "
                       "was the writing broken off?",
                       array->store->path, written, chunks, array->name);
done:
    return status;
}

uint64_t vt_array_key(const vt_array *array)
{
    struct stat info = {0};
    fstat(array->store->descriptor, &info);
    char *text = vt_text_format("%s\n%s\n%llu %llu %ld %ld %ld", array->store->path, array->name,
                                (unsigned long long)info.st_dev, (unsigned long long)info.st_ino, info.st_size,
                                info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    const uint64_t key = vt_random_name_key(text);
    free(text);
    return key;
}

int64_t vt_array_length(const vt_store *store, const char *name)
{
    vt_array *array = NULL;
    if (!store->kind->has_array(store, name)) return 0;
    if (vt_array_find(store, name, &array) != VT_OK) vt_error_clear();
    const int64_t length = array != NULL && array->rank == 1 ? array->extent[0] : 0;
    vt_array_close(&array);
    return length;
}

/* ---- chunks ---- */

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
    VT_CHECK(array->places != NULL, "out of memory for the places of %ld chunks", count);
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

vt_status vt_array_load_chunk(const vt_array *array, const int64_t *first, const vt_chunk_place *place,
                              vt_decoder *decoder, size_t bytes, unsigned char *to)
{
    vt_status status = VT_OK;
    const vt_store_kind *kind = array->store->kind;
    const bool as_is = array->pipeline.count == 0 && place->size == bytes; /* can be read into its place */
    unsigned char *stored = to;
    int64_t got;
    if (kind->load_chunk != NULL) return kind->load_chunk(array, first, decoder, bytes, to);
    if (place->address < 0) {
        vt_array_fill(array, bytes, to);
        return VT_OK;
    }
    if (!as_is) VT_TRY(vt_decoder_reserve(&decoder->stored, place->size, &stored));
    VT_TRY(vt_store_read(array->store, place->address, place->size, stored, &got));
    if (vt_decode(decoder, &array->pipeline, place->skipped_filters, stored, place->size, bytes, to) != VT_OK)
        status = vt_error_context("the chunk at byte %ld is damaged", place->address);
done:
    return status;
}
