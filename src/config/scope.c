/* Which options are for the kinds (of model, task, source, …) that a configuration chooses. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/option.h"

const vt_row *vt_row_section(const vt_row *row)
{
    while (row->kind != VT_ROW_SECTION) row--;
    return row;
}

static void format_chosen(const vt_row *section, const vt_config *config, vt_text *text)
{
    vt_row_format(vt_row_find(section->target), config, text);
}

bool vt_row_belongs(const vt_row *row, const vt_config *config)
{
    const vt_row *section = vt_row_section(row);
    if (section->target == NULL) return true;
    vt_text chosen = {0};
    format_chosen(section, config, &chosen);
    const bool belongs = vt_text_choice(chosen.characters, section->choices) >= 0;
    vt_text_close(&chosen);
    return belongs;
}

static bool is_default(const vt_row *row, const vt_config *config)
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

vt_status vt_row_check_scope(const vt_row *row, const vt_config *config)
{
    vt_status status = VT_OK;
    vt_text value = {0}, chosen = {0};
    if (!vt_row_is_option(row) || config->origin[row->id] == VT_FROM_DEFAULT || vt_row_belongs(row, config)) goto done;
    const vt_row *section = vt_row_section(row);
    const bool flag = config->origin[row->id] == VT_FROM_COMMAND_LINE;
    if (!flag && is_default(row, config)) goto done;
    vt_row_format(row, config, &value);
    format_chosen(section, config, &chosen);
    VT_FAIL("%s%s%s%.200s is an option of %s %s, but %s is %s; leave it out%s, or choose --%s=%.*s", flag ? "--" : "",
            row->name, flag ? "=" : ": ", value.characters, section->target, section->choices, section->target,
            chosen.characters, flag ? "" : " of the configuration", section->target,
            (int)strcspn(section->choices, "|"), section->choices);
done:
    vt_text_close(&value);
    vt_text_close(&chosen);
    return status;
}
