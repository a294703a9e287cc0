/* What the metadata of a Zarr array say of how it is stored: its chunks, shards and codecs, and its fill value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/text.h"
#include "storage/zarr_inside.h"

/* ---- numbers, and the fill value ---- */

/* A float64, its lowest byte first, from eleven digits and a "="; the last digit has two unused bits. */
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

/* The fill value as an element is stored; null is 0. The error is a cause. */
static vt_status take_fill(vt_zarr_array *own)
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

/* ---- chunks, shards and codecs ---- */

static void append_sizes(vt_text *words, const char *what, const int64_t *sizes, int rank)
{
    vt_text_append(words, "%s [", what);
    for (int i = 0; i < rank; i++) vt_text_append(words, "%s%ld", i > 0 ? ", " : "", sizes[i]);
    vt_text_append(words, "]");
}

/* Adds a codec from bytes to bytes, with its settings. */
static vt_status add_codec(const char *name, const json_t *settings, vt_pipeline *codecs, vt_text *words)
{
    vt_status status = VT_OK;
    const char *place = strncmp(name, "numcodecs.", 10) == 0 ? name + 10 : name;
    const vt_filter filter = vt_filter_of_zarr(place);
    VT_CHECK(filter != VT_FILTER_KINDS,
             "it is compressed with the codec or filter '%s', which is not read; blosc, zstd, lz4, gzip, zlib and "
             "crc32c are",
             name);
    VT_CHECK(codecs->count < VT_FILTERS, "it has more than %d codecs", VT_FILTERS);
    codecs->filters[codecs->count++] = filter;
    vt_text_append(words, ", %s", place);
    const char *inner = json_string_value(json_object_get(settings, "cname"));
    VT_CHECK(inner == NULL || strcmp(inner, "snappy") != 0, "it is compressed with blosc's snappy, which is not read");
    if (inner != NULL) vt_text_append(words, " (%s)", inner);
done:
    return status;
}

/* order: 0, 1, …, which becomes the dimensions of a chunk from the slowest to the fastest. */
static vt_status take_storage_2(vt_zarr_array *own, int *order, vt_text *words)
{
    vt_status status = VT_OK;
    const json_t *metadata = own->node->metadata, *filters = json_object_get(metadata, "filters");
    const json_t *compressor = json_object_get(metadata, "compressor");
    const char *order_name = json_string_value(json_object_get(metadata, "order"));
    const char *separator = json_string_value(json_object_get(metadata, "dimension_separator"));
    const int rank = own->array.rank;
    if (!own->has_cells || rank > 2)
        VT_TRY(vt_zarr_sizes(json_object_get(metadata, "chunks"), rank, 1, "chunks", own->chunk));
    if (own->has_cells) memcpy(own->chunk + rank - 2, own->extent + rank - 2, 2 * sizeof *own->chunk);
    const bool reversed = order_name != NULL && strcmp(order_name, "F") == 0;
    VT_CHECK(reversed || (order_name != NULL && strcmp(order_name, "C") == 0), "its order is neither C nor F");
    VT_CHECK(separator == NULL || strcmp(separator, ".") == 0 || strcmp(separator, "/") == 0,
             "the separator of its chunks' names is not . or /");
    VT_CHECK(filters == NULL || json_is_null(filters) || json_is_array(filters), "its filters are no list");
    VT_CHECK(compressor == NULL || json_is_null(compressor) || json_is_object(compressor),
             "its compressor has no settings");
    for (int i = 0; i < rank && reversed; i++) order[i] = rank - 1 - i;
    memcpy(own->shard, own->chunk, sizeof own->shard);
    own->separator = separator != NULL && strcmp(separator, "/") == 0 ? '/' : '.';
    for (size_t i = 0; i < json_array_size(filters); i++) {
        const json_t *filter = json_array_get(filters, i);
        VT_TRY(add_codec(vt_zarr_name(filter, "id"), filter, &own->array.pipeline, words));
    }
    if (json_is_object(compressor))
        VT_TRY(add_codec(vt_zarr_name(compressor, "id"), compressor, &own->array.pipeline, words));
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
    VT_TRY(vt_zarr_sizes(list, rank, 0, "transpose's order", places));
    memcpy(before, order, sizeof before);
    for (int i = 0; i < rank; i++) {
        VT_CHECK(places[i] < rank && (seen >> places[i] & 1) == 0, "its transpose's order is no permutation");
        seen |= 1U << places[i];
        order[i] = before[places[i]];
    }
done:
    return status;
}

static vt_status take_codecs_3(vt_zarr_array *own, const json_t *list, bool in_shard, vt_pipeline *codecs, int *order,
                               vt_text *words);

static vt_status take_sharding(vt_zarr_array *own, const json_t *settings, int *order, vt_text *words)
{
    vt_status status = VT_OK;
    const int rank = own->array.rank;
    const char *place = json_string_value(json_object_get(settings, "index_location"));
    vt_text unused = {0};
    int64_t count = 2;
    VT_TRY(vt_zarr_sizes(json_object_get(settings, "chunk_shape"), rank, 1, "chunk_shape", own->chunk));
    for (int i = 0; i < rank; i++) {
        VT_CHECK(own->shard[i] % own->chunk[i] == 0, "its shards hold no whole number of chunks");
        VT_CHECK(!__builtin_mul_overflow(count, own->shard[i] / own->chunk[i], &count) && count < INT32_MAX,
                 "its shards hold too many chunks");
    }
    own->is_sharded = true;
    own->index_first = place != NULL && strcmp(place, "start") == 0;
    append_sizes(words, " in shards of", own->shard, rank);
    VT_TRY(take_codecs_3(own, json_object_get(settings, "codecs"), true, &own->array.pipeline, order, words));
    VT_TRY(take_codecs_3(own, json_object_get(settings, "index_codecs"), true, &own->index_codecs, NULL, &unused));
    for (int i = 0; i < own->index_codecs.count; i++)
        VT_CHECK(own->index_codecs.filters[i] == VT_FILTER_CRC32C, "the index of its shards is compressed");
done:
    vt_text_close(&unused);
    return status;
}

