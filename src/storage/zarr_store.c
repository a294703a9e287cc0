/* Zarr stores, versions 2 and 3, in a directory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/zarr_inside.h"

extern const vt_store_kind vt_store_zarr;

/* What any build says of a path that it can't read. */
static vt_status check_place(const char *path)
{
    vt_status status = VT_OK;
    struct stat info;
    VT_CHECK(strstr(path, "://") == NULL,
             "%s is a remote store, and only files on disk are read; copy the part that you need first: "
             "xarray.open_zarr('%s').sel(time=slice('2015', '2020'))[['2m_temperature']].to_zarr('era5.zarr') "
             "(docs/data.md, \"Zarr\")",
             path, path);
    VT_CHECK(stat(path, &info) == 0, "can't open %s: %s", path, strerror(errno));
    VT_CHECK(S_ISDIR(info.st_mode), "%s is a file, but a Zarr store is a directory%s", path,
             vt_text_ends_with(path, ".zip") ? "; unzip it" : "");
done:
    return status;
}

/* ---- the store ---- */

static vt_status open_store(const char *path, vt_store **store)
{
    vt_status status = VT_OK;
    *store = NULL;
    VT_TRY(check_place(path));
    vt_zarr_store *own = vt_allocate(1, sizeof *own, "a Zarr store");
    own->store = (vt_store){.kind = &vt_store_zarr, .path = vt_text_copy(path)};
    own->store.descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *store = &own->store;
    VT_CHECK(own->store.descriptor >= 0, "can't open %s: %s", path, strerror(errno));
    VT_TRY(vt_zarr_read_nodes(own));
done:
    if (status != VT_OK) vt_store_close(store);
    return status;
}

/* -1: there is no such directory. */
static int64_t time_of(const vt_store *store, const vt_zarr_node *node, int which)
{
    struct stat info;
    char *name = vt_text_format("%s%s", node->name, which == 0 ? "" : "/c");
    const bool is_there = fstatat(store->descriptor, name, &info, 0) == 0;
    free(name);
    return is_there ? vt_file_changed(&info) : -1;
}

static vt_status check_unchanged(const vt_store *store)
{
    vt_status status = VT_OK;
    const vt_zarr_store *own = (const vt_zarr_store *)store;
    struct stat info;
    if (fstatat(store->descriptor, own->metadata_name, &info, 0) != 0) return VT_OK; /* reading will say why */
    VT_CHECK(info.st_size == own->metadata_bytes && vt_file_changed(&info) == own->changed,
             "%s/%s was written anew while it was in use; data must not change during a run", store->path,
             own->metadata_name);
    for (const vt_zarr_node *node = own->nodes; node < own->nodes + own->node_count; node++)
        for (int i = 0; i < 2 && node->is_used; i++)
            VT_CHECK(time_of(store, node, i) == node->changed[i],
                     "%s/%s: files in it were written or removed while it was in use; data must not change during a "
                     "run",
                     store->path, node->name);
done:
    return status;
}

/* Rows and columns of the grid that anemoi's stores lay out as cells; false: the store is another one. */
static bool grid_of(const vt_zarr_store *store, int64_t *rows, int64_t *columns)
{
    const json_t *shape = json_object_get(store->attributes, "field_shape");
    *rows = json_integer_value(json_array_get(shape, 0));
    *columns = json_integer_value(json_array_get(shape, 1));
    return json_array_size(shape) == 2 && json_is_array(json_object_get(store->attributes, "variables")) && *rows > 0 &&
           *columns > 0 && *rows < INT32_MAX && *columns < INT32_MAX;
}

/* anemoi's `data` is what `fields` is elsewhere. */
static vt_zarr_node *find_node(const vt_store *store, const char *name)
{
    const vt_zarr_store *own = (const vt_zarr_store *)store;
    int64_t rows, columns;
    if (strcmp(name, "fields") == 0 && grid_of(own, &rows, &columns)) name = "data";
    for (int64_t i = 0; i < own->node_count; i++)
        if (strcmp(own->nodes[i].name, name) == 0) return &own->nodes[i];
    return NULL;
}

static bool has_array(const vt_store *store, const char *name)
{
    return find_node(store, name) != NULL;
}

/* ---- shape and type of an array ---- */

