/* The losses that the operations of the back end compute (backend/loss_measure.h has their formulas). */
#include "loss/loss.h"

static void partials(const vt_compared *what)
{
    const vt_pass *pass = what->pass;
    pass->backend->loss_sums(pass->backend, what->kind->measure, pass->batch, what->prediction, what->target,
                             what->weights, what->sums);
}

static void backward(const vt_compared *what, float scale, const double *loss_scale, vt_matrix dprediction)
{
    const vt_pass *pass = what->pass;
    pass->backend->loss_backward(pass->backend, what->kind->measure, pass->batch, what->prediction, what->target,
                                 what->weights, what->sums, scale, loss_scale, dprediction);
}

static const char no_norm[] =
    "its target is 0 everywhere once it is normalised (every value is the mean or climatology that is subtracted), "
    "so its error relative to that (loss relative_l2) is infinite";

const vt_loss_kind vt_loss_relative_l2 = {
    .measure = VT_MEASURE_RELATIVE, .infinite = no_norm, .partials = partials, .backward = backward};
const vt_loss_kind vt_loss_mse = {.measure = VT_MEASURE_SQUARE, .partials = partials, .backward = backward};
const vt_loss_kind vt_loss_mae = {.measure = VT_MEASURE_ABSOLUTE, .partials = partials, .backward = backward};
