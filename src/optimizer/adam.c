/* Adam (Kingma, Ba 2015), and AdamW with decoupled weight decay (Loshchilov, Hutter 2019). */
#include "optimizer/kinds.h"

void vt_adam_configure(const vt_config *config, vt_update *rule)
{
    rule->beta1 = config->betas[0];
    rule->beta2 = config->betas[1];
    rule->epsilon = config->eps;
}

void vt_adam_update(vt_backend *backend, const vt_update *rule, const vt_step_state *state, const float *gradients,
                    float *values, uint16_t *rounded, const vt_kept_memory states[VT_OPTIMIZER_STATES], int64_t count)
{
    backend->update(backend, rule, state, gradients, values, rounded, states[0].numbers, states[1].numbers, count);
}

#define ADAM(name_)                                                                                                    \
    {                                                                                                                  \
        .name = #name_, .states = {{"moment1", "first moment"}, {"moment2", "second moment"}},                         \
        .rule = {.kind = VT_OPTIMIZER_##name_}, .configure = vt_adam_configure, .update = vt_adam_update               \
    }

const vt_optimizer_kind vt_optimizer_Adam = ADAM(Adam), vt_optimizer_AdamW = ADAM(AdamW);
