/* What the metadata of a Zarr array say of its shape, its type and its fill value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/text.h"
#include "storage/zarr_inside.h"

/* ---- shape and type ---- */

const char *vt_zarr_name(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key)) ?: "(without a name)";
}

const json_t *vt_zarr_attribute(const vt_zarr_array *own, const char *name)
{
    return json_object_get(own->node->attributes, name);
}

const char *vt_zarr_dimension(const vt_zarr_array *own, int stored_dimension)
{
    const json_t *names = json_object_get(own->node->metadata, "dimension_names");
    if (!json_is_array(names)) names = vt_zarr_attribute(own, "_ARRAY_DIMENSIONS");
    return json_string_value(json_array_get(names, (size_t)stored_dimension));
}

vt_status vt_zarr_sizes(const json_t *list, int rank, int64_t least, const char *what, int64_t *sizes)
{
    vt_status status = VT_OK;
    VT_CHECK(json_is_array(list) && json_array_size(list) == (size_t)rank, "its %s is no list of %d numbers", what,
             rank);
    for (int i = 0; i < rank; i++) {
        const json_t *size = json_array_get(list, (size_t)i);
        VT_CHECK(json_is_integer(size) && json_integer_value(size) >= least &&
                     json_integer_value(size) < INT64_MAX / 16,
                 "its %s has no number of at least %ld at place %d", what, least, i);
        sizes[i] = json_integer_value(size);
    }
done:
    return status;
}

bool vt_zarr_cells(const vt_zarr_store *store, int64_t *rows, int64_t *columns)
{
    const json_t *shape = json_object_get(store->attributes, "field_shape");
    *rows = json_integer_value(json_array_get(shape, 0));
    *columns = json_integer_value(json_array_get(shape, 1));
    return json_array_size(shape) == 2 && json_is_array(json_object_get(store->attributes, "variables")) && *rows > 0 &&
           *columns > 0 && *rows < INT32_MAX && *columns < INT32_MAX;
}

/* anemoi's arrays: data [dates, variables, 1, cells] becomes [dates, variables, rows, columns], and latitudes and
 * longitudes [cells] become [rows, columns]. */
static void take_cells(vt_zarr_array *own)
{
    vt_array *array = &own->array;
    int64_t grid[2];
    const bool is_data = strcmp(own->node->name, "data") == 0 && array->rank == 4 && own->extent[2] == 1;
    const bool is_place =
        array->rank == 1 && (strcmp(own->node->name, "latitudes") == 0 || strcmp(own->node->name, "longitudes") == 0);
    if ((!is_data && !is_place) || !vt_zarr_cells((const vt_zarr_store *)array->store, &grid[0], &grid[1])) return;
    if (own->extent[array->rank - 1] != grid[0] * grid[1]) return;
    own->has_cells = true;
    if (is_place) array->rank = 2;
    memcpy(own->extent + array->rank - 2, grid, sizeof grid);
}

/* names: what the kinds of vt_element are called, from FLOAT16 on. Of another name it stays NONE. */
static void take_element(vt_array *array, const char *name, const char *names)
{
    array->element = (vt_element)(vt_text_choice(name, names) + VT_ELEMENT_FLOAT16);
    if (array->element != VT_ELEMENT_NONE) array->element_size = (size_t)vt_element_size(array->element);
}

/* NumPy's "<f4", "|u1", "<M8[ns]" */
static void take_type_2(vt_zarr_array *own, const char *type)
{
    vt_array *array = &own->array;
    static const struct {
        const char *name, *units;
    } dates[] = {{"M8[ns]", "nanoseconds since 1970-01-01"},  {"M8[us]", "microseconds since 1970-01-01"},
                 {"M8[ms]", "milliseconds since 1970-01-01"}, {"M8[s]", "seconds since 1970-01-01"},
                 {"M8[m]", "minutes since 1970-01-01"},       {"M8[h]", "hours since 1970-01-01"},
                 {"M8[D]", "days since 1970-01-01"}};
    if (type[0] == '\0' || strchr("<>|", type[0]) == NULL) return;
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++)
        if (strcmp(type + 1, dates[i].name) == 0) own->dates = dates[i].units;
    take_element(array, own->dates != NULL ? "i8" : type + 1, "f2|f4|f8|i1|u1|i2|u2|i4|u4|i8|u8");
    array->swapped = type[0] == '>' && array->element_size > 1;
}

