/* The store `raw`, which shows that a store is one file and one row: a file that holds the array `fields` and nothing
 * else. A line of 64 bytes, "raw TIMES CHANNELS ROWS COLUMNS", is followed by the numbers, float32. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "storage/store.h"

extern const vt_store_kind vt_store_raw;

enum { LINE = 64, RANK = 4 };

typedef struct {
    vt_store store;
    int64_t extent[RANK];
} raw;

static bool takes(const char *path)
{
    return strstr(path, "/raw_") != NULL;
}

static vt_status open_store(const char *path, vt_store **store)
{
    vt_status status = VT_OK;
    struct stat info;
    char line[LINE + 1] = "";
    int64_t size[RANK];
    raw *own = vt_allocate(1, sizeof *own, "a raw file");
    own->store = (vt_store){.kind = &vt_store_raw, .path = vt_text_copy(path)};
    own->store.descriptor = open(path, O_RDONLY | O_CLOEXEC);
    VT_CHECK(own->store.descriptor >= 0 && fstat(own->store.descriptor, &info) == 0, "can't open %s: %s", path,
             strerror(errno));
    VT_CHECK(pread(own->store.descriptor, line, LINE, 0) == LINE &&
                 sscanf(line, "raw %ld %ld %ld %ld", &size[0], &size[1], &size[2], &size[3]) == RANK,
             "%s does not begin with a line 'raw TIMES CHANNELS ROWS COLUMNS'", path);
    for (int i = 0; i < RANK; i++) own->extent[i] = size[i];
    own->store.size = info.st_size;
done:
    *store = &own->store;
    if (status != VT_OK) vt_store_close(store);
    return status;
}

/* ---- its array ---- */

static bool has_array(const vt_store *store, const char *name)
{
    (void)store;
    return strcmp(name, "fields") == 0;
}

static vt_status find_array(const vt_store *store, const char *name, vt_array **array)
{
    vt_status status = VT_OK;
    VT_CHECK(has_array(store, name), "%s holds only 'fields'", store->path);
    *array = vt_allocate(1, sizeof **array, "an array of a raw file");
    **array = (vt_array){.store = store,
                         .name = vt_text_copy(name),
                         .rank = RANK,
                         .element = VT_ELEMENT_FLOAT32,
                         .element_size = sizeof(float),
                         .layout = VT_LAYOUT_CONTIGUOUS,
                         .address = LINE};
    memcpy((*array)->extent, ((const raw *)store)->extent, sizeof((const raw *)store)->extent);
done:
    return status;
}

static void list(const vt_store *store, const char *group, bool deeper, vt_names *names)
{
    (void)store, (void)group, (void)deeper;
    vt_names_add(names, "fields");
}

static vt_status lay_out(vt_array *array)
{
    array->stored_bytes = array->store->size - LINE;
    return VT_OK;
}

static vt_status read_box(const vt_array *array, const int64_t *start, const int64_t *count, bool as_doubles,
                          void *values)
{
    vt_status status = VT_OK;
    float *next = values;
    const int64_t *extent = array->extent, width = count[3];
    VT_ASSERT(!as_doubles); /* only coordinates are read as doubles */
    for (int64_t i = 0; i < count[0] * count[1] * count[2]; i++, next += width) {
        const int64_t time = start[0] + i / (count[1] * count[2]), channel = start[1] + i / count[2] % count[1];
        const int64_t row = (time * extent[1] + channel) * extent[2] + start[2] + i % count[2];
        const ssize_t bytes = (ssize_t)((size_t)width * sizeof *next);
        const off_t at = LINE + (row * extent[3] + start[3]) * (off_t)sizeof *next;
        VT_CHECK(pread(array->store->descriptor, next, (size_t)bytes, at) == bytes, "the file is cut short");
    }
done:
    return status;
}

/* ---- what it doesn't have ---- */

static int attribute_numbers(const vt_array *array, const char *name, int most, double *values, bool *is_float)
{
    (void)array, (void)name, (void)most, (void)values, (void)is_float;
    return 0;
}

static bool attribute_texts(const vt_array *array, const char *name, vt_names *texts)
{
    (void)array, (void)name, (void)texts;
    return true;
}

static void dimension_name(const vt_array *array, int dimension, char *name, size_t size)
{
    (void)array, (void)dimension, (void)size;
    name[0] = '\0';
}

static bool is_scale_of(const vt_array *scale, const vt_array *array, int dimension)
{
    (void)scale, (void)array, (void)dimension;
    return false;
}

const vt_store_kind vt_store_raw = {.name = "raw",
                                    .takes = takes,
                                    .open = open_store,
                                    .has_array = has_array,
                                    .list = list,
                                    .find_array = find_array,
                                    .lay_out = lay_out,
                                    .read = read_box,
                                    .attribute_numbers = attribute_numbers,
                                    .attribute_texts = attribute_texts,
                                    .dimension_name = dimension_name,
                                    .is_scale_of = is_scale_of};
