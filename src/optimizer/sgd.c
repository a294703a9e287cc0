/* Stochastic gradient descent, with or without momentum, as torch.optim.SGD defines it. */
#include "optimizer/kinds.h"

static void configure(const vt_config *config, vt_update *rule)
{
    rule->beta1 = config->momentum;
    rule->nesterov = config->nesterov;
}

/* With the momentum in the place of Adam's first moment, and no second one. */
#define SGD .name = "SGD", .rule = {.kind = VT_OPTIMIZER_SGD}, .configure = configure, .update = vt_adam_update

static const vt_optimizer_kind without_momentum = {SGD};

static const vt_optimizer_kind *variant(const vt_config *config)
{
    return config->momentum > 0 ? &vt_optimizer_SGD : &without_momentum;
}

const vt_optimizer_kind vt_optimizer_SGD = {SGD, .states = {{"moment1", "first moment", VT_KEPT_NUMBERS}},
                                            .variant = variant};
