/* Reading a Zarr store's chunks: each is a file of its own, or a part of a shard. A chunk that isn't there holds the
 * fill value everywhere. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "storage/zarr_inside.h"

#define NOWHERE UINT64_MAX /* in a shard's index: the chunk was never written */

/* How many numbers the names of an array's files have: anemoi's [cells] have one dimension. */
static int name_rank(const vt_zarr_array *own)
{
    return own->array.rank - (own->has_cells && own->array.rank == 2);
}

/* The file of a chunk or a shard. */
typedef struct {
    char name[VT_ZARR_KEY]; /* from the root on */
    int descriptor;         /* -1: there is no such file */
    int64_t bytes, changed;
} chunk_file;

/* Opens the file of the chunk or shard `place`, counted in each of the store's dimensions. */
static vt_status open_file(const vt_zarr_array *own, const int64_t *place, chunk_file *file)
{
    vt_status status = VT_OK;
    struct stat info;
    const vt_store *store = own->array.store;
    const int rank = name_rank(own);
    char *name = file->name;
    size_t length = (size_t)snprintf(name, VT_ZARR_KEY, "%s/%s", own->node->name,
                                     own->has_prefix ? "c"
                                     : rank == 0     ? "0"
                                                     : "");
    for (int i = 0; i < rank && length < VT_ZARR_KEY; i++) {
        const char separator[2] = {i > 0 || own->has_prefix ? own->separator : '\0'};
        length += (size_t)snprintf(name + length, VT_ZARR_KEY - length, "%s%ld", separator, place[i]);
    }
    file->descriptor = openat(store->descriptor, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0 && errno == ENOENT) return VT_OK;
    VT_CHECK(file->descriptor >= 0 && fstat(file->descriptor, &info) == 0, "%s/%s: can't open the chunk: %s",
             store->path, name, strerror(errno));
    VT_CHECK(S_ISREG(info.st_mode), "%s/%s should be a chunk, but is no file", store->path, name);
    file->bytes = info.st_size;
    file->changed = vt_file_changed(&info);
done:
    return status;
}

static vt_status read_bytes(const vt_zarr_array *own, const chunk_file *file, int64_t offset, size_t bytes,
                            void *memory)
{
    vt_status status = VT_OK;
    VT_CHECK(vt_file_read_at(file->descriptor, memory, (int64_t)bytes, offset) == (int64_t)bytes,
             "%s/%s: can't read the chunk: %s", own->array.store->path, file->name,
             errno != 0 ? strerror(errno) : "its file ends before it (was it cut short?)");
done:
    return status;
}

/* ---- shards ---- */

static vt_status read_index(const vt_zarr_array *own, const chunk_file *shard, int64_t chunks, vt_shard_index *index)
{
    vt_status status = VT_OK;
    const char *path = own->array.store->path, *name = shard->name;
    const size_t plain = (size_t)chunks * 16, bytes = plain + 4 * (size_t)own->index_codecs.count;
    unsigned char *stored = malloc(bytes);
    uint64_t *places = malloc(plain); /* as in the shard: little endian */
    vt_decoder decoder = {0};
    VT_CHECK(stored != NULL && places != NULL, "%s/%s: out of memory for the index of %ld chunks", path, name, chunks);
    VT_CHECK(shard->bytes >= (int64_t)bytes,
             "%s/%s: the shard has %ld bytes, fewer than its index needs (was it cut short?)", path, name,
             shard->bytes);
    VT_TRY(read_bytes(own, shard, own->index_first ? 0 : shard->bytes - (int64_t)bytes, bytes, stored));
    if (vt_decode(&decoder, &own->index_codecs, 0, stored, bytes, plain, (unsigned char *)places) != VT_OK) {
        status = vt_error_context("%s/%s: the index of the shard is damaged", path, name);
        goto done;
    }
    index->places = places;
    places = NULL;
done:
    vt_decoder_close(&decoder);
    free(stored);
    free(places);
    return status;
}

