#include "config/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option.h"
#include "config/yaml.h"

/* ---- the named configuration of a YAML file ---- */

/* config/ViT.yaml in the current directory, else beside the program, else beside the directory that the program is in
 * (./vitrain is a link into build/). NULL when there is none. */
static char *find_default_file(void)
{
    static const char below[] = "config/ViT.yaml";
    if (access(below, F_OK) == 0) return vt_text_copy(below);
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return NULL;
    program[length] = '\0';
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(program, '/');
        if (slash == NULL) return NULL;
        *slash = '\0';
        char *path = vt_text_format("%s/%s", program, below);
        if (access(path, F_OK) == 0) return path;
        free(path);
    }
    return NULL;
}

/* The value as flags would write it. The error says what is wrong with it. */
static vt_status value_text(const vt_yaml_node *value, const vt_row *row, vt_text *text)
{
    vt_status status = VT_OK;
    char found[96];
    vt_text range = {0};
    bool list = value->kind == VT_YAML_SEQUENCE && (row->kind == VT_ROW_PAIR || row->is_list);
    for (size_t i = 0; i < value->count; i++) list = list && value->child[i]->kind == VT_YAML_SCALAR;
    vt_row_range(row->kind == VT_ROW_ALIAS ? vt_row_find(row->target) : row, &range);
    VT_CHECK(list || value->kind == VT_YAML_SCALAR, "found %s, expected %s", vt_yaml_describe(value, found),
             range.characters);
    if (list) {
        for (size_t i = 0; i < value->count; i++) vt_text_append(text, i == 0 ? "[%s" : ", %s", value->child[i]->text);
        vt_text_append(text, value->count == 0 ? "[]" : "]");
    } else {
        vt_text_append(text, "%s", value->text);
    }
done:
    vt_text_close(&range);
    return status;
}

/* An older name that is off, or whose target the file sets away from its default, says nothing: a file may switch the
 * older name on in one configuration and hold the newer one, off, in the configuration which that merges. */
static bool alias_says_nothing(const vt_row *row, const char *text, const vt_config *config, const vt_config *presets)
{
    if (row->kind != VT_ROW_ALIAS) return false;
    const vt_row *target = vt_row_find(row->target);
    bool target_given = config->origin[target->id] == VT_FROM_YAML;
    bool on = true;
    if (row->target_value[0] == '\0') return target_given;
    if (!vt_boolean_parse(text, &on)) return false; /* an error, found when it is assigned */
    vt_text set = {0}, preset = {0};
    vt_row_format(target, config, &set);
    vt_row_format(target, presets, &preset);
    bool away = target_given && strcmp(set.characters, preset.characters) != 0;
    vt_text_close(&set);
    vt_text_close(&preset);
    return !on || away;
}

