#include "config/stages.h"

#include <stdlib.h>
#include <string.h>

#include "config/option.h"

typedef enum { RATES, STEPS, LOSSES } stage_kind;

static const char *const expected[] = {
    [RATES] = "learning rates, each after so many epochs, like 1e-3@24, 7e-4@26",
    [STEPS] = "steps (1 to 1000), and after how many epochs, like 1, 4@24, 12@26",
    [LOSSES] = "losses, and after how many epochs, like mse, crps@24",
};

/* "12@26", of `length` characters; steps of forecast are whole numbers from 1 on, a loss is its place in VT_LOSSES. */
static bool parse_stage(const char *text, size_t length, stage_kind kind, vt_stage *stage)
{
    char word[64] = "", *at;
    if (length >= sizeof word) return false;
    memcpy(word, text, length);
    stage->epoch = 0;
    if ((at = strchr(word, '@')) != NULL) {
        *at = '\0';
        if (!vt_text_to_integer(at + 1, &stage->epoch) || stage->epoch < 0) return false;
    }
    if (kind == LOSSES) stage->value = vt_text_choice(word, &(VT_LOSSES(VT_KIND_WORD))[1]);
    if (kind == LOSSES) return stage->value >= 0;
    if (!vt_text_to_double(word, &stage->value)) return false;
    if (kind == RATES) return stage->value > 0 && isfinite(stage->value);
    return stage->value >= 1 && stage->value <= 1000 && stage->value == floor(stage->value);
}

/* Steps of forecast and losses begin with a value for the start; a restart of the learning rate always says when it is.
 */
static vt_status parse(const char *name, const char *text, stage_kind kind, vt_stages *stages)
{
    vt_status status = VT_OK;
    const char *rest = text, *word;
    size_t size;
    *stages = (vt_stages){0};
    if (text == NULL) return VT_OK;
    for (; (word = vt_text_next_word(&rest, &size)) != NULL; stages->count++) {
        const int length = (int)size;
        vt_stage *stage = &stages->stages[stages->count];
        VT_CHECK(stages->count < VT_MOST_STAGES, "%s '%s': more than %d stages", name, text, VT_MOST_STAGES);
        VT_CHECK(parse_stage(word, size, kind, stage), "%s '%s': '%.*s' is not one of %s", name, text, length, word,
                 expected[kind]);
        if (kind != RATES && stages->count == 0)
            VT_CHECK(stage->epoch == 0,
                     "%s '%s': the first value, '%.*s', must hold from the start on; write it without @", name, text,
                     length, word);
        else
            VT_CHECK(stage->epoch > (stages->count > 0 ? stage[-1].epoch : 0),
                     "%s '%s': '%.*s' must come after more epochs than the value before it", name, text, length, word);
    }
    VT_CHECK(stages->count > 0, "%s '%s': expected %s", name, text, expected[kind]);
done:
    return status;
}

vt_status vt_config_check_stages(const vt_config *config)
{
    vt_status status = VT_OK;
    vt_stages stages;
    VT_TRY(parse("rollout", config->rollout, STEPS, &stages));
    VT_TRY(parse("lr_restarts", config->lr_restarts, RATES, &stages));
    VT_TRY(parse("loss", config->loss, LOSSES, &stages));
done:
    return status;
}

/* Of an option that has been checked. */
static vt_stages stages_of(const char *text, stage_kind kind)
{
    vt_stages stages;
    VT_ASSERT(parse("", text, kind, &stages) == VT_OK);
    return stages;
}

vt_stages vt_config_rollout(const vt_config *config)
{
    return stages_of(config->rollout, STEPS);
}

vt_stages vt_config_restarts(const vt_config *config)
{
    vt_stages stages = stages_of(config->lr_restarts, RATES);
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

vt_stages vt_config_losses(const vt_config *config)
{
    return stages_of(config->loss, LOSSES);
}

int64_t vt_config_members(const vt_config *config)
{
    return vt_words_among(config->loss, "crps", NULL) > 0 ? config->ensemble_size : 1;
}

vt_status vt_config_scales(const vt_config *config, int64_t scales[VT_MOST_SCALES], int *count)
{
    vt_status status = VT_OK;
    const char *rest = config->crps_scales, *word;
    const int64_t *size = config->img_size;
    const bool whole = config->context_parallel == 1 && (config->tensor_parallel == 1 || !config->sequence_parallel);
    size_t length;
    for (*count = 0; (word = vt_text_next_word(&rest, &length)) != NULL; ++*count) {
        char *end = NULL;
        const int64_t scale = strtoll(word, &end, 10);
        VT_CHECK(*count < VT_MOST_SCALES, "crps_scales '%s': more than %d of them", config->crps_scales,
                 VT_MOST_SCALES);
        VT_CHECK(end == word + length && scale > 0 && size[0] % scale == 0 && size[1] % scale == 0,
                 "crps_scales '%s': '%.*s' does not divide the %ld×%ld points of the grid (img_size); expected sides "
                 "of blocks that do, like 1, 4",
                 config->crps_scales, (int)length, word, size[0], size[1]);
        VT_CHECK(whole || scale == 1,
                 "crps_scales '%s': with context_parallel, or tensor_parallel and sequence_parallel, blocks of points "
                 "would lie on several ranks; use --crps_scales=1, or leave context_parallel or sequence_parallel out",
                 config->crps_scales);
        scales[*count] = scale;
    }
    VT_CHECK(*count > 0, "crps_scales '%s': expected sides of blocks, like 1, 4", config->crps_scales);
done:
    return status;
}
