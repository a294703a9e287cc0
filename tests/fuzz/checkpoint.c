/* A checkpoint of two small tensors. The first byte of the input says what the rest replaces: the index, with a correct
 * checksum (0) or an unchecked one (1); the shard (2), with the size that the index names if possible; the checksum's
 * file (3). Reading it as `vitrain export` does must end in an error or in a file with these names. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "fuzz.h"
#include "storage/tensor_file.h"

static char *index_bytes, *shard_bytes;
static size_t index_size, shard_size;

static char *read_all(const char *path, size_t *size)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    VT_ASSERT(file != NULL && fstat(fileno(file), &info) == 0);
    char *bytes = malloc((size_t)info.st_size + 1);
    VT_ASSERT(bytes != NULL && fread(bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size);
    fclose(file);
    *size = (size_t)info.st_size;
    return bytes;
}

static void write_checksum(const void *bytes, size_t size)
{
    char text[64];
    int length = snprintf(text, sizeof text, "%08x  checkpoint.h5\n", vt_crc32c(bytes, size));
    free(vt_fuzz_write("checkpoint.crc32c", text, (size_t)length));
}

static void make_whole(void)
{
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    const vt_tensor_shape shape = {.dimensions = 2, .shape = {2, 3}};
    const int64_t version = 2;
    vt_tensor_file *file = NULL;
    vt_tensor_part part = {"shard-00000-of-00001.h5", "parameters/a", {.shape = shape}};
    char *shard = vt_text_format("%s/%s", vt_fuzz_directory(), part.source);
    char *index = vt_text_format("%s/checkpoint.h5", vt_fuzz_directory());
    VT_ASSERT(vt_tensor_file_create(shard, &file) == VT_OK && vt_tensor_file_set_text(file, "id", "1234") == VT_OK &&
              vt_tensor_file_write(file, part.name_in_source, &shape, values) == VT_OK &&
              vt_tensor_file_finish(&file) == VT_OK);
    shard_bytes = read_all(shard, &shard_size);
    const int64_t bytes = (int64_t)shard_size;
    VT_ASSERT(vt_tensor_file_create(index, &file) == VT_OK &&
              vt_tensor_file_set_integers(file, "format_version", 1, &version) == VT_OK &&
              vt_tensor_file_set_text(file, "id", "1234") == VT_OK &&
              vt_tensor_file_set_integers(file, "shard_bytes", 1, &bytes) == VT_OK &&
              vt_tensor_file_link(file, "parameters/a", &shape, 1, &part) == VT_OK &&
              vt_tensor_file_finish(&file) == VT_OK);
    index_bytes = read_all(index, &index_size);
    free(shard);
    free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (index_bytes == NULL) make_whole();
    int what = size > 0 ? data[0] % 4 : 1;
    const void *rest = size > 0 ? data + 1 : data;
    size_t count = size > 0 ? size - 1 : 0;
    write_checksum(what == 0 ? rest : index_bytes, what == 0 ? count : index_size);
    free(vt_fuzz_write("checkpoint.h5", what < 2 ? rest : index_bytes, what < 2 ? count : index_size));
    char *shard =
        vt_fuzz_write("shard-00000-of-00001.h5", what == 2 ? rest : shard_bytes, what == 2 ? count : shard_size);
    if (what == 2) (void)!truncate(shard, (off_t)shard_size);
    if (what == 3) free(vt_fuzz_write("checkpoint.crc32c", rest, count));
    char *output = vt_text_format("%s/model.safetensors", vt_fuzz_directory());
    vt_error_clear();
    bool averaged;
    vt_checkpoint_export(vt_fuzz_directory(), output, VT_WEIGHTS_AVERAGE, &averaged);
    free(shard);
    free(output);
    return 0;
}
