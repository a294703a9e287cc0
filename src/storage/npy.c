#include "storage/npy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "storage/output_file.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian machines, as every one that PyTorch runs on is"
#endif

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

/* An array of statistics is small; a larger count comes from a damaged header. */
#define LARGEST_COUNT (INT64_C(1) << 36)

/* The text after 'key': in the header, a Python dictionary such as
 * {'descr': '<f4', 'fortran_order': False, 'shape': (1, 20, 1, 1), }. NULL when it is not there. */
static const char *find_value(const char *header, const char *key)
{
    const char *found = strstr(header, key);
    if (found == NULL || found == header) return NULL;
    char quote = found[-1];
    found += strlen(key);
    if ((quote != '\'' && quote != '"') || *found++ != quote) return NULL;
    found += strspn(found, " ");
    if (*found++ != ':') return NULL;
    return found + strspn(found, " ");
}

static vt_status parse_type(const char *path, const char *header, size_t *size)
{
    vt_status status = VT_OK;
    const char *value = find_value(header, "descr");
    VT_CHECK(value != NULL, "%s: damaged .npy header: no 'descr' in \"%s\"", path, header);
    int length = (int)strcspn(value, ",}");
    VT_CHECK(*value != '[', "%s: each element of the array has several parts; save one of them (array['name'])", path);
    bool is_float32 = length == 5 && strncmp(value + 1, "<f4", 3) == 0;
    bool is_float64 = length == 5 && strncmp(value + 1, "<f8", 3) == 0;
    VT_CHECK(is_float32 || is_float64,
             "%s: the array's type is %.*s, expected '<f4' or '<f8' (save it with .astype('float32'))", path, length,
             value);
    *size = is_float32 ? 4 : 8;
    value = find_value(header, "fortran_order");
    VT_CHECK(value != NULL, "%s: damaged .npy header: no 'fortran_order' in \"%s\"", path, header);
    VT_CHECK(strncmp(value, "False", 5) == 0,
             "%s: the array is in Fortran order, expected C order (save it with numpy.ascontiguousarray)", path);
done:
    return status;
}

static vt_status parse_shape(const char *path, const char *header, vt_tensor_shape *shape)
{
    vt_status status = VT_OK;
    const char *value = find_value(header, "shape");
    VT_CHECK(value != NULL && *value == '(', "%s: damaged .npy header: no 'shape' in \"%s\"", path, header);
    int64_t count = 1;
    value += 1 + strspn(value + 1, " ");
    while (*value != ')') {
        char *end = NULL;
        int64_t extent = strtoll(value, &end, 10);
        VT_CHECK(end != value && extent >= 0, "%s: damaged .npy header: bad 'shape' in \"%s\"", path, header);
        VT_CHECK(shape->dimensions < VT_TENSOR_DIMENSIONS, "%s: the array has more than %d dimensions", path,
                 VT_TENSOR_DIMENSIONS);
        VT_CHECK(extent == 0 || count <= LARGEST_COUNT / extent, "%s: the array's shape in \"%s\" is too large", path,
                 header);
        shape->shape[shape->dimensions++] = extent;
        count *= extent;
        value = end + strspn(end, " ,");
    }
done:
    return status;
}

/* Reads magic, version and the header's text (malloc'd, NUL-terminated). */
static vt_status read_header(const char *path, FILE *file, char **header)
{
    vt_status status = VT_OK;
    unsigned char start[12];
    VT_CHECK(fread(start, 1, 8, file) == 8 && memcmp(start, magic, sizeof magic) == 0,
             "%s is not a .npy file: it doesn't start with \"\\x93NUMPY\"", path);
    int major = start[6];
    VT_CHECK(major >= 1 && major <= 3, "%s: .npy format version %d.%d is not known, expected 1.0, 2.0 or 3.0", path,
             major, start[7]);
    size_t length_size = major == 1 ? 2 : 4;
    VT_CHECK(fread(start + 8, 1, length_size, file) == length_size, "%s: cut short within the .npy header", path);
    size_t length = start[8] | (size_t)start[9] << 8;
    if (major > 1) length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    VT_CHECK(length <= 1 << 20, "%s: damaged .npy header: its length is %zu bytes", path, length);
    *header = malloc(length + 1);
    VT_CHECK(*header != NULL, "out of memory for the header of %s", path);
    VT_CHECK(fread(*header, 1, length, file) == length, "%s: cut short within the .npy header", path);
    (*header)[length] = '\0';
    for (size_t i = length; i > 0 && ((*header)[i - 1] == '\n' || (*header)[i - 1] == ' '); i--)
        (*header)[i - 1] = '\0';
done:
    return status;
}