/* "float32", or an object that describes a type, like numpy.datetime64. */
static void take_type_3(vt_zarr_array *own, const json_t *type)
{
    if (json_is_string(type))
        take_element(&own->array, json_string_value(type),
                     "float16|float32|float64|int8|uint8|int16|uint16|int32|uint32|int64|uint64");
    const json_t *settings = json_object_get(type, "configuration");
    if (strcmp(vt_zarr_name(type, "name"), "numpy.datetime64") == 0 &&
        json_integer_value(json_object_get(settings, "scale_factor")) == 1) {
        char *as_numpy = vt_text_format("<M8[%s]", json_string_value(json_object_get(settings, "unit")) ?: "");
        take_type_2(own, as_numpy);
        free(as_numpy);
    }
}

vt_status vt_zarr_take_form(vt_zarr_array *own, int version)
{
    vt_status status = VT_OK;
    vt_array *array = &own->array;
    const json_t *metadata = own->node->metadata, *shape = json_object_get(metadata, "shape");
    const json_t *format = json_object_get(metadata, "zarr_format");
    VT_CHECK(format == NULL || json_integer_value(format) == version, "its zarr_format is not %d, as the store's is",
             version);
    VT_CHECK(json_is_array(shape), "its metadata have no shape");
    array->rank = (int)json_array_size(shape);
    VT_CHECK(array->rank <= VT_ARRAY_RANK, "it has %d dimensions, and %d at most can be read", array->rank,
             VT_ARRAY_RANK);
    VT_TRY(vt_zarr_sizes(shape, array->rank, 0, "shape", own->extent));
    take_cells(own);
    for (int i = 0; i < array->rank; i++) {
        own->stored_as[i] = i;
        array->extent[i] = own->extent[i];
    }
    array->layout = VT_LAYOUT_CHUNKED;
    array->element_size = 1;
    const json_t *type = json_object_get(metadata, version == 3 ? "data_type" : "dtype");
    array->type = json_string_value(json_is_object(type) ? json_object_get(type, "name") : type);
    if (version == 3)
        take_type_3(own, type);
    else if (json_is_string(type))
        take_type_2(own, json_string_value(type));
done:
    return status;
}

/* ---- numbers, and the fill value ---- */

/* Of eight bytes, the first of which comes first; the last of eleven digits has two bits too many. */
static bool from_base64(const char *text, double *value)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t bits = 0;
    if (strlen(text) != 12 || text[11] != '=') return false;
    for (int i = 0; i < 11; i++) {
        const char *place = strchr(digits, text[i]);
        if (place == NULL) return false;
        const uint64_t digit = (uint64_t)(place - digits);
        bits = i < 10 ? bits << 6 | digit : bits << 4 | digit >> 2;
    }
    bits = __builtin_bswap64(bits);
    memcpy(value, &bits, sizeof *value);
    return true;
}

/* A number from the bits of an element in hexadecimal, "0x7fc00000". */
static bool from_bits(const char *text, const vt_array *array, double *value)
{
    char *end = NULL;
    const uint64_t bits = strtoull(text, &end, 16);
    if (strncmp(text, "0x", 2) != 0 || *end != '\0' || array->element == VT_ELEMENT_NONE) return false;
    *value = vt_element_number(array->element, &bits);
    return true;
}

bool vt_zarr_number(const json_t *json, const vt_array *array, double *value)
{
    const char *text = json_string_value(json);
    *value = json_number_value(json);
    if (json_is_number(json)) return true;
    if (text == NULL) return false;
    *value = strcmp(text, "NaN") == 0         ? (double)NAN
             : strcmp(text, "Infinity") == 0  ? (double)INFINITY
             : strcmp(text, "-Infinity") == 0 ? -(double)INFINITY
                                              : 0;
    return *value != 0 || from_bits(text, array, value) || from_base64(text, value);
}

vt_status vt_zarr_take_fill(vt_zarr_array *own)
{
    vt_status status = VT_OK;
    vt_array *array = &own->array;
    const json_t *fill = json_object_get(own->node->metadata, "fill_value");
    double value = 0;
    VT_CHECK(fill == NULL || json_is_null(fill) || vt_zarr_number(fill, array, &value), "its fill_value is no number");
    const int64_t whole = json_is_integer(fill) ? json_integer_value(fill) : fabs(value) < 9e18 ? (int64_t)value : 0;
    const float single = array->element_size < 8 ? (float)value : 0;
    const uint16_t half = vt_float16_round(single);
    const size_t size = array->element_size;
    const void *stored = &whole; /* its low bytes come first, as on all of our machines */
    if (vt_element_is_float(array->element))
        stored = size == 8 ? (const void *)&value : size == 4 ? (const void *)&single : &half;
    for (size_t i = 0; i < size; i++)
        array->fill[i] = ((const unsigned char *)stored)[array->swapped ? size - 1 - i : i];
done:
    return status;
}
