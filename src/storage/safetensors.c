#define _GNU_SOURCE /* memmem */
#include "storage/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bfloat16.h"
#include "base/file.h"
#include "base/float16.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/output_file.h"

/* The format's own limit is 100 MB. With ours the JSON of a hostile header takes 1.3 GB at most, while it is read. */
enum { LONGEST_HEADER = 16 << 20 };

/* ---- the header: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …, "__metadata__": …} ---- */

static const struct {
    const char *name;
    int64_t size; /* bytes */
} types[] = {[VT_SAFETENSORS_F64] = {"F64", 8},
             [VT_SAFETENSORS_F32] = {"F32", 4},
             [VT_SAFETENSORS_F16] = {"F16", 2},
             [VT_SAFETENSORS_BF16] = {"BF16", 2}};

static vt_safetensors_type type_of(const char *name)
{
    int type = 0;
    while (type < VT_SAFETENSORS_OTHER && strcmp(name, types[type].name) != 0) type++;
    return (vt_safetensors_type)type;
}

static vt_status check_entry(const vt_safetensors *file, const vt_safetensors_entry *entry)
{
    vt_status status = VT_OK;
    VT_CHECK(entry->begin <= entry->end && entry->end <= file->data_size,
             "%s: tensor '%s' lies at bytes %ld to %ld, but there are %ld", file->path, entry->name, entry->begin,
             entry->end, file->data_size);
    int64_t room = entry->end - entry->begin, elements = 1;
    for (int i = 0; i < entry->shape.dimensions; i++) {
        VT_CHECK(entry->shape.shape[i] == 0 || elements <= file->data_size / entry->shape.shape[i] + 1,
                 "%s: tensor '%s' is larger than the file", file->path, entry->name);
        elements *= entry->shape.shape[i];
    }
    VT_CHECK(entry->type == VT_SAFETENSORS_OTHER || elements * types[entry->type].size == room,
             "%s: tensor '%s' has %ld elements of %s, but %ld bytes", file->path, entry->name, elements,
             entry->type_name, room);
done:
    return status;
}

static int by_begin(const void *a, const void *b)
{
    int64_t left = ((const vt_safetensors_entry *)a)->begin, right = ((const vt_safetensors_entry *)b)->begin;
    return left < right ? -1 : left > right;
}

static bool take_entry(const char *name, json_t *value, vt_safetensors_entry *entry)
{
    const char *type = NULL;
    json_t *shape = NULL, *size;
    json_int_t begin = 0, end = 0;
    size_t i;
    if (json_unpack(value, "{s:s, s:o, s:[I, I !] !}", "dtype", &type, "shape", &shape, "data_offsets", &begin, &end) !=
        0)
        return false;
    if (strlen(name) >= sizeof entry->name || strlen(type) >= sizeof entry->type_name || begin < 0 || end < 0)
        return false;
    if (!json_is_array(shape) || json_array_size(shape) > VT_TENSOR_DIMENSIONS) return false;
    *entry = (vt_safetensors_entry){.type = type_of(type), .begin = begin, .end = end};
    strcpy(entry->name, name);
    strcpy(entry->type_name, type);
    json_array_foreach(shape, i, size)
    {
        if (!json_is_integer(size) || json_integer_value(size) < 0) return false;
        entry->shape.shape[entry->shape.dimensions++] = json_integer_value(size);
    }
    return true;
}

static vt_status parse_header(vt_safetensors *file, const char *header, size_t length)
{
    vt_status status = VT_OK;
    json_error_t error = {.position = 0};
    json_t *root = json_loadb(header, length, JSON_REJECT_DUPLICATES, &error), *value;
    const char *name;
    VT_CHECK(json_is_object(root), "%s: the header is not that of a .safetensors file, at its byte %d", file->path,
             error.position);
    file->entries = vt_allocate(json_object_size(root) + 1, sizeof *file->entries, "a .safetensors file");
    json_object_foreach(root, name, value)
    {
        vt_safetensors_entry *entry = &file->entries[file->count];
        if (strcmp(name, "__metadata__") == 0) continue;
        VT_CHECK(take_entry(name, value, entry), "%s: the header is not that of a .safetensors file, at its '%.60s'",
                 file->path, name);
        VT_TRY(check_entry(file, entry));
        file->count++;
    }
    if (file->count > 0) qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_begin);
    for (int64_t i = 1; i < file->count; i++)
        VT_CHECK(file->entries[i].begin >= file->entries[i - 1].end, "%s: tensors '%s' and '%s' share bytes",
                 file->path, file->entries[i - 1].name, file->entries[i].name);
