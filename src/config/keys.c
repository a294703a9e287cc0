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
        if (strcmp(keys->keys[i].path, path) != 0) continue;
        keys->keys[i].known = true;
        return vt_yaml_is(keys->keys[i].node, "null") ? NULL : keys->keys[i].node;
    }
    return NULL;
}

vt_status vt_keys_refuse(const char *path, const vt_yaml_node *node, const char *expected)
{
    vt_status status = VT_OK;
    char found[96];
    VT_CHECK(!vt_yaml_is(node, "auto"),
             "%s:%zu:%zu: %s is \"auto\", which a program fills in that calls DeepSpeed; write the value itself",
             VT_YAML_PLACE(node), path);
    VT_FAIL("%s:%zu:%zu: %s is %s; expected %s", VT_YAML_PLACE(node), path, vt_yaml_describe(node, found), expected);
done:
    return status;
}

vt_status vt_keys_number(vt_keys *keys, const char *path, double least, double *value)
{
    vt_status status = VT_OK;
    const vt_yaml_node *node = vt_keys_find(keys, path);
    char expected[64];
    double found = 0;
    if (node == NULL) goto done;
    snprintf(expected, sizeof expected, "a number of at least %g", least);
    if (node->kind != VT_YAML_SCALAR || !vt_text_to_double(node->text, &found) || !(found >= least))
        VT_TRY(vt_keys_refuse(path, node, expected));
    *value = found;
done:
    return status;
}

vt_status vt_keys_whole_number(vt_keys *keys, const char *path, double least, double *value)
{
    vt_status status = VT_OK;
    VT_TRY(vt_keys_number(keys, path, least, value));
    const vt_yaml_node *node = vt_keys_find(keys, path);
    if (node != NULL && *value != floor(*value)) VT_TRY(vt_keys_refuse(path, node, "a whole number"));
done:
    return status;
}

vt_status vt_keys_truth(vt_keys *keys, const char *path, bool *value)
{
    vt_status status = VT_OK;
    const vt_yaml_node *node = vt_keys_find(keys, path);
    if (node == NULL) goto done;
    const bool is_true = vt_yaml_is(node, "true") || vt_yaml_is(node, "True");
    if (!is_true && !vt_yaml_is(node, "false") && !vt_yaml_is(node, "False"))
        VT_TRY(vt_keys_refuse(path, node, "true or false"));
    *value = is_true;
done:
    return status;
}

vt_status vt_keys_open(const char *path, const char *holds, vt_keys *keys)
{
    vt_status status = VT_OK;
    *keys = (vt_keys){0};
    VT_TRY(vt_yaml_open(path, NULL, holds, &keys->file));
    VT_TRY(collect(keys, vt_yaml_top(keys->file), ""));
done:
    return status;
}

void vt_keys_close(vt_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) free(keys->keys[i].path);
    free(keys->keys);
    vt_yaml_close(&keys->file);
    *keys = (vt_keys){0};
}
