#include "config/stages.h"

#include <string.h>

#include "base/text.h"

static const char separators[] = "[], \t\n'\"";

/* "12@26", of a rollout whole numbers of at least 1 alone. */
static bool parse_stage(const char *word, bool whole, vt_stage *stage)
{
    char value[64] = "";
    const size_t length = strcspn(word, "@");
    if (length >= sizeof value) return false;
    memcpy(value, word, length);
    stage->epoch = 0;
    if (!vt_text_to_double(value, &stage->value)) return false;
    if (word[length] == '@' && (!vt_text_to_integer(word + length + 1, &stage->epoch) || stage->epoch < 0))
        return false;
    if (!whole) return stage->value > 0 && isfinite(stage->value);
    return stage->value >= 1 && stage->value <= 1000 && stage->value == floor(stage->value);
}

/* first_at_start: the first value holds from the start on; else each value says from when. */
static vt_status parse(const char *name, const char *text, bool whole, bool first_at_start, vt_stages *stages)
{
    vt_status status = VT_OK;
    const char *expected = whole ? "steps, and after how many epochs, like 1, 4@24, 12@26"
                                 : "learning rates, each after so many epochs, like 1e-3@24, 7e-4@26";
    *stages = (vt_stages){0};
    if (text == NULL) return VT_OK;
    for (const char *at = text + strspn(text, separators); *at != '\0'; at += strspn(at, separators)) {
        char word[64] = "";
        const size_t length = strcspn(at, separators);
        vt_stage *stage = &stages->stages[stages->count];
        VT_CHECK(stages->count < VT_MOST_STAGES, "%s '%s': more than %d stages", name, text, VT_MOST_STAGES);
        if (length < sizeof word) memcpy(word, at, length);
        VT_CHECK(parse_stage(word, whole, stage), "%s '%s': '%.*s' is not one of %s", name, text, (int)length, at,
                 expected);
        const bool starts = first_at_start && stages->count == 0;
        const int64_t before = stages->count > 0 ? stage[-1].epoch : 0;
        VT_CHECK(starts ? stage->epoch == 0 : stage->epoch > before,
                 starts ? "%s '%s': the first value, '%.*s', must hold from the start on; write it without @"
                        : "%s '%s': '%.*s' must come after more epochs than the value before it",
                 name, text, (int)length, at);
        stages->count++;
        at += length;
    }
    VT_CHECK(stages->count > 0, "%s '%s': expected %s", name, text, expected);
done:
    return status;
}

vt_status vt_config_check_stages(const vt_config *config)
{
    vt_status status = VT_OK;
    vt_stages stages;
    VT_TRY(parse("rollout", config->rollout, true, true, &stages));
    VT_TRY(parse("lr_restarts", config->lr_restarts, false, false, &stages));
done:
    return status;
}

vt_stages vt_config_rollout(const vt_config *config)
{
    vt_stages stages;
    VT_ASSERT(parse("rollout", config->rollout, true, true, &stages) == VT_OK);
    return stages;
}

vt_stages vt_config_restarts(const vt_config *config)
{
    vt_stages stages;
    VT_ASSERT(parse("lr_restarts", config->lr_restarts, false, false, &stages) == VT_OK);
    for (int i = 0; i < stages.count; i++) stages.stages[i].value *= vt_config_learning_rate(config) / config->lr;
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