done:
    json_decref(root);
    return status;
}

vt_status vt_safetensors_open(const char *path, vt_safetensors **result)
{
    vt_status status = VT_OK;
    char *header = NULL;
    uint64_t length = 0; /* little endian, as this machine */
    int64_t size = 0;
    vt_safetensors *file = vt_allocate(1, sizeof *file, "a .safetensors file");
    *result = NULL;
    file->path = vt_text_copy(path);
    VT_TRY(vt_file_open(path, &file->file, &size));
    VT_CHECK(fread(&length, 1, 8, file->file) == 8, "%s is too short for a .safetensors file", path);
    VT_CHECK(
        length <= LONGEST_HEADER && 8 + (int64_t)length <= size,
        "%s: not a .safetensors file, or cut short: its first 8 bytes name a header of %llu bytes, the file has %ld",
        path, (unsigned long long)length, size);
    file->data_start = 8 + (int64_t)length;
    file->data_size = size - file->data_start;
    header = vt_allocate(1, (size_t)length + 1, "a .safetensors file");
    VT_CHECK(fread(header, 1, (size_t)length, file->file) == length, "can't read the header of %s", path);
    VT_TRY(parse_header(file, header, (size_t)length));
    *result = file;
    file = NULL;
done:
    free(header);
    vt_safetensors_close(&file);
    return status;
}

void vt_safetensors_close(vt_safetensors **pointer)
{
    vt_safetensors *file = *pointer;
    if (file == NULL) return;
    if (file->file != NULL) fclose(file->file);
    free(file->entries);
    free(file->path);
    free(file);
    *pointer = NULL;
}

const vt_safetensors_entry *vt_safetensors_find(const vt_safetensors *file, const char *name)
{
    const vt_safetensors_entry *entry = NULL;
    for (int64_t i = 0; i < file->count; i++)
        if (strcmp(file->entries[i].name, name) == 0) entry = &file->entries[i];
    return entry;
}

/* stored [count], numbers of the entry's type (not F32), as float32. */
static vt_status convert(const vt_safetensors *file, const vt_safetensors_entry *entry, const void *stored,
                         size_t count, float *values)
{
    vt_status status = VT_OK;
    const uint16_t *halves = stored;
    const double *doubles = stored;
    for (size_t i = 0; i < count && entry->type == VT_SAFETENSORS_F16; i++) values[i] = vt_float16_widen(halves[i]);
    for (size_t i = 0; i < count && entry->type == VT_SAFETENSORS_BF16; i++) values[i] = vt_bfloat16_widen(halves[i]);
    for (size_t i = 0; i < count && entry->type == VT_SAFETENSORS_F64; i++) {
        values[i] = (float)doubles[i];
        VT_CHECK(isfinite(values[i]) || !isfinite(doubles[i]),
                 "%s: tensor '%s' holds %g (F64), which is too large for float32", file->path, entry->name, doubles[i]);
    }
done:
    return status;
}

vt_status vt_safetensors_read_part(const vt_safetensors *file, const char *name, int part, int parts,
                                   const vt_tensor_shape *shape, float *values)
{
    vt_status status = VT_OK;
    void *stored = NULL;
    char found[128], expected[128];
    const vt_safetensors_entry *entry = vt_safetensors_find(file, name);
    vt_tensor_shape whole = *shape;
    VT_CHECK(entry != NULL, "%s has no tensor '%s'", file->path, name);
    whole.shape[0] *= parts;
    vt_tensor_shape_text(&entry->shape, found);
    vt_tensor_shape_text(&whole, expected);
    VT_CHECK(strcmp(found, expected) == 0, "%s: tensor '%s' is %s, but the model's is %s", file->path, name, found,
             expected);
    VT_CHECK(entry->type != VT_SAFETENSORS_OTHER, "%s: tensor '%s' holds %s; F32, F64, F16 and BF16 can be read",
             file->path, name, entry->type_name);
    const size_t count = (size_t)vt_tensor_count(shape), size = (size_t)types[entry->type].size;
    const int64_t begin = file->data_start + entry->begin + part * (int64_t)(count * size);
    if (entry->type != VT_SAFETENSORS_F32) stored = vt_allocate(count + 1, size, "a .safetensors file");
    VT_CHECK(fseeko(file->file, (off_t)begin, SEEK_SET) == 0, "can't read %s: %s", file->path, strerror(errno));
    VT_CHECK(fread(stored != NULL ? stored : values, size, count, file->file) == count, "can't read tensor '%s' of %s",
             name, file->path);
    if (stored != NULL) VT_TRY(convert(file, entry, stored, count, values));
done:
    free(stored);
    return status;
}

