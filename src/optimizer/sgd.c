/* Stochastic gradient descent with momentum, as torch.optim.SGD defines it. */
#include "optimizer/kinds.h"

static void update(vt_backend *backend, const vt_update *rule, const vt_step_state *state, const float *gradients,
                   float *values, void *const *states, int64_t count)
{
    backend->update(backend, rule, state, gradients, values, states[0], NULL, count);
}

const vt_optimizer_kind vt_optimizer_SGD = {.name = "SGD",
                                            .states = {{"moment1", "first moment", VT_FLOAT32, VT_BLOCK_MOMENTS}},
                                            .grain = 1,
                                            .rule = {.kind = VT_OPTIMIZER_SGD, .beta1 = 0.9},
                                            .update = update};