/* `order` NULL: of an index, whose numbers are always little endian here. */
static vt_status take_codecs_3(vt_zarr_array *own, const json_t *list, bool in_shard, vt_pipeline *codecs, int *order,
                               vt_text *words)
{
    vt_status status = VT_OK;
    bool are_bytes = false;
    VT_CHECK(json_is_array(list), "its metadata have no list of codecs");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *codec = json_array_get(list, i), *settings = json_object_get(codec, "configuration");
        const char *name = json_is_string(codec) ? json_string_value(codec) : vt_zarr_name(codec, "name");
        if (strcmp(name, "transpose") == 0 && order != NULL && !are_bytes) {
            VT_TRY(take_transpose(settings, own->array.rank, order));
            vt_text_append(words, ", transposed");
        } else if (strcmp(name, "bytes") == 0 && !are_bytes) {
            const char *endian = json_string_value(json_object_get(settings, "endian"));
            const bool big = endian != NULL && strcmp(endian, "big") == 0;
            VT_CHECK(order != NULL || !big, "the index of its shards is big endian");
            if (order != NULL) own->array.swapped = big && own->array.element_size > 1;
            are_bytes = true;
        } else if (strcmp(name, "sharding_indexed") == 0 && !in_shard && !are_bytes) {
            for (int d = 0; d < own->array.rank; d++)
                VT_CHECK(order[d] == d, "its shards are transposed as a whole, which is not read");
            VT_TRY(take_sharding(own, settings, order, words));
            are_bytes = true;
        } else {
            VT_CHECK(are_bytes && (in_shard || !own->is_sharded), "its codec or filter '%s' is not read there", name);
            VT_TRY(add_codec(name, settings, codecs, words));
        }
    }
    VT_CHECK(are_bytes, "its codecs lack 'bytes'");
done:
    return status;
}

static vt_status take_storage_3(vt_zarr_array *own, int *order, vt_text *words)
{
    vt_status status = VT_OK;
    const json_t *metadata = own->node->metadata, *grid = json_object_get(metadata, "chunk_grid");
    const json_t *keys = json_object_get(metadata, "chunk_key_encoding");
    const char *grid_name = vt_zarr_name(grid, "name");
    const char *key_name = json_string_value(json_object_get(keys, "name"));
    const char *separator = json_string_value(json_object_get(json_object_get(keys, "configuration"), "separator"));
    const json_t *transformers = json_object_get(metadata, "storage_transformers");
    VT_TRY(vt_zarr_check_extensions(metadata));
    VT_CHECK(strcmp(grid_name, "regular") == 0, "its chunk grid '%s' is not read; 'regular' is", grid_name);
    VT_CHECK(json_array_size(transformers) == 0, "it has the storage transformer '%s', which is not read",
             vt_zarr_name(json_array_get(transformers, 0), "name"));
    VT_TRY(vt_zarr_sizes(json_object_get(json_object_get(grid, "configuration"), "chunk_shape"), own->array.rank, 1,
                         "chunk_shape", own->chunk));
    memcpy(own->shard, own->chunk, sizeof own->shard);
    own->has_prefix = key_name == NULL || strcmp(key_name, "v2") != 0;
    VT_CHECK(key_name == NULL || !own->has_prefix || strcmp(key_name, "default") == 0,
             "its chunk_key_encoding '%s' is not read", key_name);
    own->separator = separator != NULL ? separator[0] : own->has_prefix ? '/' : '.';
    VT_CHECK(own->separator == '/' || own->separator == '.', "the separator of its chunks' names is not . or /");
    VT_TRY(take_codecs_3(own, json_object_get(metadata, "codecs"), false, &own->array.pipeline, order, words));
done:
    return status;
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

vt_status vt_zarr_take_storage(vt_zarr_array *own, int version, char **storage)
{
    vt_status status = VT_OK;
    vt_text words = {0}, sizes = {0};
    int64_t bytes = (int64_t)own->array.element_size, stride = 1;
    int order[VT_ARRAY_RANK] = {0};
    for (int i = 0; i < own->array.rank; i++) order[i] = i;
    own->array.pipeline = own->index_codecs = (vt_pipeline){0};
    own->is_sharded = false;
    vt_text_append(&words, "%s", "");
    VT_TRY((version == 3 ? take_storage_3 : take_storage_2)(own, order, &words));
    if (own->has_cells) VT_TRY(take_cell_chunks(own, version));
    for (int i = 0; i < own->array.rank; i++)
        VT_CHECK(!__builtin_mul_overflow(bytes, own->chunk[i], &bytes) && bytes <= INT32_MAX,
                 "its chunks are larger than 2 GB");
    for (int i = own->array.rank - 1; i >= 0; i--) {
        own->stride[order[i]] = stride;
        stride *= own->chunk[order[i]];
    }
    VT_TRY(vt_pipeline_check(&own->array.pipeline));
    VT_TRY(take_fill(own));
    append_sizes(&sizes, "chunks of", own->chunk, own->array.rank);
    vt_text_append(&sizes, "%s%s", words.characters, own->array.pipeline.count == 0 ? ", not compressed" : "");
    *storage = sizes.characters;
done:
    vt_text_close(&words);
    return status;
}
