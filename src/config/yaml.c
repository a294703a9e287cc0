#include "config/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/memory.h"
#include "base/text.h"

/* Far above any real file; they keep a broken or hostile one from costing time and stack. */
enum { MAX_FILE_BYTES = 1 << 20, MAX_DEPTH = 64, MAX_ANCHORS = 1000, MAX_MERGE_DEPTH = 100, MAX_KEYS = 10000 };

typedef struct {
    char *name;
    vt_yaml_node *node;
} anchor;

struct vt_yaml {
    char *path;
    unsigned char *bytes;
    size_t byte_count;
    vt_yaml_node *top;
    vt_yaml_node **nodes; /* all of them: nodes are shared, so only this list frees */
    size_t node_count;
    anchor anchors[MAX_ANCHORS];
    size_t anchor_count;
};

/* ---- reading ---- */

static vt_status read_bytes(vt_yaml *yaml, const char *holds)
{
    vt_status status = VT_OK;
    FILE *file = fopen(yaml->path, "rbe");
    VT_CHECK(file != NULL, "%s: %s; expected a file of %s", yaml->path, strerror(errno), holds);
    yaml->bytes = vt_allocate(1, MAX_FILE_BYTES + 1, "a YAML file");
    yaml->byte_count = fread(yaml->bytes, 1, MAX_FILE_BYTES + 1, file);
    VT_CHECK(!ferror(file), "%s: %s; expected a file of %s", yaml->path, strerror(errno), holds); /* a directory */
    VT_CHECK(yaml->byte_count <= MAX_FILE_BYTES, "%s: larger than %d bytes; expected a file of %s", yaml->path,
             MAX_FILE_BYTES, holds);
done:
    if (file != NULL) fclose(file);
    return status;
}

/* Notes what libyaml found wrong, with its place. */
static vt_status parser_error(const vt_yaml *yaml, const yaml_parser_t *parser)
{
    vt_status status = VT_OK;
    const char *problem = parser->problem != NULL ? parser->problem : "it can't be read";
    size_t line = parser->problem_mark.line + 1, column = parser->problem_mark.column + 1;
    if (parser->error == YAML_MEMORY_ERROR) vt_memory_exhausted(yaml->byte_count, "reading a YAML file");
    if (parser->error == YAML_READER_ERROR) { /* bytes that are no text: it knows only their offset */
        size_t bad = parser->problem_offset < yaml->byte_count ? parser->problem_offset : yaml->byte_count;
        line = column = 1;
        for (size_t i = 0; i < bad; i++) {
            column = yaml->bytes[i] == '\n' ? 1 : column + 1;
            line += yaml->bytes[i] == '\n';
        }
        VT_FAIL("%s:%zu:%zu: not a text file in UTF-8: %s", yaml->path, line, column, problem);
    }
    if (parser->context != NULL)
        VT_FAIL("%s:%zu:%zu: %s %s that starts at line %zu", yaml->path, line, column, problem, parser->context,
                parser->context_mark.line + 1);
    VT_FAIL("%s:%zu:%zu: %s", yaml->path, line, column, problem);
done:
    return status;
}

/* In place of *event. */
static vt_status next_event(const vt_yaml *yaml, yaml_parser_t *parser, yaml_event_t *event)
{
    yaml_event_delete(event);
    return yaml_parser_parse(parser, event) ? VT_OK : parser_error(yaml, parser);
}

static vt_yaml_node *add_node(vt_yaml *yaml, vt_yaml_kind kind, const yaml_event_t *event)
{
    yaml->nodes = vt_grow(yaml->nodes, yaml->node_count, sizeof *yaml->nodes, "a YAML file");
    vt_yaml_node *node = vt_allocate(1, sizeof *node, "a YAML file");
    *node = (vt_yaml_node){
        .kind = kind, .path = yaml->path, .line = event->start_mark.line + 1, .column = event->start_mark.column + 1};
    yaml->nodes[yaml->node_count++] = node;
    return node;
}

/* An anchor may be used again; aliases mean the last one before them. */
static vt_status add_anchor(vt_yaml *yaml, const yaml_char_t *name, vt_yaml_node *node)
{
    vt_status status = VT_OK;
    if (name == NULL) return VT_OK;
    VT_CHECK(yaml->anchor_count < MAX_ANCHORS, "%s:%zu:%zu: more than %d anchors", VT_YAML_PLACE(node), MAX_ANCHORS);
    yaml->anchors[yaml->anchor_count++] = (anchor){vt_text_copy((const char *)name), node};
done:
    return status;
}

