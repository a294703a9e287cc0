/* What the metadata of a Zarr array say: its shape and type, and how it is stored. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/text.h"
#include "storage/zarr_inside.h"

/* ---- an array: shape and type ---- */

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

static vt_status take_sizes(const json_t *list, int rank, int64_t least, const char *what, int64_t *sizes)
{
    vt_status status = VT_OK;
    VT_CHECK(json_is_array(list) && json_array_size(list) == (size_t)rank, "its %s is no list of %d numbers", what,
             rank);
    for (int i = 0; i < rank; i++) {
        const json_t *size = json_array_get(list, (size_t)i);
        VT_CHECK(json_is_integer(size) && json_integer_value(size) >= least &&
                     json_integer_value(size) < INT64_MAX / 16,
                 "its %s has no number of at least %lld at place %d", what, (long long)least, i);
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

/* The chunks of such an array hold whole grids. */
static vt_status take_cell_chunks(vt_zarr_array *own, int version)
{
    vt_status status = VT_OK;
    const int64_t *grid = own->extent + own->array.rank - 2;
    const json_t *chunks = json_object_get(own->node->metadata, "chunks");
    const json_int_t cells = json_integer_value(json_array_get(chunks, json_array_size(chunks) - 1));
    VT_CHECK(
        version == 2 && cells == grid[0] * grid[1],
        "its chunks hold parts of a grid, which is not read; anemoi's own are of version 2, with all cells in each");
done:
    return status;
}

static void take_type_of(vt_array *array, vt_numbers numbers, bool is_signed, size_t size)
{
    array->numbers = numbers;
    array->is_signed = is_signed;
    array->element_size = size;
}

/* NumPy's "<f4", "|u1", "<M8[ns]" */
static void take_type_2(vt_zarr_array *own, const char *type)
{
    vt_array *array = &own->array;
    static const struct {
        const char *brackets, *units;
    } dates[] = {{"[ns]", "nanoseconds since 1970-01-01"},  {"[us]", "microseconds since 1970-01-01"},
                 {"[ms]", "milliseconds since 1970-01-01"}, {"[s]", "seconds since 1970-01-01"},
                 {"[m]", "minutes since 1970-01-01"},       {"[h]", "hours since 1970-01-01"},
                 {"[D]", "days since 1970-01-01"}};
    if (strlen(type) < 3 || strchr("<>|", type[0]) == NULL) return;
    const int size = type[2] - '0';
    const bool whole = size == 1 || size == 2 || size == 4 || size == 8;
    array->swapped = type[0] == '>' && size > 1;
    if (type[1] == 'M' && size == 8) {
        for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++)
            if (strcmp(type + 3, dates[i].brackets) == 0) own->dates = dates[i].units;
        if (own->dates != NULL) take_type_of(array, VT_NUMBERS_INTEGER, true, 8);
    } else if (type[3] != '\0' || !whole) {
        return;
    } else if (type[1] == 'f' && size > 1) {
        take_type_of(array, VT_NUMBERS_FLOAT, true, (size_t)size);
    } else if (strchr("iub", type[1]) != NULL) {
        take_type_of(array, VT_NUMBERS_INTEGER, type[1] == 'i', (size_t)size);
    }
}

/* "float32", or an object that describes a type, like numpy.datetime64. */
static void take_type_3(vt_zarr_array *own, const json_t *type)
{
    static const char *const names[][2] = {{"float16", "<f2"}, {"float32", "<f4"}, {"float64", "<f8"}, {"int8", "<i1"},
                                           {"int16", "<i2"},   {"int32", "<i4"},   {"int64", "<i8"},   {"uint8", "<u1"},
                                           {"uint16", "<u2"},  {"uint32", "<u4"},  {"uint64", "<u8"},  {"bool", "<b1"}};
    const char *name = json_string_value(type);
    for (size_t i = 0; name != NULL && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i][0]) == 0) take_type_2(own, names[i][1]);
    const char *object = json_string_value(json_object_get(type, "name"));
    const json_t *settings = json_object_get(type, "configuration");
    if (object != NULL && strcmp(object, "numpy.datetime64") == 0 &&
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
    VT_TRY(take_sizes(shape, array->rank, 0, "shape", own->extent));
    take_cells(own);
    for (int i = 0; i < array->rank; i++) {
        own->stored_as[i] = i;
        array->extent[i] = own->extent[i];
    }
    array->layout = VT_LAYOUT_CHUNKED;
    array->element_size = 1;
    const json_t *type = json_object_get(metadata, version == 3 ? "data_type" : "dtype");
    if (version == 3)
        take_type_3(own, type);
    else if (json_is_string(type))
        take_type_2(own, json_string_value(type));
done:
    return status;
}

