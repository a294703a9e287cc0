#include "config/fit.h"

#include <stdio.h>

#include "config/option.h"

/* Does the option belong to the model, or to its source? */
static bool has(const vt_config *config, const char *option)
{
    return vt_row_belongs(vt_row_find(vt_options, option), config);
}

bool vt_fit_heads(const vt_config *config)
{
    return !has(config, "num_heads") || config->embed_dim % config->num_heads == 0;
}

bool vt_fit_patch(const vt_config *config)
{
    return config->model != VT_MODEL_vit || config->pad != VT_PAD_NONE ||
           (config->img_size[0] % config->patch_size == 0 && config->img_size[1] % config->patch_size == 0);
}

bool vt_fit_tensor(const vt_config *config)
{
    return !has(config, "num_heads") || config->num_heads % config->tensor_parallel == 0;
}

int64_t vt_fit_tokens(const vt_config *config)
{
    const int64_t patch = config->patch_size;
    if (has(config, "seq_len")) return config->seq_len;
    return (config->img_size[0] + patch - 1) / patch * ((config->img_size[1] + patch - 1) / patch);
}

/* Spans of ceil(tokens / context) tokens, the last of which takes the rest; if nothing is left for it, spans of the
 * floor. */
int64_t vt_fit_shortest_span(const vt_config *config)
{
    int64_t total = vt_fit_tokens(config), parts = config->context_parallel;
    int64_t rest = total - (total + parts - 1) / parts * (parts - 1);
    return rest > 0 ? rest : total / parts;
}

bool vt_fit_context(const vt_config *config)
{
    return !has(config, "num_heads") || config->context_parallel <= vt_fit_tokens(config);
}

bool vt_fit_sequence(const vt_config *config)
{
    return !has(config, "num_heads") || !config->sequence_parallel ||
           vt_fit_shortest_span(config) >= config->tensor_parallel;
}

int64_t vt_config_model_ranks(const vt_config *config)
{
    return config->tensor_parallel * config->context_parallel * config->pipeline_parallel;
}

static int64_t data_ranks(const vt_config *config)
{
    return config->ranks / vt_config_model_ranks(config);
}

bool vt_fit_ranks(const vt_config *config)
{
    return data_ranks(config) * vt_config_model_ranks(config) == config->ranks;
}

bool vt_fit_batch(const vt_config *config)
{
    return config->global_batch_size % data_ranks(config) == 0;
}

bool vt_fit_accumulation(const vt_config *config)
{
    return config->global_batch_size / data_ranks(config) % config->grad_accumulation == 0;
}

static bool fits(const vt_config *config)
{
    return vt_fit_heads(config) && vt_fit_patch(config) && vt_fit_tensor(config) && vt_fit_ranks(config) &&
           vt_fit_context(config) && vt_fit_sequence(config) && vt_fit_batch(config) && vt_fit_accumulation(config);
}

static const char *either(int64_t below, int64_t above, char text[64])
{
    if (below > 0 && above > 0)
        snprintf(text, 64, "%ld or %ld", below, above);
    else
        snprintf(text, 64, "%ld", below > 0 ? below : above);
    return text;
}

/* How far the search goes: to the end of the option's range, or beyond `own` by more ranks than anyone would start. */
static int64_t most_of(size_t offset, int64_t own)
{
    enum { FARTHEST = 1 << 16 };
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++)
        if (row->kind == VT_ROW_INTEGER && row->offset == offset) return (int64_t)fmin(row->most, 0x1p62);
    return own + FARTHEST;
}

static bool satisfies(vt_config *changed, vt_fit *rule)
{
    if (!vt_fit_ranks(changed)) return false;
    if (changed->local_batch_size != VT_UNSET_INTEGER)
        changed->global_batch_size = changed->local_batch_size * data_ranks(changed);
    return rule(changed);
}

const char *vt_fit_nearest(const vt_config *config, size_t offset, vt_fit *rule, char text[64])
{
    vt_config changed = *config; /* its strings stay the configuration's */
    int64_t *value = (int64_t *)((char *)&changed + offset);
    const int64_t own = *value, most = most_of(offset, own);
    vt_fit *const rules[] = {fits, rule};
    for (int i = 0; i < 2; i++) {
        for (*value = own - 1; *value > 0 && !satisfies(&changed, rules[i]);) --*value;
        const int64_t below = *value;
        for (*value = own + 1; *value <= most && !satisfies(&changed, rules[i]);) ++*value;
        const int64_t above = *value <= most ? *value : 0;
        if (below > 0 || above > 0) return either(below, above, text);
    }
    return NULL;
}

const char *vt_fit_multiples(int64_t unit, int64_t number, char text[64])
{
    int64_t below = number - number % unit;
    return either(below, below + unit, text);
}
