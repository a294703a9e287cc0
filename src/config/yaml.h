/* A YAML file as a tree in which every node knows its file, line and column. It is read-only but for the entries of
 * mappings, which vt_yaml_entries keeps in them (one thread at a time). An alias is the very node that its
 * anchor names, so nodes may have several parents; a cycle is refused when the file is read. */
#ifndef VT_CONFIG_YAML_H
#define VT_CONFIG_YAML_H

#include <stddef.h>

#include "base/status.h"

typedef enum { VT_YAML_SCALAR, VT_YAML_SEQUENCE, VT_YAML_MAPPING } vt_yaml_kind;

typedef struct {
    const struct vt_yaml_node *key; /* a scalar */
    const struct vt_yaml_node *value;
} vt_yaml_entry;

typedef struct vt_yaml_node {
    vt_yaml_kind kind;
    const char *path;            /* of the file */
    size_t line, column;         /* both from 1 */
    char *text;                  /* of a scalar, without its quotes; otherwise NULL */
    size_t count;                /* children */
    struct vt_yaml_node **child; /* a mapping's are key, value, key, value, ... */
    vt_yaml_entry *entries;      /* [entry_count]: a mapping's keys, once vt_yaml_entries was called */
    size_t entry_count;
    const struct vt_yaml_node *merged_into; /* the last mapping to whose entries this one's were added */
    bool complete;                          /* false while its own children are being read */
    bool has_alias;                         /* an alias refers to it */
} vt_yaml_node;

/* The arguments of "%s:%zu:%zu", with which messages begin. */
#define VT_YAML_PLACE(node) (node)->path, (node)->line, (node)->column

typedef struct vt_yaml vt_yaml;

#define VT_YAML_CONFIGURATIONS "named configurations (base: {embed_dim: 384, ...})"

/* Reads the file, or `text` unless that is NULL: then `path` is only its name in messages. Its top must be a mapping,
 * whose entries are made; `holds` says in messages of what. A mapping must not have a key twice ("<<" excepted), nor a
 * key that begins or ends with a blank of Unicode's (U+00A0), which YAML takes for a letter. Errors: "path:line:column:
 * ...". */
vt_status vt_yaml_open(const char *path, const char *text, const char *holds, vt_yaml **yaml);
void vt_yaml_close(vt_yaml **yaml);

const vt_yaml_node *vt_yaml_top(const vt_yaml *yaml);

/* Makes the entries of a mapping: its keys, each once, with its merge keys ("<<") applied. A mapping's own keys win
 * over merged ones wherever they stand, of two "<<" the later, of a list of merged mappings the earlier
 * (https://yaml.org/type/merge.html). After an error the file is only to be closed. */
vt_status vt_yaml_entries(const vt_yaml_node *mapping);

/* The entry of this key in a mapping whose entries are made; NULL: there is none. */
const vt_yaml_entry *vt_yaml_find(const vt_yaml_node *mapping, const char *key);

/* "a mapping", "a list", "the text 'abc'": for messages. */
const char *vt_yaml_describe(const vt_yaml_node *node, char buffer[96]);

#endif