/* ---- an array: how it is stored ---- */

static const char *const codec_names[] = {
    [VT_CODEC_BLOSC] = "blosc", [VT_CODEC_ZSTD] = "zstd",     [VT_CODEC_LZ4] = "lz4", [VT_CODEC_GZIP] = "gzip",
    [VT_CODEC_ZLIB] = "zlib",   [VT_CODEC_CRC32C] = "crc32c", [VT_CODEC_KINDS] = NULL};

/* A codec that makes bytes of bytes, with its settings. */
static vt_status add_codec(const char *name, const json_t *settings, vt_codecs *codecs, vt_text *words)
{
    vt_status status = VT_OK;
    const char *place = name != NULL && strncmp(name, "numcodecs.", 10) == 0 ? name + 10 : name;
    const int kind = place != NULL ? vt_text_place(place, strlen(place), codec_names) : -1;
    VT_CHECK(kind >= 0,
             "it is compressed with the codec or filter '%s', which is not read; blosc, zstd, lz4, gzip, zlib and "
             "crc32c are",
             name != NULL ? name : "(without a name)");
    VT_CHECK(codecs->count < VT_CODECS, "it has more than %d codecs", VT_CODECS);
    codecs->kinds[codecs->count++] = (vt_codec_kind)kind;
    vt_text_append(words, ", %s", place);
    const char *inner = json_string_value(json_object_get(settings, "cname"));
    VT_CHECK(inner == NULL || strcmp(inner, "snappy") != 0, "it is compressed with blosc's snappy, which is not read");
    if (inner != NULL) vt_text_append(words, " (%s)", inner);
done:
    return status;
}

/* Strides of a chunk whose dimension order[0] is the slowest. */
static void take_strides(vt_zarr_array *own, const int *order)
{
    int64_t stride = 1;
    for (int i = own->array.rank - 1; i >= 0; i--) {
        own->stride[order[i]] = stride;
        stride *= own->chunk[order[i]];
    }
}

static vt_status take_storage_2(vt_zarr_array *own, vt_text *words)
{
    vt_status status = VT_OK;
    const json_t *metadata = own->node->metadata, *filters = json_object_get(metadata, "filters");
    const json_t *compressor = json_object_get(metadata, "compressor");
    const char *order = json_string_value(json_object_get(metadata, "order"));
    const char *separator = json_string_value(json_object_get(metadata, "dimension_separator"));
    const int rank = own->array.rank;
    int dimensions[VT_ARRAY_RANK] = {0};
    if (own->has_cells && rank == 2)
        memcpy(own->chunk, own->extent, 2 * sizeof *own->chunk);
    else
        VT_TRY(take_sizes(json_object_get(metadata, "chunks"), rank, 1, "chunks", own->chunk));
    if (own->has_cells) memcpy(own->chunk + rank - 2, own->extent + rank - 2, 2 * sizeof *own->chunk);
    const bool reversed = order != NULL && strcmp(order, "F") == 0;
    VT_CHECK(reversed || (order != NULL && strcmp(order, "C") == 0), "its order is neither C nor F");
    VT_CHECK(separator == NULL || strcmp(separator, ".") == 0 || strcmp(separator, "/") == 0,
             "the separator of its chunks' names is not . or /");
    VT_CHECK(filters == NULL || json_is_null(filters) || json_is_array(filters), "its filters are no list");
    VT_CHECK(compressor == NULL || json_is_null(compressor) || json_is_object(compressor),
             "its compressor has no settings");
    for (int i = 0; i < rank; i++) dimensions[i] = reversed ? rank - 1 - i : i;
    take_strides(own, dimensions);
    memcpy(own->shard, own->chunk, sizeof own->shard);
    own->separator = separator != NULL && strcmp(separator, "/") == 0 ? '/' : '.';
    for (size_t i = 0; i < json_array_size(filters); i++) {
        const json_t *filter = json_array_get(filters, i);
        VT_TRY(add_codec(json_string_value(json_object_get(filter, "id")), filter, &own->codecs, words));
    }
    if (json_is_object(compressor))
        VT_TRY(add_codec(json_string_value(json_object_get(compressor, "id")), compressor, &own->codecs, words));
    if (reversed) vt_text_append(words, ", the first dimension fastest");
done:
    return status;
}

