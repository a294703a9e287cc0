/* A Zarr store of the arrays `t`, `time` and `lat`: its metadata and the bytes of its chunks come from the input. It is
 * opened and read in this process, as no library but those of the codecs sees it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/text.h"
#include "fuzz.h"
#include "source/fields/fields_inside.h"
#include "storage/store.h"

/* The file of the store, or nothing where `data` is NULL. */
static void write_file(const char *name, const uint8_t *data, size_t size)
{
    char *inside = vt_text_format("store.zarr/%s", name);
    free(vt_fuzz_write(inside, data, size));
    free(inside);
}

static void make_directories(void)
{
    static const char *const names[] = {"", "/t", "/t/c", "/t/c/0", "/t/c/0/0", "/time", "/time/c", "/lat", "/lat/c"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = vt_text_format("%s/store.zarr%s", vt_fuzz_directory(), names[i]);
        mkdir(path, 0777);
        free(path);
    }
}

static void read_ends(vt_fields_file *file)
{
    const vt_fields_about *about = file->about;
    const bool small = about->rows <= 1024 && about->columns <= 1024 && about->times > 0;
    int64_t bytes = 8; /* of a chunk */
    for (int i = 0; i < 4; i++)
        if (__builtin_mul_overflow(bytes, file->sources[0].chunk[i], &bytes) || bytes > 1 << 26) return;
    float *values = small ? malloc((size_t)(about->rows * about->columns) * sizeof *values) : NULL;
    for (int last = 0; last < 2 && values != NULL; last++) {
        vt_fields_file_read(file, last ? about->times - 1 : 0, 1, &about->window, true, values);
        vt_error_clear();
    }
    free(values);
}

/* A byte says the version, two how long the metadata are; the rest is the chunk. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const chunks[] = {"t/0.0.0", "t/c/0/0/0", "time/0", "time/c/0", "lat/0", "lat/c/0"};
    char *path = vt_text_format("%s/store.zarr", vt_fuzz_directory());
    if (size < 3) {
        free(path);
        return 0;
    }
    const bool is_new = data[0] % 2 != 0;
    const size_t wanted = (size_t)data[1] | (size_t)data[2] << 8, length = wanted < size - 3 ? wanted : size - 3;
    make_directories();
    for (int i = 0; i < 2; i++) { /* one of the two */
        char *other = vt_text_format("%s/%s", path, is_new ? ".zmetadata" : "zarr.json");
        remove(other);
        free(other);
    }
    write_file(is_new ? "zarr.json" : ".zmetadata", data + 3, length);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++)
        write_file(chunks[i], data + 3 + length, size - 3 - length);
    SCOPED(vt_fields_file) *file = NULL;
    vt_error_clear();
    if (vt_fields_file_open_again((const char *const[]){path}, 1, &(vt_fields_form){.variables = "[t]"}, &file) ==
        VT_OK) {
        free(vt_fields_file_storage(file));
        read_ends(file);
    }
    vt_error_clear();
    free(path);
    return 0;
}
