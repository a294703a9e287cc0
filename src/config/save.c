/* The effective configuration as a YAML file, and as lines for the log. */
#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/memory.h"
#include "config/option.h"

static bool emit_text(yaml_emitter_t *emitter, const char *text, yaml_scalar_style_t style)
{
    yaml_event_t event;
    return yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text, -1, 1, 1, style) &&
           yaml_emitter_emit(emitter, &event);
}

/* "[1, 2]" as a sequence. */
static bool emit_pair(yaml_emitter_t *emitter, const char *text)
{
    yaml_event_t event;
    bool good = yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, YAML_FLOW_SEQUENCE_STYLE) &&
                yaml_emitter_emit(emitter, &event);
    for (int i = 0; i < 2; i++) {
        char number[VT_NUMBER_SIZE];
        text += strspn(text, "[, ");
        snprintf(number, sizeof number, "%.*s", (int)strcspn(text, ",]"), text);
        text += strlen(number);
        good = good && emit_text(emitter, number, YAML_PLAIN_SCALAR_STYLE);
    }
    return good && yaml_sequence_end_event_initialize(&event) && yaml_emitter_emit(emitter, &event);
}

/* Every key that a file may hold, with its value, but for those of kinds that are not chosen. Paths in double quotes,
 * the one style that can hold any character. */
static bool emit_keys(yaml_emitter_t *emitter, const vt_config *config)
{
    bool good = true;
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END && good; row++) {
        if (!vt_row_is_option(row) || row->flag_only || !vt_row_belongs(row, config)) continue;
        vt_text value = {0};
        vt_row_format(row, config, &value);
        bool quoted = row->kind == VT_ROW_PATH && !vt_row_is_unset(row, config);
        good = emit_text(emitter, row->name, YAML_PLAIN_SCALAR_STYLE);
        if ((row->kind == VT_ROW_PAIR || row->kind == VT_ROW_RANGE) && !vt_row_is_unset(row, config))
            good = good && emit_pair(emitter, value.characters);
        else
            good = good && emit_text(emitter, value.characters,
                                     quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE);
        vt_text_close(&value);
    }
    return good;
}

static bool emit_mapping(yaml_emitter_t *emitter, bool start)
{
    yaml_event_t event;
    return (start ? yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE)
                  : yaml_mapping_end_event_initialize(&event)) &&
           yaml_emitter_emit(emitter, &event);
}

static bool emit_file(yaml_emitter_t *emitter, const vt_config *config)
{
    yaml_event_t event;
    return yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) && yaml_emitter_emit(emitter, &event) &&
           yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1) && yaml_emitter_emit(emitter, &event) &&
           emit_mapping(emitter, true) && emit_text(emitter, config->config, YAML_ANY_SCALAR_STYLE) &&
           emit_mapping(emitter, true) && emit_keys(emitter, config) && emit_mapping(emitter, false) &&
           emit_mapping(emitter, false) && yaml_document_end_event_initialize(&event, 1) &&
           yaml_emitter_emit(emitter, &event) && yaml_stream_end_event_initialize(&event) &&
           yaml_emitter_emit(emitter, &event);
}

/* Whether all of it could be written. */
static bool write_file(const vt_config *config, FILE *file)
{
    yaml_emitter_t emitter;
    if (!yaml_emitter_initialize(&emitter)) vt_memory_exhausted(0, "the configuration as YAML");
    yaml_emitter_set_output_file(&emitter, file);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1); /* no folding */
    fputs("# The effective configuration of a run; --yaml_config reads it again.\n", file);
    bool emitted = emit_file(&emitter, config);
    VT_ASSERT(emitter.error != YAML_EMITTER_ERROR);
    /* an event that could not be made leaves no error in the emitter: only memory was missing */
    if (!emitted && emitter.error != YAML_WRITER_ERROR) vt_memory_exhausted(0, "the configuration as YAML");
    yaml_emitter_delete(&emitter);
    return emitted && fflush(file) == 0 && !ferror(file);
}

vt_status vt_config_save(const vt_config *config, const char *path)
{
    vt_status status = VT_OK;
    FILE *file = fopen(path, "we");
    VT_CHECK(file != NULL, "%s: the configuration can't be saved: %s", path, strerror(errno));
    VT_CHECK(write_file(config, file), "%s: the configuration can't be saved: %s", path, strerror(errno));
done:
    if (file != NULL && fclose(file) != 0 && status == VT_OK)
        status = vt_error_note(__FILE__, __LINE__, "%s: the configuration can't be saved: %s", path, strerror(errno));
    return status;
}

char *vt_config_text(const vt_config *config)
{
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    bool written = memory != NULL && write_file(config, memory);
    written = memory != NULL && fclose(memory) == 0 && written;
    if (!written) vt_memory_exhausted(length, "the configuration as text");
    return text;
}

char *vt_config_value_text(const vt_config *config, const char *option)
{
    const vt_row *row = vt_row_find(vt_options, option);
    vt_text text = {0};
    VT_ASSERT(row != NULL);
    vt_row_format(row, config, &text);
    char *copy = vt_text_copy(text.characters);
    vt_text_close(&text);
    return copy;
}

char *vt_config_flags_text(const vt_config *config)
{
    static const vt_option_id left_out[] = {VT_OPTION_yaml_config, VT_OPTION_config, VT_OPTION_run_num,
                                            VT_OPTION_verbose};
    vt_text text = {0};
    vt_text_append(&text, "%s", "");
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
        if (!vt_row_is_option(row)) continue;
        bool shown = config->origin[row->id] == VT_FROM_COMMAND_LINE;
        for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++) shown = shown && row->id != left_out[k];
        if (!shown) continue;
        vt_text_append(&text, " --%s=", row->name);
        vt_row_format(row, config, &text);
    }
    return text.characters;
}

void vt_config_print(const vt_config *config, void (*line)(const char *text, void *context), void *context)
{
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
        if (!vt_row_is_option(row) || !vt_row_belongs(row, config)) continue;
        vt_text text = {0};
        vt_text_append(&text, "%s: ", row->name);
        vt_row_format(row, config, &text);
        line(text.characters, context);
        vt_text_close(&text);
    }
}