/* Values come as they lie in the file; float32 ones are widened in place, from the last to the first. */
static vt_status read_values(const char *path, FILE *file, vt_npy *array)
{
    vt_status status = VT_OK;
    const size_t count = (size_t)vt_tensor_count(&array->shape), size = array->element_size;
    array->values = malloc(count * sizeof *array->values + 1);
    VT_CHECK(array->values != NULL, "out of memory for the %zu values of %s", count, path);
    VT_CHECK(fread(array->values, size, count, file) == count, "can't read %s: %s", path,
             ferror(file) ? strerror(errno) : "it was cut short");
    for (size_t i = count; size == sizeof(float) && i > 0; i--) {
        float narrow;
        memcpy(&narrow, (const char *)array->values + (i - 1) * size, sizeof narrow);
        array->values[i - 1] = (double)narrow;
    }
done:
    return status;
}

/* The file stays open behind its header. */
static vt_status look(const char *path, FILE **file, vt_npy *array)
{
    vt_status status = VT_OK;
    char *header = NULL;
    *array = (vt_npy){0};
    int64_t size = 0;
    VT_TRY(vt_file_open(path, file, &size));
    VT_CHECK(fgetc(*file) != EOF || !ferror(*file), "can't read %s: %s", path, strerror(errno));
    rewind(*file);
    VT_TRY(read_header(path, *file, &header));
    VT_ASSERT(header != NULL);
    VT_TRY(parse_type(path, header, &array->element_size));
    VT_TRY(parse_shape(path, header, &array->shape));
    array->offset = ftell(*file);
    const int64_t count = vt_tensor_count(&array->shape);
    const int64_t there = (size - array->offset) / (int64_t)array->element_size;
    VT_CHECK(there >= count, "%s: cut short: its header promises %ld values, but %ld are there", path, count, there);
done:
    free(header);
    return status;
}

vt_status vt_npy_look(const char *path, vt_npy *array)
{
    FILE *file = NULL;
    const vt_status status = look(path, &file, array);
    if (file != NULL) fclose(file);
    return status;
}

vt_status vt_npy_open(const char *path, vt_npy *array)
{
    vt_status status = VT_OK;
    FILE *file = NULL;
    VT_TRY(look(path, &file, array));
    VT_TRY(read_values(path, file, array));
done:
    if (file != NULL) fclose(file);
    if (status != VT_OK) vt_npy_close(array);
    return status;
}

void vt_npy_close(vt_npy *array)
{
    free(array->values);
    *array = (vt_npy){0};
}

/* Magic, version 1.0, length, and a dictionary padded so that the values start at a multiple of 64 bytes. */
void vt_npy_write_header(FILE *file, const int64_t *shape, int dimensions)
{
    vt_text dictionary = {0};
    vt_text_append(&dictionary, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < dimensions; i++) vt_text_append(&dictionary, "%ld, ", shape[i]);
    vt_text_append(&dictionary, "), }");
    const int length = (int)(10 + dictionary.length + 1 + 63) / 64 * 64 - 10;
    const unsigned char start[4] = {1, 0, (unsigned char)length, (unsigned char)(length >> 8)};
    fwrite(magic, 1, sizeof magic, file);
    fwrite(start, 1, sizeof start, file);
    fprintf(file, "%-*s\n", length - 1, dictionary.characters);
    vt_text_close(&dictionary);
}

vt_status vt_npy_write(const char *path, const float *values, const int64_t *shape, int dimensions)
{
    vt_status status = VT_OK;
    FILE *file = NULL;
    size_t count = 1;
    VT_TRY(vt_output_open(path, &file));
    for (int i = 0; i < dimensions; i++) count *= (size_t)shape[i];
    vt_npy_write_header(file, shape, dimensions);
    fwrite(values, sizeof *values, count, file);
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}