/* The order of dimensions that `transpose` gives: a permutation. */
static vt_status take_transpose(const json_t *settings, int rank, int *order)
{
    vt_status status = VT_OK;
    const json_t *list = json_object_get(settings, "order");
    int64_t places[VT_ARRAY_RANK];
    int before[VT_ARRAY_RANK];
    unsigned seen = 0;
    VT_TRY(take_sizes(list, rank, 0, "transpose's order", places));
    memcpy(before, order, sizeof before);
    for (int i = 0; i < rank; i++) {
        VT_CHECK(places[i] < rank && (seen >> places[i] & 1) == 0, "its transpose's order is no permutation");
        seen |= 1U << places[i];
        order[i] = before[places[i]];
    }
done:
    return status;
}

static vt_status take_codecs_3(vt_zarr_array *own, const json_t *list, bool in_shard, vt_codecs *codecs, int *order,
                               vt_text *words);

static vt_status take_sharding(vt_zarr_array *own, const json_t *settings, int *order, vt_text *words)
{
    vt_status status = VT_OK;
    const int rank = own->array.rank;
    const char *place = json_string_value(json_object_get(settings, "index_location"));
    vt_text unused = {0};
    int64_t count = 2;
    VT_TRY(take_sizes(json_object_get(settings, "chunk_shape"), rank, 1, "chunk_shape", own->chunk));
    for (int i = 0; i < rank; i++) {
        VT_CHECK(own->shard[i] % own->chunk[i] == 0, "its shards hold no whole number of chunks");
        VT_CHECK(!__builtin_mul_overflow(count, own->shard[i] / own->chunk[i], &count) && count < INT32_MAX,
                 "its shards hold too many chunks");
    }
    own->is_sharded = true;
    own->index_first = place != NULL && strcmp(place, "start") == 0;
    vt_text_append(words, " in shards of [");
    for (int i = 0; i < rank; i++) vt_text_append(words, "%s%lld", i > 0 ? ", " : "", (long long)own->shard[i]);
    vt_text_append(words, "]");
    VT_TRY(take_codecs_3(own, json_object_get(settings, "codecs"), true, &own->codecs, order, words));
    VT_TRY(take_codecs_3(own, json_object_get(settings, "index_codecs"), true, &own->index_codecs, NULL, &unused));
    for (int i = 0; i < own->index_codecs.count; i++)
        VT_CHECK(own->index_codecs.kinds[i] == VT_CODEC_CRC32C, "the index of its shards is compressed");
done:
    vt_text_close(&unused);
    return status;
}

