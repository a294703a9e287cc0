/* Stochastic gradient descent, with or without momentum, as torch.optim.SGD defines it. */
#include "optimizer/kinds.h"

static vt_kept_form form(const vt_config *config, int state, const vt_parameter *parameter)
{
    (void)state, (void)parameter;
    return config->momentum > 0 ? VT_KEPT_NUMBERS : VT_KEPT_NOTHING;
}

static void configure(const vt_config *config, vt_update *rule)
{
    rule->beta1 = config->momentum;
    rule->nesterov = config->nesterov;
}

/* With the momentum in the place of Adam's first moment, and no second one. */
const vt_optimizer_kind vt_optimizer_SGD = {.name = "SGD",
                                            .states = {{"moment1", "first moment"}},
                                            .form = form,
                                            .rule = {.kind = VT_OPTIMIZER_SGD},
                                            .configure = configure,
                                            .update = vt_adam_update};
