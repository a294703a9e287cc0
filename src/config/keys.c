#include "config/keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static vt_status collect(vt_keys *keys, const vt_yaml_node *mapping, const char *above)
{
    vt_status status = VT_OK;
    VT_TRY(vt_yaml_entries(mapping));
    for (size_t i = 0; i < mapping->entry_count; i++) {
        const vt_yaml_node *value = mapping->entries[i].value;
        char *path = vt_text_format("%s%s%s", above, above[0] != '\0' ? "." : "", mapping->entries[i].key->text);
        keys->keys = vt_grow(keys->keys, keys->count, sizeof *keys->keys, "the keys of a file");
        keys->keys[keys->count++] = (vt_key){path, value, value->kind == VT_YAML_MAPPING};
        if (value->kind == VT_YAML_MAPPING) VT_TRY(collect(keys, value, path));
    }
done:
    return status;
}

bool vt_yaml_is(const vt_yaml_node *node, const char *text)
{
    return node->kind == VT_YAML_SCALAR && strcmp(node->text, text) == 0;
}

const vt_yaml_node *vt_keys_find(vt_keys *keys, const char *path)
{
    for (size_t i = 0; i < keys->count; i++) {
        vt_key *key = &keys->keys[i];
        const size_t length = strlen(key->path);
        const bool is_null = vt_yaml_is(key->node, "null");
        if (strncmp(key->path, path, length) != 0) continue;
        if (path[length] == '.' && key->node->kind != VT_YAML_MAPPING && !is_null)
            vt_keys_refuse(keys, key->path, key->node, "an object with its settings");
        key->known = key->known || path[length] == '\0' || (path[length] == '.' && is_null);
        if (path[length] != '\0') continue;
        return is_null ? NULL : key->node;
    }
    return NULL;
}

void vt_keys_refuse(vt_keys *keys, const char *path, const vt_yaml_node *node, const char *expected)
{
    char found[96];
    keys->status = VT_ERROR;
    if (vt_yaml_is(node, "auto"))
        vt_error_note(__FILE__, __LINE__,
                      "%s:%zu:%zu: %s is \"auto\", which a program fills in that calls DeepSpeed; write the value "
                      "itself",
                      VT_YAML_PLACE(node), path);
    else
        vt_error_note(__FILE__, __LINE__, "%s:%zu:%zu: %s is %s; expected %s", VT_YAML_PLACE(node), path,
                      vt_yaml_describe(node, found), expected);
}

double vt_keys_number(vt_keys *keys, const char *path, double least, double preset)
{
    const vt_yaml_node *node = vt_keys_find(keys, path);
    char expected[64];
    double found = 0;
    if (node == NULL) return preset;
    if (node->kind == VT_YAML_SCALAR && vt_text_to_double(node->text, &found) && found >= least) return found;
    snprintf(expected, sizeof expected, "a number of at least %g", least);
    vt_keys_refuse(keys, path, node, expected);
    return preset;
}

double vt_keys_whole_number(vt_keys *keys, const char *path, double least, double preset)
{
    const double value = vt_keys_number(keys, path, least, preset);
    if (value != floor(value)) vt_keys_refuse(keys, path, vt_keys_find(keys, path), "a whole number");
    return value;
}

bool vt_keys_truth(vt_keys *keys, const char *path, bool preset)
{
    const vt_yaml_node *node = vt_keys_find(keys, path);
    if (node == NULL) return preset;
    const int place = node->kind == VT_YAML_SCALAR ? vt_text_choice(node->text, "false|False|true|True") : -1;
    if (place < 0) vt_keys_refuse(keys, path, node, "true or false");
    return place >= 2;
}

vt_status vt_keys_open(const char *path, const char *holds, vt_keys *keys)
{
    vt_status status = VT_OK;
    *keys = (vt_keys){0};
    VT_TRY(vt_yaml_open(path, NULL, holds, &keys->file));
    VT_TRY(collect(keys, vt_yaml_top(keys->file), ""));
done:
    keys->status = status;
    return status;
}

void vt_keys_close(vt_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) free(keys->keys[i].path);
    free(keys->keys);
    vt_yaml_close(&keys->file);
    *keys = (vt_keys){0};
}