/* `order` NULL: of an index, whose numbers are always little endian here. */
static vt_status take_codecs_3(vt_zarr_array *own, const json_t *list, bool in_shard, vt_codecs *codecs, int *order,
                               vt_text *words)
{
    vt_status status = VT_OK;
    bool are_bytes = false;
    VT_CHECK(json_is_array(list), "its metadata have no list of codecs");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *codec = json_array_get(list, i), *settings = json_object_get(codec, "configuration");
        const char *name = json_string_value(json_is_string(codec) ? codec : json_object_get(codec, "name"));
        const bool is_bytes = name != NULL && strcmp(name, "bytes") == 0;
        if (name != NULL && strcmp(name, "transpose") == 0 && order != NULL && !are_bytes) {
            VT_TRY(take_transpose(settings, own->array.rank, order));
            vt_text_append(words, ", transposed");
        } else if (is_bytes && !are_bytes) {
            const char *endian = json_string_value(json_object_get(settings, "endian"));
            const bool big = endian != NULL && strcmp(endian, "big") == 0;
            VT_CHECK(order != NULL || !big, "the index of its shards is big endian");
            if (order != NULL) own->array.swapped = big && own->array.element_size > 1;
            are_bytes = true;
        } else if (name != NULL && strcmp(name, "sharding_indexed") == 0 && !in_shard && !are_bytes) {
            for (int d = 0; d < own->array.rank; d++)
                VT_CHECK(order[d] == d, "its shards are transposed as a whole, which is not read");
            VT_TRY(take_sharding(own, settings, order, words));
            are_bytes = true;
        } else {
            VT_CHECK(are_bytes && (in_shard || !own->is_sharded), "its codec or filter '%s' is not read there",
                     name != NULL ? name : "(without a name)");
            VT_TRY(add_codec(name, settings, codecs, words));
        }
    }
    VT_CHECK(are_bytes, "its codecs lack 'bytes'");
done:
    return status;
}

static vt_status take_storage_3(vt_zarr_array *own, vt_text *words)
{
    vt_status status = VT_OK;
    const json_t *metadata = own->node->metadata, *grid = json_object_get(metadata, "chunk_grid");
    const json_t *keys = json_object_get(metadata, "chunk_key_encoding");
    const char *grid_name = json_string_value(json_object_get(grid, "name"));
    const char *key_name = json_string_value(json_object_get(keys, "name"));
    const char *separator = json_string_value(json_object_get(json_object_get(keys, "configuration"), "separator"));
    const json_t *transformers = json_object_get(metadata, "storage_transformers");
    int order[VT_ARRAY_RANK] = {0};
    VT_CHECK(grid_name != NULL && strcmp(grid_name, "regular") == 0, "its chunk grid '%s' is not read; 'regular' is",
             grid_name != NULL ? grid_name : "(without a name)");
    VT_CHECK(json_array_size(transformers) == 0, "it has a storage transformer, which is not read");
    VT_TRY(take_sizes(json_object_get(json_object_get(grid, "configuration"), "chunk_shape"), own->array.rank, 1,
                      "chunk_shape", own->chunk));
    memcpy(own->shard, own->chunk, sizeof own->shard);
    own->has_prefix = key_name == NULL || strcmp(key_name, "v2") != 0;
    VT_CHECK(key_name == NULL || !own->has_prefix || strcmp(key_name, "default") == 0,
             "its chunk_key_encoding '%s' is not read", key_name);
    own->separator = separator != NULL ? separator[0] : own->has_prefix ? '/' : '.';
    VT_CHECK(own->separator == '/' || own->separator == '.', "the separator of its chunks' names is not . or /");
    for (int i = 0; i < own->array.rank; i++) order[i] = i;
    VT_TRY(take_codecs_3(own, json_object_get(metadata, "codecs"), false, &own->codecs, order, words));
    take_strides(own, order);
done:
    return status;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *place = c != '\0' ? strchr(digits, c) : NULL;
    return place != NULL ? (int)(place - digits) : -1;
}

static bool from_base64(const char *text, double *value)
{
    unsigned char bytes[9] = {0};
    if (strlen(text) != 12 || text[11] != '=') return false;
    for (int i = 0; i < 11; i++) {
        const int digit = base64_digit(text[i]);
        if (digit < 0) return false;
        for (int bit = 0; bit < 6; bit++) {
            const int at = 6 * i + bit;
            if ((digit >> (5 - bit) & 1) != 0) bytes[at / 8] |= (unsigned char)(0x80 >> at % 8);
        }
    }
    memcpy(value, bytes, sizeof *value);
    return true;
}

