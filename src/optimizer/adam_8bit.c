/* Adam and AdamW with moments in 8 bits (Dettmers et al. 2021). In 32 bits stay small tensors, which have little to
 * save, and tables of words, most of whose gradients are 0. */
#include <string.h>

#include "optimizer/kinds.h"

enum { SMALLEST = 4096 }; /* elements of the whole tensor */

static bool takes(const vt_parameter *parameter)
{
    int64_t elements = 1;
    for (int i = 0; i < parameter->dimensions; i++) elements *= parameter->shape[i];
    return elements >= SMALLEST && strcmp(parameter->name, "embed.weight") != 0;
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

static void update(vt_backend *backend, const vt_update *rule, const vt_step_state *state, const float *gradients,
                   float *values, uint16_t *rounded, void *const *states, int64_t count)
{
    backend->update_in_codes(backend, rule, state, gradients, values, rounded, states[0], states[1], states[2],
                             states[3], count);
}

#define IN_8_BITS(wide)                                                                                                \
    {                                                                                                                  \
        .name = #wide "8bit",                                                                                          \
        .states = {{"moment1", "first moment", VT_KEPT_SIGNED_CODES},                                                  \
                   {"moment2", "second moment", VT_KEPT_UNSIGNED_CODES}},                                              \
        .rule = {.kind = VT_OPTIMIZER_##wide}, .grain = grain, .takes = takes, .rest = &vt_optimizer_##wide,           \
        .configure = configure, .update = update                                                                       \
    }

const vt_optimizer_kind vt_optimizer_Adam8bit = IN_8_BITS(Adam), vt_optimizer_AdamW8bit = IN_8_BITS(AdamW);
