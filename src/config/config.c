#include "config/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "config/option.h"

/* ---- the named configuration of a YAML file ---- */

/* Beside the program; beside the directory that the program is in (./vitrain is a link into build/); or in
 * ../share/vitrain, as `make install` lays it out. */
char *vt_config_find(const char *below)
{
    if (access(below, F_OK) == 0) return vt_text_copy(below);
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return NULL;
    program[length] = '\0';
    for (int level = 0; level < 3; level++) {
        char *slash = level < 2 ? strrchr(program, '/') : NULL;
        if (slash != NULL) *slash = '\0';
        char *path = vt_text_format("%s/%s%s", program, level < 2 ? "" : "share/vitrain/", below);
        if (access(path, F_OK) == 0) return path;
        free(path);
    }
    return NULL;
}

/* An older name is ignored when it is off, or when the file sets its target to something other than the default: a
 * configuration may switch the older name on while the configuration that it merges holds the newer name, off. */
static bool alias_says_nothing(const vt_row *row, const vt_yaml_node *value, const vt_config *config)
{
    if (row->kind != VT_ROW_ALIAS || value->kind != VT_YAML_SCALAR) return false;
    const vt_row *target = vt_row_meant(row);
    const bool target_given = config->origin[target->id] == VT_FROM_YAML;
    bool on = true;
    if (row->target_value[0] == '\0') return target_given;
    if (!vt_boolean_parse(value->text, &on)) return false; /* an error, found when it is assigned */
    return !on || (target_given && !vt_row_is_default(target, config));
}

/* `name`: of the option; of a part of a mapping "map.part". */
static vt_status apply_value(vt_config *config, const vt_yaml_entry *entry, const char *name, bool aliases)
{
    vt_status status = VT_OK;
    const vt_row *row = vt_row_find(vt_options, name);
    char *advice = row == NULL ? vt_row_advice(vt_options, NULL, name, "") : NULL;
    VT_CHECK(row != NULL, "%s:%zu:%zu: unknown key '%.200s' in configuration '%.200s'%s ('vitrain options' lists all)",
             VT_YAML_PLACE(entry->key), name, config->config, advice);
    VT_CHECK(!row->flag_only, "%s:%zu:%zu: %s is a command-line flag (--%s), not a key of a configuration",
             VT_YAML_PLACE(entry->key), name, name);
    if ((row->kind == VT_ROW_ALIAS) == aliases && !alias_says_nothing(row, entry->value, config))
        VT_TRY(vt_row_read(row, entry->value, config));
done:
    free(advice);
    return status;
}

static vt_status apply_key(vt_config *config, const vt_yaml_entry *entry, bool aliases)
{
    vt_status status = VT_OK;
    const vt_yaml_node *parts = entry->value;
    const char *name = entry->key->text;
    if (parts->kind != VT_YAML_MAPPING || !vt_row_has_parts(name)) return apply_value(config, entry, name, aliases);
    VT_TRY(vt_yaml_entries(parts));
    for (size_t i = 0; i < parts->entry_count && status == VT_OK; i++) {
        char *part = vt_text_format("%s.%s", name, parts->entries[i].key->text);
        status = apply_value(config, &parts->entries[i], part, aliases);
        free(part);
    }
done:
    return status;
}

/* Where a run with a model looks for its configuration if no file is named. */
#define FILE_OF(name, help, file) file,
static const char *const model_files[] = {VT_MODELS(FILE_OF)};
enum { MODEL_FILES = sizeof model_files / sizeof model_files[0] };

/* The file of a model if it can be opened, else NULL. */
static vt_yaml *open_of_model(size_t model)
{
    vt_yaml *yaml = NULL;
    char *path = vt_config_find(model_files[model]);
    if (path == NULL || vt_yaml_open(path, NULL, VT_YAML_CONFIGURATIONS, &yaml) != VT_OK) vt_error_clear();
    free(path);
    return yaml;
}

/* Adds the names of the configurations in a file, each once. */
static void add_names(const vt_yaml *yaml, vt_names *names)
{
    const vt_yaml_node *top = vt_yaml_top(yaml);
    for (size_t i = 0; i < top->entry_count; i++) {
        const char *name = top->entries[i].key->text;
        bool is_new = top->entries[i].value->kind == VT_YAML_MAPPING;
        for (int64_t k = 0; k < names->count; k++) is_new = is_new && strcmp(names->names[k], name) != 0;
        if (is_new) vt_names_add(names, name);
    }
}

