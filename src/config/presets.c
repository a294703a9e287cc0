/* The model that a configuration chooses, and the defaults that are its own. */
#include <string.h>

#include "config/option.h"

static const struct {
    const char *model, *option, *preset;
} presets[] = {
#define PRESET(model, option, preset) {#model, #option, preset},
    VT_MODEL_PRESETS(PRESET)};
enum { PRESETS = sizeof presets / sizeof presets[0] };

#define NAME(name, ...) #name,
static const char *const models[] = {VT_MODELS(NAME)};
enum { MODELS = sizeof models / sizeof models[0] };

/* The option's default for this model. */
static const char *preset_of(int model, const vt_row *row)
{
    if (row->id == VT_OPTION_model) return models[model];
    for (int i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].model, models[model]) == 0 && strcmp(presets[i].option, row->name) == 0)
            return presets[i].preset;
    return row->preset;
}

void vt_row_other_presets(const vt_row *row, const char *quote, vt_text *text)
{
    if (row != vt_row_find(vt_options, row->name) || !vt_row_is_option(row) || row->id == VT_OPTION_model) return;
    for (int model = 1; model < MODELS; model++) {
        const char *preset = preset_of(model, row);
        bool is_told = strcmp(preset, row->preset) == 0;
        for (int other = 1; other < model; other++) is_told = is_told || strcmp(preset_of(other, row), preset) == 0;
        if (is_told) continue;
        vt_text_append(text, "; %s", models[model]);
        for (int other = model + 1; other < MODELS; other++)
            if (strcmp(preset_of(other, row), preset) == 0) vt_text_append(text, ", %s", models[other]);
        vt_text_append(text, ": %s%s%s", quote, preset, quote);
    }
}

/* May the option be set with this model, and its own task, source and loss? */
static bool is_of(int model, const vt_row *row)
{
    const vt_row *section = vt_row_section(row);
    if (section->target == NULL) return true;
    return vt_text_choice(preset_of(model, vt_row_find(vt_options, section->target)), section->choices) >= 0;
}

/* Does it name a task, source or loss that is this model's own? */
static bool names_own(int model, const vt_row *row, const vt_config *config)
{
    vt_text value = {0};
    if (row->id != VT_OPTION_task && row->id != VT_OPTION_source && row->id != VT_OPTION_loss) return false;
    if (preset_of(model, row) == row->preset) return false;
    vt_row_format(row, config, &value);
    const bool names = strcmp(value.characters, preset_of(model, row)) == 0;
    vt_text_close(&value);
    return names;
}

vt_model_name vt_config_model_of(const vt_config *config)
{
    if (config->model != VT_MODEL_auto) return (vt_model_name)config->model;
    for (int model = 1; model < MODELS; model++)
        for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
            if (!vt_row_is_option(row) || row->id == VT_OPTION_model || config->origin[row->id] == VT_FROM_DEFAULT)
                continue;
            if ((is_of(model, row) && !is_of(0, row)) || names_own(model, row, config)) return (vt_model_name)model;
        }
    return 0;
}

void vt_config_take_presets(vt_config *config)
{
    if (config->origin[VT_OPTION_model] == VT_FROM_DEFAULT) config->model = VT_MODEL_auto;
    config->model = (int)vt_config_model_of(config);
    for (int i = 0; i < PRESETS; i++) {
        const vt_row *row = vt_row_find(vt_options, presets[i].option);
        if (config->origin[row->id] == VT_FROM_DEFAULT)
            VT_ASSERT(vt_row_assign(row, preset_of(config->model, row), config, VT_FROM_DEFAULT) == VT_OK);
    }
}
