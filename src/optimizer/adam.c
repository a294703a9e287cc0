/* Adam (Kingma, Ba 2015), and AdamW with decoupled weight decay (Loshchilov, Hutter 2019). */
#include "optimizer/kinds.h"

void vt_adam_configure(const vt_config *config, vt_update *rule)
{
    rule->beta1 = config->betas[0];
    rule->beta2 = config->betas[1];
    rule->epsilon = config->eps;
}

void vt_adam_update(vt_backend *backend, const vt_update *rule, const vt_step_state *state,
                    const vt_optimizer_span *own)
{
    backend->update(backend, rule, state, own->gradients, own->values, own->rounded, own->kept[0].numbers,
                    own->kept[1].numbers, own->count);
}

#define ADAM(name_)                                                                                                    \
    {                                                                                                                  \
        .name = #name_, .states = {{"moment1", "first moment"}, {"moment2", "second moment"}},                         \
        .rule = {.kind = VT_OPTIMIZER_##name_}, .configure = vt_adam_configure, .update = vt_adam_update               \
    }

const vt_optimizer_kind vt_optimizer_Adam = ADAM(Adam), vt_optimizer_AdamW = ADAM(AdamW);