/* Where no flag names a file, those of all models were looked at. */
static vt_status no_such_configuration(const vt_config *config, const vt_yaml *yaml)
{
    vt_status status = VT_OK;
    const vt_yaml_node *top = vt_yaml_top(yaml);
    const bool named = config->origin[VT_OPTION_yaml_config] != VT_FROM_DEFAULT;
    vt_names list = {0};
    vt_text advice = {0};
    add_names(yaml, &list);
    for (size_t i = 0; i < top->entry_count && list.count == 0; i++)
        VT_CHECK(vt_row_find(vt_options, top->entries[i].key->text) == NULL,
                 "%s: its keys, such as %s, belong to no configuration; put a line `base:` above them, and indent them",
                 config->yaml_config, top->entries[i].key->text);
    if (!named) VT_TRY(vt_config_names(NULL, &list));
    const char *nearest = vt_text_nearest(config->config, (const char *const *)list.names, (size_t)list.count);
    if (nearest != NULL) vt_text_append(&advice, "did you mean '%s'? (", nearest);
    for (int64_t i = 0; i < list.count && named; i++)
        vt_text_append(&advice, i == 0 ? "it holds %s" : ", %s", list.names[i]);
    if (list.count == 0)
        vt_text_append(&advice, "it holds none");
    else if (!named)
        vt_text_append(&advice, "`vitrain options --configurations` lists all");
    VT_FAIL("--config=%s: no such configuration in %s; %s%s", config->config,
            named ? config->yaml_config : "the files of the models", advice.characters, nearest != NULL ? ")" : "");
done:
    vt_text_close(&advice);
    vt_names_close(&list);
    return status;
}

/* An option beside the configurations would be set for none of them. One that an alias refers to is used there. */
static vt_status check_beside(const vt_yaml_node *top, const vt_yaml_entry *chosen)
{
    vt_status status = VT_OK;
    for (size_t i = 0; i < top->entry_count; i++) {
        const vt_yaml_node *key = top->entries[i].key, *value = top->entries[i].value;
        const bool is_option =
            value->kind == VT_YAML_MAPPING ? vt_row_has_parts(key->text) : vt_row_find(vt_options, key->text) != NULL;
        VT_CHECK(
            !is_option || value->has_alias || key == chosen->key,
            "%s:%zu:%zu: the option '%s' is beside the configurations, so none of them has it; indent it below the "
            "name of its configuration (%s:)",
            VT_YAML_PLACE(key), key->text, chosen->key->text);
    }
done:
    return status;
}

/* Opens the file that the flags name; else the model's, or another model's if only that one has the configuration. */
static vt_status open_file(vt_config *config, vt_yaml **yaml)
{
    vt_status status = VT_OK;
    const char *file = model_files[vt_config_model_of(config)];
    const bool named = config->yaml_config != NULL, chosen = config->origin[VT_OPTION_config] != VT_FROM_DEFAULT;
    if (!named) config->yaml_config = vt_config_find(file);
    VT_CHECK(config->yaml_config != NULL,
             "there is no %s here, nor beside the program; name a file of configurations with --yaml_config=PATH",
             file);
    VT_TRY(vt_yaml_open(config->yaml_config, NULL, VT_YAML_CONFIGURATIONS, yaml));
    if (named || !chosen || vt_yaml_find(vt_yaml_top(*yaml), config->config) != NULL) goto done;
    for (size_t i = 0; i < MODEL_FILES; i++) {
        vt_yaml *other = open_of_model(i);
        if (other != NULL && vt_yaml_find(vt_yaml_top(other), config->config) != NULL) {
            vt_yaml_close(yaml);
            *yaml = other;
            free(config->yaml_config);
            config->yaml_config = vt_text_copy(vt_yaml_top(other)->path);
            goto done;
        }
        vt_yaml_close(&other);
    }
done:
    return status;
}