/* anemoi's arrays: data [dates, variables, 1, cells] becomes [dates, variables, rows, columns], and latitudes and
 * longitudes [cells] become [rows, columns]. */
static void take_cells(vt_zarr_array *own)
{
    vt_array *array = &own->array;
    int64_t grid[2];
    const bool is_data = strcmp(own->node->name, "data") == 0 && array->rank == 4 && own->extent[2] == 1;
    const bool is_place =
        array->rank == 1 && (strcmp(own->node->name, "latitudes") == 0 || strcmp(own->node->name, "longitudes") == 0);
    if ((!is_data && !is_place) || !grid_of((const vt_zarr_store *)array->store, &grid[0], &grid[1])) return;
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

/* An unknown type becomes VT_ELEMENT_NONE. The error is a cause. */
static vt_status take_form(vt_zarr_array *own, int version)
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

/* ---- an array ---- */

static void close_array(vt_array *array)
{
    vt_zarr_array *own = (vt_zarr_array *)array;
    for (int64_t i = 0; own->shards != NULL && i < own->shard_count; i++) free(own->shards[i].places);
    free(own->shards);
    pthread_mutex_destroy(&own->lock);
}

static vt_status find_array(const vt_store *store, const char *name, vt_array **array)
{
    vt_status status = VT_OK;
    vt_zarr_node *node = find_node(store, name);
    *array = NULL;
    VT_CHECK(node != NULL, "%s has no array '%s'", store->path, name);
    vt_zarr_array *own = vt_allocate(1, sizeof *own, "an array of a Zarr store");
    own->array = (vt_array){.store = store, .name = vt_text_copy(name)};
    own->node = node;
    pthread_mutex_init(&own->lock, NULL);
    *array = &own->array;
    if (take_form(own, ((const vt_zarr_store *)store)->version) == VT_OK) return VT_OK;
    vt_array_close(array);
    status = vt_error_context("%s: '%s'", store->path, node->name);
done:
    return status;
}

static void list(const vt_store *store, const char *group, bool deeper, vt_names *names)
{
    const vt_zarr_store *own = (const vt_zarr_store *)store;
    const size_t length = strlen(group), before = length > 0 ? length + 1 : 0;
    for (int64_t i = 0; i < own->node_count; i++) {
        const char *name = own->nodes[i].name;
        if (length > 0 && (strncmp(name, group, length) != 0 || name[length] != '/')) continue;
        if (deeper || strchr(name + before, '/') == NULL) vt_names_add(names, name + before);
    }
}

static void reorder(vt_array *array, const int *order)
{
    vt_zarr_array *own = (vt_zarr_array *)array;
    for (int i = 0; i < array->rank; i++) {
        own->stored_as[i] = order[i];
        array->extent[i] = own->extent[order[i]];
    }
}

static vt_status lay_out(vt_array *array)
{
    vt_status status = VT_OK;
    vt_zarr_array *own = (vt_zarr_array *)array;
    vt_zarr_node *node = own->node;
    for (int i = 0; i < 2 && !node->is_used; i++) node->changed[i] = time_of(array->store, node, i);
    node->is_used = true;
    free(array->storage);
    array->storage = NULL;
    own->shard_count = 1;
    if (vt_zarr_take_storage(own, ((const vt_zarr_store *)array->store)->version, &array->storage) != VT_OK)
        return vt_error_context("%s: '%s'", array->store->path, own->node->name);
    array->pipeline.element_size = array->element_size;
    for (int i = 0; i < array->rank; i++) {
        array->chunk[i] = own->chunk[own->stored_as[i]];
        array->stride[i] = own->stride[own->stored_as[i]];
        VT_CHECK(!__builtin_mul_overflow(own->shard_count, (own->extent[i] + own->shard[i] - 1) / own->shard[i],
                                         &own->shard_count),
                 "%s: '%s' has more chunks than can be", array->store->path, own->node->name);
    }
done:
    return status;
}

/* ---- attributes ---- */

static const json_t *attribute_of(const vt_zarr_array *own, const char *name)
{
    return json_object_get(own->node->attributes, name);
}

/* Value i of an attribute, which may be a list or a single value. NULL: there are no more, or the attribute is null. */
static const json_t *value_of(const json_t *attribute, size_t i)
{
    if (json_is_array(attribute)) return json_array_get(attribute, i);
    return i == 0 && !json_is_null(attribute) ? attribute : NULL;
}

static int attribute_numbers(const vt_array *array, const char *name, int most, double *values, bool *is_float)
{
    const vt_zarr_array *own = (const vt_zarr_array *)array;
    const json_t *value = attribute_of(own, name);
    const bool of_version_2 = ((const vt_zarr_store *)array->store)->version == 2;
    const bool is_field = json_array_size(json_object_get(own->node->metadata, "shape")) > 1;
    *is_float = false;
    /* xarray's convention for version 2. Coordinates have no gaps: there it would take the first time for one */
    if (value == NULL && of_version_2 && is_field && strcmp(name, "_FillValue") == 0)
        value = json_object_get(own->node->metadata, "fill_value");
    if (value == NULL || json_is_null(value)) return 0;
    int count = 0;
    for (const json_t *one; (one = value_of(value, (size_t)count)) != NULL; count++) {
        if (count == most || !vt_zarr_number(one, array, &values[count])) return -1;
        *is_float = *is_float || !json_is_integer(one);
    }
    return count > 0 ? count : -1;
}

static bool attribute_texts(const vt_array *array, const char *name, vt_names *texts)
{
    const vt_zarr_array *own = (const vt_zarr_array *)array;
    const json_t *value = attribute_of(own, name), *one;
    if (own->has_cells && array->rank == 4 && strcmp(name, "channels") == 0)
        value = json_object_get(((const vt_zarr_store *)array->store)->attributes, "variables");
    if (strcmp(name, "missing_dates") == 0) /* of all its arrays */
        value = json_object_get(((const vt_zarr_store *)array->store)->attributes, name);
    for (size_t i = 0; (one = value_of(value, i)) != NULL; i++) {
        if (!json_is_string(one)) return false;
        vt_names_add(texts, json_string_value(one));
    }
    if ((value == NULL || json_is_null(value)) && own->dates != NULL && strcmp(name, "units") == 0)
        vt_names_add(texts, own->dates);
    return true;
}

static double fill_value(const vt_array *array)
{
    double value = 0;
    const json_t *fill = json_object_get(((const vt_zarr_array *)array)->node->metadata, "fill_value");
    return vt_zarr_number(fill, array, &value) ? value : 0;
}

/* ---- dimensions ---- */

static void dimension_name(const vt_array *array, int dimension, char *name, size_t size)
{
    const vt_zarr_array *own = (const vt_zarr_array *)array;
    const json_t *names = json_object_get(own->node->metadata, "dimension_names");
    if (!json_is_array(names)) names = attribute_of(own, "_ARRAY_DIMENSIONS");
    snprintf(name, size, "%s", json_string_value(json_array_get(names, (size_t)own->stored_as[dimension])) ?: "");
}

/* A one-dimensional array that is called like its dimension. */
static bool is_scale_of(const vt_array *scale, const vt_array *array, int dimension)
{
    char own[VT_ZARR_KEY], other[VT_ZARR_KEY];
    if (scale->rank != 1) return false;
    dimension_name(scale, 0, own, sizeof own);
    if (strcmp(own, vt_file_name(scale->name)) != 0) return false;
    if (array == NULL) return true;
    dimension_name(array, dimension, other, sizeof other);
    return strcmp(own, other) == 0;
}

const vt_store_kind vt_store_zarr = {.name = "zarr",
                                     .takes = vt_file_is_zarr,
                                     .is_directory = true,
                                     .open = open_store,
                                     .close = vt_zarr_close_nodes,
                                     .check_unchanged = check_unchanged,
                                     .has_array = has_array,
                                     .list = list,
                                     .find_array = find_array,
                                     .close_array = close_array,
                                     .reorder = reorder,
                                     .lay_out = lay_out,
                                     .load_chunk = vt_zarr_load_chunk,
                                     .chunks_written = vt_zarr_chunks_written,
                                     .read = vt_zarr_read,
                                     .attribute_numbers = attribute_numbers,
                                     .attribute_texts = attribute_texts,
                                     .fill_value = fill_value,
                                     .dimension_name = dimension_name,
                                     .is_scale_of = is_scale_of};