/* *result: the index of the shard `place`, whose file is then open; NULL: there is no such file. */
static vt_status open_shard(vt_zarr_array *own, const int64_t *place, chunk_file *shard, const vt_shard_index **result)
{
    vt_status status = VT_OK;
    int64_t number = 0, chunks = 1;
    const char *path = own->array.store->path;
    for (int i = 0; i < own->array.rank; i++) {
        number = number * ((own->extent[i] + own->shard[i] - 1) / own->shard[i]) + place[i];
        chunks *= own->shard[i] / own->chunk[i];
    }
    *result = NULL;
    VT_TRY(open_file(own, place, shard));
    if (shard->descriptor < 0) goto done;
    pthread_mutex_lock(&own->lock);
    if (own->shards == NULL) own->shards = calloc((size_t)own->shard_count, sizeof *own->shards);
    vt_shard_index *index = own->shards != NULL ? &own->shards[number] : NULL;
    if (index != NULL && !index->known) {
        status = read_index(own, shard, chunks, index);
        index->known = status == VT_OK;
        index->bytes = shard->bytes;
        index->changed = shard->changed;
    }
    pthread_mutex_unlock(&own->lock);
    if (status != VT_OK) goto done;
    VT_CHECK(index != NULL, "%s: out of memory for the indices of %ld shards", path, own->shard_count);
    VT_CHECK(index->bytes == shard->bytes && index->changed == shard->changed,
             "%s/%s: the shard was written anew while it was in use; data must not change during a run", path,
             shard->name);
    *result = index;
done:
    return status;
}

/* Where the chunk `place` is; *offset -1: it was never written. */
static vt_status find_in_shard(vt_zarr_array *own, const int64_t *place, chunk_file *file, int64_t *offset,
                               int64_t *bytes)
{
    vt_status status = VT_OK;
    int64_t shard[VT_ARRAY_RANK] = {0}, within = 0;
    const vt_shard_index *index = NULL;
    for (int i = 0; i < own->array.rank; i++) {
        const int64_t each = own->shard[i] / own->chunk[i];
        shard[i] = place[i] / each;
        within = within * each + place[i] % each;
    }
    *offset = -1;
    VT_TRY(open_shard(own, shard, file, &index));
    if (index == NULL) goto done;
    const uint64_t from = index->places[2 * within], size = index->places[2 * within + 1];
    if (from == NOWHERE && size == NOWHERE) goto done;
    VT_CHECK(from <= (uint64_t)file->bytes && size <= (uint64_t)file->bytes - from,
             "%s/%s: by its index a chunk lies at bytes %llu to %llu, but the shard has %ld (was it cut short?)",
             own->array.store->path, file->name, (unsigned long long)from, (unsigned long long)(from + size),
             file->bytes);
    *offset = (int64_t)from;
    *bytes = (int64_t)size;
done:
    return status;
}

/* ---- chunks ---- */

vt_status vt_zarr_load_chunk(const vt_array *array, const int64_t *first, vt_decoder *decoder, size_t bytes,
                             unsigned char *to)
{
    vt_status status = VT_OK;
    vt_zarr_array *own = (vt_zarr_array *)array; /* the lock guards what changes in it */
    int64_t at[VT_ARRAY_RANK] = {0}, offset = -1, size = 0;
    chunk_file file = {.descriptor = -1};
    unsigned char *stored = to;
    for (int i = 0; i < array->rank; i++) at[own->stored_as[i]] = first[i] / own->chunk[own->stored_as[i]];
    if (own->is_sharded) {
        VT_TRY(find_in_shard(own, at, &file, &offset, &size));
    } else {
        VT_TRY(open_file(own, at, &file));
        offset = file.descriptor < 0 ? -1 : 0;
        size = file.bytes;
    }
    if (offset < 0) {
        vt_array_fill(array, bytes, to);
        goto done;
    }
    const bool as_is = array->pipeline.count == 0 && size == (int64_t)bytes; /* can be read into its place */
    if (!as_is) VT_TRY(vt_decoder_reserve(&decoder->stored, (size_t)size + 1, &stored));
    VT_TRY(read_bytes(own, &file, offset, (size_t)size, stored));
    if (vt_decode(decoder, &array->pipeline, 0, stored, (size_t)size, bytes, to) != VT_OK)
        status = own->is_sharded ? vt_error_context("%s/%s: the chunk at byte %ld is damaged", array->store->path,
                                                    file.name, offset)
                                 : vt_error_context("%s/%s: the chunk is damaged", array->store->path, file.name);
done:
    if (file.descriptor >= 0) close(file.descriptor);
    return status;
}

