/* The mean absolute error of cosmological fields, and of the densities themselves (lambda_rho). */
#include "loss/loss.h"

static void partials(const vt_compared *what)
{
    const vt_pass *pass = what->pass;
    pass->backend->density_loss_sums(pass->backend, pass->density_weight, pass->batch, what->prediction, what->target,
                                     what->sums);
}

static void backward(const vt_compared *what, float scale, const double *loss_scale, vt_matrix dprediction)
{
    const vt_pass *pass = what->pass;
    pass->backend->density_loss_backward(pass->backend, pass->density_weight, pass->batch, what->prediction,
                                         what->target, scale, loss_scale, dprediction);
}

const vt_loss_kind vt_loss_l1 = {.measure = VT_MEASURE_ABSOLUTE, .partials = partials, .backward = backward};