/* The bits of a float type as a number. */
static bool from_bits(const char *text, size_t size, double *value)
{
    char *end = NULL;
    const unsigned long long bits = strtoull(text, &end, 16);
    if (strncmp(text, "0x", 2) != 0 || *end != '\0') return false;
    float single;
    const uint32_t low = (uint32_t)bits;
    memcpy(&single, &low, sizeof single);
    *value = (double)single;
    if (size == 8) memcpy(value, &bits, sizeof *value);
    if (size == 2) *value = (double)vt_float16_widen((uint16_t)bits);
    return true;
}

bool vt_zarr_number(const json_t *json, const vt_array *array, double *value)
{
    const char *text = json_string_value(json);
    *value = json_is_true(json) ? 1 : json_number_value(json);
    if (json_is_number(json) || json_is_boolean(json)) return true;
    if (text == NULL) return false;
    *value = strcmp(text, "NaN") == 0         ? (double)NAN
             : strcmp(text, "Infinity") == 0  ? (double)INFINITY
             : strcmp(text, "-Infinity") == 0 ? -(double)INFINITY
                                              : 0;
    return *value != 0 || from_bits(text, array->element_size, value) || from_base64(text, value);
}

/* The fill value as an element is stored; null is 0. */
static vt_status take_fill(vt_zarr_array *own)
{
    vt_status status = VT_OK;
    vt_array *array = &own->array;
    const json_t *fill = json_object_get(own->node->metadata, "fill_value");
    unsigned char *bytes = array->fill;
    double value = 0;
    VT_CHECK(fill == NULL || json_is_null(fill) || vt_zarr_number(fill, array, &value), "its fill_value is no number");
    const float single = (float)value;
    const uint16_t half = vt_float16_round(single);
    const int64_t whole = json_is_integer(fill) ? json_integer_value(fill) : fabs(value) < 9e18 ? (int64_t)value : 0;
    if (array->numbers == VT_NUMBERS_INTEGER)
        memcpy(bytes, &whole, sizeof whole); /* little endian: the low bytes come first */
    else if (array->element_size == 8)
        memcpy(bytes, &value, sizeof value);
    else if (array->element_size == 4)
        memcpy(bytes, &single, sizeof single);
    else
        memcpy(bytes, &half, sizeof half);
    for (size_t i = 0; array->swapped && i < array->element_size / 2; i++) {
        const unsigned char byte = bytes[i];
        bytes[i] = bytes[array->element_size - 1 - i];
        bytes[array->element_size - 1 - i] = byte;
    }
done:
    return status;
}

vt_status vt_zarr_take_storage(vt_zarr_array *own, int version, char **storage)
{
    vt_status status = VT_OK;
    vt_text words = {0}, sizes = {0};
    int64_t bytes = (int64_t)own->array.element_size;
    own->codecs = own->index_codecs = (vt_codecs){0};
    own->is_sharded = false;
    vt_text_append(&words, "%s", "");
    VT_TRY((version == 3 ? take_storage_3 : take_storage_2)(own, &words));
    if (own->has_cells) VT_TRY(take_cell_chunks(own, version));
    for (int i = 0; i < own->array.rank; i++)
        VT_CHECK(!__builtin_mul_overflow(bytes, own->chunk[i], &bytes) && bytes <= INT32_MAX,
                 "its chunks are larger than 2 GB");
    VT_TRY(vt_codecs_check(&own->codecs));
    VT_TRY(take_fill(own));
    vt_text_append(&sizes, "chunks of [");
    for (int i = 0; i < own->array.rank; i++)
        vt_text_append(&sizes, "%s%lld", i > 0 ? ", " : "", (long long)own->chunk[i]);
    vt_text_append(&sizes, "]%s%s", words.characters, own->codecs.count == 0 ? ", not compressed" : "");
    *storage = sizes.characters;
    sizes = (vt_text){0};
done:
    vt_text_close(&words);
    vt_text_close(&sizes);
    return status;
}
