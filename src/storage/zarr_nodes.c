/* Which arrays a Zarr store holds, and their metadata, which are JSON. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/zarr_inside.h"

#define MOST_METADATA (INT64_C(256) << 20) /* bytes of a file of metadata */
enum { MOST_NODES = 65536, DEEPEST = 16 };

/* ---- files ---- */

/* Python writes NaN and infinities as bare words, which JSON doesn't have: they become strings. [2 · length + 1] is
 * room enough for the result. */
static void quote_numbers(const char *text, size_t length, char *result)
{
    static const char *const words[] = {"NaN", "-Infinity", "Infinity"};
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        size_t taken = 0;
        if (text[i] == '"') in_string = !in_string;
        for (int w = 0; w < 3 && !in_string && taken == 0; w++)
            if (strncmp(text + i, words[w], strlen(words[w])) == 0) taken = strlen(words[w]);
        if (taken > 0) {
            result += sprintf(result, "\"%.*s\"", (int)taken, text + i);
            i += taken - 1;
            continue;
        }
        *result++ = text[i];
        if (in_string && text[i] == '\\' && i + 1 < length) *result++ = text[++i];
    }
    *result = '\0';
}

/* The file `name` of an array or a group ("" is the root). *json NULL: there is no such file. */
static vt_status load(const vt_zarr_store *store, const char *group, const char *name, json_t **json)
{
    vt_status status = VT_OK;
    json_error_t error;
    char *text = NULL, *quoted = NULL;
    char *path = vt_text_format("%s/%s%s%s", store->store.path, group, group[0] != '\0' ? "/" : "", name);
    int64_t size = 0;
    *json = NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT) goto done;
    VT_TRY(vt_file_read(path, MOST_METADATA, &text, &size));
    VT_CHECK(memchr(text, '\0', (size_t)size) == NULL, "%s is not JSON: it holds a zero byte", path);
    quoted = malloc(2 * (size_t)size + 1);
    VT_CHECK(quoted != NULL, "out of memory for %s", path);
    quote_numbers(text, (size_t)size, quoted);
    *json = json_loads(quoted, 0, &error);
    VT_CHECK(*json != NULL, "%s is not JSON (damaged or cut short?): line %d: %s", path, error.line, error.text);
    VT_CHECK(json_is_object(*json), "%s is no Zarr metadata: it is not a JSON object", path);
done:
    free(text);
    free(quoted);
    free(path);
    return status;
}

/* ---- what metadata say ---- */

static bool is_array(const json_t *metadata)
{
    const char *type = json_string_value(json_object_get(metadata, "node_type"));
    return type == NULL || strcmp(type, "array") == 0; /* .zarray has no node_type */
}

const char *vt_zarr_name(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key)) ?: "(without a name)";
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

vt_status vt_zarr_check_extensions(const json_t *metadata)
{
    static const char known[] = "zarr_format|node_type|attributes|shape|data_type|chunk_grid|chunk_key_encoding|"
                                "fill_value|codecs|storage_transformers|dimension_names|consolidated_metadata";
    vt_status status = VT_OK;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)metadata, key, value) VT_CHECK(
        vt_text_choice(key, known) >= 0 || json_is_false(json_object_get(value, "must_understand")),
        "its metadata have the extension '%s', which is not known here, so what it holds may mean something else", key);
done:
    return status;
}

/* *metadata NULL: there are none; *attributes are those of an array. */
static vt_status load_own(const vt_zarr_store *store, const char *name, json_t **metadata, json_t **attributes)
{
    vt_status status = VT_OK;
    VT_TRY(load(store, name, store->version == 2 ? ".zarray" : "zarr.json", metadata));
    if (*metadata == NULL || !is_array(*metadata)) goto done;
    if (store->version == 2)
        VT_TRY(load(store, name, ".zattrs", attributes));
    else
        *attributes = json_incref(json_object_get(*metadata, "attributes"));
done:
    return status;
}

/* ---- arrays ---- */

static char *shape_text(const json_t *metadata)
{
    char *text = json_dumps(json_object_get(metadata, "shape"), JSON_ENCODE_ANY);
    return text != NULL ? text : vt_text_copy("no shape");
}