static vt_status find_anchor(const vt_yaml *yaml, const yaml_event_t *event, vt_yaml_node **node)
{
    vt_status status = VT_OK;
    const char *name = (const char *)event->data.alias.anchor;
    size_t line = event->start_mark.line + 1, column = event->start_mark.column + 1, i = yaml->anchor_count;
    while (i > 0 && strcmp(yaml->anchors[i - 1].name, name) != 0) i--;
    VT_CHECK(i > 0, "%s:%zu:%zu: '*%s' refers to an anchor '&%s' that isn't in the file before it", yaml->path, line,
             column, name, name);
    *node = yaml->anchors[i - 1].node;
    (*node)->has_alias = true;
    VT_CHECK((*node)->complete, "%s:%zu:%zu: '*%s' stands inside of what it refers to, which starts at line %zu",
             yaml->path, line, column, name, (*node)->line);
done:
    return status;
}

static vt_status read_scalar(vt_yaml *yaml, const yaml_event_t *event, vt_yaml_node **made)
{
    vt_status status = VT_OK;
    vt_yaml_node *node = *made = add_node(yaml, VT_YAML_SCALAR, event);
    const char *text = (const char *)event->data.scalar.value;
    VT_CHECK(strlen(text) == event->data.scalar.length, "%s:%zu:%zu: this text holds a zero byte", VT_YAML_PLACE(node));
    node->text = vt_text_copy(text);
    node->complete = true;
    VT_TRY(add_anchor(yaml, event->data.scalar.anchor, node));
done:
    return status;
}

static bool is_merge_key(const vt_yaml_node *key)
{
    return key->kind == VT_YAML_SCALAR && strcmp(key->text, "<<") == 0;
}

/* The character of two or three bytes that begins here if it is a blank that YAML takes for a letter; 0: it isn't. */
static unsigned foreign_blank(const char *text)
{
    uint32_t code = 0;
    if (vt_text_decode(text, strlen(text), &code) == 0) return 0;
    const bool is_blank = code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200D) || code == 0x202F ||
                          code == 0x205F || code == 0x2060 || code == 0x3000 || code == 0xFEFF;
    return is_blank ? code : 0;
}

static vt_status check_blanks(const vt_yaml_node *key)
{
    vt_status status = VT_OK;
    const char *begin = key->text, *last = begin + strlen(begin);
    while (foreign_blank(begin) != 0) begin += (unsigned char)*begin < 0xE0 ? 2 : 3;
    VT_CHECK(
        begin == key->text,
        "%s:%zu:%zu: the key '%.200s' begins with U+%04X, a blank that YAML takes for a letter; write a blank of the "
        "space bar instead",
        VT_YAML_PLACE(key), begin, foreign_blank(key->text));
    if (last > begin) last--;
    while (last > begin && ((unsigned char)*last & 0xC0) == 0x80) last--; /* to where the last character begins */
    VT_CHECK(foreign_blank(last) == 0,
             "%s:%zu:%zu: the key '%.*s' ends with U+%04X, a blank that YAML takes for a letter; remove it",
             VT_YAML_PLACE(key), (int)(last - begin), begin, foreign_blank(last));
done:
    return status;
}

/* Of the key that is to be the mapping's next. A reader of YAML would take one of two equal keys, and nobody would
 * notice the other. */
static vt_status check_key(const vt_yaml_node *mapping, const vt_yaml_node *key)
{
    vt_status status = VT_OK;
    if (key->kind != VT_YAML_SCALAR || is_merge_key(key)) return VT_OK;
    VT_TRY(check_blanks(key));
    VT_CHECK(mapping->count / 2 < MAX_KEYS, "%s:%zu:%zu: more than %d keys", VT_YAML_PLACE(key), MAX_KEYS);
    for (size_t i = 0; i < mapping->count; i += 2)
        VT_CHECK(mapping->child[i]->kind != VT_YAML_SCALAR || strcmp(mapping->child[i]->text, key->text) != 0,
                 "%s:%zu:%zu: the key %.200s stands twice, first in line %zu; remove or rename one of the two",
                 VT_YAML_PLACE(key), key->text, mapping->child[i]->line);
done:
    return status;
}

