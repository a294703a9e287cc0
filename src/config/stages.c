#include "config/stages.h"

#include <string.h>

#include "base/text.h"

/* "12@26", of `length` characters; steps of forecast are whole numbers from 1 on. */
static bool parse_stage(const char *text, size_t length, bool are_steps, vt_stage *stage)
{
    char word[64] = "", *at;
    if (length >= sizeof word) return false;
    memcpy(word, text, length);
    stage->epoch = 0;
    if ((at = strchr(word, '@')) != NULL) {
        *at = '\0';
        if (!vt_text_to_integer(at + 1, &stage->epoch) || stage->epoch < 0) return false;
    }
    if (!vt_text_to_double(word, &stage->value)) return false;
    if (!are_steps) return stage->value > 0 && isfinite(stage->value);
    return stage->value >= 1 && stage->value <= 1000 && stage->value == floor(stage->value);
}

/* Steps of forecast begin with a value for the start; a restart of the learning rate always says when it is. */
static vt_status parse(const char *name, const char *text, bool are_steps, vt_stages *stages)
{
    vt_status status = VT_OK;
    const char *expected = are_steps ? "steps (1 to 1000), and after how many epochs, like 1, 4@24, 12@26"
                                     : "learning rates, each after so many epochs, like 1e-3@24, 7e-4@26";
    const char *rest = text, *word;
    size_t size;
    *stages = (vt_stages){0};
    if (text == NULL) return VT_OK;
    for (; (word = vt_text_next_word(&rest, &size)) != NULL; stages->count++) {
        const int length = (int)size;
        vt_stage *stage = &stages->stages[stages->count];
        VT_CHECK(stages->count < VT_MOST_STAGES, "%s '%s': more than %d stages", name, text, VT_MOST_STAGES);
        VT_CHECK(parse_stage(word, size, are_steps, stage), "%s '%s': '%.*s' is not one of %s", name, text, length,
                 word, expected);
        if (are_steps && stages->count == 0)
            VT_CHECK(stage->epoch == 0,
                     "%s '%s': the first value, '%.*s', must hold from the start on; write it without @", name, text,
                     length, word);
        else
            VT_CHECK(stage->epoch > (stages->count > 0 ? stage[-1].epoch : 0),
                     "%s '%s': '%.*s' must come after more epochs than the value before it", name, text, length, word);
    }
    VT_CHECK(stages->count > 0, "%s '%s': expected %s", name, text, expected);
done:
    return status;
}

vt_status vt_config_check_stages(const vt_config *config)
{
    vt_status status = VT_OK;
    vt_stages stages;
    VT_TRY(parse("rollout", config->rollout, true, &stages));
    VT_TRY(parse("lr_restarts", config->lr_restarts, false, &stages));
done:
    return status;
}

vt_stages vt_config_rollout(const vt_config *config)
{
    vt_stages stages;
    VT_ASSERT(parse("rollout", config->rollout, true, &stages) == VT_OK);
    return stages;
}

vt_stages vt_config_restarts(const vt_config *config)
{
    vt_stages stages;
    VT_ASSERT(parse("lr_restarts", config->lr_restarts, false, &stages) == VT_OK);
    for (int i = 0; i < stages.count; i++)
        stages.stages[i].value = vt_config_scaled_rate(config, stages.stages[i].value);
    return stages;
}

double vt_stages_at(const vt_stages *stages, int64_t epoch)
{
    double value = 1;
    for (int i = 0; i < stages->count && stages->stages[i].epoch <= epoch; i++) value = stages->stages[i].value;
    return value;
}

int64_t vt_config_longest_rollout(const vt_config *config)
{
    const vt_stages stages = vt_config_rollout(config);
    double most = 1;
    for (int i = 0; i < stages.count; i++) most = fmax(most, stages.stages[i].value);
    return (int64_t)most;
}
