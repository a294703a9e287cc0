/* Which options are for the kinds (of model, task, source, …) that a configuration chooses, and which kinds go
 * together.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/option.h"

const vt_row *vt_row_section(const vt_row *row)
{
    while (row->kind != VT_ROW_SECTION && row->kind != VT_ROW_END) row--;
    return row->kind == VT_ROW_SECTION ? row : NULL;
}

static void format_chosen(const vt_row *section, const void *values, vt_text *text)
{
    vt_row_format(vt_row_beside(section, section->target), values, text);
}

bool vt_row_belongs(const vt_row *row, const void *values)
{
    const vt_row *section = vt_row_section(row);
    if (section == NULL || section->target == NULL) return true;
    vt_text chosen = {0};
    format_chosen(section, values, &chosen);
    const bool belongs = vt_words_among(chosen.characters, section->choices, NULL) > 0;
    vt_text_close(&chosen);
    return belongs;
}

bool vt_row_is_default(const vt_row *row, const vt_config *config)
{
    vt_config *presets = vt_allocate(1, sizeof *presets, "the configuration");
    vt_text value = {0}, preset = {0};
    VT_ASSERT(vt_row_assign(row, row->preset, presets, VT_FROM_DEFAULT) == VT_OK);
    vt_row_format(row, config, &value);
    vt_row_format(row, presets, &preset);
    const bool same = strcmp(value.characters, preset.characters) == 0;
    vt_text_close(&value);
    vt_text_close(&preset);
    vt_config_close(&presets);
    return same;
}

vt_status vt_row_check_scope(const vt_row *row, const void *values)
{
    vt_status status = VT_OK;
    vt_text value = {0}, chosen = {0};
    if (!vt_row_is_option(row) || vt_row_belongs(row, values)) goto done;
    const vt_origin origin = *vt_row_origin(row, values);
    const vt_row *section = vt_row_section(row);
    const bool flag = origin == VT_FROM_COMMAND_LINE;
    if (origin == VT_FROM_DEFAULT || (!flag && vt_row_is_default(row, values))) goto done;
    vt_row_format(row, values, &value);
    format_chosen(section, values, &chosen);
    VT_FAIL("%s%s%s%.200s is an option of %s %s, but %s is %s; leave it out%s, or choose --%s=%.*s", flag ? "--" : "",
            row->name, flag ? "=" : ": ", value.characters, section->target, section->choices, section->target,
            chosen.characters, flag ? "" : " of the configuration", section->target,
            (int)strcspn(section->choices, "|"), section->choices);
done:
    vt_text_close(&value);
    vt_text_close(&chosen);
    return status;
}

/* A task takes certain models, losses and sources. */
static vt_status check_task(const vt_config *config)
{
    vt_status status = VT_OK;
    static const char *const options[] = {"model", "loss", "source"};
#define TAKES(name, help, ...) {__VA_ARGS__},
    static const char *const taken[][3] = {VT_TASKS(TAKES)};
    char *task = vt_config_value_text(config, "task"), *word = NULL;
    int words = 0;
    for (int i = 0; i < 3; i++) {
        free(word);
        word = vt_config_value_text(config, options[i]);
        VT_CHECK(vt_words_among(word, taken[config->task][i], &words) == words,
                 "%s %s does not go with task %s, which takes %s", options[i], word, task, taken[config->task][i]);
    }
done:
    free(task);
    free(word);
    return status;
}

/* A source has certain readers. */
static vt_status check_loader(const vt_config *config)
{
    vt_status status = VT_OK;
#define SOURCES_OF(enumerator, word, sources) sources,
#define WORD_OF(enumerator, word, sources) word,
    static const char *const sources[] = {VT_LOADERS(SOURCES_OF)}, *const words[] = {VT_LOADERS(WORD_OF)};
    char *source = vt_config_value_text(config, "source");
    vt_text others = {0};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (vt_text_choice(source, sources[i]) >= 0)
            vt_text_append(&others, "%s%s", others.length > 0 ? ", " : "", words[i]);
    VT_CHECK(others.length == 0 || vt_text_choice(source, sources[config->data_loader_config]) >= 0,
             "data_loader_config %s: source %s has no such reader; use one of %s", words[config->data_loader_config],
             source, others.characters);
done:
    free(source);
    vt_text_close(&others);
    return status;
}

vt_status vt_config_check_kinds(const vt_config *config)
{
    const vt_status status = check_task(config);
    return status == VT_OK ? check_loader(config) : status;
}
