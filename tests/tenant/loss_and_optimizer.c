/* A loss and an optimizer that the product doesn't have: the rows twice_relative_l2 and descent of the tests' own
 * tables. They compute in the host's memory, which is the CPU back end's. */
#include <string.h>

#include "backend/half.h"
#include "loss/loss.h"
#include "optimizer/kinds.h"

extern const vt_loss_kind vt_loss_relative_l2;

/* The dry back end has no memory. */
static bool is_dry(const vt_backend *backend)
{
    return strcmp(backend->name, "dry") == 0;
}

/* The loss is the root of a quotient of two sums. */
static void partials(const vt_compared *what)
{
    vt_loss_relative_l2.partials(
        &(vt_compared){&vt_loss_relative_l2, what->pass, what->prediction, what->target, what->weights, what->sums});
    for (int64_t i = 0; i < what->pass->batch && !is_dry(what->pass->backend); i++) what->sums[VT_LOSS_SUMS * i] *= 4;
}

/* The sums are those of twice the loss, by which the gradient is divided once. */
static void backward(const vt_compared *what, float scale, const double *loss_scale, vt_matrix dprediction)
{
    vt_loss_relative_l2.backward(what, 4 * scale, loss_scale, dprediction);
}

const vt_loss_kind vt_loss_twice_relative_l2 = {
    .measure = VT_MEASURE_RELATIVE, .partials = partials, .backward = backward};

/* values -= learning rate * gradients. It keeps nothing from step to step. */
static void update(vt_backend *backend, const vt_update *rule, const vt_step_state *state, const vt_optimizer_span *own)
{
    if (is_dry(backend) || isnan(state->factor)) return;
    const float rate = (float)state->learning_rate * state->factor;
    for (int64_t i = 0; i < own->count; i++) own->values[i] -= rate * own->gradients[i];
    if (own->rounded != NULL) vt_half_round_row(rule->rounded, own->values, own->count, own->rounded);
}

const vt_optimizer_kind vt_optimizer_descent = {
    .name = "descent", .rule = {.kind = VT_OPTIMIZER_SGD}, .update = update};