/* ---- which chunks there are ---- */

/* How many chunks the file `place` holds: of the last shard along a dimension, and within a shard, perhaps not all. */
static int64_t count_in_file(vt_zarr_array *own, const int64_t *place)
{
    const int rank = own->array.rank;
    int64_t sizes[VT_ARRAY_RANK], chunks = 1, written = 0;
    const vt_shard_index *index = NULL;
    chunk_file file = {.descriptor = -1};
    for (int i = 0; i < rank; i++) {
        const int64_t left = own->extent[i] - place[i] * own->shard[i];
        sizes[i] = ((left < own->shard[i] ? left : own->shard[i]) + own->chunk[i] - 1) / own->chunk[i];
        chunks *= sizes[i];
    }
    if (!own->is_sharded) return chunks;
    if (open_shard(own, place, &file, &index) != VT_OK) vt_error_clear(); /* reading says why */
    if (file.descriptor >= 0) close(file.descriptor);
    for (int64_t c = 0; c < chunks && index != NULL; c++) {
        int64_t within = 0, rest = c, all = 1;
        for (int i = rank - 1; i >= 0; rest /= sizes[i--]) {
            within += rest % sizes[i] * all;
            all *= own->shard[i] / own->chunk[i];
        }
        written += index->places[2 * within] != NOWHERE || index->places[2 * within + 1] != NOWHERE;
    }
    return index != NULL ? written : chunks;
}

/* Takes the numbers of a file's or a directory's name ("12.0.3"), from place[*known] on; false: it is no such name. */
static bool take_numbers(const vt_zarr_array *own, const char *name, int64_t *place, int *known)
{
    if (own->has_prefix && own->separator == '.') {
        if (strncmp(name, "c.", 2) != 0) return false;
        name += 2;
    }
    for (; *known < name_rank(own); name++) {
        const int i = *known;
        char *end = NULL;
        if (*name < '0' || *name > '9' || (*name == '0' && name[1] >= '0' && name[1] <= '9')) return false;
        errno = 0;
        place[i] = strtoll(name, &end, 10);
        if (errno != 0 || place[i] >= (own->extent[i] + own->shard[i] - 1) / own->shard[i]) return false;
        ++*known;
        name = end;
        if (*name == '\0') return own->separator == '/' || *known == name_rank(own);
        if (*name != own->separator) return false;
    }
    return false;
}

/* Chunks in the files of a directory, which it closes, and below it; the first `known` numbers of `place` are those of
 * its name. -1: it can't be read. */
