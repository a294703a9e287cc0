/* The files of a checkpoint: their names, their checksum, and whether they are all there and whole. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/find.h"
#include "checkpoint/inside.h"
#include "storage/output_file.h"

char *vt_checkpoint_shard_name(int64_t rank, int64_t ranks)
{
    return vt_text_format("shard-%05ld-of-%05ld.h5", rank, ranks);
}

char *vt_checkpoint_vocabulary(const char *directory)
{
    return vt_text_format("%s/vocabulary", directory);
}

vt_status vt_checkpoint_checksum(const char *path, uint32_t *checksum)
{
    char *file = vt_text_format(vt_safetensors_is_name(path) ? "%s" : "%s/checkpoint.h5", path);
    const vt_status status = vt_file_checksum(file, checksum);
    free(file);
    return status;
}

bool vt_checkpoint_is_one_place(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* HDF5 1.10 trusts what a damaged file says of its own structures, so the index has a checksum that is looked at before
 * HDF5 is. */
vt_status vt_checkpoint_write_checksum(const char *directory)
{
    vt_status status = VT_OK;
    uint32_t checksum = 0;
    char *path = vt_text_format("%s/checkpoint.crc32c", directory), *line = NULL;
    VT_TRY(vt_checkpoint_checksum(directory, &checksum));
    line = vt_text_format("%08x  checkpoint.h5\n", (unsigned)checksum);
    VT_TRY(vt_file_write(path, line, strlen(line)));
    VT_TRY(vt_output_synchronise(path));
done:
    free(line);
    free(path);
    return status;
}

vt_status vt_checkpoint_note_checksum(vt_tensor_file *index, const char *name, const char *path)
{
    vt_status status = VT_OK;
    uint32_t checksum = 0;
    VT_TRY(vt_output_synchronise(path));
    VT_TRY(vt_file_checksum(path, &checksum));
    VT_TRY(vt_tensor_file_set_integers(index, name, 1, &(int64_t){checksum}));
done:
    return status;
}

static vt_status check_checksum(const char *path, int64_t expected)
{
    vt_status status = VT_OK;
    uint32_t found = 0;
    VT_TRY(vt_file_checksum(path, &found));
    VT_CHECK(found == expected, "%s is damaged or another checkpoint's: its checksum is %08x, expected %08x", path,
             (unsigned)found, (unsigned)expected);
done:
    return status;
}

/* checksum: -1 if it is unknown, or not to be checked. */
static vt_status check_shard(const char *path, int64_t bytes, int64_t checksum, const char *id)
{
    vt_status status = VT_OK;
    struct stat info;
    vt_tensor_file *file = NULL;
    char *found = NULL;
    VT_CHECK(stat(path, &info) == 0, "%s: %s; the checkpoint is not whole without it", path, strerror(errno));
    VT_CHECK(info.st_size == bytes, "%s has %ld bytes, expected %ld: it is cut off or of another checkpoint", path,
             info.st_size, bytes);
    if (checksum >= 0) VT_TRY(check_checksum(path, checksum));
    VT_TRY(vt_tensor_file_open(path, &file));
    VT_TRY(vt_tensor_file_get_text(file, "id", &found));
    VT_CHECK(strcmp(found, id) == 0, "%s is of another checkpoint: its id is %s, expected %s", path, found, id);
done:
    vt_tensor_file_close(&file);
    free(found);
    return status;
}

/* Every `step`-th shard from the `first` on: there, whole, and of this checkpoint; `contents`: with the checksum of all
 * of it, which the first checkpoints of version 2 lack. */