static vt_status apply_key(vt_config *config, const vt_config *presets, const vt_yaml *yaml, const vt_yaml_entry *entry,
                           bool aliases)
{
    vt_status status = VT_OK;
    vt_text text = {0};
    const char *name = entry->key->text, *path = vt_yaml_path(yaml);
    const vt_row *row = vt_row_find(name);
    if (row == NULL) {
        const char *nearest = vt_row_nearest(name, false);
        VT_FAIL("%s:%zu:%zu: unknown key '%.200s' in configuration '%.200s'%s%s%s ('vitrain options' lists all)", path,
                entry->key->line, entry->key->column, name, config->config, nearest != NULL ? "; did you mean '" : "",
                nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
    }
    VT_CHECK(!row->flag_only, "%s:%zu:%zu: %s is a command-line flag (--%s), not a key of a configuration", path,
             entry->key->line, entry->key->column, name, name);
    if ((row->kind == VT_ROW_ALIAS) != aliases) goto done;
    status = value_text(entry->value, row, &text);
    if (status == VT_OK && !alias_says_nothing(row, text.characters, config, presets))
        status = vt_row_assign(row, text.characters, config, VT_FROM_YAML);
    if (status != VT_OK) vt_error_context("%s:%zu:%zu: %s", path, entry->value->line, entry->value->column, name);
done:
    vt_text_close(&text);
    return status;
}

static vt_status no_such_configuration(const vt_config *config, const vt_yaml_entry *entries, size_t count)
{
    vt_status status = VT_OK;
    const char **names = malloc((count + 1) * sizeof(char *));
    vt_text list = {0};
    VT_ASSERT(names != NULL);
    vt_text_append(&list, "it holds ");
    for (size_t i = 0; i < count; i++) {
        names[i] = entries[i].key->text;
        vt_text_append(&list, i == 0 ? "%s" : ", %s", names[i]);
    }
    if (count == 0) vt_text_append(&list, "none");
    const char *nearest = vt_text_nearest(config->config, names, count);
    if (nearest != NULL)
        VT_FAIL("--config=%s: no such configuration in %s; did you mean '%s'? (%s)", config->config,
                config->yaml_config, nearest, list.characters);
    VT_FAIL("--config=%s: no such configuration in %s; %s", config->config, config->yaml_config, list.characters);
done:
    vt_text_close(&list);
    free(names);
    return status;
}

static vt_status find_configuration(const vt_config *config, const vt_yaml *yaml, const vt_yaml_node **mapping)
{
    vt_status status = VT_OK;
    vt_yaml_entry *entries = NULL;
    size_t count = 0, i = 0;
    char found[96];
    VT_TRY(vt_yaml_entries(yaml, vt_yaml_top(yaml), &entries, &count));
    while (i < count && strcmp(entries[i].key->text, config->config) != 0) i++;
    if (i == count) {
        status = no_such_configuration(config, entries, count);
        goto done;
    }
    *mapping = entries[i].value;
    VT_CHECK((*mapping)->kind == VT_YAML_MAPPING,
             "%s:%zu:%zu: configuration '%s' should be a mapping of keys, found %s", vt_yaml_path(yaml),
             entries[i].key->line, entries[i].key->column, config->config, vt_yaml_describe(*mapping, found));
done:
    free(entries);
    return status;
}

static vt_status apply_named_configuration(vt_config *config, const vt_config *presets)
{
    vt_status status = VT_OK;
    vt_yaml *yaml = NULL;
    const vt_yaml_node *mapping = NULL;
    vt_yaml_entry *entries = NULL;
    size_t count = 0;
    if (config->yaml_config == NULL) config->yaml_config = find_default_file();
    VT_CHECK(config->yaml_config != NULL, "there is no config/ViT.yaml here, nor beside the program; name a file of "
                                          "configurations with --yaml_config=PATH");
    VT_TRY(vt_yaml_open(config->yaml_config, &yaml));
    VT_TRY(find_configuration(config, yaml, &mapping));
    VT_TRY(vt_yaml_entries(yaml, mapping, &entries, &count));
    for (int aliases = 0; aliases < 2; aliases++) { /* after all others: what an alias says depends on its target */
        for (size_t i = 0; i < count; i++) VT_TRY(apply_key(config, presets, yaml, &entries[i], aliases == 1));
    }
done:
    free(entries);
    vt_yaml_close(&yaml);
    return status;
}

/* ---- the configuration ---- */

static vt_config *make_default(void)
{
    vt_config *config = calloc(1, sizeof *config);
    VT_ASSERT(config != NULL);
    config->ranks = config->data_parallel = 1;
    for (size_t i = 0; i < vt_row_count; i++) {
        const vt_row *row = &vt_rows[i];
        if (row->kind == VT_ROW_SECTION || row->kind == VT_ROW_ALIAS) continue;
        VT_ASSERT(vt_row_assign(row, row->preset, config, VT_FROM_DEFAULT) == VT_OK);
    }
    return config;
}

vt_status vt_config_open(int argument_count, char *const *arguments, int64_t ranks, vt_config **result)
{
    vt_status status = VT_OK;
    vt_config *config = make_default(), *presets = make_default();
    config->ranks = ranks;
    VT_TRY(vt_flags_apply(config, argument_count, arguments)); /* says which file and which configuration */
    VT_TRY(apply_named_configuration(config, presets));
    VT_TRY(vt_flags_apply(config, argument_count, arguments)); /* and flags win */
    VT_TRY(vt_config_resolve(config));
done:
    vt_config_close(&presets);
    if (status != VT_OK) vt_config_close(&config);
    *result = config;
    return status;
}

vt_status vt_config_open_default(vt_config **result)
{
    vt_config *config = make_default();
    vt_status status = vt_config_resolve(config);
    if (status != VT_OK) vt_config_close(&config);
    *result = config;
    return status;
}

void vt_config_close(vt_config **config)
{
    if (*config == NULL) return;
    for (size_t i = 0; i < vt_row_count; i++) {
        if (vt_rows[i].kind == VT_ROW_PATH) free(*(char **)((char *)*config + vt_rows[i].offset));
    }
    free(*config);
    *config = NULL;
}

vt_status vt_config_set(vt_config *config, const char *name, const char *value)
{
    char *flag = vt_text_format("--%s=%s", name, value);
    char *const arguments[] = {flag};
    vt_status status = vt_flags_apply(config, 1, arguments);
    free(flag);
    return status;
}
