/* The effective configuration as a YAML file, and as lines for the log. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "config/option.h"

/* In double quotes, in which YAML takes any character; those that it doesn't take as they are, escaped. */
static void append_quoted(const char *value, vt_text *text)
{
    uint32_t character;
    vt_text_append(text, "\"");
    for (int bytes; *value != '\0'; value += bytes) {
        bytes = vt_text_decode(value, strlen(value), &character);
        VT_ASSERT(bytes > 0); /* values are UTF-8 */
        const bool is_blank = character == 0x2028 || character == 0x2029 || character >= 0xFEFF;
        if (character == '"' || character == '\\')
            vt_text_append(text, "\\%c", (char)character);
        else if (character < ' ' || (character >= 0x7F && character <= 0xA0) || (is_blank && character <= 0xFFFF))
            vt_text_append(text, "\\u%04X", (unsigned)character);
        else
            vt_text_append(text, "%.*s", bytes, value);
    }
    vt_text_append(text, "\"");
}

void vt_row_save(const vt_row *row, const vt_config *config, vt_text *yaml)
{
    vt_text value = {0};
    vt_row_format(row, config, &value);
    vt_text_append(yaml, "  %s: ", row->name);
    if (row->kind == VT_ROW_PATH && row->choices == NULL && !vt_row_is_unset(row, config))
        append_quoted(value.characters, yaml);
    else
        vt_text_append(yaml, "%s", value.characters);
    vt_text_append(yaml, "\n");
    vt_text_close(&value);
}

char *vt_config_text(const vt_config *config)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    vt_text text = {0};
    vt_text_append(&text, "# The effective configuration of a run; --yaml_config reads it again.\n");
    if (config->config[strspn(config->config, plain)] == '\0' && config->config[0] != '-')
        vt_text_append(&text, "%s", config->config);
    else
        append_quoted(config->config, &text);
    vt_text_append(&text, ":\n");
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++)
        if (vt_row_is_option(row) && !row->flag_only && vt_row_belongs(row, config)) vt_row_save(row, config, &text);
    return text.characters;
}

vt_status vt_config_save(const vt_config *config, const char *path)
{
    vt_status status = VT_OK;
    char *text = vt_config_text(config);
    FILE *file = fopen(path, "we");
    VT_CHECK(file != NULL && vt_file_close(file, fputs(text, file) >= 0), "%s: the configuration can't be saved: %s",
             path, strerror(errno));
done:
    free(text);
    return status;
}

char *vt_config_value_text(const vt_config *config, const char *option)
{
    const vt_row *row = vt_row_find(vt_options, option);
    vt_text text = {0};
    VT_ASSERT(row != NULL);
    vt_row_format(row, config, &text);
    return text.characters;
}

char *vt_config_flags_text(const vt_config *config)
{
    vt_text text = {0};
    vt_text_append(&text, "%s", "");
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
        if (!vt_row_is_option(row) || config->origin[row->id] != VT_FROM_COMMAND_LINE) continue;
        if (vt_text_choice(row->name, "yaml_config|config|run_num|verbose") >= 0) continue;
        vt_text_append(&text, " --%s=", row->name);
        vt_row_format(row, config, &text);
    }
    return text.characters;
}

vt_names vt_config_lines(const vt_config *config)
{
    vt_names lines = {0};
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
        if (!vt_row_is_option(row) || !vt_row_belongs(row, config)) continue;
        vt_text text = {0};
        vt_text_append(&text, "%s: ", row->name);
        vt_row_format(row, config, &text);
        vt_names_take(&lines, text.characters);
    }
    return lines;
}