static vt_status check_shards(vt_tensor_file *index, const char *directory, int first, int step, bool contents)
{
    vt_status status = VT_OK;
    enum { MOST = 8000 }; /* what fits into an attribute */
    int64_t count = MOST, summed = MOST, *bytes = vt_allocate(2 * MOST, sizeof *bytes, "a checkpoint");
    int64_t *checksums = bytes + MOST;
    char *id = NULL, *name = NULL, *path = NULL;
    VT_TRY(vt_tensor_file_get_integers(index, "shard_bytes", &count, bytes));
    VT_TRY(vt_tensor_file_get_text(index, "id", &id));
    VT_CHECK(count > 0, "%s: no shards are named", directory);
    contents = contents && vt_tensor_file_has(index, "shard_crc32c");
    if (contents) VT_TRY(vt_tensor_file_get_integers(index, "shard_crc32c", &summed, checksums));
    VT_CHECK(!contents || summed == count, "%s names %ld shards and %ld checksums", directory, count, summed);
    for (int64_t i = first; i < count; i += step) {
        free(name);
        free(path);
        name = vt_checkpoint_shard_name(i, count);
        path = vt_text_format("%s/%s", directory, name);
        VT_TRY(check_shard(path, bytes[i], contents ? checksums[i] : -1, id));
    }
done:
    free(bytes);
    free(id);
    free(name);
    free(path);
    return status;
}

/* Those of version 1 have no checksum. */
vt_status vt_checkpoint_check_index(const char *directory)
{
    vt_status status = VT_OK;
    unsigned expected = 0;
    char *path = vt_text_format("%s/checkpoint.crc32c", directory);
    char *index = vt_text_format("%s/checkpoint.h5", directory);
    FILE *file = NULL;
    if (!vt_output_exists(path)) goto done;
    VT_TRY(vt_file_open(path, &file, NULL));
    VT_CHECK(fscanf(file, "%8x", &expected) == 1, "%s is damaged: it holds no checksum", path);
    VT_TRY(check_checksum(index, expected));
done:
    if (file != NULL) fclose(file);
    free(index);
    free(path);
    return status;
}

/* A file beside the index, which knows its checksum under that name; path is freed. Those that the index doesn't know
 * are of other tasks, or newer than the checkpoint. */
static vt_status check_beside(vt_tensor_file *index, const char *name, char *path)
{
    vt_status status = VT_OK;
    int64_t expected = 0;
    if (!vt_tensor_file_has(index, name)) goto done;
    VT_TRY(vt_tensor_file_get_integer(index, name, &expected));
    VT_TRY(check_checksum(path, expected));
done:
    free(path);
    return status;
}

vt_status vt_checkpoint_check_beside(vt_tensor_file *index, const char *directory)
{
    vt_status status = VT_OK;
    VT_TRY(check_beside(index, "vocabulary_crc32c", vt_checkpoint_vocabulary(directory)));
    VT_TRY(check_beside(index, "about_crc32c", vt_text_format("%s/about.json", directory)));
done:
    return status;
}

vt_status vt_checkpoint_open(const char *directory, const vt_world *world, vt_tensor_file **index, bool *damaged)
{
    vt_status status = VT_OK;
    int64_t version = 0;
    bool unwanted;
    if (damaged == NULL) damaged = &unwanted;
    char *path = vt_text_format("%s/checkpoint.h5", directory);
    char *checksum = vt_text_format("%s/checkpoint.crc32c", directory);
    *damaged = true;
    VT_TRY(vt_checkpoint_check_index(directory));
    VT_TRY(vt_tensor_file_open(path, index));
    VT_TRY(vt_tensor_file_get_integer(*index, "format_version", &version));
    *damaged = version < 1;
    VT_CHECK(version >= 1 && version <= VT_CHECKPOINT_VERSION,
             "%s has format version %ld, this program reads versions 1 to %d: it was written by a newer vitrain", path,
             version, VT_CHECKPOINT_VERSION);
    *damaged = true;
    VT_CHECK(version == 1 || vt_output_exists(checksum), "%s is missing; the checkpoint is not whole without it",
             checksum);
    VT_TRY(check_shards(*index, directory, world != NULL ? world->rank : 0, world != NULL ? world->ranks : 1, true));
    VT_TRY(vt_checkpoint_check_beside(*index, directory));
    *damaged = false;
done:
    free(checksum);
    free(path);
    return status;
}

vt_status vt_checkpoint_check_shard(vt_tensor_file *index, const char *directory, int shard, bool contents)
{
    return check_shards(index, directory, shard, INT_MAX / 2, contents);
}
