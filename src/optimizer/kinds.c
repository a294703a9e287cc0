#include "optimizer/kinds.h"

#include <string.h>

#define ROW(name, ...) [VT_OPTIMIZER_##name] = &vt_optimizer_##name,
const vt_optimizer_kind *const vt_optimizer_kinds[] = {VT_OPTIMIZERS(ROW)};

vt_kept_form vt_optimizer_form(const vt_config *config, int state, const vt_parameter *parameter)
{
    const vt_optimizer_kind *kind = vt_optimizer_kinds[config->optimizer];
    const bool keeps = state == VT_KEPT_AVERAGE ? !isnan(config->ema_decay) : kind->states[state].name != NULL;
    if (!keeps || parameter->frozen) return VT_KEPT_NOTHING;
    if (state == VT_KEPT_AVERAGE) return VT_KEPT_NUMBERS;
    return kind->form != NULL ? kind->form(config, state, parameter) : VT_KEPT_NUMBERS;
}

bool vt_optimizers_keep_the_same(const vt_config *a, const vt_config *b, const vt_parameter *parameter)
{
    const vt_optimizer_kind *of_a = vt_optimizer_kinds[a->optimizer], *of_b = vt_optimizer_kinds[b->optimizer];
    bool same = true;
    for (int i = 0; i < VT_OPTIMIZER_STATES && same; i++) {
        const bool keeps = vt_optimizer_form(a, i, parameter) != VT_KEPT_NOTHING;
        same = keeps == (vt_optimizer_form(b, i, parameter) != VT_KEPT_NOTHING) &&
               (!keeps || strcmp(of_a->states[i].name, of_b->states[i].name) == 0);
    }
    return same;
}
