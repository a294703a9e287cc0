/* The mean absolute error of cosmological fields, and of the densities themselves (lambda_rho). */
#include "loss/loss.h"

static void partials(const vt_loss_kind *loss, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                     vt_matrix weights, double *sums)
{
    (void)loss, (void)weights;
    pass->backend->density_loss_sums(pass->backend, pass->density_weight, pass->batch, prediction, target, sums);
}

static void backward(const vt_loss_kind *loss, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                     vt_matrix weights, double *sums, float scale, const double *loss_scale, vt_matrix dprediction)
{
    (void)loss, (void)weights, (void)sums;
    pass->backend->density_loss_backward(pass->backend, pass->density_weight, pass->batch, prediction, target, scale,
                                         loss_scale, dprediction);
}

const vt_loss_kind vt_loss_l1 = {
    .sums = 2, .measure = VT_MEASURE_ABSOLUTE, .partials = partials, .finish = vt_loss_finish, .backward = backward};