/* The node that *event starts, with all below it. Takes over *event. */
static vt_status read_node(vt_yaml *yaml, yaml_parser_t *parser, yaml_event_t *event, int depth, vt_yaml_node **made)
{
    vt_status status = VT_OK;
    vt_yaml_node *node = NULL;
    yaml_event_t next = {0};
    yaml_event_type_t end = YAML_MAPPING_END_EVENT;
    if (event->type == YAML_ALIAS_EVENT) {
        VT_TRY(find_anchor(yaml, event, made));
        goto done;
    }
    if (event->type == YAML_SCALAR_EVENT) {
        VT_TRY(read_scalar(yaml, event, made));
        goto done;
    }
    if (event->type == YAML_SEQUENCE_START_EVENT) {
        end = YAML_SEQUENCE_END_EVENT;
        node = *made = add_node(yaml, VT_YAML_SEQUENCE, event);
        VT_TRY(add_anchor(yaml, event->data.sequence_start.anchor, node));
    } else {
        VT_ASSERT(event->type == YAML_MAPPING_START_EVENT);
        node = *made = add_node(yaml, VT_YAML_MAPPING, event);
        VT_TRY(add_anchor(yaml, event->data.mapping_start.anchor, node));
    }
    VT_CHECK(depth < MAX_DEPTH, "%s:%zu:%zu: nested deeper than %d levels", VT_YAML_PLACE(node), MAX_DEPTH);
    for (;;) {
        VT_TRY(next_event(yaml, parser, &next));
        if (next.type == end) break;
        vt_yaml_node *child = NULL;
        VT_TRY(read_node(yaml, parser, &next, depth + 1, &child));
        if (node->kind == VT_YAML_MAPPING && node->count % 2 == 0) VT_TRY(check_key(node, child));
        node->child = vt_grow(node->child, node->count, sizeof *node->child, "a YAML file");
        node->child[node->count++] = child;
    }
    node->complete = true;
done:
    yaml_event_delete(&next);
    yaml_event_delete(event);
    return status;
}

/* One document, and nothing after it. */
static vt_status read_document(vt_yaml *yaml, yaml_parser_t *parser)
{
    vt_status status = VT_OK;
    yaml_event_t event = {0};
    VT_TRY(next_event(yaml, parser, &event)); /* the start of the stream */
    VT_TRY(next_event(yaml, parser, &event)); /* that of the document */
    if (event.type == YAML_STREAM_END_EVENT) goto done;
    VT_TRY(next_event(yaml, parser, &event));
    VT_TRY(read_node(yaml, parser, &event, 0, &yaml->top));
    VT_TRY(next_event(yaml, parser, &event)); /* the end of the document */
    VT_TRY(next_event(yaml, parser, &event));
    VT_CHECK(event.type == YAML_STREAM_END_EVENT, "%s:%zu:%zu: a second document starts here; expected one", yaml->path,
             event.start_mark.line + 1, event.start_mark.column + 1);
done:
    yaml_event_delete(&event);
    return status;
}

vt_status vt_yaml_open(const char *path, const char *text, const char *holds, vt_yaml **result)
{
    vt_status status = VT_OK;
    yaml_parser_t parser = {0};
    vt_yaml *yaml = vt_allocate(1, sizeof *yaml, "a YAML file");
    yaml->path = vt_text_copy(path);
    if (text != NULL) {
        yaml->bytes = (unsigned char *)vt_text_copy(text);
        yaml->byte_count = strlen(text);
    } else {
        VT_TRY(read_bytes(yaml, holds));
    }
    if (!yaml_parser_initialize(&parser)) vt_memory_exhausted(sizeof parser, "reading a YAML file");
    yaml_parser_set_input_string(&parser, yaml->bytes, yaml->byte_count);
    VT_TRY(read_document(yaml, &parser));
    VT_CHECK(yaml->top != NULL, "%s:1:1: the file is empty; expected %s", path, holds);
    char found[96];
    VT_CHECK(yaml->top->kind == VT_YAML_MAPPING, "%s:%zu:%zu: expected %s, found %s", VT_YAML_PLACE(yaml->top), holds,
             vt_yaml_describe(yaml->top, found));
    VT_TRY(vt_yaml_entries(yaml->top));
done:
    yaml_parser_delete(&parser);
    if (status != VT_OK) vt_yaml_close(&yaml);
    *result = yaml;
    return status;
}