static int64_t count_in_directory(vt_zarr_array *own, int descriptor, int known, int64_t *place)
{
    DIR *opened = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    int64_t count = 0;
    if (opened == NULL && descriptor >= 0) close(descriptor);
    if (opened == NULL) return descriptor < 0 && (errno == ENOENT || errno == ENOTDIR) ? 0 : -1;
    for (struct dirent *entry; count >= 0 && (errno = 0, entry = readdir(opened)) != NULL;) {
        int more = known;
        if (!take_numbers(own, entry->d_name, place, &more)) continue;
        const bool is_file = more == name_rank(own);
        const int below = is_file ? -1 : openat(descriptor, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const int64_t found = is_file ? count_in_file(own, place) : count_in_directory(own, below, more, place);
        count = found < 0 ? -1 : count + found;
    }
    if (errno != 0) count = -1;
    closedir(opened);
    return count;
}

int64_t vt_zarr_chunks_written(const vt_array *array)
{
    vt_zarr_array *own = (vt_zarr_array *)array;
    int64_t place[VT_ARRAY_RANK] = {0};
    char directory[VT_ZARR_KEY];
    if (array->rank == 0) return -1;
    snprintf(directory, sizeof directory, "%s%s", own->node->name,
             own->has_prefix && own->separator == '/' ? "/c" : "");
    const int descriptor = openat(array->store->descriptor, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return count_in_directory(own, descriptor, 0, place);
}

/* ---- boxes ---- */

/* Copies what the chunk that begins at `first` holds of the box; all in the array's order of dimensions. */
static void copy_part(const vt_array *array, const unsigned char *chunk, const int64_t *first, const int64_t *start,
                      const int64_t *count, bool as_doubles, unsigned char *values)
{
    const size_t size = array->element_size, result = as_doubles ? sizeof(double) : size;
    int64_t low[VT_ARRAY_RANK] = {0}, high[VT_ARRAY_RANK] = {0}, at[VT_ARRAY_RANK] = {0};
    unsigned char bytes[8]; /* of an element, in this machine's order */
    for (int i = 0; i < array->rank; i++) {
        low[i] = at[i] = first[i] > start[i] ? first[i] : start[i];
        const int64_t end = first[i] + array->chunk[i], last = start[i] + count[i];
        high[i] = end < last ? end : last;
    }
    for (int d = 0; d >= 0;) {
        int64_t from = 0, to = 0;
        for (int i = 0; i < array->rank; i++) {
            from += (at[i] - first[i]) * array->stride[i];
            to = to * count[i] + at[i] - start[i];
        }
        const unsigned char *stored = chunk + (size_t)from * size;
        for (size_t i = 0; i < size; i++) bytes[i] = stored[array->swapped ? size - 1 - i : i];
        const double number = as_doubles ? vt_element_number(array->element, bytes) : 0;
        memcpy(values + (size_t)to * result, as_doubles ? (const void *)&number : bytes, result);
        for (d = array->rank - 1; d >= 0; d--) {
            if (++at[d] < high[d]) break;
            at[d] = low[d];
        }
    }
}

vt_status vt_zarr_read(const vt_array *array, const int64_t *start, const int64_t *count, bool as_doubles, void *values)
{
    vt_status status = VT_OK;
    vt_decoder decoder = {0};
    size_t bytes = array->element_size;
    int64_t first[VT_ARRAY_RANK] = {0};
    VT_ASSERT(array->element != VT_ELEMENT_NONE);
    if (array->storage == NULL) VT_TRY(array->store->kind->lay_out((vt_array *)array)); /* a coordinate */
    for (int i = 0; i < array->rank; i++) {
        if (count[i] == 0) return VT_OK;
        bytes *= (size_t)array->chunk[i];
        first[i] = start[i] / array->chunk[i] * array->chunk[i];
    }
    unsigned char *chunk = NULL;
    VT_TRY(vt_decoder_reserve(&decoder.box, bytes, &chunk));
    for (int d = 0; d >= 0;) {
        VT_TRY(vt_zarr_load_chunk(array, first, &decoder, bytes, chunk));
        copy_part(array, chunk, first, start, count, as_doubles, values);
        for (d = array->rank - 1; d >= 0; d--) {
            if ((first[d] += array->chunk[d]) < start[d] + count[d]) break;
            first[d] = start[d] / array->chunk[d] * array->chunk[d];
        }
    }
done:
    vt_decoder_close(&decoder);
    return status;
}