static bool attributes_differ(const json_t *one, const json_t *other)
{
    return !json_equal(one, other) && json_object_size(one) + json_object_size(other) > 0;
}

/* Notes the first array of which the consolidated metadata say something else than its own. */
static void note_difference(vt_zarr_store *store, const char *name, const json_t *all, const json_t *own)
{
    if (store->store.oddity != NULL) return;
    char *before = shape_text(all), *now = shape_text(own);
    char *shapes =
        strcmp(before, now) == 0 ? vt_text_copy("") : vt_text_format(" (the shape %s, they %s)", before, now);
    store->store.oddity = vt_text_format("%s/%s says something else of '%s' than its own metadata%s: they were changed "
                                         "later, and are used (zarr.consolidate_metadata makes it anew)",
                                         store->store.path, store->metadata_name, name, shapes);
    free(before);
    free(now);
    free(shapes);
}

static vt_status walk(vt_zarr_store *store, const char *group, int depth);

/* An array, or a group in which there may be some. Directories that are neither hold no metadata below them. `all` and
 * `all_attributes` are what consolidated metadata say of an array (NULL: nothing), which holds where it has none. */
static vt_status look_into(vt_zarr_store *store, const char *name, int depth, json_t *all, json_t *all_attributes)
{
    vt_status status = VT_OK;
    json_t *metadata = NULL, *attributes = NULL, *group = NULL;
    const bool is_inside = name[0] != '/' && strstr(name, "..") == NULL && strlen(name) < VT_ZARR_KEY / 2;
    if (is_inside || all == NULL) VT_TRY(load_own(store, name, &metadata, &attributes));
    const bool has_own = metadata != NULL && is_array(metadata);
    if (has_own || all != NULL) {
        VT_CHECK(is_inside, "%s: its metadata name the array '%s', which would lie elsewhere", store->store.path, name);
        if (has_own && all != NULL && (!json_equal(metadata, all) || attributes_differ(attributes, all_attributes)))
            note_difference(store, name, all, metadata);
        VT_CHECK(store->node_count < MOST_NODES, "%s holds more than %d arrays", store->store.path, MOST_NODES);
        store->nodes =
            vt_grow(store->nodes, (size_t)store->node_count, sizeof *store->nodes, "the arrays of a Zarr store");
        store->nodes[store->node_count++] =
            (vt_zarr_node){.name = vt_text_copy(name),
                           .metadata = json_incref(has_own ? metadata : all),
                           .attributes = json_incref(has_own ? attributes : all_attributes)};
    } else {
        if (metadata == NULL && store->version == 2) VT_TRY(load(store, name, ".zgroup", &group));
        if (metadata != NULL || group != NULL) VT_TRY(walk(store, name, depth + 1));
    }
done:
    json_decref(metadata);
    json_decref(attributes);
    json_decref(group);
    return status;
}

/* Consolidated metadata: {"t2m/.zarray": …, "t2m/.zattrs": …}; of version 3 {"t2m": {"node_type": "array",
 * "attributes": …}} */
static vt_status take_consolidated(vt_zarr_store *store, json_t *all)
{
    vt_status status = VT_OK;
    const char *key, *end = store->version == 2 ? "/.zarray" : "";
    json_t *value;
    json_object_foreach(all, key, value)
    {
        if (!vt_text_ends_with(key, end) || !is_array(value)) continue;
        char *name = vt_text_format("%.*s", (int)(strlen(key) - strlen(end)), key);
        char *attributes = vt_text_format("%s/.zattrs", name);
        status =
            look_into(store, name, 0, value,
                      store->version == 2 ? json_object_get(all, attributes) : json_object_get(value, "attributes"));
        free(attributes);
        free(name);
        if (status != VT_OK) break;
    }
    return status;
}

