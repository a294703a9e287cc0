/* The keys of a YAML or JSON file by their paths ("fp16.enabled"), for a file that is not a configuration of vitrain.
 * Inside of src/config only. */
#ifndef VT_CONFIG_KEYS_H
#define VT_CONFIG_KEYS_H

#include <stdbool.h>

#include "base/text.h"
#include "config/yaml.h"

typedef struct {
    char *path;
    const vt_yaml_node *node;
    bool known; /* it was asked for; so are mappings, whose own keys follow them */
} vt_key;

typedef struct {
    vt_yaml *file;
    vt_key *keys; /* in the file's order */
    size_t count;
    vt_status status; /* VT_ERROR: a value was refused; the first one is noted */
} vt_keys;

/* `holds` as for vt_yaml_open. To be closed also after an error. */
vt_status vt_keys_open(const char *path, const char *holds, vt_keys *keys);
void vt_keys_close(vt_keys *keys);

/* The value, which is known from now on; NULL: it is not in the file, or null. Of "fp16.enabled" a value of `fp16` that
 * is no object is refused, as below. */
const vt_yaml_node *vt_keys_find(vt_keys *keys, const char *path);

/* The value; `preset`: vt_keys_find finds nothing. What is no number, or less than `least`, no whole number, or neither
 * true nor false is refused: callers go on, and look at keys->status in the end. */
double vt_keys_number(vt_keys *keys, const char *path, double least, double preset);
double vt_keys_whole_number(vt_keys *keys, const char *path, double least, double preset);
bool vt_keys_truth(vt_keys *keys, const char *path, bool preset);

/* Notes "FILE:LINE:COLUMN: PATH is ...; expected ...", and sets keys->status. */
void vt_keys_refuse(vt_keys *keys, const char *path, const vt_yaml_node *node, const char *expected);

/* Is it this scalar? */
bool vt_yaml_is(const vt_yaml_node *node, const char *text);

#endif