/* Opens a text, which holds one configuration. */
static vt_status open_text(vt_config *config, const char *text, const char *text_name, vt_yaml **yaml)
{
    vt_status status = VT_OK;
    VT_CHECK(config->origin[VT_OPTION_config] == VT_FROM_DEFAULT &&
                 config->origin[VT_OPTION_yaml_config] == VT_FROM_DEFAULT,
             "--config and --yaml_config don't go with %s, which has a configuration of its own; flags change its keys",
             text_name);
    VT_TRY(vt_yaml_open(text_name, text, VT_YAML_CONFIGURATIONS, yaml));
    const vt_yaml_node *top = vt_yaml_top(*yaml);
    VT_CHECK(top->entry_count == 1, "%s: its configuration should be one mapping, found %zu", text_name,
             top->entry_count);
    free(config->config);
    config->config = vt_text_copy(top->entries[0].key->text);
done:
    return status;
}

/* Applies the configuration in `text`, or in a file if `text` is NULL. */
static vt_status apply_named_configuration(vt_config *config, const char *text, const char *text_name)
{
    vt_status status = VT_OK;
    vt_yaml *yaml = NULL;
    char found[96];
    VT_TRY(text != NULL ? open_text(config, text, text_name, &yaml) : open_file(config, &yaml));
    const vt_yaml_entry *entry = vt_yaml_find(vt_yaml_top(yaml), config->config);
    if (entry == NULL) {
        status = no_such_configuration(config, yaml);
        goto done;
    }
    VT_TRY(check_beside(vt_yaml_top(yaml), entry));
    const vt_yaml_node *keys = entry->value;
    VT_CHECK(keys->kind == VT_YAML_MAPPING, "%s:%zu:%zu: configuration '%s' should be a mapping of keys, found %s",
             VT_YAML_PLACE(entry->key), config->config, vt_yaml_describe(keys, found));
    VT_TRY(vt_yaml_entries(keys));
    for (int aliases = 0; aliases < 2; aliases++) { /* last, as their effect depends on their targets */
        for (size_t i = 0; i < keys->entry_count; i++) VT_TRY(apply_key(config, &keys->entries[i], aliases == 1));
    }
done:
    vt_yaml_close(&yaml);
    return status;
}

/* ---- the configuration ---- */

static vt_config *make_default(void)
{
    vt_config *config = vt_allocate(1, sizeof *config, "the configuration");
    config->ranks = config->data_parallel = 1;
    vt_rows_start(vt_options, config);
    return config;
}

vt_status vt_config_read(const char *text, const char *text_name, int argument_count, char *const *arguments,
                         int64_t ranks, vt_config **result)
{
    vt_status status = VT_OK;
    vt_config *config = make_default();
    config->ranks = ranks;
    VT_TRY(vt_flags_apply(config, argument_count, arguments)); /* for the names of file and configuration */
    VT_TRY(apply_named_configuration(config, text, text_name));
    VT_TRY(vt_flags_apply(config, argument_count, arguments)); /* and flags win */
done:
    if (status != VT_OK) vt_config_close(&config);
    *result = config;
    return status;
}

vt_status vt_config_open(int argument_count, char *const *arguments, int64_t ranks, vt_config **config)
{
    return vt_config_open_text(NULL, NULL, argument_count, arguments, ranks, config);
}

vt_status vt_config_open_text(const char *text, const char *text_name, int argument_count, char *const *arguments,
                              int64_t ranks, vt_config **config)
{
    vt_status status = VT_OK;
    VT_TRY(vt_config_read(text, text_name, argument_count, arguments, ranks, config));
    VT_TRY(vt_config_resolve(*config));
done:
    if (status != VT_OK) vt_config_close(config);
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
    vt_rows_free(vt_options, *config);
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

vt_status vt_config_names(const char *path, vt_names *names)
{
    vt_status status = VT_OK;
    vt_config *config = make_default();
    vt_yaml *yaml = NULL;
    if (path != NULL) VT_TRY(vt_config_set(config, "yaml_config", path));
    VT_TRY(open_file(config, &yaml));
    add_names(yaml, names);
    for (size_t i = 0; i < MODEL_FILES && path == NULL; i++) {
        vt_yaml_close(&yaml);
        yaml = open_of_model(i);
        if (yaml != NULL) add_names(yaml, names);
    }
done:
    vt_yaml_close(&yaml);
    vt_config_close(&config);
    return status;
}