/* Metadata beside each array. */
static vt_status walk(vt_zarr_store *store, const char *group, int depth)
{
    vt_status status = VT_OK;
    char *directory = vt_text_format("%s/%s", store->store.path, group);
    DIR *opened = opendir(directory);
    VT_CHECK(opened != NULL, "can't read the directory %s: %s", directory, strerror(errno));
    VT_CHECK(depth < DEEPEST, "%s: groups lie more than %d deep in one another", store->store.path, DEEPEST);
    errno = 0;
    for (struct dirent *entry; (entry = readdir(opened)) != NULL; errno = 0) {
        if (entry->d_name[0] == '.' || entry->d_type == DT_REG) continue;
        char *name = vt_text_format("%s%s%s", group, group[0] != '\0' ? "/" : "", entry->d_name);
        status = look_into(store, name, depth, NULL, NULL);
        free(name);
        if (status != VT_OK) goto done;
    }
    VT_CHECK(errno == 0, "can't read the directory %s: %s", directory, strerror(errno));
done:
    if (opened != NULL) closedir(opened);
    free(directory);
    return status;
}

/* ---- the root ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const vt_zarr_node *)a)->name, ((const vt_zarr_node *)b)->name);
}

/* Which file says what the store is, and of which version. */
static vt_status find_root(vt_zarr_store *store, json_t **root)
{
    static const struct {
        const char *name;
        int version;
    } files[] = {{"zarr.json", 3}, {".zmetadata", 2}, {".zgroup", 2}};
    vt_status status = VT_OK;
    const char *path = store->store.path;
    struct stat info;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && *root == NULL; i++) {
        VT_TRY(load(store, "", files[i].name, root));
        if (*root == NULL) continue;
        store->version = files[i].version;
        store->metadata_name = vt_text_copy(files[i].name);
        VT_CHECK(fstatat(store->store.descriptor, files[i].name, &info, 0) == 0, "can't look at %s/%s: %s", path,
                 files[i].name, strerror(errno));
        store->metadata_bytes = info.st_size;
        store->changed = vt_file_changed(&info);
    }
    const json_int_t format = json_integer_value(json_object_get(*root, "zarr_format"));
    VT_CHECK(*root == NULL || store->version != 3 || format == 3, "%s/zarr.json: its zarr_format is not 3", path);
    const bool is_single = *root == NULL
                               ? faccessat(store->store.descriptor, ".zarray", F_OK, 0) == 0
                               : store->version == 3 && strcmp(vt_zarr_name(*root, "node_type"), "group") != 0;
    VT_CHECK(!is_single,
             "%s is a single Zarr array; a store is a group of arrays that have names (variables, times, latitudes)",
             path);
    VT_CHECK(*root != NULL, "%s is no Zarr store: it has none of .zmetadata, .zgroup and zarr.json", path);
    if (store->version == 3 && vt_zarr_check_extensions(*root) != VT_OK)
        status = vt_error_context("%s/zarr.json", path);
done:
    return status;
}

vt_status vt_zarr_read_nodes(vt_zarr_store *store)
{
    vt_status status = VT_OK;
    json_t *root = NULL;
    VT_TRY(find_root(store, &root));
    json_t *all =
        json_object_get(store->version == 3 ? json_object_get(root, "consolidated_metadata") : root, "metadata");
    VT_CHECK(strcmp(store->metadata_name, ".zmetadata") != 0 || json_is_object(all),
             "%s/.zmetadata is no Zarr metadata: it has no object 'metadata'", store->store.path);
    if (store->version == 3)
        store->attributes = json_incref(json_object_get(root, "attributes"));
    else
        VT_TRY(load(store, "", ".zattrs", &store->attributes));
    if (store->version == 2 && json_is_object(all)) {
        json_t *attributes = json_object_get(all, ".zattrs");
        if (store->attributes == NULL)
            store->attributes = json_incref(attributes);
        else if (attributes_differ(store->attributes, attributes))
            note_difference(store, "/", attributes, store->attributes);
    }
    if (json_is_object(all))
        VT_TRY(take_consolidated(store, all));
    else
        VT_TRY(walk(store, "", 0));
    if (store->node_count > 0) qsort(store->nodes, (size_t)store->node_count, sizeof *store->nodes, by_name);
done:
    json_decref(root);
    return status;
}

void vt_zarr_close_nodes(vt_store *store)
{
    const vt_zarr_store *own = (const vt_zarr_store *)store;
    for (int64_t i = 0; i < own->node_count; i++) {
        free(own->nodes[i].name);
        json_decref(own->nodes[i].metadata);
        json_decref(own->nodes[i].attributes);
    }
    free(own->nodes);
    json_decref(own->attributes);
    free(own->metadata_name);
}