/* ---- writing ---- */

static void append_header(vt_text *header, const vt_named_tensor *tensors, int64_t count)
{
    int64_t offset = 0;
    vt_text_append(header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes = vt_tensor_count(&tensors[i].shape) * (int64_t)sizeof(float);
        vt_text_append(header, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[", tensors[i].name);
        for (int d = 0; d < tensors[i].shape.dimensions; d++)
            vt_text_append(header, "%s%ld", d > 0 ? "," : "", tensors[i].shape.shape[d]);
        vt_text_append(header, "],\"data_offsets\":[%ld,%ld]}", offset, offset + bytes);
        offset += bytes;
    }
    vt_text_append(header, "}");
    while (header->length % 8 != 0) vt_text_append(header, " "); /* the numbers begin aligned */
}

vt_status vt_safetensors_write(const char *path, const vt_named_tensor *tensors, int64_t count)
{
    vt_status status = VT_OK;
    vt_text header = {0};
    FILE *file = NULL;
    VT_TRY(vt_output_open(path, &file));
    append_header(&header, tensors, count);
    const uint64_t length = header.length;
    fwrite(&length, 1, sizeof length, file);
    fwrite(header.characters, 1, header.length, file);
    for (int64_t i = 0; i < count; i++)
        fwrite(tensors[i].values, sizeof(float), (size_t)vt_tensor_count(&tensors[i].shape), file);
    VT_TRY(vt_output_close(file, path));
done:
    vt_text_close(&header);
    return status;
}

/* ---- PyTorch's own files ---- */

enum { LOOKED_AT = 64 << 10 }; /* bytes at either end of a file: a zip archive lists its files at the end */

/* The first bytes to ends[0 …), the last ones to ends[LOOKED_AT …) of a longer file. The rest of `ends` stays as it is:
 * the caller has set it to 0. False when the file can't be read. */
static bool read_ends(const char *path, unsigned char ends[2 * LOOKED_AT])
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    (void)!fread(ends, 1, LOOKED_AT, file);
    const bool longer = fseek(file, 0, SEEK_END) == 0 && ftell(file) > LOOKED_AT;
    if (longer && fseek(file, -LOOKED_AT, SEEK_END) == 0) (void)!fread(ends + LOOKED_AT, 1, LOOKED_AT, file);
    const bool good = !ferror(file);
    fclose(file);
    return good;
}

static const char *kind_by_name(const char *path)
{
    static const char *const ends[] = {".pt", ".pth", ".tar", ".ckpt"};
    for (int i = 0; i < 4; i++)
        if (vt_text_ends_with(path, ends[i])) return "a PyTorch file by its name";
    return NULL;
}

static const char *kind_by_content(const unsigned char ends[2 * LOOKED_AT])
{
    /* torch.save without a zip archive: the pickle (protocol 2) of the number 0x1950a86a20f9469cfc6c */
    static const unsigned char magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                          0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    enum { TAR_MAGIC = 257 };
    if (memcmp(ends, "PK\3\4", 4) == 0)
        return memmem(ends, 2 * LOOKED_AT, "data.pkl", 8) != NULL ? "a PyTorch file (a zip archive with data.pkl)"
                                                                  : NULL;
    if (memcmp(ends, magic, sizeof magic) == 0) return "a PyTorch file of the old form (a pickle)";
    /* a .safetensors file may begin with these two bytes, too: a length, behind which its header opens with a brace */
    if (ends[0] == 0x80 && ends[1] >= 2 && ends[1] <= 5 && ends[8] != '{') return "a Python pickle";
    if (memcmp(ends + TAR_MAGIC, "ustar", 5) == 0) return "a PyTorch file of the oldest form (a tar archive)";
    return NULL;
}

const char *vt_pytorch_file_kind(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return NULL;
    if (S_ISDIR(info.st_mode))
        return vt_output_holds(path, ".metadata") ? "a directory of torch.distributed.checkpoint" : NULL;
    if (!S_ISREG(info.st_mode)) return NULL;
    unsigned char *ends = vt_allocate(2, LOOKED_AT, "the ends of a file");
    const char *kind = read_ends(path, ends) ? kind_by_content(ends) : NULL;
    free(ends);
    return kind != NULL ? kind : kind_by_name(path);
}