void vt_yaml_close(vt_yaml **yaml)
{
    if (*yaml == NULL) return;
    for (size_t i = 0; i < (*yaml)->node_count; i++) {
        free((*yaml)->nodes[i]->text);
        free((*yaml)->nodes[i]->child);
        free((*yaml)->nodes[i]->entries);
        free((*yaml)->nodes[i]);
    }
    for (size_t i = 0; i < (*yaml)->anchor_count; i++) free((*yaml)->anchors[i].name);
    free((*yaml)->nodes);
    free((*yaml)->bytes);
    free((*yaml)->path);
    free(*yaml);
    *yaml = NULL;
}

const vt_yaml_node *vt_yaml_top(const vt_yaml *yaml)
{
    return yaml->top;
}

const char *vt_yaml_describe(const vt_yaml_node *node, char buffer[96])
{
    if (node->kind == VT_YAML_MAPPING) return "a mapping";
    if (node->kind == VT_YAML_SEQUENCE) return "a list";
    snprintf(buffer, 96, strlen(node->text) > 60 ? "the text '%.60s...'" : "the text '%s'", node->text);
    return buffer;
}

/* ---- merge keys ---- */

const vt_yaml_entry *vt_yaml_find(const vt_yaml_node *mapping, const char *key)
{
    for (size_t i = 0; i < mapping->entry_count; i++)
        if (strcmp(mapping->entries[i].key->text, key) == 0) return &mapping->entries[i];
    return NULL;
}

static vt_status add_key(vt_yaml_node *to, const vt_yaml_node *key, const vt_yaml_node *value)
{
    vt_status status = VT_OK;
    char found[96];
    VT_CHECK(key->kind == VT_YAML_SCALAR, "%s:%zu:%zu: expected the name of a key, found %s", VT_YAML_PLACE(key),
             vt_yaml_describe(key, found));
    if (vt_yaml_find(to, key->text) != NULL) goto done; /* of a mapping that merges this one, or that comes before it */
    VT_CHECK(to->entry_count < MAX_KEYS, "%s:%zu:%zu: more than %d keys", VT_YAML_PLACE(key), MAX_KEYS);
    to->entries = vt_grow(to->entries, to->entry_count, sizeof *to->entries, "a YAML file");
    to->entries[to->entry_count++] = (vt_yaml_entry){key, value};
done:
    return status;
}

/* As the first mapping to set a key wins, one whose keys were added need not be looked at again. This keeps a file
 * whose merges double at every level from costing exponential time. */
static vt_status add_keys(vt_yaml_node *to, vt_yaml_node *mapping, int depth)
{
    vt_status status = VT_OK;
    char found[96];
    VT_CHECK(mapping->kind == VT_YAML_MAPPING,
             "%s:%zu:%zu: '<<' merges mappings (<<: *name, or <<: [*name, *other]), found %s", VT_YAML_PLACE(mapping),
             vt_yaml_describe(mapping, found));
    VT_CHECK(depth < MAX_MERGE_DEPTH, "%s:%zu:%zu: merged through more than %d levels", VT_YAML_PLACE(mapping),
             MAX_MERGE_DEPTH);
    if (mapping->merged_into == to) goto done;
    mapping->merged_into = to;
    for (size_t i = 0; i < mapping->count; i += 2) {
        if (!is_merge_key(mapping->child[i])) VT_TRY(add_key(to, mapping->child[i], mapping->child[i + 1]));
    }
    for (size_t i = mapping->count; i > 0; i -= 2) { /* from the last: of two '<<' the later wins */
        vt_yaml_node *merged = mapping->child[i - 1];
        if (!is_merge_key(mapping->child[i - 2])) continue;
        if (merged->kind != VT_YAML_SEQUENCE) VT_TRY(add_keys(to, merged, depth + 1));
        for (size_t j = 0; merged->kind == VT_YAML_SEQUENCE && j < merged->count; j++)
            VT_TRY(add_keys(to, merged->child[j], depth + 1));
    }
done:
    return status;
}

vt_status vt_yaml_entries(const vt_yaml_node *mapping)
{
    vt_yaml_node *made = (vt_yaml_node *)(uintptr_t)mapping; /* what the file says of it does not change */
    return mapping->entries != NULL ? VT_OK : add_keys(made, made, 0);
}
