/* Adam and AdamW with moments in 8 bits (Dettmers et al. 2021). In 32 bits stay small tensors, which have little to
 * save, and tables of words, most of whose gradients are 0. */
#include <string.h>

#include "optimizer/kinds.h"

enum { SMALLEST = 4096 }; /* elements of the whole tensor */

static vt_kept_form form(const vt_config *config, int state, const vt_parameter *parameter)
{
    (void)config;
    if (parameter->whole_count < SMALLEST || strcmp(parameter->name, "embed.weight") == 0) return VT_KEPT_NUMBERS;
    return state == 0 ? VT_KEPT_SIGNED_CODES : VT_KEPT_UNSIGNED_CODES;
}

static int64_t grain(const vt_config *config)
{
    return config->optimizer_block;
}

static void configure(const vt_config *config, vt_update *rule)
{
    vt_adam_configure(config, rule);
    rule->block = (int32_t)config->optimizer_block;
}

static void update(vt_backend *backend, const vt_update *rule, const vt_step_state *state, const vt_optimizer_span *own)
{
    const vt_kept_memory *kept = own->kept;
    if (kept[0].codes == NULL)
        vt_adam_update(backend, rule, state, own);
    else
        backend->update_in_codes(backend, rule, state, own->gradients, own->values, own->rounded, kept[0].codes,
                                 kept[0].scales, kept[1].codes, kept[1].scales, own->count);
}

#define IN_8_BITS(wide)                                                                                                \
    {                                                                                                                  \
        .name = #wide "8bit", .states = {{"moment1", "first moment"}, {"moment2", "second moment"}}, .form = form,     \
        .rule = {.kind = VT_OPTIMIZER_##wide}, .grain = grain, .configure = configure, .update = update                \
    }

const vt_optimizer_kind vt_optimizer_Adam8bit = IN_8_BITS(Adam), vt_optimizer_AdamW8bit = IN_8_BITS(AdamW);
