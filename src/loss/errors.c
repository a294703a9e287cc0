/* The losses that the operations of the back end compute (backend/loss_measure.h has their formulas). */
#include "loss/loss.h"

static void partials(const vt_loss_kind *loss, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                     vt_matrix weights, double *sums)
{
    pass->backend->loss_sums(pass->backend, loss->measure, pass->batch, prediction, target, weights, sums);
}

static void backward(const vt_loss_kind *loss, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                     vt_matrix weights, double *sums, float scale, const double *loss_scale, vt_matrix dprediction)
{
    pass->backend->loss_backward(pass->backend, loss->measure, pass->batch, prediction, target, weights, sums, scale,
                                 loss_scale, dprediction);
}

static const char no_norm[] =
    "its target is 0 everywhere once it is normalised (every value is the mean or climatology that is subtracted), "
    "so its error relative to that (loss relative_l2) is infinite";

#define LOSS(measure_, infinite_)                                                                                      \
    {                                                                                                                  \
        .sums = 2, .measure = measure_, .infinite = infinite_, .partials = partials, .finish = vt_loss_finish,         \
        .backward = backward                                                                                           \
    }

const vt_loss_kind vt_loss_relative_l2 = LOSS(VT_MEASURE_RELATIVE, no_norm);
const vt_loss_kind vt_loss_mse = LOSS(VT_MEASURE_SQUARE, NULL);
const vt_loss_kind vt_loss_mae = LOSS(VT_MEASURE_ABSOLUTE, NULL);
